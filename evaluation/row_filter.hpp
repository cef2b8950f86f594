// A filter over a table of runs: "framework=nanotron,gpus>=64,grade=A"
// (core/base/filter_terms.hpp).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/filter_terms.hpp"
#include "core/base/result.hpp"
#include "evaluation/measured_runs_csv_io.hpp"

namespace echelon {

/// Conditions a row must meet, all of them. An empty filter keeps every row.
class RowFilter {
 public:
  RowFilter() = default;
  /// Conditions are COLUMN OPERATOR VALUE; text columns take only = and !=, and their values may
  /// have blanks. Errors name `where`: unknown column (nearest offered), no operator, a value that
  /// is not a number.
  [[nodiscard]] static Result<RowFilter> parse(std::string_view text, std::string_view where);

  /// A blank cell equals the empty value only ("group!=" keeps rows that have a group) and is
  /// neither more nor less than any number.
  [[nodiscard]] bool keeps(const MeasuredRun& row) const;

 private:
  struct Condition {
    const RunColumn* column = nullptr;
    FilterComparison comparison = FilterComparison::equal;
    std::string text;
    NumberCell number;
  };
  [[nodiscard]] static Result<Condition> condition_of(const FilterTerm& term,
                                                      std::string_view where);
  [[nodiscard]] static bool meets(const MeasuredRun& row, const Condition& condition);

  std::vector<Condition> conditions_;
};

}  // namespace echelon
