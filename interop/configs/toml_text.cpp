// TOML in and out, by toml++.
// toml++ 3.3 asserts on some malformed keys (parser.inl:3037) and then reports them as errors.
#define TOML_EXCEPTIONS 1
#define TOML_ASSERT(condition) static_cast<void>(0)
#include <fmt/format.h>
#include <toml++/toml.h>

#include <sstream>

#include "core/base/text.hpp"
#include "interop/configs/document.hpp"

namespace echelon {

namespace {

std::string scalar_text(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* whole = node.as_integer()) return std::to_string(whole->get());
  if (const auto* on = node.as_boolean()) return on->get() ? "true" : "false";
  if (const auto* number = node.as_floating_point()) return fmt::format("{}", number->get());
  std::ostringstream other;  // dates and times
  if (const auto* date = node.as_date()) other << date->get();
  if (const auto* time = node.as_time()) other << time->get();
  if (const auto* both = node.as_date_time()) other << both->get();
  return other.str();
}

/// Values of a list; tables in lists are left out: no key that is read lies in one.
ConfigValue value_of(const toml::node& node) {
  ConfigValue value;
  if (const toml::array* list = node.as_array()) {
    value.is_list = true;
    for (const toml::node& item : *list) {
      if (!item.is_table()) value.items.push_back(value_of(item));
    }
    return value;
  }
  value.text = scalar_text(node);
  value.is_string = node.is_string();
  return value;
}

void flatten(const toml::table& table, const std::string& path, ConfigDocument& document) {
  for (const auto& [key, node] : table) {
    const std::string name = path + std::string(key.str());
    if (const toml::table* inner = node.as_table()) {
      flatten(*inner, name + ".", document);
    } else {
      document.entries.push_back(
          {name, value_of(node), static_cast<int>(node.source().begin.line)});
    }
  }
}

bool is_number(const std::string& text) {
  if (text.empty()) return false;
  char* end = nullptr;
  std::strtod(text.c_str(), &end);
  return *end == '\0';
}

void insert(toml::array& list, const ConfigValue& value);

template <class Insert>
void insert_scalar(const ConfigValue& value, Insert insert) {
  if (!value.is_string && (value.text == "true" || value.text == "false")) {
    insert(value.text == "true");
  } else if (!value.is_string && is_number(value.text)) {
    if (value.text.find_first_of(".eE") == std::string::npos) {
      insert(static_cast<std::int64_t>(std::strtoll(value.text.c_str(), nullptr, 10)));
    } else {
      insert(std::strtod(value.text.c_str(), nullptr));
    }
  } else {
    insert(value.text);
  }
}

void insert(toml::array& list, const ConfigValue& value) {
  if (value.is_list) {
    toml::array inner;
    for (const ConfigValue& item : value.items) insert(inner, item);
    list.push_back(std::move(inner));
  } else {
    insert_scalar(value, [&](auto scalar) { list.push_back(scalar); });
  }
}

}  // namespace

Result<ConfigDocument> read_toml(std::string_view text, std::string_view where) {
  toml::table parsed;
  try {
    parsed = toml::parse(text, std::string(where));
  } catch (const toml::parse_error& error) {
    return input_error(fmt::format("{} line {}, column {}", where, error.source().begin.line,
                                   error.source().begin.column),
                       printable(error.description(), 200), "TOML");
  }
  ConfigDocument document{std::string(where), {}};
  flatten(parsed, "", document);
  if (document.entries.size() > kMostConfigValues) {
    return input_error(std::string(where), fmt::format("{} values", document.entries.size()),
                       fmt::format("at most {}", kMostConfigValues));
  }
  return document;
}

std::string write_toml(const ConfigDocument& document) {
  toml::table root;
  for (const ConfigEntry& entry : document.entries) {
    toml::table* table = &root;
    std::string_view rest = entry.key;
    for (std::size_t dot = rest.find('.'); dot != std::string_view::npos; dot = rest.find('.')) {
      table = root.insert(rest.substr(0, dot), toml::table{}).first->second.as_table();
      rest.remove_prefix(dot + 1);
    }
    if (entry.value.is_list) {
      toml::array list;
      for (const ConfigValue& item : entry.value.items) insert(list, item);
      table->insert_or_assign(rest, std::move(list));
    } else {
      insert_scalar(entry.value, [&](auto scalar) { table->insert_or_assign(rest, scalar); });
    }
  }
  std::ostringstream out;
  out << root << "\n";
  return out.str();
}

}  // namespace echelon
