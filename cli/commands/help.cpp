#include "cli/commands/help.hpp"
#include "cli/commands/command_table.hpp"
#include "core/base/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "cli/commands/command.hpp"
#include "cli/flags/settings.hpp"
#include "report/text/table.hpp"

namespace echelon::cli {

namespace {

constexpr std::array<Section, 11> kSections = {
    {{kJob, "Model, job and cluster"},
     {kLayout, "Plan (in a search, a flag fixes its axis)"},
     {kSearch | kSearchAlone, "Search"},
     {kExplain, "Explanation"},
     {kValidate, "Validation"},
     {kCollectives, "Collectives"},
     {kRun | kCalibrate, "Run"},
     {kFit, "Fit"},
     {kWindow, "Window"},
     {kImport, "Import"},
     {kOutput | kPlanFile, "Output"}}};

/// The first section that both the command and the flag belong to.
unsigned section_of(const Command& command, const Flag& flag) {
  for (const Section& section : kSections) {
    if ((section.groups & flag.groups & (command.groups | kOutput)) != 0) return section.groups;
  }
  return kOutput;
}

std::string example_lines(const std::vector<std::string_view>& lines) {
  std::string out;
  for (const std::string_view line : lines) out += fmt::format("  {}\n", line);
  return out;
}

std::string flag_table(const Command& command, const TextStyle& style) {
  std::string out;
  for (const Section& section : kSections) {
    Table table({{"", Table::Align::left, 0}, {"", Table::Align::left, 0}});
    for (const Flag& flag : flags()) {
      if (listed_under(command, flag, section)) {
        table.add({spelling_of(flag), std::string(flag.help)});
      }
    }
    if (!table.empty()) out += heading(section.title, style) + table.text(style);
  }
  return out;
}

}  // namespace

std::span<const Section> sections() { return kSections; }

bool listed_under(const Command& command, const Flag& flag, const Section& section) {
  return takes(command, flag) && section_of(command, flag) == section.groups;
}

std::string usage_of(const Command& command) {
  if (command.name == "search") return "plan [search] [flags]";
  return fmt::format("plan {}{}{} [flags]", command.name, command.positional.empty() ? "" : " ",
                     command.positional);
}

std::string spelling_of(const Flag& flag) {
  std::string out = flag.letter != 0 ? fmt::format("-{}, ", flag.letter) : std::string();
  out += flag.negatable ? fmt::format("--[no-]{}", flag.name) : fmt::format("--{}", flag.name);
  if (!flag.value.empty()) out += fmt::format(" {}", flag.value);
  if (flag.value.empty() && !flag.choices.empty()) out += fmt::format(" [{}]", flag.choices);
  return out;
}

std::vector<std::pair<std::string_view, std::string_view>> exit_codes() {
  return {{"0", "done"},
          {"1", "a legitimate no: nothing fits, or a validation exceeds its error limit"},
          {"2", "wrong input: the message names what was found, what was expected, and where"},
          {"3", "the environment lacks something: a permission, disk space, a library"}};
}

std::string precedence() {
  return fmt::format(
      "A flag beats the environment (PLAN_MODEL, PLAN_GPUS ...: PLAN_, the flag in capitals, _ for "
      "-), which beats ./{}, which beats $XDG_CONFIG_HOME/echelon/config.json (by default "
      "~/.config/echelon/config.json). The files are JSON objects whose keys are flags with _ for "
      "-: {{\"model\": \"7b\", \"global_batch\": 512}}. --no-config ignores them.",
      kProjectFile);
}

std::string overview(const TextStyle& style) {
  std::string out = folded(
      "plan: a planner for training large language models on many GPUs. It prices parallel layouts "
      "(tensor, pipeline and data parallelism, ZeRO, recomputation) and prints the fastest that "
      "fits.",
      "", style);
  out += heading("Usage", style) + "  plan [COMMAND] [flags]\n";
  out += heading("Start here", style) +
         example_lines(
             {"plan --model 7b --gpus 64", "plan --model 7b --gpus 64 -o plan.json",
              "plan predict plan.json --microbatch 4",
              "plan predict --model llama3-70b --gpus 256 --tp 8 --pp 4 --recompute selective",
              "plan --help | less"});
  Table table({{"", Table::Align::left, 0}, {"", Table::Align::left, 0}});
  for (const Command& command : commands()) {
    table.add(
        {fmt::format("{} {}", command.name, command.positional), std::string(command.summary)});
  }
  out += heading("Commands", style) + table.text(style);
  out += flag_table(*find_command("search"), style);
  out +=
      heading("Numbers", style) +
      folded(
          "64k (thousands; of --seq 1,024 tokens each, as contexts are named), 7b (billions), 4Mi "
          "(2^20), 80GiB (2^30 bytes), 80GB (10^9 bytes), 400Gbps.",
          "  ", style);
  out += heading("Where settings come from", style) + folded(precedence(), "  ", style);
  Table codes({{"", Table::Align::left, 0}, {"", Table::Align::left, 0}});
  for (const auto& [code, meaning] : exit_codes())
    codes.add({std::string(code), std::string(meaning)});
  out += heading("Exit codes", style) + codes.text(style);
  return out + "\n" + folded("`plan COMMAND --help` describes each command in detail.", "", style);
}

std::string command_help(const Command& command, const TextStyle& style) {
  std::string out = folded(fmt::format("plan {}: {}", command.name, command.summary), "", style);
  if (!command.details.empty()) out += "\n" + folded(command.details, "", style);
  out += heading("Usage", style) + "  " + usage_of(command) + "\n";
  out += heading(command.examples.size() == 1 ? "Example" : "Examples", style) +
         example_lines(command.examples);
  return out + flag_table(command, style);
}

Result<CommandResult> help_command(const CommandContext& context) {
  const std::vector<std::string>& words = context.arguments.words;
  if (words.empty()) return CommandResult{overview(context.style)};
  const std::string name = words.size() == 2 ? words[0] + " " + words[1] : words[0];
  if (const Command* command = find_command(name))
    return CommandResult{command_help(*command, context.style)};
  if (name == "topo") return CommandResult{command_help(*find_command("topo list"), context.style)};
  return input_error("help", "unknown command " + in_quotes(name),
                     "a command that `plan --help` lists");
}

}  // namespace echelon::cli
