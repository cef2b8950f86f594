// Settings of the user, by precedence: flag > environment > project file > user file. Values are
// text; each remembers where it came from, so that errors point there.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "cli/flags/arguments.hpp"
#include "cli/flags/table.hpp"
#include "core/base/result.hpp"

namespace echelon::cli {

struct Setting {
  std::string value;
  std::string where;  ///< "--tp", "PLAN_TP", ".echelon.json at /tp"
  bool operator==(const Setting&) const = default;
};

/// One layer, or several merged. Keys are flag names.
class Settings {
 public:
  void set(std::string_view flag, Setting setting);
  void erase(std::string_view flag);
  [[nodiscard]] const Setting* find(std::string_view flag) const;
  [[nodiscard]] bool has(std::string_view flag) const { return find(flag) != nullptr; }
  /// Adds what `lower` has and this has not. Two flags that name the same thing (--global-batch and
  /// --global-batch-tokens) hide each other.
  void add_below(const Settings& lower);
  [[nodiscard]] const std::map<std::string, Setting, std::less<>>& all() const { return values_; }
  bool operator==(const Settings&) const = default;

 private:
  std::map<std::string, Setting, std::less<>> values_;
};

inline constexpr const char* kProjectFile = ".echelon.json";

[[nodiscard]] Settings settings_of_flags(const Arguments& arguments);
/// PLAN_MODEL, PLAN_GLOBAL_BATCH, ...; an empty variable counts as unset.
[[nodiscard]] Settings settings_of_environment();
/// A JSON object whose keys are flag names with _ for -. Unknown keys are errors (nearest offered).
[[nodiscard]] Result<Settings> settings_of_file(const std::string& path);
/// $XDG_CONFIG_HOME/echelon/config.json, else ~/.config/echelon/config.json; "" without a home.
[[nodiscard]] std::string user_file();

/// All layers, in order; files are skipped with --no-config and where they do not exist.
[[nodiscard]] Result<Settings> merged_settings(const Arguments& arguments);
/// An error of the planner, which does not know where values came from, with the origin of those
/// that it names and that the environment or a file set: "tp 3 is from PLAN_TP".
[[nodiscard]] Error naming_origins(Error error, const Settings& settings);
/// Variables that look like a misspelt one of ours, or are those of flags without one, in
/// sentences.
[[nodiscard]] std::vector<std::string> suspicious_variables();

}  // namespace echelon::cli
