// plan explain.
#include <optional>

#include "cli/commands/command.hpp"
#include "cli/flags/allowed.hpp"
#include "cli/flags/imported.hpp"
#include "cli/flags/request.hpp"
#include "cli/flags/why_not.hpp"
#include "cli/system/terminal.hpp"
#include "core/plan/plan_file.hpp"
#include "core/run/flight_record.hpp"
#include "planner/explain/one_change.hpp"
#include "report/explain.hpp"
#include "report/interop.hpp"
#include "report/text/text.hpp"

namespace echelon::cli {

namespace {

/// The request to explain, and perhaps a configuration that is not its answer.
struct Subject {
  ResolvedRequest resolved;
  std::string name;  ///< of that configuration, as typed
  std::optional<PlanConstraints> other;
};

/// From a plan file: the request that it answered, and its plan as the configuration to explain.
Result<Subject> subject_of_file(const CommandContext& context) {
  const std::string& path = context.arguments.words.front();
  const Result<PlanFile> file = read_plan_file(path);
  if (!file) return file.error();
  const Settings changes = settings_of_flags(context.arguments);
  if (changes.has("max-gpus")) {
    return input_error("--max-gpus",
                       "given together with a plan file, which has one number of GPUs",
                       "--gpus, or the flags of the search instead of the file");
  }
  const Result<ResolvedRequest> resolved = resolve(*file, path, changes);
  if (!resolved) return resolved.error();
  const Result<PlanConstraints> pinned = search_constraints_of(changes);
  if (!pinned) return pinned.error();
  Subject subject{*resolved, path, resolved->request.constraints};
  subject.resolved.request.constraints = *pinned;
  return subject;
}

/// From a configuration of another framework: its job, and its plan as the one to explain.
Result<Subject> subject_of_config(const CommandContext& context, const std::string& path) {
  const Settings flags = settings_of_flags(context.arguments);
  const Result<ImportedRequest> imported = complete_import(path, flags);
  if (!imported) return imported.error();
  Subject subject{*imported->resolved, path, imported->resolved->request.constraints};
  subject.resolved.request.constraints = PlanConstraints{};
  return subject;
}

/// What the configuration costs, what one change is worth, what the winner gains.
Result<std::string> advice_on(const Subject& subject, const Candidate* winner,
                              const Progress& progress) {
  PlanRequest request = subject.resolved.request;
  request.constraints = *subject.other;
  const Result<Candidate> own = predict(request);
  if (!own) return own.error();
  return advice_text(request, *own, one_change_plans(subject.resolved.request, *own, progress),
                     winner);
}

Result<Subject> subject_of(const CommandContext& context) {
  if (const auto from = context.arguments.value("from")) return subject_of_config(context, *from);
  if (!context.arguments.words.empty()) return subject_of_file(context);
  const Result<ResolvedRequest> resolved = resolve(context.settings);
  if (!resolved) return resolved.error();
  return Subject{*resolved, {}, std::nullopt};
}

Result<CommandResult> explain_failure(const CommandContext& context, const std::string& folder) {
  const Result<FailureRecords> records = read_failure_records(folder);
  if (!records) return records.error();
  return CommandResult{context.json ? failure_json(*records) : failure_text(*records), kDone};
}

}  // namespace

Result<CommandResult> explain_command(const CommandContext& context) {
  if (const auto folder = context.arguments.value("failure"))
    return explain_failure(context, *folder);
  Result<Subject> subject = subject_of(context);
  if (!subject) return subject.error();
  const Setting* typed = context.settings.find("why-not");
  if (typed != nullptr) {
    const Result<PlanConstraints> other = parse_why_not(*typed);
    if (!other) return other.error();
    subject->other = *other;
    subject->name = typed->value;
  }
  ProgressLine line("explaining", context.quiet);
  const std::optional<Seconds>& limit = subject->resolved.time_limit;
  const auto keep_going = [&](double) { return !limit || Seconds{line.seconds()} < *limit; };
  const Result<Explanation> explanation = explain(subject->resolved.request, [&](double share) {
    line.show(share);
    return keep_going(share);
  });
  if (!explanation) return of_request(context, explanation.error());
  const Candidate* winner = explanation->choice.report.winner();
  std::optional<WhyNotAnswer> answer;
  if (subject->other) {
    answer = WhyNotAnswer{
        subject->name, why_not(explanation->choice.request, *subject->other, winner, keep_going)};
  }
  std::string advice;
  if (subject->other && context.arguments.has("from") && !context.json) {
    Result<std::string> text = advice_on(*subject, winner, keep_going);
    if (!text) return text.error();
    advice = *std::move(text);
  }
  CommandResult result;
  // What is not priced may make the user's job fit: that is no "no".
  const bool open = !subject->resolved.request.unpriced_savings.empty();
  result.exit_code = open || explanation->choice.report.fitting_winner() != nullptr ? kDone : kNo;
  if (context.json) {
    result.output = explain_json(*explanation, answer, subject->resolved.provenance);
  } else if (typed != nullptr || (context.quiet && answer)) {
    result.output = why_not_text(*explanation, *answer, context.style);
  } else if (context.quiet) {
    result.output = explain_briefly(*explanation, context.style);
  } else {
    result.output = explain_text(*explanation, context.style);
    if (answer && answer->answer.verdict != WhyNot::Verdict::winner) {
      result.output += verdict_text(*explanation, *answer, context.style);
    }
  }
  result.output = advice + result.output;
  return result;
}

}  // namespace echelon::cli
