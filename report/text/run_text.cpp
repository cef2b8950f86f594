// The measurements of a run versus its prediction.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/plan/process_grid.hpp"
#include "planner/economics.hpp"
#include "report/format.hpp"
#include "report/plan_diff.hpp"
#include "report/run.hpp"
#include "report/text/table.hpp"
#include "report/text/text.hpp"

namespace echelon {

namespace {

/// A loss or norm: diverging values need no decimals.
std::string figure(double value, int decimals) {
  constexpr double kHuge = 1e6;
  if (std::abs(value) < kHuge) return fmt::format("{:.{}f}", value, decimals);
  return fmt::format("{:.3g}", value);
}

/// "+3.1 %", or nothing without a value to compare with.
Cell error_cell(double predicted, double measured) {
  if (measured == 0 || predicted == 0) return {"", Paint::dim};
  const double error = predicted / measured - 1;
  constexpr double kGood = 0.1;
  return {signed_percent(error), std::abs(error) <= kGood ? Paint::good : Paint::warning};
}

std::string time_table(const RunReport& report, const TextStyle& style) {
  const Seconds step = report.measured->time.total();
  Table table(
      {{"", Table::Align::left, 0}, {"measured"}, {"predicted"}, {"of the step"}, {"error"}});
  for (const TimeDelta& row : part_deltas(report.measured->time, report.plan.predicted.time)) {
    table.add({std::string(row.name), duration(row.a), duration(row.b),
               row.name == "step" ? "" : percent(row.a / step),
               error_cell(row.b.in(kSecond), row.a.in(kSecond))});
  }
  return heading("Time of one step: measured and predicted", style) + table.text(style);
}

/// The waiting times of every stage with their causes, for a plan with a pipeline.
std::string stages_table(const RunReport& report, const TextStyle& style) {
  const std::vector<StageTime>& measured = report.measured->stage_times;
  const std::vector<StageTime>& predicted = report.plan.predicted.stage_times;
  if (measured.size() < 2) return "";
  struct Wait {
    const char* name;
    Seconds (*of)(const StageTime&);
  };
  constexpr Wait kWaits[] = {
      {"fill/drain", [](const StageTime& s) { return s.fill_drain; }},
      {"imbalance", [](const StageTime& s) { return s.imbalance; }},
      {"communication", [](const StageTime& s) { return s.communication_wait; }},
      {"idle", [](const StageTime& s) { return s.idle(); }}};
  Table table({{"stage", Table::Align::left, 0},
               {"waits for", Table::Align::left, 0},
               {"measured"},
               {"predicted"},
               {"of the step"},
               {"error"}});
  for (std::size_t s = 0; s < measured.size(); ++s) {
    const bool both = s < predicted.size();
    for (const Wait& wait : kWaits) {
      const Seconds a = wait.of(measured[s]);
      const Seconds b = both ? wait.of(predicted[s]) : Seconds{};
      table.add({std::to_string(s), wait.name, duration(a), both ? duration(b) : "",
                 percent(a / measured[s].total()), error_cell(b.in(kSecond), a.in(kSecond))});
    }
  }
  return heading("Idle time of every stage: measured and predicted", style) + table.text(style);
}

/// About the step's time without other programs: its processor time on the cores of its ranks.
/// Empty where the report does not say, or several machines may share the ranks.
std::string alone_text(const RunReport& report, const OtherPrograms& others) {
  const auto number = [&](const char* key) {
    const auto at = report.environment.find(key);
    return at == report.environment.end() ? 0.0 : std::strtod(at->second.c_str(), nullptr);
  };
  const Seconds processor_time{number(kProcessorTime)};
  const int threads = report.ranks * static_cast<int>(number(kThreadsPerRank));
  const int cores = std::min(threads, others.cores);
  const bool one_machine = report.launcher == "local" || report.launcher == "mpi";
  if (!one_machine || processor_time <= Seconds{} || cores < 1) return "";
  return fmt::format("; the processor time of a step, {}, is {} on {}", duration(processor_time),
                     duration(processor_time / cores), counted(cores, "core"));
}

/// Whether the step is inside the predicted band; and the machine's other load, which the
/// prediction does not include.
std::string band_text(const RunReport& report, const TextStyle& style) {
  const Prediction& predicted = report.plan.predicted;
  const Seconds step = report.measured->time.total();
  const bool inside = predicted.low <= step && step <= predicted.high;
  std::string text =
      fmt::format("Measured {} the predicted band, {} to {}", inside ? "inside" : "outside",
                  duration(predicted.low), duration(predicted.high));
  const std::optional<OtherPrograms> others = other_programs(report);
  if (!others) return folded(text + ".", "", style);
  text += fmt::format("; other programs used {:.2f} of {} cores meanwhile", others->used,
                      others->cores);
  constexpr double kIdle = 0.1;  // cores: the load of observers such as this program
  if (!inside) {
    text += others->used < kIdle ? ", so the machine's load is not the reason"
                                 : alone_text(report, *others);
  }
  return folded(text + ".", "", style);
}

/// Time the instructions of one kind take on all ranks together.
struct OfOp {
  Seconds measured;
  Seconds predicted;
};

std::string instruction_table(const RunReport& report, const SimulatedStep& simulated,
                              const TextStyle& style) {
  if (report.spans.empty()) return "";
  const ProcessGrid grid(report.plan.plan);
  std::array<OfOp, kOps> ops{};
  std::array<int, kOps> counts{};
  const int copies = grid.ranks() / grid.degree(Axis::pp);  // ranks that run the same program
  for (const ExecutedSpan& span : report.spans) {
    const int stage = grid.coordinates(span.rank).pp;
    const Instruction& i =
        simulated.schedule.programs[static_cast<std::size_t>(stage)].instructions[span.instruction];
    ops[static_cast<std::size_t>(i.op)].measured += span.end - span.start;
    ++counts[static_cast<std::size_t>(i.op)];
  }
  for (const Span& span : simulated.timeline.spans) {
    const Instruction& i =
        simulated.schedule.programs[static_cast<std::size_t>(span.rank)].instructions[span.id];
    ops[static_cast<std::size_t>(i.op)].predicted += copies * (span.end - span.start);
  }
  Table table(
      {{"", Table::Align::left, 0}, {"instructions"}, {"measured"}, {"predicted"}, {"error"}});
  for (int op = 0; op < kOps; ++op) {
    const auto at = static_cast<std::size_t>(op);
    if (counts[at] == 0) continue;
    table.add({std::string(name_of(static_cast<Op>(op))), grouped(counts[at]),
               duration(ops[at].measured), duration(ops[at].predicted),
               error_cell(ops[at].predicted.in(kSecond), ops[at].measured.in(kSecond))});
  }
  return heading("Instructions of one step, all ranks together", style) + table.text(style) +
         folded(
             "Communication counts from when the rank is ready, so it holds waiting for the "
             "others.",
             "", style);
}

std::string memory_table(const RunReport& report, const TextStyle& style) {
  const Prediction& measured = *report.measured;
  const Prediction& predicted = report.plan.predicted;
  Table table({{"stage", Table::Align::left, 0},
               {"part", Table::Align::left, 0},
               {"measured MiB"},
               {"predicted MiB"},
               {"error"}});
  const auto mib = [](Bytes bytes) { return fmt::format("{:.2f}", bytes.in(1_MiB)); };
  for (std::size_t s = 0; s < measured.stages.size(); ++s) {
    for (const MemoryDelta& row : part_deltas(measured.stages[s], predicted.stages[s])) {
      table.add({std::to_string(s), std::string(row.name), mib(row.a), mib(row.b),
                 error_cell(row.b.in(kByte), row.a.in(kByte))});
    }
  }
  std::string text = heading("Memory of a rank: measured and predicted", style) + table.text(style);
  if (report.process_peak > Bytes{}) {
    const std::string most = with_gib(report.process_peak);
    text += folded(report.backend == "cuda"
                       ? fmt::format("The processes took at most {} of host memory.", most)
                       : fmt::format("The operating system saw at most {} in all.", most),
                   "", style);
  }
  if (report.checkpoint_copy > Bytes{}) {
    text +=
        folded(fmt::format("Asynchronous checkpoints keep a copy of {} per rank in host memory, "
                           "besides these parts.",
                           with_gib(report.checkpoint_copy)),
               "", style);
  }
  return text;
}

std::string steps_table(const RunReport& report, const TextStyle& style) {
  Table table({{"step"},
               {"loss"},
               {"gradient norm"},
               {"learning rate"},
               {"seconds"},
               {"tokens/s"},
               {"", Table::Align::left, 0}});
  constexpr std::size_t kShown = 3;
  const std::size_t count = report.steps.size();
  for (std::size_t i = 0; i < count; ++i) {
    const RunStep& step = report.steps[i];
    if (i >= kShown && i + kShown < count && step.notes.empty()) {
      if (i == kShown) table.add({"...", "", "", "", "", "", ""});
      continue;
    }
    std::string notes;
    for (const std::string& note : step.notes) notes += (notes.empty() ? "" : "; ") + note;
    table.add({grouped(step.step), figure(step.loss, 4), figure(step.gradient_norm, 3),
               fmt::format("{:.2e}", step.learning_rate),
               fmt::format("{:.3f}", step.seconds.in(kSecond)),
               grouped(std::llround(step.tokens_per_second)), notes});
  }
  return heading("Steps", style) + table.text(style);
}

std::string end_text(const RunReport& report, const TextStyle& style) {
  std::string text = fmt::format("Run {}: {}, {}, {} ({}, {})", name_of(report.end),
                                 report.plan.model.name, counted(report.ranks, "rank"),
                                 counted(static_cast<std::int64_t>(report.steps.size()), "step"),
                                 report.backend, report.launcher);
  if (!report.reason.empty()) text += "\n" + folded(report.reason, "", style);
  text += "\n" + described(report.plan.plan, style) + "\n";
  const auto attention = report.environment.find("attention");
  if (attention == report.environment.end()) return text;
  return text + folded("Attention by " + attention->second + ".", "", style);
}

/// The slowest rank, and what it costs the others.
std::string straggler_text(const RunReport& report, const TextStyle& style) {
  if (report.rank_times.size() < 2 || !report.measured) return "";
  const auto slowest =
      std::max_element(report.rank_times.begin(), report.rank_times.end(),
                       [](const RankTime& a, const RankTime& b) { return a.behind < b.behind; });
  const double share = slowest->behind / report.measured->time.total();
  constexpr double kMatters = 0.05;  // of a step
  std::string text =
      share >= kMatters
          ? fmt::format(
                "Straggler: rank {} computes {} a step, {} more than the median of its "
                "stage; that costs {} of the step.",
                slowest->rank, duration(slowest->computes), duration(slowest->behind),
                percent(share))
          : fmt::format(
                "No straggler: the slowest rank, {}, computes {} a step longer than the "
                "median of its stage.",
                slowest->rank, duration(slowest->behind));
  return folded(text, "", style);
}

/// What checkpoints and failures cost, and the interval that follows from them.
std::string goodput_text(const RunReport& report, const TextStyle& style) {
  const MeasuredGoodput& run = report.goodput;
  if (run.starts == 0) return "";
  std::string text = heading("Checkpoints and failures", style);
  if (run.checkpoints > 0) {
    text += folded(fmt::format("{} of {}, complete after {}; the steps stood still for {} of it.",
                               counted(run.checkpoints, "checkpoint"), with_gib(run.checkpoint),
                               duration(run.write), duration(run.stall)),
                   "  ", style);
  }
  const std::optional<Seconds> between = run.time_between_failures();
  std::string starts = fmt::format("{}, {} in {}", counted(run.starts, "start"),
                                   counted(run.failures, "failure"), duration(run.running));
  if (between && run.failures > 1) starts += fmt::format(": one every {}", duration(*between));
  if (run.restarts > 0)
    starts += fmt::format("; {} from a failure until steps begin", duration(run.restart));
  text += folded(starts + ".", "  ", style);
  if (!between || run.checkpoints == 0 || !report.measured) return text;
  const Seconds interval = std::max(daly_interval(run.stall, *between), run.write);
  const std::int64_t steps = steps_between_checkpoints(interval, report.measured->time.total());
  return text + folded(fmt::format("At this rate a checkpoint every {}, {}, loses the least time "
                                   "(Daly 2006). plan --goodput-from plans with these figures.",
                                   duration(interval), counted(steps, "step")),
                       "  ", style);
}

}  // namespace

std::string step_line(const RunStep& step, std::int64_t of) {
  const double left = static_cast<double>(of - step.step - 1) * step.seconds.in(kSecond);
  std::string line = fmt::format("step {} ({} of {}): loss {}, {} tokens/s, {} a step, {} to go",
                                 step.step, step.step + 1, of, figure(step.loss, 4),
                                 grouped(std::llround(step.tokens_per_second)),
                                 duration(step.seconds), duration(Seconds{left}));
  for (const std::string& note : step.notes) line += "; " + note;
  return line;
}

std::string run_summary(const RunReport& report) {
  std::string text = fmt::format("run {}: {}, {}, {}", name_of(report.end), report.plan.model.name,
                                 counted(report.ranks, "rank"),
                                 counted(static_cast<std::int64_t>(report.steps.size()), "step"));
  if (!report.steps.empty()) {
    text += fmt::format(", loss {} to {}", figure(report.steps.front().loss, 4),
                        figure(report.steps.back().loss, 4));
  }
  if (report.measured) {
    const Seconds measured = report.measured->time.total();
    const Seconds predicted = report.plan.predicted.time.total();
    text += fmt::format("; a step of {}, predicted {} ({})", duration(measured),
                        duration(predicted), signed_percent(predicted / measured - 1));
  }
  if (!report.reason.empty()) text += "; " + report.reason;
  return text + "\n";
}

std::string run_text(const RunReport& report, const SimulatedStep& simulated,
                     const TextStyle& style) {
  std::string text = end_text(report, style);
  if (!report.steps.empty()) text += steps_table(report, style);
  if (report.measured) {
    text += time_table(report, style) + band_text(report, style);
    text += straggler_text(report, style);
    text += stages_table(report, style);
    text += instruction_table(report, simulated, style);
    text += memory_table(report, style);
  }
  text += goodput_text(report, style);
  if (!report.advice.empty()) {
    text += heading("Batch and learning rate", style);
    for (const std::string& sentence : report.advice) text += folded(sentence + ".", "  ", style);
  }
  const bool same = report.schedule_hash == report.executed_hash;
  if (report.end == RunReport::End::completed && !report.steps.empty()) {
    text +=
        "\n" +
        folded(same ? "Every step executed the plan's program: hash " + report.executed_hash + "."
                    : "What was executed is NOT the plan's program: hash " + report.executed_hash +
                          " instead of " + report.schedule_hash + ".",
               "", style);
  }
  return text;
}

}  // namespace echelon
