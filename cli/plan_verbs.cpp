// plan search, plan predict, plan compare.
#include <fmt/format.h>

#include <cmath>

#include "cli/plan_settings.hpp"
#include "cli/request.hpp"
#include "cli/terminal.hpp"
#include "cli/verbs.hpp"
#include "core/base/files.hpp"
#include "core/plan/plan_file.hpp"
#include "planner/explain/sensitivity.hpp"
#include "planner/search/optimize.hpp"
#include "planner/search/simulate_finalists.hpp"
#include "report/format.hpp"
#include "report/json/json.hpp"
#include "report/text/text.hpp"

namespace echelon::cli {

namespace {

/// Where -o sends the plan file.
class Destination {
 public:
  explicit Destination(const Arguments& arguments) : path_(arguments.value("output")) {}

  [[nodiscard]] Status check(bool json) const {
    if (path_ && path_->empty()) return input_error("--output", "an empty name", "a file name");
    if (to_stdout() && json) {
      return input_error("--output", "standard output, which --json uses", "a file name");
    }
    return Done{};
  }
  [[nodiscard]] bool to_stdout() const { return path_ && *path_ == "-"; }
  /// Writes the file; `output` is what the verb prints, changed when the plan goes there instead.
  [[nodiscard]] Status write(const PlanRequest& request, const Candidate& candidate,
                             const Provenance& provenance, bool say_so, std::string& output,
                             const TextStyle& style) const {
    if (!path_) return Done{};
    const Result<PlanFile> plan = complete_plan_file(request, candidate, provenance);
    if (!plan) return plan.error();
    const std::string text = plan_file_to_json(*plan);
    if (to_stdout()) {
      output = text;
      return Done{};
    }
    if (Status written = write_file(*path_, text); !written) {
      Error error = written.error();
      if (error.where != "--output") error.where = "--output: " + error.where;
      return error;
    }
    if (say_so) output += "\n" + folded("The plan is in " + *path_ + ".", "", style);
    return Done{};
  }

 private:
  std::optional<std::string> path_;
};

Error in_file(const std::string& path, Error error) {
  if (error.where.starts_with(path)) return error;
  error.where = path + (error.where.empty() ? "" : ": " + error.where);
  return error;
}

/// A file given where a plan file is expected, priced by this version.
Result<PlanWithPrediction> priced_again(const std::string& path) {
  const Result<PlanFile> file = read_plan_file(path);
  if (!file) return file.error();
  const Result<Asked> asked = understand(*file, path, {});
  if (!asked) return in_file(path, asked.error());
  Result<Candidate> candidate = predict(asked->request);
  if (!candidate) return in_file(path, candidate.error());
  simulate_step(asked->request, *candidate);
  PlanWithPrediction side{path, plan_file_of(asked->request, *candidate, asked->provenance), {}};
  const Seconds then = file->predicted.time.total();
  const Seconds now = side.plan.predicted.time.total();
  if (std::abs(now / then - 1) > 1e-3) {
    side.note =
        fmt::format("the file says {} a step (version {}, calibration {}); priced again here",
                    duration(then), file->version, file->calibration);
  }
  return side;
}

/// A dozen more searches, where they take no time worth mentioning. Decided by a count, not a
/// clock: the same input gives the same output.
std::vector<Sensitivity> cheap_sensitivities(const SearchResult& choice) {
  constexpr std::int64_t kFewTuples = 100'000;
  const Candidate* winner = choice.report.winner();
  if (winner == nullptr || choice.report.counts.tuples > kFewTuples) return {};
  return sensitivities(choice.request, *winner);
}

TypedSearch typed_search(const Arguments& arguments) {
  Settings flags = settings_of_flags(arguments);
  flags.erase("output");
  const std::string_view rest = arguments.has("no-config") ? " --no-config" : "";
  return {fmt::format("{}{}", command_of("search", flags), rest),
          fmt::format("{}{}", command_of("explain", flags), rest),
          arguments.value("output").value_or("")};
}

}  // namespace

Result<Outcome> search_verb(const Invocation& call) {
  const Destination destination(call.arguments);
  if (const Status ok = destination.check(call.json); !ok) return ok.error();
  const Result<Asked> asked = understand(call.settings);
  if (!asked) return asked.error();
  ProgressLine line("searching", call.quiet);
  const Result<SearchResult> choice = optimize(asked->request, [&](double share) {
    line.show(share);
    return !asked->budget || Seconds{line.seconds()} < *asked->budget;
  });
  if (!choice) return choice.error();

  const PlanRequest& request = choice->request;  // on the chosen number of GPUs
  const SearchOutcome& report = choice->report;
  const Candidate* winner = report.winner();
  Outcome outcome;
  outcome.exit_code = winner != nullptr ? kDone : kNo;
  if (call.json) {
    const Timing timing{Seconds{line.seconds()}, report.counts.priced + report.counts.too_large};
    outcome.output = search_json(*choice, asked->provenance, timing);
  } else if (call.quiet) {
    outcome.output = winner != nullptr
                         ? headline(request, *winner, "best plan", call.style).substr(1)
                         : nearest_infeasible_text(request, report, call.style);
  } else {
    const std::vector<Sensitivity> changes = cheap_sensitivities(*choice);
    outcome.output =
        search_text(*choice, most_valuable(changes), typed_search(call.arguments), call.style);
  }
  if (winner != nullptr) {
    const Status written = destination.write(request, *winner, asked->provenance,
                                             !call.json && !call.quiet, outcome.output, call.style);
    if (!written) return written.error();
  }
  return outcome;
}

Result<Outcome> predict_verb(const Invocation& call) {
  const Destination destination(call.arguments);
  if (const Status ok = destination.check(call.json); !ok) return ok.error();
  const auto ask = [&]() -> Result<Asked> {
    if (call.arguments.words.empty()) return understand(call.settings);
    // A plan file is complete: environment and configuration files do not change it.
    const Result<PlanFile> file = read_plan_file(call.arguments.words.front());
    if (!file) return file.error();
    return understand(*file, call.arguments.words.front(), settings_of_flags(call.arguments));
  };
  const Result<Asked> asked = ask();
  if (!asked) return asked.error();
  Result<Candidate> candidate = predict(asked->request);
  if (!candidate) return candidate.error();
  simulate_step(asked->request, *candidate);

  Outcome outcome;
  outcome.exit_code = candidate->fits ? kDone : kNo;
  if (call.json) {
    outcome.output = predict_json(asked->request, *candidate, asked->provenance);
  } else if (call.quiet) {
    outcome.output = headline(asked->request, *candidate, "plan", call.style).substr(1);
  } else {
    outcome.output = predict_text(asked->request, *candidate, call.style);
  }
  const Status written = destination.write(asked->request, *candidate, asked->provenance,
                                           !call.json && !call.quiet, outcome.output, call.style);
  if (!written) return written.error();
  return outcome;
}

Result<Outcome> compare_verb(const Invocation& call) {
  const Result<PlanWithPrediction> a = priced_again(call.arguments.words[0]);
  if (!a) return a.error();
  const Result<PlanWithPrediction> b = priced_again(call.arguments.words[1]);
  if (!b) return b.error();
  return Outcome{call.json ? compare_json(*a, *b) : compare_text(*a, *b, call.style)};
}

}  // namespace echelon::cli
