// The ways in which programs print arguments: dumps, command lines, reprs, dictionaries, tables.
#include <algorithm>
#include <string>

#include "core/base/text.hpp"
#include "interop/logs/arguments.hpp"

namespace echelon {

namespace {

constexpr std::string_view kBlanks = " \t";
constexpr std::size_t kLongestKey = 64;

std::string_view trimmed(std::string_view text, std::string_view what = kBlanks) {
  const std::size_t begin = text.find_first_not_of(what);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(what) + 1 - begin);
}

bool in_key(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-';
}

/// The key that ends at `end`: the word before it.
std::string_view key_before(std::string_view line, std::size_t end) {
  std::size_t begin = end;
  while (begin > 0 && in_key(line[begin - 1])) --begin;
  return line.substr(begin, end - begin);
}

/// A value up to a blank, comma or bracket; a quoted one up to its quote.
std::string_view value_at(std::string_view text, std::string_view ends) {
  if (!text.empty() && (text.front() == '\'' || text.front() == '"')) {
    const std::size_t quote = text.find(text.front(), 1);
    return quote == std::string_view::npos ? std::string_view{} : text.substr(1, quote - 1);
  }
  return trimmed(text.substr(0, std::min(text.find_first_of(ends), text.size())));
}

/// Applies the rules of `key` to `value`.
class Rules {
 public:
  Rules(std::span<const ArgumentRule> rules, const ArgumentSink& sink)
      : rules_(rules), sink_(sink) {}

  void take(std::string_view key, std::string_view value) const {
    value = trimmed(value);
    if (key.empty() || key.size() > kLongestKey || value.empty()) return;
    std::string name(key);
    std::ranges::replace(name, '-', '_');
    std::string low;
    std::string_view answered;  // the column that the value decides
    for (const ArgumentRule& rule : rules_) {
      if (rule.key != name || rule.name == answered) continue;
      if (low.empty()) low = lower_case(value.substr(0, 200));
      const bool nothing = low == "none" || low == "null";
      if (rule.when.empty() && nothing) continue;
      const bool holds =
          rule.when.empty() || low == rule.when ||
          (rule.when.front() == '*' && low.find(rule.when.substr(1)) != std::string::npos);
      if (!holds) continue;
      sink_(rule.name, rule.then.empty() ? value : rule.then, key);
      answered = rule.name;
    }
  }

 private:
  std::span<const ArgumentRule> rules_;
  const ArgumentSink& sink_;
};

/// "  key ................ value"
void find_dotted(std::string_view line, const Rules& rules) {
  const std::size_t dots = find_words(line, " ...");
  if (dots == std::string_view::npos) return;
  const std::size_t value = line.find_first_not_of('.', dots + 1);
  if (value == std::string_view::npos || line[value] != ' ') return;
  rules.take(key_before(line, dots), trimmed(line.substr(value)));
}

/// "--key value --switch --key=value": a switch is "true".
void find_options(std::string_view line, const Rules& rules) {
  for (std::size_t at = find_words(line, "--"); at != std::string_view::npos;) {
    std::size_t end = at + 2;
    while (end < line.size() && in_key(line[end])) ++end;
    const std::string_view key = line.substr(at + 2, end - at - 2);
    const std::size_t next = std::min(find_words(line, " --", end), line.size());
    std::string_view value = line.substr(end, next - end);
    if (!value.empty() && value.front() == '=') value.remove_prefix(1);
    value = value_at(trimmed(value), " \t,;)");
    rules.take(key, value.empty() ? "true" : value);
    at = next == line.size() ? std::string_view::npos : find_words(line, "--", next);
  }
}

/// "key=value, key=value)" and "name=Class(key=value"
void find_assignments(std::string_view line, const Rules& rules) {
  for (std::size_t at = line.find('='); at != std::string_view::npos; at = line.find('=', at + 1)) {
    const std::string_view value = value_at(line.substr(at + 1), ",)|");
    if (value.find('(') == std::string_view::npos) rules.take(key_before(line, at), value);
  }
}

/// "'key': value, 'key': {" and the same with double quotes.
void find_entries(std::string_view line, const Rules& rules) {
  for (std::size_t at = line.find(':'); at != std::string_view::npos; at = line.find(':', at + 1)) {
    if (at < 2 || (line[at - 1] != '\'' && line[at - 1] != '"')) continue;
    const std::string_view value = value_at(trimmed(line.substr(at + 1)), ",}]");
    if (value.starts_with('{') || value.starts_with('[')) continue;
    rules.take(key_before(line, at - 1), value);
  }
}

/// "  key: value" and nothing else on the line.
void find_yaml(std::string_view line, const Rules& rules) {
  const std::string_view text = trimmed(line);
  const std::size_t colon = text.find(": ");
  if (colon == std::string_view::npos || colon > kLongestKey) return;
  const std::string_view key = text.substr(0, colon);
  if (!std::ranges::all_of(key, in_key)) return;
  rules.take(key, value_at(trimmed(text.substr(colon + 1)), " #"));
}

/// "| key | value |"
void find_row(std::string_view line, const Rules& rules) {
  const std::string_view text = trimmed(line);
  if (text.size() < 5 || text.front() != '|' || text.back() != '|') return;
  const std::size_t middle = text.find('|', 1);
  if (middle == std::string_view::npos || text.find('|', middle + 1) != text.size() - 1) return;
  rules.take(trimmed(text.substr(1, middle - 1)),
             trimmed(text.substr(middle + 1, text.size() - middle - 2)));
}

/// What stands between the words before and the words after it.
void find_text(std::string_view line, const TextField& field, const Rules& rules) {
  const std::size_t before = find_words(line, field.before);
  if (before == std::string_view::npos) return;
  const std::size_t begin = before + field.before.size();
  const std::size_t after = find_words(line, field.after, begin);
  if (after != std::string_view::npos) rules.take(field.key, line.substr(begin, after - begin));
}

}  // namespace

void find_arguments(const LogFormat& format, std::string_view line, const ArgumentSink& sink) {
  const Rules rules(format.arguments, sink);
  for (const TextField& field : format.texts) find_text(line, field, rules);
  if ((format.dumps & kDotted) != 0) find_dotted(line, rules);
  if ((format.dumps & kCommandLine) != 0) find_options(line, rules);
  if ((format.dumps & kAssignments) != 0) find_assignments(line, rules);
  if ((format.dumps & kDictionary) != 0) find_entries(line, rules);
  if ((format.dumps & kYaml) != 0) find_yaml(line, rules);
  if ((format.dumps & kTable) != 0) find_row(line, rules);
}

}  // namespace echelon
