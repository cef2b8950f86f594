// Every flag and verb once: parsing, help, man page, completion, environment and configuration
// files are all made from these two lists.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace echelon::cli {

/// Which verbs take a flag, and under which heading help shows it.
enum Group : unsigned {
  kJob = 1,     ///< what is trained, on what
  kLayout = 2,  ///< degrees and choices of one plan
  kSearch = 4,
  kOutput = 8,  ///< every verb
  kValidate = 16,
  kCollectives = 32,
  kPlanFile = 64,  ///< verbs that can write one
  kLater = 128,    ///< in the contract, not priced by this version
  kExplain = 256,
  kFit = 512,
  kRun = 1024,
  kCalibrate = 2048,
  kWindow = 4096,
  kImport = 8192,
  kSearchAlone = 16384,  ///< a search's, not an explanation's
};

struct Flag {
  std::string_view name;   ///< without dashes: "tp"
  std::string_view value;  ///< placeholder of its value: "N"; "" for a switch
  std::string_view help;
  unsigned groups = kJob;
  bool layered = true;            ///< also read from the environment and configuration files
  bool negatable = false;         ///< --no-NAME exists
  std::string_view choices = "";  ///< separated by blanks, for completion
  char letter = 0;                ///< short form
};

struct Verb {
  std::string_view name;        ///< "search", "topo show"
  std::string_view positional;  ///< as usage shows it: "A B"
  std::size_t least_words = 0;  ///< how many positionals it takes
  std::size_t most_words = 0;
  unsigned groups = 0;  ///< flags it takes besides kOutput
  std::string_view summary;
  std::string_view details;
  std::vector<std::string_view> examples;
};

[[nodiscard]] std::span<const Flag> flags();
[[nodiscard]] std::span<const Verb> verbs();
/// Null where there is none.
[[nodiscard]] const Flag* find_flag(std::string_view name);
[[nodiscard]] const Verb* find_verb(std::string_view name);
[[nodiscard]] bool takes(const Verb& verb, const Flag& flag);

/// "PLAN_GLOBAL_BATCH" of "global-batch"; "global_batch", the key in configuration files.
[[nodiscard]] std::string environment_name(const Flag& flag);
[[nodiscard]] std::string config_key(const Flag& flag);
/// Names of all first words a command line may start with: "search", "topo", ...
[[nodiscard]] std::vector<std::string> first_words();
/// Verbs of the contract that this version does not have yet.
[[nodiscard]] std::span<const std::string_view> later_verbs();

}  // namespace echelon::cli
