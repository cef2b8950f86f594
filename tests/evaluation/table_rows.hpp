// Rows of the published runs, and what they are priced as.
#pragma once

#include <algorithm>
#include <string_view>
#include <variant>
#include <vector>

#include "evaluation/run_mapping.hpp"
#include "tests/places.hpp"
#include "tests/support/catch.hpp"

namespace echelon {

/// All of them.
inline const std::vector<MeasuredRun>& whole_table() {
  static const std::vector<MeasuredRun> kRows =
      *read_runs(ECHELON_SOURCE_DIR "/tests/validation/runs.csv");
  return kRows;
}

inline MeasuredRun row_of(const std::vector<MeasuredRun>& table, std::string_view id) {
  const auto found = std::ranges::find(table, id, &MeasuredRun::row_id);
  REQUIRE(found != table.end());
  return *found;
}

/// Fails where the row is skipped.
inline MappedRun mapped(const MeasuredRun& row) {
  auto result = RunMapper().map(row);
  if (const auto* skipped = std::get_if<SkippedRun>(&result)) FAIL(skipped->reason);
  return std::get<MappedRun>(result);
}

}  // namespace echelon
