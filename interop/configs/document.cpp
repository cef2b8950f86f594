#include "interop/configs/document.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace echelon {

namespace {

std::string word_for_shell(const std::string& text) {
  if (text.find('\'') != std::string::npos) return '"' + text + '"';  // quotes of the framework's
  const bool special = text.find_first_of(" |*()<>$;&\"[]{}") != std::string::npos;
  return special ? "'" + text + "'" : text;
}

}  // namespace

ConfigValue scalar(std::string text) {
  ConfigValue value;
  value.text = std::move(text);
  return value;
}

ConfigValue quoted(std::string text) {
  ConfigValue value = scalar(std::move(text));
  value.is_string = true;
  return value;
}

ConfigValue list_in_brackets(std::string_view text) {
  ConfigValue list;
  list.is_list = true;
  std::string item;
  for (const char c : text) {
    if (c == ',' || c == ']') {
      if (!item.empty()) list.items.push_back(scalar(std::exchange(item, {})));
    } else if (std::string_view("['\" ").find(c) == std::string_view::npos) {
      item += c;
    }
  }
  return list;
}

std::string ConfigValue::joined() const {
  if (!is_list) return text;
  std::string out;
  for (const ConfigValue& item : items) {
    if (&item != &items.front()) out += item.is_list ? '|' : ',';
    out += item.joined();
  }
  return out;
}

const ConfigValue& ConfigValue::first() const {
  return is_list && !items.empty() ? items.front().first() : *this;
}

const ConfigEntry* ConfigDocument::find(std::string_view key) const {
  const auto at = std::find_if(entries.rbegin(), entries.rend(),
                               [&](const ConfigEntry& entry) { return entry.key == key; });
  return at == entries.rend() ? nullptr : &*at;
}

void ConfigDocument::set(std::string_view key, ConfigValue value) {
  const auto at = std::ranges::find(entries, key, &ConfigEntry::key);
  if (at != entries.end()) {
    at->value = std::move(value);
  } else {
    entries.push_back({std::string(key), std::move(value), 0});
  }
}

std::string ConfigDocument::place(const ConfigEntry& entry) const {
  const std::string& file = entry.file.empty() ? name : entry.file;
  if (entry.line > 0) return fmt::format("{} line {}", file, entry.line);
  std::string pointer = "/" + (entry.spelled.empty() ? entry.key : entry.spelled);
  std::replace(pointer.begin(), pointer.end(), '.', '/');
  return file + " at " + pointer;
}

Result<ConfigDocument> read_config(ConfigSyntax syntax, std::string_view text,
                                   std::string_view where) {
  if (text.size() > kLongestConfig) {
    return input_error(std::string(where), fmt::format("{} bytes", text.size()),
                       fmt::format("a configuration of at most {} MiB", kLongestConfig >> 20));
  }
  if (text.find('\0') != std::string_view::npos) {
    return input_error(std::string(where), "a zero byte", "a text file");
  }
  switch (syntax) {
    case ConfigSyntax::toml: return read_toml(text, where);
    case ConfigSyntax::yaml: return read_yaml(text, where);
    case ConfigSyntax::json: return read_json_config(text, where);
    case ConfigSyntax::python: return read_python(text, where);
    case ConfigSyntax::arguments: break;
  }
  return has_argument_dump(text) ? read_argument_dump(text, where) : read_script(text, where);
}

std::string_view extension_of(ConfigSyntax syntax) {
  switch (syntax) {
    case ConfigSyntax::toml: return "toml";
    case ConfigSyntax::yaml: return "yaml";
    case ConfigSyntax::json: return "json";
    case ConfigSyntax::python: return "py";
    case ConfigSyntax::arguments: break;
  }
  return "sh";
}

std::string write_config(ConfigSyntax syntax, const ConfigDocument& document,
                         const std::vector<std::string>& comments) {
  std::string out;
  if (syntax != ConfigSyntax::json) {
    for (const std::string& comment : comments) out += "# " + comment + "\n";
  }
  switch (syntax) {
    case ConfigSyntax::toml: return out + write_toml(document);
    case ConfigSyntax::yaml: return out + write_yaml(document);
    case ConfigSyntax::json: return write_json_config(document);
    case ConfigSyntax::python: return out + write_python(document);
    case ConfigSyntax::arguments: break;
  }
  return out + write_arguments(document);
}

std::string write_arguments(const ConfigDocument& document) {
  std::string out;
  for (const ConfigEntry& entry : document.entries) {
    const ConfigValue& value = entry.value;
    std::string line;
    // Options are spelled with dashes, overrides of sections with dots and underscores.
    if (entry.key.find_first_of("._") != std::string::npos) {
      line =
          entry.key + "=" + word_for_shell(value.is_list ? "[" + value.joined() + "]" : value.text);
    } else if (value.text == "false") {
      continue;  // a switch that is not given
    } else {
      line = "--" + entry.key;
      const std::vector<ConfigValue> words = value.is_list ? value.items : std::vector{value};
      for (const ConfigValue& word : words) {
        if (word.text != "true") line += " " + word_for_shell(word.joined());
      }
    }
    out += (out.empty() ? "  " : " \\\n  ") + line;
  }
  return out + "\n";
}

}  // namespace echelon
