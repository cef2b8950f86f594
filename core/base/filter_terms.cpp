#include "core/base/filter_terms.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include "core/base/text.hpp"

namespace echelon {

namespace {

constexpr std::string_view kBlanks = " \t";
constexpr std::string_view kOperatorLetters = "=!<>";
constexpr std::array<std::pair<std::string_view, FilterComparison>, 6> kOperators = {
    {{"!=", FilterComparison::not_equal},
     {"<=", FilterComparison::at_most},
     {">=", FilterComparison::at_least},
     {"=", FilterComparison::equal},
     {"<", FilterComparison::less},
     {">", FilterComparison::more}}};

void skip_blanks(std::string_view& rest) {
  rest.remove_prefix(std::min(rest.find_first_not_of(kBlanks), rest.size()));
}

std::string_view taken(std::string_view& rest, std::size_t length) {
  const std::string_view out = rest.substr(0, length);
  rest.remove_prefix(out.size());
  return out;
}

bool has_operator(std::string_view word) {
  return word.find_first_of(kOperatorLetters) != std::string_view::npos;
}

/// The first term of `rest`, which begins with none of blanks and commas; takes it off.
Result<FilterTerm> take_term(std::string_view& rest, std::string_view where) {
  const std::string_view whole = rest.substr(0, rest.find_first_of(kBlanks));
  FilterTerm term;
  const std::string_view word = taken(rest, rest.find_first_of(" \t=!<>"));
  std::string_view behind = rest;
  skip_blanks(behind);
  if (behind.empty() || kOperatorLetters.find(behind.front()) == std::string_view::npos) {
    term.value = term.written = word;
    return term;
  }
  const auto* const op = std::ranges::find_if(
      kOperators, [&](const auto& known) { return behind.starts_with(known.first); });
  if (op == kOperators.end() || word.empty()) return not_a_condition(whole, where);
  term.name = word;
  term.comparison = op->second;
  rest = behind.substr(op->first.size());
  std::string_view after = rest;
  skip_blanks(after);
  // "group!= gpus>=8": a blank value, then the next term.
  const std::string_view next = after.substr(0, after.find_first_of(kBlanks));
  if (after.size() == rest.size() || !has_operator(next)) {
    rest = after;
    term.value = taken(rest, rest.find_first_of(kBlanks));
  }
  term.written = term.name + std::string(op->first) + term.value;
  return term;
}

}  // namespace

Result<std::vector<FilterTerm>> parse_filter_terms(std::string_view text, std::string_view where) {
  std::vector<FilterTerm> terms;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    std::string_view part = text.substr(at, comma - at);
    bool first = true;
    for (skip_blanks(part); !part.empty(); skip_blanks(part)) {
      Result<FilterTerm> term = take_term(part, where);
      if (!term) return term.error();
      term->after_comma = std::exchange(first, false);
      terms.push_back(*std::move(term));
    }
    at = comma + 1;
  }
  return terms;
}

Error not_a_condition(std::string_view written, std::string_view where) {
  return input_error(
      std::string(where), in_quotes(written) + " is not a condition",
      "NAME=VALUE, or with !=, <, <=, >, >=", "separate conditions by commas or blanks");
}

bool needs_order(FilterComparison comparison) {
  return comparison != FilterComparison::equal && comparison != FilterComparison::not_equal;
}

bool holds(double value, FilterComparison comparison, double limit) {
  switch (comparison) {
    case FilterComparison::equal: return value == limit;
    case FilterComparison::not_equal: return value != limit;
    case FilterComparison::less: return value < limit;
    case FilterComparison::at_most: return value <= limit;
    case FilterComparison::more: return value > limit;
    case FilterComparison::at_least: return value >= limit;
  }
  return false;
}

}  // namespace echelon
