#include "cli/commands/plan_output.hpp"

#include "core/base/files.hpp"
#include "core/plan/plan_file.hpp"
#include "report/text/text.hpp"

namespace echelon::cli {

Status PlanOutput::check(bool json) const {
  if (path_ && path_->empty()) return input_error("--output", "an empty name", "a file name");
  if (to_stdout() && json) {
    return input_error("--output", "standard output, which --json uses", "a file name");
  }
  return Done{};
}

Status PlanOutput::write(const PlanRequest& request, const Candidate& candidate,
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

}  // namespace echelon::cli
