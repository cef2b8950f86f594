#include "cli/help.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "cli/settings.hpp"
#include "cli/verbs.hpp"
#include "report/text/table.hpp"

namespace echelon::cli {

namespace {

constexpr std::array<Section, 11> kSections = {{{kJob, "What is trained, and on what"},
                                                {kLayout, "The plan (in a search: fixes the axis)"},
                                                {kSearch | kSearchAlone, "Search"},
                                                {kExplain, "Explanation"},
                                                {kValidate, "Validation"},
                                                {kCollectives, "Collectives"},
                                                {kRun | kCalibrate, "Run"},
                                                {kFit, "Fit"},
                                                {kWindow, "Window"},
                                                {kImport, "Import"},
                                                {kOutput | kPlanFile, "Output"}}};

/// The first section that both the verb and the flag belong to.
unsigned section_of(const Verb& verb, const Flag& flag) {
  for (const Section& section : kSections) {
    if ((section.groups & flag.groups & (verb.groups | kOutput)) != 0) return section.groups;
  }
  return kOutput;
}

std::string commands(const std::vector<std::string_view>& lines) {
  std::string out;
  for (const std::string_view line : lines) out += fmt::format("  {}\n", line);
  return out;
}

std::string flag_table(const Verb& verb, const TextStyle& style) {
  std::string out;
  for (const Section& section : kSections) {
    Table table({{"", Table::Align::left, 0}, {"", Table::Align::left, 0}});
    for (const Flag& flag : flags()) {
      if (listed_under(verb, flag, section)) {
        table.add({spelling_of(flag), std::string(flag.help)});
      }
    }
    if (!table.empty()) out += heading(section.title, style) + table.text(style);
  }
  return out;
}

}  // namespace

std::span<const Section> sections() { return kSections; }

bool listed_under(const Verb& verb, const Flag& flag, const Section& section) {
  const bool ours = takes(verb, flag) && (flag.groups & kLater) == 0;
  return ours && section_of(verb, flag) == section.groups;
}

std::string usage_of(const Verb& verb) {
  if (verb.name == "search") return "plan [search] [flags]";
  return fmt::format("plan {}{}{} [flags]", verb.name, verb.positional.empty() ? "" : " ",
                     verb.positional);
}

std::string spelling_of(const Flag& flag) {
  std::string out = flag.letter != 0 ? fmt::format("-{}, ", flag.letter) : std::string();
  out += flag.negatable ? fmt::format("--[no-]{}", flag.name) : fmt::format("--{}", flag.name);
  if (!flag.value.empty()) out += fmt::format(" {}", flag.value);
  return out;
}

std::vector<std::pair<std::string_view, std::string_view>> exit_codes() {
  return {{"0", "done"},
          {"1", "a legitimate no: nothing fits, or a validation over its limit"},
          {"2", "wrong input: the message says what was found, what was expected, and where"},
          {"3", "the environment lacks something: permission, disk space, a library"}};
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
      "plan: how to train a large language model on many GPUs. It prices parallel layouts (tensor, "
      "pipeline, data parallelism, ZeRO, recomputation) and prints the fastest that fits.",
      "", style);
  out += heading("Usage", style) + "  plan [VERB] [flags]\n";
  out += heading("Start here", style) +
         commands({"plan --model 7b --gpus 64", "plan --model 7b --gpus 64 -o plan.json",
                   "plan predict plan.json --microbatch 4",
                   "plan predict --model llama3-70b --gpus 256 --tp 8 --pp 4 --recompute selective",
                   "plan --help | less"});
  Table table({{"", Table::Align::left, 0}, {"", Table::Align::left, 0}});
  for (const Verb& verb : verbs()) {
    table.add({fmt::format("{} {}", verb.name, verb.positional), std::string(verb.summary)});
  }
  out += heading("Verbs", style) + table.text(style);
  out += flag_table(*find_verb("search"), style);
  out += heading("Numbers", style) +
         folded(
             "64k (thousands), 7b (billions), 4Mi (2^20), 80GiB (2^30 bytes), 80GB (10^9 bytes), "
             "400Gbps.",
             "  ", style);
  out += heading("Where settings come from", style) + folded(precedence(), "  ", style);
  Table codes({{"", Table::Align::left, 0}, {"", Table::Align::left, 0}});
  for (const auto& [code, meaning] : exit_codes())
    codes.add({std::string(code), std::string(meaning)});
  out += heading("Exit codes", style) + codes.text(style);
  return out + "\n" + folded("`plan VERB --help` says more about each verb.", "", style);
}

std::string verb_help(const Verb& verb, const TextStyle& style) {
  std::string out = folded(fmt::format("plan {}: {}", verb.name, verb.summary), "", style);
  if (!verb.details.empty()) out += "\n" + folded(verb.details, "", style);
  out += heading("Usage", style) + "  " + usage_of(verb) + "\n";
  out +=
      heading(verb.examples.size() == 1 ? "Example" : "Examples", style) + commands(verb.examples);
  return out + flag_table(verb, style);
}

Result<Outcome> help_verb(const Invocation& call) {
  const std::vector<std::string>& words = call.arguments.words;
  if (words.empty()) return Outcome{overview(call.style)};
  const std::string name = words.size() == 2 ? words[0] + " " + words[1] : words[0];
  if (const Verb* verb = find_verb(name)) return Outcome{verb_help(*verb, call.style)};
  if (name == "topo") return Outcome{verb_help(*find_verb("topo list"), call.style)};
  return input_error("help", "unknown verb '" + name.substr(0, 60) + "'",
                     "a verb that `plan --help` lists");
}

}  // namespace echelon::cli
