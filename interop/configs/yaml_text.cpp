// YAML in and out, by yaml-cpp.
#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <optional>

#include "core/base/text.hpp"
#include "interop/configs/document.hpp"

namespace echelon {

namespace {

/// YAML 1.1, which PyYAML reads, has numbers with underscores: 500_000.
std::string without_underscores(const std::string& text) {
  const bool number = !text.empty() && text.find_first_not_of("0123456789_") == std::string::npos &&
                      text.front() != '_' && text.back() != '_';
  std::string out = text;
  if (number) std::erase(out, '_');
  return out;
}

/// Walks a document with limits: an alias counts as often as it is used.
class YamlWalk {
 public:
  explicit YamlWalk(std::string_view where) { document_.name = where; }

  Result<ConfigDocument> run(const YAML::Node& root) {
    if (!root.IsMap()) return input_error(document_.name, "no mapping of keys to values", "YAML");
    map(root, "", 0);
    if (error_) return *error_;
    return std::move(document_);
  }

 private:
  void fail(const YAML::Node& node, std::string found, std::string expected) {
    if (error_) return;
    error_ = input_error(fmt::format("{} line {}", document_.name, node.Mark().line + 1),
                         std::move(found), std::move(expected));
  }

  bool within_limits(const YAML::Node& node, int depth) {
    if (depth > kDeepestConfig) {
      fail(node, "deep nesting", fmt::format("at most {} levels", kDeepestConfig));
    } else if (++values_ > kMostConfigValues) {
      fail(node, "very many values", fmt::format("at most {}", kMostConfigValues));
    }
    return !error_;
  }

  void map(const YAML::Node& node, const std::string& path, int depth) {
    for (const auto& each : node) {
      if (!within_limits(node, depth)) return;
      if (!each.first.IsScalar()) continue;
      if (path.size() + each.first.Scalar().size() > 1000) {
        return fail(each.first, "a very long key", "a key");
      }
      const std::string key = path + each.first.Scalar();
      if (each.second.IsMap()) {
        map(each.second, key + ".", depth + 1);
      } else if (each.second.IsDefined()) {
        document_.entries.push_back(
            {key, value(each.second, depth + 1), each.first.Mark().line + 1});
      }
    }
  }

  ConfigValue value(const YAML::Node& node, int depth) {
    ConfigValue out;
    if (!within_limits(node, depth)) return out;
    if (node.IsSequence()) {
      out.is_list = true;
      for (const YAML::Node& item : node) {
        if (error_) break;
        if (!item.IsMap()) out.items.push_back(value(item, depth + 1));
      }
    } else if (node.IsScalar()) {
      out.is_string = node.Tag() == "!";  // yaml-cpp: a scalar in quotes
      out.text = out.is_string ? node.Scalar() : without_underscores(node.Scalar());
    } else {
      out.text = "null";
    }
    return out;
  }

  ConfigDocument document_;
  std::size_t values_ = 0;
  std::optional<Error> error_;
};

/// Replaces "${a.b}" by the value of a.b. What cannot be replaced is marked.
void resolve_references(ConfigDocument& document) {
  constexpr int kMostSteps = 8;
  constexpr std::size_t kLongest = 4096;
  for (ConfigEntry& entry : document.entries) {
    for (int step = 0; step < kMostSteps; ++step) {
      std::string& text = entry.value.text;
      const std::size_t begin = text.find("${");
      const std::size_t end = text.find('}', begin);
      if (begin == std::string::npos || end == std::string::npos) break;
      const std::string name = text.substr(begin + 2, end - begin - 2);
      const ConfigEntry* other = document.find(name);
      if (other == nullptr || other->value.is_list || text.size() > kLongest) {
        entry.value.unresolved = name;
        break;
      }
      text.replace(begin, end - begin + 1, std::string(other->value.text));
    }
    if (entry.value.text.find("${") != std::string::npos && entry.value.unresolved.empty()) {
      entry.value.unresolved = printable(entry.value.text);
    }
  }
}

/// Words that YAML 1.1 takes for booleans, which PyYAML follows but for the single letters.
bool is_switch(std::string_view text) {
  constexpr std::array kSwitches = {"no", "yes", "on", "off", "n", "y"};
  return std::ranges::find(kSwitches, lower_case(text)) != kSwitches.end();
}

void emit(YAML::Emitter& out, const ConfigValue& value) {
  if (value.is_list) {
    out << YAML::Flow << YAML::BeginSeq;
    for (const ConfigValue& item : value.items) emit(out, item);
    out << YAML::EndSeq;
  } else if (value.is_string || is_switch(value.text)) {
    out << YAML::DoubleQuoted << value.text;
  } else {
    out << value.text;
  }
}

/// The children of `path` in the order of their first entry.
void emit_map(YAML::Emitter& out, const std::vector<ConfigEntry>& entries,
              const std::string& path) {
  std::vector<std::string> done;
  out << YAML::BeginMap;
  for (const ConfigEntry& entry : entries) {
    if (!entry.key.starts_with(path)) continue;
    const std::string rest = entry.key.substr(path.size());
    const std::string name = rest.substr(0, rest.find('.'));
    if (std::ranges::find(done, name) != done.end()) continue;
    done.push_back(name);
    out << YAML::Key << name << YAML::Value;
    if (name.size() == rest.size()) {
      emit(out, entry.value);
    } else {
      emit_map(out, entries, path + name + ".");
    }
  }
  out << YAML::EndMap;
}

}  // namespace

Result<ConfigDocument> read_yaml(std::string_view text, std::string_view where) {
  try {
    const YAML::Node root = YAML::Load(std::string(text));
    Result<ConfigDocument> document = YamlWalk(where).run(root);
    if (document) resolve_references(*document);
    return document;
  } catch (const YAML::Exception& error) {
    // A zero mark: the library does not say where.
    return input_error(fmt::format("{} line {}", where, error.mark.line + 1),
                       printable(error.msg, 200), "YAML");
  }
}

std::string write_yaml(const ConfigDocument& document) {
  YAML::Emitter out;
  emit_map(out, document.entries, "");
  return std::string(out.c_str()) + "\n";
}

}  // namespace echelon
