#include "interop/logs/judgement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/base/quantile.hpp"

namespace echelon {

namespace {

constexpr std::int64_t kFewestWindows = 3;
constexpr double kWarmUp = 1.05;
constexpr double kClockBelow = 0.9, kClockAbove = 1.25;
constexpr double kClockSeconds = 20;  // stamps of whole seconds: 5 % at worst
constexpr double kSameTokens = 0.005;

/// One line's time per step.
struct Window {
  const LoggedStep* step = nullptr;
  const LoggedStep* before = nullptr;  ///< the line before it in the same run
  double seconds = 0;
};

double middle_of(std::vector<double> values) {
  std::ranges::sort(values);
  return quantile(values, 0.5);
}

std::vector<double> seconds_of(const std::vector<Window>& windows) {
  std::vector<double> out;
  for (const Window& window : windows) out.push_back(window.seconds);
  return out;
}

/// Turns rates into seconds where a format prints no times.
class StepSeconds {
 public:
  StepSeconds(const LogFormat& format, const RunFacts& facts) : time_(format.time), facts_(facts) {}

  /// The columns without which there is no time.
  [[nodiscard]] std::vector<std::string> needs() const {
    std::vector<std::string> missing;
    const auto need = [&](const char* column) {
      if (!facts_.number(column)) missing.emplace_back(column);
    };
    if (time_ == StepTime::samples) need("global_batch");
    if (time_ == StepTime::tokens_of_model_gpu) {
      for (const char* column : {"seq", "global_batch", "gpus"}) need(column);
    }
    return missing;
  }

  [[nodiscard]] std::optional<double> of(const LoggedStep& step) const {
    if (step.seconds) return *step.seconds > 0 ? step.seconds : std::nullopt;
    const auto number = [&](const char* column) { return facts_.number(column).value_or(0); };
    double seconds = 0;
    if (time_ == StepTime::samples && step.samples_per_second) {
      seconds = number("global_batch") / *step.samples_per_second;
    } else if (time_ == StepTime::tokens_of_model_gpu && step.tokens_per_second_per_gpu) {
      // The rate has tp·cp·pp divided out: the tokens of the job over all GPUs and the rate.
      seconds = number("global_batch") * number("seq") /
                (number("gpus") * *step.tokens_per_second_per_gpu);
    }
    if (!(seconds > 0) || !std::isfinite(seconds)) return {};
    return seconds;
  }

 private:
  StepTime time_;
  const RunFacts& facts_;
};

class Judge {
 public:
  Judge(const TrainingLog& log, const RunFacts& facts) : log_(log), facts_(facts) {}

  StepJudgement judge() {
    out_.printed = static_cast<int>(std::min<std::int64_t>(log_.steps_printed, 1'000'000'000));
    out_.refused = untrusted();
    if (!out_.refused.empty()) return out_;
    // The first window of every run is lost whatever else is known.
    const auto runs = std::ranges::count_if(log_.steps, &LoggedStep::new_run);
    if (std::ssize(log_.steps) - runs < kFewestWindows) {
      out_.dropped.push_back(fmt::format("{} first of a run", runs));
      out_.refused = too_few(std::ssize(log_.steps) - runs);
      return out_;
    }
    const StepSeconds times(*log_.format, facts_);
    out_.needs = times.needs();
    if (!out_.needs.empty()) return out_;
    std::vector<Window> windows =
        log_.format->time == StepTime::clock ? windows_of_clock() : windows_of(times);
    drop_unusual(windows);
    drop_warm_up(windows);
    for (const auto& [reason, count] : dropped_) {
      out_.dropped.push_back(fmt::format("{} {}", count, reason));
    }
    if (std::ssize(windows) < kFewestWindows) {
      out_.refused = too_few(std::ssize(windows));
      return out_;
    }
    summarize(windows);
    return out_;
  }

 private:
  [[nodiscard]] std::string at_line(std::int64_t line) const {
    return fmt::format("{}, line {}", log_.path, line);
  }

  /// Reasons that lie in the log as a whole.
  [[nodiscard]] std::string untrusted() const {
    if (log_.retries) {
      return fmt::format(
          "the allocator had to free its cache and retry ({}: '{}'): steps of a job at the limit "
          "of "
          "its memory are not representative",
          at_line(log_.retries->line), log_.retries->text);
    }
    if (log_.generates) {
      return fmt::format(
          "the step generates text ({}: '{}'): generation, not training, takes its time",
          at_line(log_.generates->line), log_.generates->text);
    }
    if (!facts_.contradictions().empty()) {
      return "the log contradicts its configuration: " + facts_.contradictions().front();
    }
    const auto skips = [](const LoggedStep& step) { return step.skipped > 0; };
    if (std::ranges::all_of(log_.steps, skips)) {
      return fmt::format(
          "every step was skipped (first on line {}): the loss scale fell and no optimizer ran",
          log_.steps.front().line);
    }
    if (const std::string varied = two_sequences(); !varied.empty()) return varied;
    return variable_tokens();
  }

  [[nodiscard]] std::string two_sequences() const {
    const LoggedStep* first = nullptr;
    for (const LoggedStep& step : log_.steps) {
      if (!step.sequence) continue;
      if (first == nullptr) first = &step;
      if (*step.sequence != *first->sequence) {
        return fmt::format("two sequence lengths: {} tokens on line {} and {} on line {}",
                           *first->sequence, first->line, *step.sequence, step.line);
      }
    }
    return {};
  }

  /// Tokens of the steps between two lines, where the log counts them.
  [[nodiscard]] std::string variable_tokens() const {
    std::vector<double> tokens;
    const LoggedStep* before = nullptr;
    for (const LoggedStep& step : log_.steps) {
      if (step.new_run) before = nullptr;
      if (!step.consumed_tokens) continue;
      if (before != nullptr && step.step > before->step &&
          step.global_batch == before->global_batch) {
        tokens.push_back((*step.consumed_tokens - *before->consumed_tokens) /
                         static_cast<double>(step.step - before->step));
      }
      before = &step;
    }
    // Of numbers with three digits (nanotron), differences have none.
    if (std::ssize(tokens) < kFewestWindows || log_.format->suffixes) return {};
    const auto [least, most] = std::ranges::minmax(tokens);
    if (most <= least * (1 + kSameTokens)) return {};
    return fmt::format(
        "variable tokens: {:.0f} to {:.0f} tokens per step between lines {} and {}: the work of a "
        "step does not follow from shapes (pack the samples)",
        least, most, log_.steps.front().line, log_.steps.back().line);
  }

  void count(const std::string& reason) { ++dropped_[reason]; }

  std::vector<Window> windows_of(const StepSeconds& times) {
    std::vector<Window> windows;
    const LoggedStep* before = nullptr;
    bool second_dropped = true;
    for (const LoggedStep& step : log_.steps) {
      if (step.new_run) before = nullptr;
      const std::optional<double> seconds = times.of(step);
      if (!seconds) {
        count("without a time");
      } else if (before == nullptr) {
        count("first of a run");
        second_dropped = step.step > 1;
      } else if (!second_dropped && step.step > 2) {
        count("with the second step (compilation)");
        second_dropped = true;
      } else {
        second_dropped = true;
        windows.push_back({&step, before, *seconds});
      }
      if (seconds) before = &step;
    }
    return windows;
  }

  /// Steps of which only the elapsed time is printed, joined to windows of 20 s.
  std::vector<Window> windows_of_clock() {
    std::vector<Window> windows;
    const LoggedStep* begin = nullptr;
    bool event = false;
    for (const LoggedStep& step : log_.steps) {
      if (step.new_run) begin = nullptr;
      if (!step.clock) continue;
      event = event || step.event;
      if (begin != nullptr && step.step > begin->step) {
        const double passed = *step.clock - *begin->clock;
        if (passed < kClockSeconds) continue;
        const double steps = static_cast<double>(step.step - begin->step);
        if (begin->new_run) {
          count("first of a run");
        } else if (event) {
          count("with a checkpoint or an evaluation");
        } else {
          windows.push_back({&step, begin, passed / steps});
        }
      }
      begin = &step;
      event = false;
    }
    return windows;
  }

  void drop_unusual(std::vector<Window>& windows) {
    double batch = 0;  // ramp-up: the last one is the job's
    for (const Window& window : windows) batch = window.step->global_batch.value_or(batch);
    std::erase_if(windows, [&](const Window& window) {
      const LoggedStep& step = *window.step;
      std::string reason;
      if (log_.format->interval_has_events && step.event) {
        reason = "with a checkpoint or an evaluation";
      }
      if (step.skipped > 0) reason = "with a skipped step";
      if (step.global_batch.value_or(batch) != batch) reason = "of another global batch (ramp-up)";
      if (!reason.empty()) count(reason);
      return !reason.empty();
    });
    // A loader that starts anew in the middle: the step itself shows it.
    if (std::ssize(windows) < kFewestWindows) return;
    const double usual = middle_of(seconds_of(windows));
    std::erase_if(windows, [&](const Window& window) {
      const bool odd = window.step->event && window.seconds > kWarmUp * usual;
      if (odd) count("after a checkpoint or a change of data");
      return odd;
    });
  }

  void drop_warm_up(std::vector<Window>& windows) {
    while (std::ssize(windows) > kFewestWindows) {
      std::vector<double> rest = seconds_of(windows);
      rest.erase(rest.begin());
      if (windows.front().seconds <= kWarmUp * middle_of(rest)) break;
      windows.erase(windows.begin());
      count("at the beginning, slower than the rest (warm-up)");
    }
  }

  [[nodiscard]] std::string too_few(std::int64_t left) const {
    std::string text = fmt::format("too few steps: {} of {} printed are left, at least {} needed",
                                   left, log_.steps_printed, kFewestWindows);
    for (std::size_t i = 0; i < out_.dropped.size(); ++i) {
      text += (i == 0 ? "; dropped: " : ", ") + out_.dropped[i];
    }
    const LoggedStep* run = nullptr;
    for (const LoggedStep& step : log_.steps) {
      if (step.new_run && run != nullptr) {
        return text +
               fmt::format("; a second run begins on line {} with step {}", step.line, step.step);
      }
      if (step.new_run) run = &step;
    }
    return text;
  }

  void summarize(const std::vector<Window>& windows) {
    std::vector<double> seconds = seconds_of(windows);
    std::ranges::sort(seconds);
    const double median = quantile(seconds, 0.5);
    out_.windows = static_cast<int>(windows.size());
    out_.first_line = windows.front().step->line;
    out_.last_line = windows.back().step->line;
    out_.spread = (quantile(seconds, 0.75) - quantile(seconds, 0.25)) / median;
    const Window* nearest = &windows.front();
    for (const Window& window : windows) {
      if (std::abs(window.seconds - median) < std::abs(nearest->seconds - median)) {
        nearest = &window;
      }
    }
    out_.tokens_per_second_per_gpu = nearest->step->tokens_per_second_per_gpu;
    out_.tflops_per_gpu = nearest->step->tflops_per_gpu;
    compare_clocks(windows, median);
    if (out_.refused.empty()) out_.step = Seconds{median};
  }

  void compare_clocks(const std::vector<Window>& windows, double median) {
    if (log_.format->time == StepTime::clock) return;
    std::vector<double> gaps;
    for (const Window& window : windows) {
      gaps.push_back(static_cast<double>(window.step->step - window.before->step));
    }
    const double usual_gap = middle_of(gaps);
    double passed = 0, printed = 0;
    int compared = 0;
    for (const Window& window : windows) {
      const LoggedStep& before = *window.before;
      const auto steps = static_cast<double>(window.step->step - before.step);
      const bool cut = steps < 1 || steps > 3 * usual_gap;  // lines are missing between them
      if (!before.clock || !window.step->clock || cut || window.step->event) continue;
      passed += *window.step->clock - *before.clock;
      printed += window.seconds * steps;
      ++compared;
    }
    if (compared < kFewestWindows || passed < kClockSeconds) {
      if (log_.format->needs_stamps) {
        out_.refused =
            "samples per second is the only clock, and it sees part of an asynchronous step: no "
            "time stamps to check it by";
      }
      return;
    }
    const double wall = passed / printed * median;
    out_.wall = Seconds{wall};
    const double ratio = wall / median;
    if (ratio >= kClockBelow && ratio <= kClockAbove) return;
    out_.refused = fmt::format(
        "two clocks disagree: the printed step is {:.4g} s, the time stamps of lines {} to {} give "
        "{:.4g} s",
        median, out_.first_line, out_.last_line, wall);
  }

  const TrainingLog& log_;
  const RunFacts& facts_;
  StepJudgement out_;
  std::map<std::string, int> dropped_;
};

}  // namespace

StepJudgement judge_steps(const TrainingLog& log, const RunFacts& facts) {
  return Judge(log, facts).judge();
}

}  // namespace echelon
