// Imported training logs, for `plan import`.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "evaluation/run_mapping.hpp"
#include "interop/logs/imported_log.hpp"
#include "report/terminal_style.hpp"

namespace echelon {

/// A log and what it is priced as.
struct LogImport {
  ImportedLog log;
  std::optional<MappedRun> run;  ///< empty while facts are missing, or if it is not priced
  std::string not_priced;        ///< why; "" otherwise
};

/// Found, derived, assumed, to ask; the step with its windows; or why the log is refused.
[[nodiscard]] std::string log_import_text(const LogImport& import, const TextStyle& style);
/// One document; of several logs an object with "logs".
[[nodiscard]] std::string log_imports_json(std::span<const LogImport> imports);

}  // namespace echelon
