// The file that -o of plan search and plan predict writes.
#pragma once

#include <optional>
#include <string>

#include "cli/flags/arguments.hpp"
#include "planner/search/search_outcome.hpp"
#include "planner/space/request.hpp"
#include "report/plan_files.hpp"
#include "report/terminal_style.hpp"

namespace echelon::cli {

/// Where -o sends the plan file.
class PlanOutput {
 public:
  explicit PlanOutput(const Arguments& arguments) : path_(arguments.value("output")) {}

  [[nodiscard]] Status check(bool json) const;
  [[nodiscard]] bool to_stdout() const { return path_ && *path_ == "-"; }
  /// Writes the file; `output` is what the command prints, replaced if the plan goes there
  /// instead.
  [[nodiscard]] Status write(const PlanRequest& request, const Candidate& candidate,
                             const Provenance& provenance, bool say_so, std::string& output,
                             const TextStyle& style) const;

 private:
  std::optional<std::string> path_;
};

}  // namespace echelon::cli
