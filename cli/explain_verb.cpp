// plan explain.
#include <optional>

#include "cli/constraints.hpp"
#include "cli/request.hpp"
#include "cli/terminal.hpp"
#include "cli/verbs.hpp"
#include "cli/why_not.hpp"
#include "core/plan/plan_file.hpp"
#include "report/explain.hpp"
#include "report/text/text.hpp"

namespace echelon::cli {

namespace {

/// What is to be explained: a request, and perhaps a configuration that is not its answer.
struct Subject {
  Asked asked;
  std::string name;  ///< of that configuration, as typed
  std::optional<PlanConstraints> other;
};

/// Of a plan file: the request it answered, and its plan as the configuration asked about.
Result<Subject> subject_of_file(const Invocation& call) {
  const std::string& path = call.arguments.words.front();
  const Result<PlanFile> file = read_plan_file(path);
  if (!file) return file.error();
  const Settings changes = settings_of_flags(call.arguments);
  if (changes.has("gpus-at-most")) {
    return input_error("--gpus-at-most",
                       "given together with a plan file, which is for one number of GPUs",
                       "--gpus, or the question itself in place of the file");
  }
  const Result<Asked> asked = understand(*file, path, changes);
  if (!asked) return asked.error();
  const Result<PlanConstraints> pinned = constraints_of(changes);
  if (!pinned) return pinned.error();
  Subject subject{*asked, path, asked->request.constraints};
  subject.asked.request.constraints = *pinned;
  return subject;
}

Result<Subject> subject_of(const Invocation& call) {
  if (!call.arguments.words.empty()) return subject_of_file(call);
  const Result<Asked> asked = understand(call.settings);
  if (!asked) return asked.error();
  return Subject{*asked, {}, std::nullopt};
}

}  // namespace

Result<Outcome> explain_verb(const Invocation& call) {
  Result<Subject> subject = subject_of(call);
  if (!subject) return subject.error();
  const Setting* typed = call.settings.find("why-not");
  if (typed != nullptr) {
    const Result<PlanConstraints> other = parse_why_not(*typed);
    if (!other) return other.error();
    subject->other = *other;
    subject->name = typed->value;
  }
  ProgressLine line("explaining", call.quiet);
  const Result<Explanation> explanation = explain(subject->asked.request, [&](double share) {
    line.show(share);
    return true;
  });
  if (!explanation) return explanation.error();
  const Candidate* winner = explanation->choice.report.winner();
  std::optional<WhyNotAnswer> answer;
  if (subject->other) {
    answer =
        WhyNotAnswer{subject->name, why_not(explanation->choice.request, *subject->other, winner)};
  }
  Outcome outcome;
  outcome.exit_code = winner != nullptr ? kDone : kNo;
  if (call.json) {
    outcome.output = explain_json(*explanation, answer, subject->asked.provenance);
  } else if (typed != nullptr || (call.quiet && answer)) {
    outcome.output = why_not_text(*explanation, *answer, call.style);
  } else if (call.quiet) {
    outcome.output = explain_briefly(*explanation, call.style);
  } else {
    outcome.output = explain_text(*explanation, call.style);
    if (answer && answer->answer.verdict != WhyNot::Verdict::winner) {
      outcome.output += verdict_text(*explanation, *answer, call.style);
    }
  }
  return outcome;
}

}  // namespace echelon::cli
