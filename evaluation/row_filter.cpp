#include "evaluation/row_filter.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "core/base/did_you_mean.hpp"
#include "core/base/parse_quantity.hpp"

namespace echelon {

namespace {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

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
    if (column.name == name) return &column;
    known.emplace_back(column.name);
  }
  return input_error(std::string(where), fmt::format("unknown column '{}'", name.substr(0, 60)),
                     fmt::format("one of {}", fmt::join(known, ", ")), did_you_mean(name, known));
}

}  // namespace

Result<RowFilter> RowFilter::parse(std::string_view text, std::string_view where) {
  RowFilter filter;
  if (trimmed(text).empty()) return filter;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    Result<Condition> condition = parse_condition(text.substr(at, comma - at), where);
    if (!condition) return condition.error();
    filter.conditions_.push_back(*std::move(condition));
    at = comma + 1;
  }
  return filter;
}

Result<RowFilter::Condition> RowFilter::parse_condition(std::string_view text,
                                                        std::string_view where) {
  const std::size_t at = text.find_first_of("=!<>");
  const std::string_view rest = at == std::string_view::npos ? "" : text.substr(at);
  static constexpr std::pair<std::string_view, Comparison> kOperators[] = {
      {"!=", Comparison::not_equal}, {"<=", Comparison::at_most}, {">=", Comparison::at_least},
      {"=", Comparison::equal},      {"<", Comparison::less},     {">", Comparison::more}};
  const auto* op = std::ranges::find_if(
      kOperators, [&](const auto& known) { return rest.starts_with(known.first); });
  if (rest.empty() || op == std::end(kOperators)) {
    return input_error(std::string(where),
                       fmt::format("'{}' is not a condition", text.substr(0, 60)),
                       "COLUMN=VALUE, or with !=, <, <=, >, >=", "separate conditions by commas");
  }
  const Result<const RunColumn*> column = find_column(trimmed(text.substr(0, at)), where);
  if (!column) return column.error();
  Condition condition{.column = *column,
                      .comparison = op->second,
                      .text = std::string(trimmed(rest.substr(op->first.size()))),
                      .number = {}};
  const bool ordered =
      condition.comparison != Comparison::equal && condition.comparison != Comparison::not_equal;
  if (is_text(*condition.column)) {
    if (!ordered) return condition;
    return input_error(std::string(where),
                       fmt::format("'{}' compares the text column '{}'", text.substr(0, 60),
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
    return (row.*(*text) == condition.text) == (condition.comparison == Comparison::equal);
  }
  const NumberCell cell = number_of(row, condition.column->field);
  switch (condition.comparison) {
    case Comparison::equal: return cell == condition.number;
    case Comparison::not_equal: return cell != condition.number;
    case Comparison::less: return cell && *cell < *condition.number;
    case Comparison::at_most: return cell && *cell <= *condition.number;
    case Comparison::more: return cell && *cell > *condition.number;
    case Comparison::at_least: return cell && *cell >= *condition.number;
  }
  return false;
}

bool RowFilter::keeps(const MeasuredRun& row) const {
  return std::ranges::all_of(conditions_,
                             [&](const Condition& condition) { return meets(row, condition); });
}

}  // namespace echelon
