// plan man: the manual page in roff (man(7)), from the tables of flags and verbs.
#include <fmt/format.h>

#include "cli/help.hpp"
#include "cli/settings.hpp"
#include "cli/verbs.hpp"
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

std::string examples(const Verb& verb) {
  std::string out = ".nf\n";
  for (const std::string_view line : verb.examples) out += roff(line) + "\n";
  return out + ".fi\n";
}

std::string verbs_section() {
  std::string out = ".SH VERBS\n";
  for (const Verb& verb : verbs()) {
    out += fmt::format(".SS \"{}\"\n{}.\n", roff(usage_of(verb)), roff(verb.summary));
    if (!verb.details.empty()) out += fmt::format(".PP\n{}\n", roff(verb.details));
    out += ".PP\n" + examples(verb);
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
      if (here && (flag.groups & kLater) == 0) out += paragraph(spelling_of(flag), flag.help);
    }
    listed |= section.groups;
  }
  return out;
}

}  // namespace

Result<Outcome> man_verb(const Invocation&) {
  std::string out = fmt::format(".TH PLAN 1 \"\" \"echelon {}\" \"User Commands\"\n", version());
  out += ".SH NAME\nplan \\- parallel layouts for training large language models, priced\n";
  out += ".SH SYNOPSIS\n.B plan\n[\\fIverb\\fR] [\\fIflags\\fR]\n";
  out += ".SH DESCRIPTION\n" +
         roff(
             "Prices parallel layouts (tensor, pipeline and data parallelism, ZeRO, recomputation) "
             "of a model on a described machine, part by part in memory and time, and prints the "
             "fastest that fits. Without a verb it searches.") +
         "\n";
  out += verbs_section() + flags_section();
  out += ".SH CONFIGURATION\n" + roff(precedence()) + "\n";
  out += ".SH FILES\n" + paragraph(kProjectFile, "settings of the project in this directory") +
         paragraph("$XDG_CONFIG_HOME/echelon/config.json", "settings of the user");
  out += ".SH ENVIRONMENT\n" +
         paragraph("PLAN_MODEL, PLAN_GPUS, PLAN_GLOBAL_BATCH, ...", "value of a flag") +
         paragraph("NO_COLOR, CLICOLOR_FORCE", "colour off, colour on") +
         paragraph("COLUMNS", "width of tables");
  out += ".SH \"EXIT STATUS\"\n";
  for (const auto& [code, meaning] : exit_codes()) out += paragraph(code, meaning);
  return Outcome{std::move(out)};
}

}  // namespace echelon::cli
