// Configuration files: flags as JSON.
#include <fmt/format.h>

#include <algorithm>

#include "cli/flags/settings.hpp"
#include "core/base/did_you_mean.hpp"
#include "core/json/json_io.hpp"

namespace echelon::cli {

namespace {

/// The text a flag would have: 64, "7b", true, [16, 16] -> "16,16".
std::optional<std::string> text_of(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean() || value.is_number()) return value.dump();
  if (!value.is_array()) return std::nullopt;
  std::string list;
  for (const Json& item : value) {
    if (!item.is_string() && !item.is_number()) return std::nullopt;
    list += (list.empty() ? "" : ",") + (item.is_string() ? item.get<std::string>() : item.dump());
  }
  return list;
}

/// "warmup-steps" of the key "warmup_steps".
std::string flag_spelled(std::string key) {
  std::ranges::replace(key, '_', '-');
  return key;
}

}  // namespace

Result<Settings> settings_of_file(const std::string& path) {
  const Result<Json> root = read_json(path);
  if (!root) return root.error();
  if (!root->is_object()) {
    return input_error(path, "not a JSON object", "flags and values: { \"gpus\": 64 }");
  }
  std::vector<std::string> known;
  for (const Flag& flag : flags()) {
    if (flag.layered) known.push_back(config_key(flag.name));
  }
  Settings settings;
  for (const auto& [key, value] : root->items()) {
    const std::string where = path + " at /" + key.substr(0, 60);
    const Flag* flag = nullptr;
    for (const Flag& candidate : flags()) {
      for (const std::string& spelling : spellings(candidate)) {
        if (candidate.layered && config_key(spelling) == key) flag = &candidate;
      }
    }
    const std::string spelled = flag_spelled(key);
    if (const Flag* alone = find_spelling(spelled); flag == nullptr && alone != nullptr) {
      return input_error(
          where, "a flag of the command line alone",
          "a flag of the job, the cluster, the plan or the search, such as model, gpus or tp",
          fmt::format("give --{} with the command", alone->name));
    }
    if (flag == nullptr) {
      return input_error(where, "unknown key", "a flag's name with _ for -",
                         did_you_mean(key, known));
    }
    const std::optional<std::string> text = text_of(value);
    if (!text) {
      return input_error(where, value.is_null() ? "null" : "an object or a nested list",
                         "a number, a text, true, false or a list of numbers");
    }
    if (const Setting* twice = settings.find(flag->name)) {
      return input_error(where, "given together with " + twice->where, "one of the two");
    }
    settings.set(flag->name, {*text, where});
  }
  return settings;
}

}  // namespace echelon::cli
