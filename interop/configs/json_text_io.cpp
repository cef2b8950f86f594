// JSON configurations (DeepSpeed) in and out.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "core/json/json_io.hpp"
#include "interop/configs/document.hpp"

namespace echelon {

namespace {

ConfigValue config_value_of(const Json& json) {
  ConfigValue value;
  if (json.is_array()) {
    value.is_list = true;
    for (const Json& item : json) {
      if (!item.is_object()) value.items.push_back(config_value_of(item));
    }
  } else if (json.is_string()) {
    value.text = json.get<std::string>();
    value.is_string = true;
  } else {
    value.text = json.dump();
  }
  return value;
}

void flatten_json(const Json& object, const std::string& path, ConfigDocument& document) {
  for (const auto& [key, member] : object.items()) {
    if (member.is_object()) {
      flatten_json(member, path + key + ".", document);
    } else {
      document.entries.push_back({path + key, config_value_of(member), 0});
    }
  }
}

Json json_of(const ConfigValue& value) {
  if (value.is_list) {
    Json list = Json::array();
    for (const ConfigValue& item : value.items) list.push_back(json_of(item));
    return list;
  }
  if (value.is_string) return value.text;
  const Json parsed = Json::parse(value.text, nullptr, false);
  return parsed.is_discarded() || parsed.is_structured() ? Json(value.text) : parsed;
}

/// Without lines that are comments, which DeepSpeed's own examples do not have but copies of them
/// do; lines keep their numbers.
std::string without_comments(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    const std::size_t begin = line.find_first_not_of(" \t");
    const bool comment = begin != std::string_view::npos && line.substr(begin).starts_with("//");
    if (!comment) out += line;
    if (end < text.size()) out += '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

}  // namespace

Result<ConfigDocument> read_json_config(std::string_view text, std::string_view where) {
  const Result<Json> root = parse_json(without_comments(text), where);
  if (!root) return root.error();
  if (!root->is_object()) {
    return input_error(std::string(where), "no object", "an object of keys and values");
  }
  ConfigDocument document{std::string(where), {}};
  flatten_json(*root, "", document);
  if (document.entries.size() > kMostConfigValues) {
    return input_error(std::string(where), fmt::format("{} values", document.entries.size()),
                       fmt::format("at most {}", kMostConfigValues));
  }
  return document;
}

std::string write_json_config(const ConfigDocument& document) {
  Json root = Json::object();
  for (const ConfigEntry& entry : document.entries) {
    std::string pointer = "/" + entry.key;
    std::replace(pointer.begin(), pointer.end(), '.', '/');
    root[Json::json_pointer(pointer)] = json_of(entry.value);
  }
  return root.dump(2) + "\n";
}

}  // namespace echelon
