// The only file that includes CLI11: it splits words from flags; meaning and messages are ours.
#include "cli/arguments.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "core/base/did_you_mean.hpp"

namespace echelon::cli {

namespace {

std::string dashed(std::string_view name) { return "--" + std::string(name); }

/// What the user typed, short and printable.
std::string shown(std::string_view text) {
  constexpr std::size_t kLongest = 60;
  std::string out = "'";
  for (const char c : text.substr(0, kLongest)) {
    out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  }
  return out + (text.size() > kLongest ? "...'" : "'");
}

struct Parsed {
  std::vector<std::string> words;
  std::vector<std::string> unknown;
  std::map<std::string, std::vector<std::string>, std::less<>> values;
  std::map<std::string, bool, std::less<>> switches;  ///< "no-x" is a switch of its own
};

Result<Parsed> run_cli11(int argc, const char* const* argv) {
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  Parsed parsed;
  std::map<std::string, CLI::Option*> switches;
  for (const Flag& flag : flags()) {
    const std::string spelled =
        (flag.letter != 0 ? fmt::format("-{},", flag.letter) : std::string()) + dashed(flag.name);
    if (flag.value.empty()) {
      switches[std::string(flag.name)] = app.add_flag(spelled)->disable_flag_override();
      if (flag.negatable) {
        const std::string opposite = "no-" + std::string(flag.name);
        switches[opposite] = app.add_flag(dashed(opposite))->disable_flag_override();
      }
    } else {
      app.add_option(spelled, parsed.values[std::string(flag.name)])->allow_extra_args(false);
    }
  }
  app.add_option("words", parsed.words);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ArgumentMismatch& error) {
    const std::string what = error.what();
    // "--gpus: 1 required TEXT missing", "json was given a disallowed flag override"
    const std::string flag = what.substr(0, what.find_first_of(": "));
    const std::string name = flag.substr(std::min(flag.find_first_not_of('-'), flag.size()));
    const Flag* known = find_flag(name);
    if (known != nullptr && !known->value.empty()) {
      return input_error(dashed(name), "no value", std::string(known->value));
    }
    return input_error(dashed(name), "a value was given", "the flag alone: it is a switch");
  } catch (const CLI::ParseError& error) {
    return input_error("", error.what(), "flags and words as `plan --help` lists them");
  }
  for (const auto& [name, option] : switches) {
    if (option->count() > 0) parsed.switches[name] = true;
  }
  // CLI11 leaves "--" itself among the rest; what follows it are words.
  bool words_only = false;
  for (const std::string& rest : app.remaining()) {
    if (rest == "--")
      words_only = true;
    else if (words_only)
      parsed.words.push_back(rest);
    else
      parsed.unknown.push_back(rest);
  }
  return parsed;
}

Error unknown_flag(const std::string& text) {
  std::vector<std::string> known;
  for (const Flag& flag : flags()) {
    known.push_back(dashed(flag.name));
    if (flag.negatable) known.push_back("--no-" + std::string(flag.name));
  }
  std::string stem = text.substr(0, text.find('='));
  stem = dashed(stem.substr(std::min(stem.find_first_not_of('-'), stem.size())));
  std::string hint = did_you_mean(stem, known);
  if (hint.empty()) hint = "`plan --help` lists them";
  return input_error("", "unknown flag " + shown(text), "", std::move(hint));
}

Error unknown_verb(const std::string& word) {
  const std::vector<std::string> known = first_words();
  const std::string list = fmt::format("one of {}", fmt::join(known, ", "));
  const auto later = later_verbs();
  if (std::find(later.begin(), later.end(), word) != later.end()) {
    return input_error("", fmt::format("this version has no verb '{}' yet", word), list);
  }
  std::string hint = did_you_mean(word, known);
  if (hint.empty()) hint = "a search needs no verb: plan --model 7b --gpus 64";
  return input_error("", "unknown verb " + shown(word), list, std::move(hint));
}

/// Takes the verb off the front of `words`.
Result<const Verb*> take_verb(std::vector<std::string>& words) {
  if (words.empty()) return find_verb("search");
  const std::string first = words.front();
  if (const Verb* verb = find_verb(first)) {
    words.erase(words.begin());
    return verb;
  }
  const std::vector<std::string> known = first_words();
  if (std::find(known.begin(), known.end(), first) == known.end()) return unknown_verb(first);
  // A verb of two words.
  std::vector<std::string> second;
  for (const Verb& verb : verbs()) {
    if (verb.name.starts_with(first + " ")) second.emplace_back(verb.name.substr(first.size() + 1));
  }
  const std::string expected = fmt::format("one of {}", fmt::join(second, ", "));
  if (words.size() < 2) return input_error(first, "nothing after it", expected);
  if (const Verb* verb = find_verb(first + " " + words[1])) {
    words.erase(words.begin(), words.begin() + 2);
    return verb;
  }
  if (first == "topo" && words[1] == "import") {
    return input_error("", "this version has no 'topo import' yet", expected);
  }
  return input_error(first, "unknown word " + shown(words[1]), expected,
                     did_you_mean(words[1], second));
}

Status check_words(const Verb& verb, const std::vector<std::string>& words) {
  const std::string usage =
      fmt::format("plan {}{}{}", verb.name, verb.positional.empty() ? "" : " ", verb.positional);
  if (words.size() < verb.least_words) {
    return input_error(
        fmt::format("plan {}", verb.name),
        words.empty() ? "nothing after it" : fmt::format("only {}", shown(words.back())), usage);
  }
  if (words.size() > verb.most_words) {
    return input_error(std::string(verb.name), "stray word " + shown(words[verb.most_words]), usage,
                       "values of flags follow their flag");
  }
  return Done{};
}

std::string verbs_taking(const Flag& flag) {
  std::vector<std::string_view> names;
  for (const Verb& verb : verbs()) {
    if (takes(verb, flag)) names.push_back(verb.name);
  }
  return fmt::format("it belongs to plan {}", fmt::join(names, ", plan "));
}

Status collect_values(const Parsed& parsed, Arguments& arguments) {
  for (const auto& [name, values] : parsed.values) {
    if (values.empty()) continue;
    if (values.size() > 1) {
      return input_error(dashed(name),
                         fmt::format("given twice ({} and {})", shown(values[0]), shown(values[1])),
                         "one value");
    }
    const std::string& value = values.front();
    const std::string stem = value.substr(0, value.find('='));
    const bool is_flag = stem.starts_with("--") && find_flag(stem.substr(2)) != nullptr;
    if (is_flag) {
      return input_error(dashed(name), fmt::format("no value before {}", stem),
                         std::string(find_flag(name)->value));
    }
    arguments.flags[name] = value;
  }
  return Done{};
}

Status collect_switches(const Parsed& parsed, Arguments& arguments) {
  for (const auto& [name, given] : parsed.switches) {
    const bool negative = find_flag(name) == nullptr;  // only "no-x" is not in the table
    const std::string plain = negative ? name.substr(3) : name;
    if (negative && parsed.switches.contains(plain)) {
      return input_error(dashed(plain), "given together with " + dashed(name), "one of the two");
    }
    arguments.flags[plain] = negative ? "false" : "true";
  }
  return Done{};
}

Status check_flags(const Arguments& arguments) {
  for (const auto& [name, value] : arguments.flags) {
    const Flag& flag = *find_flag(name);
    if (takes(*arguments.verb, flag)) continue;
    return input_error(dashed(name), fmt::format("plan {} does not take it", arguments.verb->name),
                       "", verbs_taking(flag));
  }
  return Done{};
}

}  // namespace

std::optional<std::string> Arguments::value(std::string_view flag) const {
  const auto at = flags.find(flag);
  return at == flags.end() ? std::nullopt : std::optional(at->second);
}

Result<Arguments> parse_arguments(int argc, const char* const* argv) {
  Result<Parsed> parsed = run_cli11(argc, argv);
  if (!parsed) return parsed.error();
  if (!parsed->unknown.empty()) return unknown_flag(parsed->unknown.front());

  Arguments arguments;
  arguments.words = parsed->words;
  if (const Status values = collect_values(*parsed, arguments); !values) return values.error();
  if (const Status switches = collect_switches(*parsed, arguments); !switches) {
    return switches.error();
  }
  const bool asks_for_help = arguments.has("help") || arguments.has("version");
  arguments.verb_given = !arguments.words.empty();
  if (asks_for_help && arguments.words.size() == 1 && arguments.words.front() == "topo") {
    arguments.verb = find_verb("topo list");
    return arguments;
  }
  const Result<const Verb*> verb = take_verb(arguments.words);
  if (!verb) return verb.error();
  arguments.verb = *verb;
  if (asks_for_help) return arguments;
  if (const Status words = check_words(*arguments.verb, arguments.words); !words) {
    return words.error();
  }
  if (const Status taken = check_flags(arguments); !taken) return taken.error();
  return arguments;
}

}  // namespace echelon::cli
