#include "cli/flags/settings.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "core/base/did_you_mean.hpp"

namespace echelon::cli {

namespace {

/// Pairs that name the same thing.
constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kRivals = {
    {{"global-batch", "global-batch-tokens"}, {"gpus", "max-gpus"}}};

std::string_view rival_of(std::string_view flag) {
  for (const auto& [a, b] : kRivals) {
    if (flag == a) return b;
    if (flag == b) return a;
  }
  return {};
}

/// Whether `text` has `word` with no letter, digit or dash around it.
bool has_word(std::string_view text, std::string_view word) {
  const auto inside = [&](std::size_t at) {
    return at < text.size() && (std::isalnum(static_cast<unsigned char>(text[at])) != 0 ||
                                text[at] == '-' || text[at] == '_');
  };
  for (std::size_t at = text.find(word); at != std::string_view::npos;
       at = text.find(word, at + 1)) {
    if (!(at > 0 && inside(at - 1)) && !inside(at + word.size())) return true;
  }
  return false;
}

bool exists(const std::string& path) {
  std::error_code ignored;
  return !path.empty() && std::filesystem::exists(path, ignored);
}

}  // namespace

void Settings::set(std::string_view flag, Setting setting) {
  values_.insert_or_assign(std::string(flag), std::move(setting));
}

void Settings::erase(std::string_view flag) {
  if (const auto at = values_.find(flag); at != values_.end()) values_.erase(at);
}

const Setting* Settings::find(std::string_view flag) const {
  const auto at = values_.find(flag);
  return at == values_.end() ? nullptr : &at->second;
}

void Settings::add_below(const Settings& lower) {
  const Settings above = *this;  // of one layer, both rivals stay: an error names them
  for (const auto& [flag, setting] : lower.values_) {
    const std::string_view rival = rival_of(flag);
    if (!above.has(flag) && (rival.empty() || !above.has(rival))) set(flag, setting);
  }
}

Settings settings_of_flags(const Arguments& arguments) {
  Settings settings;
  for (const auto& [name, value] : arguments.flags) settings.set(name, {value, "--" + name});
  return settings;
}

Settings settings_of_environment() {
  Settings settings;
  for (const Flag& flag : flags()) {
    if (!flag.layered) continue;
    for (const std::string& spelling : spellings(flag)) {
      const std::string name = environment_name(spelling);
      const char* value = std::getenv(name.c_str());
      const bool given = value != nullptr && *value != '\0';
      if (given && !settings.has(flag.name)) settings.set(flag.name, {value, name});
    }
  }
  return settings;
}

std::string user_file() {
  const char* base = std::getenv("XDG_CONFIG_HOME");
  if (base != nullptr && *base == '/') return std::string(base) + "/echelon/config.json";
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home == '\0') return {};
  return std::string(home) + "/.config/echelon/config.json";
}

Result<Settings> merged_settings(const Arguments& arguments) {
  Settings settings = settings_of_flags(arguments);
  settings.add_below(settings_of_environment());
  if (arguments.has("no-config")) return settings;
  for (const std::string& path : {std::string(kProjectFile), user_file()}) {
    if (!exists(path)) continue;
    const Result<Settings> layer = settings_of_file(path);
    if (!layer) return layer.error();
    settings.add_below(*layer);
  }
  return settings;
}

Error naming_origins(Error error, const Settings& settings) {
  const std::string message = error.message();
  for (const auto& [flag, setting] : settings.all()) {
    const bool typed = setting.where.starts_with("--");
    if (typed || message.find(setting.where) != std::string::npos) continue;
    if (!has_word(message, "--" + flag) && !has_word(message, flag + " " + setting.value)) continue;
    error.hint += fmt::format("{}{} {} is from {}", error.hint.empty() ? "" : "; ", flag,
                              setting.value, setting.where);
  }
  return error;
}

std::vector<std::string> suspicious_variables() {
  // Those two are read by the wrapper ./plan.
  std::vector<std::string> known = {"PLAN_NO_INSTALL", "PLAN_CMAKE_ARGS"};
  std::vector<std::string> old;
  std::vector<std::string> alone;  // of flags that only the command line gives
  for (const Flag& flag : flags()) {
    if (!flag.layered) {
      alone.push_back(environment_name(flag.name));
      continue;
    }
    known.push_back(environment_name(flag.name));
    for (const std::string& each : spellings(flag)) old.push_back(environment_name(each));
  }
  std::vector<std::string> notes;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view variable(*entry);
    const std::string name(variable.substr(0, variable.find('=')));
    const bool read =
        std::ranges::find(known, name) != known.end() || std::ranges::find(old, name) != old.end();
    if (!name.starts_with("PLAN_") || read) continue;
    if (std::ranges::find(alone, name) != alone.end()) {
      notes.push_back(fmt::format(
          "the variable {} is ignored: its flag is given on the command line alone", name));
      continue;
    }
    const std::string nearest = nearest_name(name, known);
    if (!nearest.empty()) {
      notes.push_back(fmt::format("the variable {} is ignored; did you mean {}?", name, nearest));
    }
  }
  return notes;
}

}  // namespace echelon::cli
