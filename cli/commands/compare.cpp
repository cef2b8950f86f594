// plan compare.
#include <fmt/format.h>

#include <cmath>

#include "cli/commands/command.hpp"
#include "cli/flags/request.hpp"
#include "core/plan/plan_file.hpp"
#include "planner/search/optimize.hpp"
#include "report/format.hpp"
#include "report/json/json.hpp"
#include "report/text/text.hpp"

namespace echelon::cli {

namespace {

Error in_file(const std::string& path, Error error) {
  if (error.where.starts_with(path)) return error;
  error.where = path + (error.where.empty() ? "" : ": " + error.where);
  return error;
}

/// A file given where a plan file is expected, priced by this version.
Result<PlanWithPrediction> priced_again(const std::string& path) {
  const Result<PlanFile> file = read_plan_file(path);
  if (!file) return file.error();
  const Result<ResolvedRequest> resolved = resolve(*file, path, {});
  if (!resolved) return in_file(path, resolved.error());
  Result<Candidate> candidate = predict(resolved->request);
  if (!candidate) return in_file(path, candidate.error());
  PlanWithPrediction side{path,
                          plan_file_of(resolved->request, *candidate, resolved->provenance),
                          candidate->score,
                          candidate->simulated,
                          {}};
  const Seconds then = file->predicted.time.total();
  const Seconds now = side.plan.predicted.time.total();
  if (std::abs(now / then - 1) > 1e-3) {
    side.note =
        fmt::format("the file predicts {} per step (version {}, calibration {}); repriced here",
                    duration(then), file->version, file->calibration);
  }
  return side;
}

}  // namespace

Result<CommandResult> compare_command(const CommandContext& context) {
  const Result<PlanWithPrediction> a = priced_again(context.arguments.words[0]);
  if (!a) return a.error();
  const Result<PlanWithPrediction> b = priced_again(context.arguments.words[1]);
  if (!b) return b.error();
  return CommandResult{context.json ? compare_json(*a, *b) : compare_text(*a, *b, context.style)};
}

}  // namespace echelon::cli
