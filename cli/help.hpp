// Help, from the tables of flags and verbs.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/flags.hpp"
#include "report/terminal_style.hpp"

namespace echelon::cli {

/// `plan --help`: verbs, the most used flags, examples.
[[nodiscard]] std::string overview(const TextStyle& style);
/// `plan VERB --help`: usage, what it does, its flags, examples.
[[nodiscard]] std::string verb_help(const Verb& verb, const TextStyle& style);
/// "plan predict [PLAN.json] [flags]".
[[nodiscard]] std::string usage_of(const Verb& verb);
/// "-o, --output FILE", "--[no-]flash-attention".
[[nodiscard]] std::string spelling_of(const Flag& flag);

struct Section {
  unsigned groups;
  std::string_view title;
};
/// Headings under which flags are listed, in order.
[[nodiscard]] std::span<const Section> sections();
/// The heading a flag is listed under for this verb.
[[nodiscard]] bool listed_under(const Verb& verb, const Flag& flag, const Section& section);

/// What exit codes mean, one line each.
[[nodiscard]] std::vector<std::pair<std::string_view, std::string_view>> exit_codes();
/// Where settings come from, in one sentence.
[[nodiscard]] std::string precedence();

}  // namespace echelon::cli
