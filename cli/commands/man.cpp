// plan man: the manual page in roff (man(7)), from the tables of flags and commands.
#include <fmt/format.h>

#include "cli/commands/command.hpp"
#include "cli/commands/command_table.hpp"
#include "cli/commands/help.hpp"
#include "cli/flags/settings.hpp"
#include "core/version.hpp"

namespace echelon::cli {

namespace {

/// Text that roff prints as it is: no commands at line starts, no escapes, hyphens as typed.
std::string roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
  }
  const bool command = !out.empty() && (out[0] == '.' || out[0] == '\'');
  return (command ? "\\&" : "") + out;
}

std::string paragraph(std::string_view tag, std::string_view text) {
  return fmt::format(".TP\n.B {}\n{}\n", roff(tag), roff(text));
}

std::string examples(const Command& command) {
  std::string out = ".nf\n";
  for (const std::string_view line : command.examples) out += roff(line) + "\n";
  return out + ".fi\n";
}

std::string commands_section() {
  std::string out = ".SH COMMANDS\n";
  for (const Command& command : commands()) {
    out += fmt::format(".SS \"{}\"\n{}.\n", roff(usage_of(command)), roff(command.summary));
    if (!command.details.empty()) out += fmt::format(".PP\n{}\n", roff(command.details));
    out += ".PP\n" + examples(command);
  }
  return out;
}

std::string flags_section() {
  std::string out = ".SH FLAGS\n";
  unsigned listed = 0;  // a flag of several groups is listed under the first
  for (const Section& section : sections()) {
    out += fmt::format(".SS \"{}\"\n", roff(section.title));
    for (const Flag& flag : flags()) {
      const bool here = (flag.groups & section.groups) != 0 && (flag.groups & listed) == 0;
      if (here) out += paragraph(spelling_of(flag), flag.help);
    }
    listed |= section.groups;
  }
  return out;
}

}  // namespace

Result<CommandResult> man_command(const CommandContext&) {
  std::string out = fmt::format(".TH PLAN 1 \"\" \"echelon {}\" \"User Commands\"\n", version());
  out += ".SH NAME\nplan \\- plan the parallel training of large language models\n";
  out += ".SH SYNOPSIS\n.B plan\n[\\fIcommand\\fR] [\\fIflags\\fR]\n";
  out += ".SH DESCRIPTION\n" +
         roff(
             "Prices parallel layouts (tensor, pipeline and data parallelism, ZeRO, recomputation) "
             "of a model on a described machine, part by part in memory and time, and prints the "
             "fastest that fits. Without a command it searches.") +
         "\n";
  out += commands_section() + flags_section();
  out += ".SH CONFIGURATION\n" + roff(precedence()) + "\n";
  out += ".SH FILES\n" + paragraph(kProjectFile, "settings of the project in this directory") +
         paragraph("$XDG_CONFIG_HOME/echelon/config.json", "settings of the user");
  out += ".SH ENVIRONMENT\n" +
         paragraph("PLAN_MODEL, PLAN_GPUS, PLAN_GLOBAL_BATCH, ...", "value of a flag") +
         paragraph("NO_COLOR, CLICOLOR_FORCE", "colour off, colour on") +
         paragraph("COLUMNS", "width of tables");
  out += ".SH \"EXIT STATUS\"\n";
  for (const auto& [code, meaning] : exit_codes()) out += paragraph(code, meaning);
  return CommandResult{std::move(out)};
}

}  // namespace echelon::cli
