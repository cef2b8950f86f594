#include "evaluation/row_filter.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "core/base/did_you_mean.hpp"
#include "core/base/parse_quantity.hpp"
#include "core/base/text.hpp"

namespace echelon {

namespace {

bool is_text(const RunColumn& column) {
  return std::holds_alternative<std::string MeasuredRun::*>(column.field);
}

NumberCell number_of(const MeasuredRun& row, const RunField& field) {
  if (const auto* whole = std::get_if<WholeCell MeasuredRun::*>(&field)) {
    const WholeCell& cell = row.*(*whole);
    return cell ? NumberCell(static_cast<double>(*cell)) : NumberCell{};
  }
  if (const auto* flag = std::get_if<FlagCell MeasuredRun::*>(&field)) {
    const FlagCell& cell = row.*(*flag);
    return cell ? NumberCell(*cell ? 1.0 : 0.0) : NumberCell{};
  }
  return row.*std::get<NumberCell MeasuredRun::*>(field);
}

Result<const RunColumn*> find_column(std::string_view name, std::string_view where) {
  std::vector<std::string> known;
  for (const RunColumn& column : run_columns()) {
    if (column.is_named(name)) return &column;
    known.emplace_back(column.name);
  }
  return input_error(std::string(where), fmt::format("unknown column {}", in_quotes(name)),
                     fmt::format("one of {}", fmt::join(known, ", ")), did_you_mean(name, known));
}

}  // namespace

Result<RowFilter> RowFilter::parse(std::string_view text, std::string_view where) {
  Result<std::vector<FilterTerm>> terms = parse_filter_terms(text, where);
  if (!terms) return terms.error();
  RowFilter filter;
  for (const FilterTerm& term : *terms) {
    // "source=a paper": the word goes on with the value before it.
    if (term.is_word() && !term.after_comma && is_text(*filter.conditions_.back().column)) {
      filter.conditions_.back().text += " " + term.value;
      continue;
    }
    if (term.is_word()) return not_a_condition(term.written, where);
    Result<Condition> condition = condition_of(term, where);
    if (!condition) return condition.error();
    filter.conditions_.push_back(*std::move(condition));
  }
  return filter;
}

Result<RowFilter::Condition> RowFilter::condition_of(const FilterTerm& term,
                                                     std::string_view where) {
  const Result<const RunColumn*> column = find_column(term.name, where);
  if (!column) return column.error();
  Condition condition{
      .column = *column, .comparison = term.comparison, .text = term.value, .number = {}};
  const bool ordered = needs_order(condition.comparison);
  if (is_text(*condition.column)) {
    if (!ordered) return condition;
    return input_error(std::string(where),
                       fmt::format("{} compares the text column '{}'", in_quotes(term.written),
                                   condition.column->name),
                       "= or != for text");
  }
  if (condition.text.empty() && !ordered) return condition;  // is it blank?
  constexpr double kLargest = 1e18;
  const Result<double> number = parse_ratio(condition.text, where, -kLargest, kLargest);
  if (!number) return number.error();
  condition.number = *number;
  return condition;
}

bool RowFilter::meets(const MeasuredRun& row, const Condition& condition) {
  if (const auto* text = std::get_if<std::string MeasuredRun::*>(&condition.column->field)) {
    return (row.*(*text) == condition.text) == (condition.comparison == FilterComparison::equal);
  }
  const NumberCell cell = number_of(row, condition.column->field);
  if (needs_order(condition.comparison)) {
    return cell && holds(*cell, condition.comparison, *condition.number);
  }
  return (cell == condition.number) == (condition.comparison == FilterComparison::equal);
}

bool RowFilter::keeps(const MeasuredRun& row) const {
  return std::ranges::all_of(conditions_,
                             [&](const Condition& condition) { return meets(row, condition); });
}

}  // namespace echelon
