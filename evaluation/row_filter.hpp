// A filter over a table of runs: "stack=nanotron,gpus>=64,grade=A". The comma means "and".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"
#include "evaluation/measured_runs_csv_io.hpp"

namespace echelon {

/// Conditions a row must meet, all of them. An empty filter keeps every row.
class RowFilter {
 public:
  RowFilter() = default;
  /// Conditions are COLUMN OPERATOR VALUE with =, !=, <, <=, >, >=; text columns take = and !=
  /// only. Errors name `where`: unknown column (nearest offered), no operator, a value that is no
  /// number.
  [[nodiscard]] static Result<RowFilter> parse(std::string_view text, std::string_view where);

  /// A blank cell equals the empty value only ("group!=" keeps rows that have a group) and is
  /// neither more nor less than any number.
  [[nodiscard]] bool keeps(const MeasuredRun& row) const;

 private:
  enum class Comparison { equal, not_equal, less, at_most, more, at_least };
  struct Condition {
    const RunColumn* column = nullptr;
    Comparison comparison = Comparison::equal;
    std::string text;
    NumberCell number;
  };
  [[nodiscard]] static Result<Condition> parse_condition(std::string_view text,
                                                         std::string_view where);
  [[nodiscard]] static bool meets(const MeasuredRun& row, const Condition& condition);

  std::vector<Condition> conditions_;
};

}  // namespace echelon
