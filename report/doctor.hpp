// The findings of `plan doctor`.
#pragma once

#include <string>
#include <vector>

#include "report/terminal_style.hpp"

namespace echelon {

/// One thing looked for.
struct Finding {
  enum class State { fine, missing, note };
  std::string topic;  ///< heading it stands under: "Build", "GPU"
  std::string name;   ///< "CUDA driver"
  State state = State::fine;
  std::string detail;   ///< the finding, or the consequence of its absence
  std::string remedy;   ///< package or command that adds it; "" when found
  bool needed = false;  ///< by this version
};

[[nodiscard]] bool all_needed_found(const std::vector<Finding>& findings);
[[nodiscard]] std::string doctor_text(const std::vector<Finding>& findings, const TextStyle& style);
[[nodiscard]] std::string doctor_json(const std::vector<Finding>& findings);

}  // namespace echelon
