// Every flag in one row: parsing, help, man page, completion, environment and configuration files
// walk this table.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace echelon::cli {

/// Which commands take a flag, and under which heading help shows it.
enum Group : unsigned {
  kJob = 1,     ///< model, training job and cluster
  kLayout = 2,  ///< degrees and choices of one plan
  kSearch = 4,
  kOutput = 8,  ///< every command
  kValidate = 16,
  kCollectives = 32,
  kPlanFile = 64,  ///< commands that can write one
  kExplain = 256,
  kFit = 512,
  kRun = 1024,
  kCalibrate = 2048,
  kWindow = 4096,
  kImport = 8192,
  kSearchAlone = 16384,  ///< of a search, but not of an explanation
  kFrom = 32768,         ///< commands that read a configuration of another framework
  kExport = 65536,
};

struct Flag {
  std::string_view name;   ///< without dashes: "tp"
  std::string_view value;  ///< placeholder of its value: "N"; "" for a switch
  std::string_view help;
  unsigned groups = kJob;
  bool layered = true;     ///< also read from the environment and configuration files
  bool negatable = false;  ///< --no-NAME exists
  /// Separated by blanks, for completion; a switch with choices may be followed by one of them.
  std::string_view choices = "";
  char letter = 0;  ///< short form
  /// Further spellings, separated by blanks. They are read wherever the name is, and shown nowhere.
  std::string_view aliases = "";
};

[[nodiscard]] std::span<const Flag> flags();
/// By its name; null if there is none.
[[nodiscard]] const Flag* find_flag(std::string_view name);
/// By its name or an alias.
[[nodiscard]] const Flag* find_spelling(std::string_view spelling);
/// Its name, then its aliases.
[[nodiscard]] std::vector<std::string> spellings(const Flag& flag);

/// "PLAN_GLOBAL_BATCH" of "global-batch"; "global_batch", the key in configuration files.
[[nodiscard]] std::string environment_name(std::string_view spelling);
[[nodiscard]] std::string config_key(std::string_view spelling);

}  // namespace echelon::cli
