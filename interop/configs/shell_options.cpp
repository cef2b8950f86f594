// The options of the training command in a shell script.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/base/text.hpp"
#include "interop/configs/document.hpp"
#include "interop/configs/shell_words.hpp"

namespace echelon {

namespace {

using Words = std::vector<ShellWord>;

bool is_option(const ShellWord& word) {
  return word.text.starts_with("--") && word.text.size() > 2;
}

/// section.name=value, as Hydra and NeMo-Run read it; the position of the sign, or npos.
std::size_t override_sign(const std::string& text) {
  const std::size_t sign = text.find('=');
  if (sign == std::string::npos || sign == 0) return std::string::npos;
  const std::string_view key(text.data(), sign);
  const bool dotted = key.find('.') != std::string_view::npos;
  const bool known = dotted || key == "mixed_precision" || key == "comm_overlap";
  const bool plain = std::ranges::all_of(key, [](char c) {
    return (lower_case(c) >= 'a' && lower_case(c) <= 'z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '+' || c == '~';
  });
  return known && plain ? sign : std::string::npos;
}

ConfigValue value_of(const ShellWord& word) {
  ConfigValue value = scalar(word.text);
  value.unresolved = word.unresolved;
  return value;
}

/// Of an override: "[a,b]" is a list.
ConfigValue override_value(const ShellWord& word) {
  if (!word.text.starts_with('[') || !word.text.ends_with(']')) return value_of(word);
  return list_in_brackets(word.text);
}

std::string option_key(std::string text) {
  std::string key = text.substr(2);
  std::replace(key.begin(), key.end(), '_', '-');
  return key;
}

bool is_program(const ShellWord& word) { return word.text.ends_with(".py"); }

/// All of it is the output of a command, which may be several words, or none.
bool is_open(const ShellWord& word) {
  return word.text.empty() && !word.quoted && word.unresolved == kCommandOutput;
}

void add_options(const Words& words, const std::string& prefix, ConfigDocument& document) {
  ConfigEntry* open = nullptr;  // the option whose values follow
  bool begun = false;           // the program's own arguments
  const bool names_program = std::ranges::any_of(words, is_program);
  for (const ShellWord& word : words) {
    const std::size_t sign = override_sign(word.text);
    if (is_open(word) && begun) {
      const bool is_value = open != nullptr && !open->value.is_list && open->value.text == "true";
      document.open_words.push_back({word.line, open == nullptr ? "" : open->key, is_value});
      if (is_value) open->value = value_of(word);
      continue;
    }
    const bool an_option = is_option(word) || sign != std::string::npos;
    begun = begun || is_program(word) || (!names_program && an_option);
    if (is_option(word)) {
      const std::size_t equals = word.text.find('=');
      ConfigEntry entry{prefix + option_key(word.text.substr(0, equals)), scalar("true"),
                        word.line};
      if (equals != std::string::npos) {
        entry.value = value_of({word.text.substr(equals + 1), word.line, word.unresolved});
      }
      document.entries.push_back(std::move(entry));
      open = equals == std::string::npos ? &document.entries.back() : nullptr;
    } else if (sign != std::string::npos) {
      std::string key = word.text.substr(0, sign);
      key.erase(0, std::min(key.find_first_not_of("+~"), key.size()));
      document.entries.push_back(
          {key, override_value({word.text.substr(sign + 1), word.line, word.unresolved}),
           word.line});
      open = nullptr;
    } else if (open != nullptr) {
      if (!open->value.is_list && open->value.text == "true") {
        open->value = value_of(word);
      } else {
        if (!open->value.is_list) {
          ConfigValue list;
          list.is_list = true;
          list.items.push_back(std::exchange(open->value, {}));
          open->value = std::move(list);
        }
        open->value.items.push_back(value_of(word));
      }
    }
  }
}

std::ptrdiff_t options_in(const Words& words) {
  return std::ranges::count_if(words, [](const ShellWord& word) {
    return is_option(word) || override_sign(word.text) != std::string::npos;
  });
}

}  // namespace

Result<ConfigDocument> read_script(std::string_view text, std::string_view where) {
  Result<ShellScript> script = parse_shell(text, where);
  if (!script) return script.error();
  // A command in quotes: bash -c "torchrun ... --option".
  std::vector<Words> commands = script->commands;
  for (const Words& words : script->commands) {
    for (const ShellWord& word : words) {
      if (!word.quoted || word.text.find(" --") == std::string::npos) continue;
      const Result<ShellScript> inner =
          parse_shell(word.marked.empty() ? word.text : word.marked, where);
      if (!inner) continue;
      for (Words each : inner->commands) {
        for (ShellWord& one : each) one.line += word.line - 1;
        commands.push_back(std::move(each));
      }
    }
  }
  const auto most = std::ranges::max_element(commands, {}, options_in);
  ConfigDocument document{std::string(where), {}};
  for (const Words& words : script->batch_options) add_options(words, "sbatch.", document);
  if (most == commands.end() || options_in(*most) == 0) {
    return input_error(document.name + " line 1", "no command with options (--name value)",
                       "the script that starts the training, or its arguments");
  }
  add_options(*most, "", document);
  const auto program = std::ranges::find_if(*most, is_program);
  if (program != most->end()) {
    document.program = program->text.substr(program->text.rfind('/') + 1);
  }
  return document;
}

}  // namespace echelon
