// plan completion bash|zsh|fish: scripts made from the tables of flags and commands and the
// catalogs.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands/command.hpp"
#include "cli/commands/command_table.hpp"
#include "core/base/did_you_mean.hpp"
#include "core/base/text.hpp"
#include "core/model/model_io.hpp"
#include "core/plan/job.hpp"
#include "topologies/topology.hpp"

namespace echelon::cli {

namespace {

/// Words a flag's value is completed with; "" where files or free text follow.
std::string values_of(const Flag& flag) {
  if (flag.name == "model") {
    std::vector<std::string> names;
    for (const CatalogModel& model : model_catalog()) {
      names.push_back(model.name);
      for (const std::string& alias : model.aliases) names.push_back(alias);
    }
    return fmt::format("{}", fmt::join(names, " "));
  }
  if (flag.name == "precision") {
    std::vector<std::string> names(kPrecisionFormats.begin(), kPrecisionFormats.end());
    for (const PrecisionRecipe& recipe : precision_recipes()) names.push_back(recipe.name);
    return fmt::format("{}", fmt::join(names, " "));
  }
  if (flag.name == "cluster") return fmt::format("{}", fmt::join(cluster_catalog(), " "));
  return std::string(flag.choices);
}

bool takes_file(const Flag& flag) { return flag.value.find("FILE") != std::string_view::npos; }

std::vector<std::string> spellings_of(const Flag& flag) {
  std::vector<std::string> out;
  if (flag.letter != 0) out.push_back(fmt::format("-{}", flag.letter));
  out.push_back(fmt::format("--{}", flag.name));
  if (flag.negatable) out.push_back(fmt::format("--no-{}", flag.name));
  return out;
}

std::vector<std::string> second_words(const std::string& first) {
  std::vector<std::string> out;
  for (const Command& command : commands()) {
    if (command.name.starts_with(first + " "))
      out.emplace_back(command.name.substr(first.size() + 1));
  }
  return out;
}

std::string flags_of(const Command& command) {
  std::string all;
  for (const Flag& flag : flags()) {
    if (takes(command, flag)) all += fmt::format("{} ", fmt::join(spellings_of(flag), " "));
  }
  return all;
}

/// A case per command that sets the words of its flags; a line without a command is a search.
std::string bash_flags() {
  std::string cases;
  for (const Command& command : commands()) {
    if (command.name == "search") continue;
    cases += fmt::format("      \"{}\") words='{}' ;;\n", command.name, flags_of(command));
  }
  return cases + fmt::format("      *) words='{}' ;;\n", flags_of(*find_command("search")));
}

std::string bash_script() {
  std::string cases;
  for (const Flag& flag : flags()) {
    if (flag.value.empty()) continue;
    const std::string words = values_of(flag);
    std::string action = "return";
    if (takes_file(flag)) {
      action = fmt::format(
          "COMPREPLY=($(compgen -W '{}' -- \"$cur\") $(compgen -f -- \"$cur\")); "
          "return",
          words);
    } else if (!words.empty()) {
      action = fmt::format("COMPREPLY=($(compgen -W '{}' -- \"$cur\")); return", words);
    }
    cases += fmt::format("    {}) {} ;;\n", fmt::join(spellings_of(flag), "|"), action);
  }
  return fmt::format(R"(# bash completion of plan; load it with: source <(plan completion bash)
_plan() {{
  local cur="${{COMP_WORDS[COMP_CWORD]}}" prev="${{COMP_WORDS[COMP_CWORD-1]}}" words
  local command="${{COMP_WORDS[1]}}"
  [[ "$command" == topo ]] && command="topo ${{COMP_WORDS[2]}}"
  case "$prev" in
{}  esac
  if [[ "$cur" == -* ]]; then
    case "$command" in
{}    esac
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
  elif [[ $COMP_CWORD -eq 1 ]]; then
    COMPREPLY=($(compgen -W '{}' -- "$cur"))
  elif [[ "$command" == export && $COMP_CWORD -eq 2 ]]; then
    COMPREPLY=($(compgen -W '{}' -- "$cur"))
  elif [[ "$command" == help && $COMP_CWORD -eq 2 ]]; then
    COMPREPLY=($(compgen -W '{}' -- "$cur"))
  elif [[ "${{COMP_WORDS[1]}}" == topo && $COMP_CWORD -eq 2 ]]; then
    COMPREPLY=($(compgen -W '{}' -- "$cur"))
  elif [[ "${{COMP_WORDS[1]}} ${{COMP_WORDS[2]}}" == "topo show" ]]; then
    COMPREPLY=($(compgen -W '{}' -- "$cur") $(compgen -f -- "$cur"))
  elif [[ "${{COMP_WORDS[1]}}" == completion ]]; then
    COMPREPLY=($(compgen -W 'bash zsh fish' -- "$cur"))
  else
    COMPREPLY=($(compgen -f -- "$cur"))
  fi
}}
complete -o filenames -F _plan plan
)",
                     cases, bash_flags(), fmt::join(first_words(), " "),
                     fmt::join(export_names(), " "), fmt::join(first_words(), " "),
                     fmt::join(second_words("topo"), " "), fmt::join(cluster_catalog(), " "));
}

/// Text inside single quotes of zsh's _arguments: no quotes, brackets or colons.
std::string zsh_safe(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'')
      out += "'\\''";
    else if (c == '[' || c == ']' || c == ':' || c == '\\')
      out += fmt::format("\\{}", c);
    else
      out += c;
  }
  return out;
}

std::string zsh_script() {
  std::string specs;
  std::string functions;  // one per flag whose value is a name or a file
  for (const Flag& flag : flags()) {
    std::string value;
    if (!flag.value.empty()) {
      const std::string words = values_of(flag);
      std::string action = words.empty() ? "" : fmt::format("({})", words);
      if (takes_file(flag)) {
        action = "_files";
        if (!words.empty()) {
          action = fmt::format("_plan_{}", config_key(flag.name));
          functions += fmt::format(
              "{}() {{ _alternative 'names:name:({})' 'files:file:_files' }}\n", action, words);
        }
      }
      value = fmt::format(":{}:{}", zsh_safe(flag.value), action);
    }
    for (const std::string& spelling : spellings_of(flag)) {
      specs += fmt::format("    '{}[{}]{}' \\\n", spelling, zsh_safe(flag.help), value);
    }
  }
  return fmt::format(R"(#compdef plan
# zsh completion of plan; put it into a directory of $fpath as _plan, or: source <(plan completion zsh)
{}_plan() {{
  local curcontext="$curcontext" state line
  _arguments -C \
{}    '1:command:({})' \
    '*:word:->rest' && return
  [[ "$state" == rest ]] || return
  case "$line[1]" in
    topo) if (( ${{#line}} == 2 )); then compadd {}; else compadd {}; _files; fi ;;
    completion) compadd bash zsh fish ;;
    export) if (( ${{#line}} == 2 )); then compadd {}; else _files; fi ;;
    help) compadd {} ;;
    *) _files ;;
  esac
}}
if [[ "$funcstack[1]" == _plan ]]; then _plan "$@"; else compdef _plan plan; fi
)",
                     functions, specs, fmt::join(first_words(), " "),
                     fmt::join(second_words("topo"), " "), fmt::join(cluster_catalog(), " "),
                     fmt::join(export_names(), " "), fmt::join(first_words(), " "));
}

std::string fish_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out + "'";
}

std::string fish_script() {
  std::string out = "# fish completion of plan; load it with: plan completion fish | source\n";
  for (const std::string& word : first_words()) {
    const Command* command = find_command(word);
    const std::string_view summary = command != nullptr ? command->summary : "machines";
    out += fmt::format("complete -c plan -n __fish_use_subcommand -f -a {} -d {}\n", word,
                       fish_quoted(summary));
  }
  for (const std::string& word : second_words("topo")) {
    out += fmt::format("complete -c plan -n '__fish_seen_subcommand_from topo' -f -a {} -d {}\n",
                       word, fish_quoted(find_command("topo " + word)->summary));
  }
  out += "complete -c plan -n '__fish_seen_subcommand_from completion' -f -a 'bash zsh fish'\n";
  for (const auto& [word, follows] :
       {std::pair{"export", fmt::format("{}", fmt::join(export_names(), " "))},
        std::pair{"help", fmt::format("{}", fmt::join(first_words(), " "))}}) {
    out += fmt::format("complete -c plan -n '__fish_seen_subcommand_from {}' -f -a {}\n", word,
                       fish_quoted(follows));
  }
  for (const Flag& flag : flags()) {
    std::string line = "complete -c plan";
    if (flag.letter != 0) line += fmt::format(" -s {}", flag.letter);
    line += fmt::format(" -l {} -d {}", flag.name, fish_quoted(flag.help));
    if (!flag.value.empty()) {
      line += takes_file(flag) ? " -r" : " -x";
      const std::string words = values_of(flag);
      if (!words.empty()) line += " -a " + fish_quoted(words);
    }
    out += line + "\n";
    if (flag.negatable) {
      out += fmt::format("complete -c plan -l no-{} -d {}\n", flag.name,
                         fish_quoted("not: " + std::string(flag.help)));
    }
  }
  return out;
}

}  // namespace

Result<CommandResult> completion_command(const CommandContext& context) {
  const std::string& shell = context.arguments.words.front();
  if (shell == "bash") return CommandResult{bash_script()};
  if (shell == "zsh") return CommandResult{zsh_script()};
  if (shell == "fish") return CommandResult{fish_script()};
  const std::vector<std::string> known = {"bash", "zsh", "fish"};
  return input_error("completion", "unknown shell " + in_quotes(shell), "bash, zsh or fish",
                     did_you_mean(shell, known));
}

}  // namespace echelon::cli
