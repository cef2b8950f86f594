// The rows of a table of measured runs that rates can be fitted to.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "costmodel/calibration/calibration.hpp"
#include "costmodel/cost_model.hpp"
#include "evaluation/fit_levels.hpp"
#include "evaluation/fit_memory.hpp"
#include "evaluation/measured_runs_csv_io.hpp"

namespace echelon {

/// A rate held at a value instead of being fitted.
struct PinnedRate {
  std::string_view key;  ///< of calibration_fields()
  double value = 0;      ///< in the field's unit
};

/// How a term is removed from the model: rates that make it vanish, or a simpler structure.
struct WithoutTerm {
  std::span<const PinnedRate> pinned{};
  AblatedFeature ablated = AblatedFeature::nothing;
};

/// Sets the pinned rates.
void pin(Calibration& calibration, std::span<const PinnedRate> pinned);

/// All rows of a table that can be fitted to, and the pinned rates.
struct Observations {
  std::vector<Observation> runs;
  const std::vector<MeasuredRun>* rows = nullptr;
  std::optional<MemoryRuns> memory{};  ///< those of the rows that tell of memory
  std::span<const PinnedRate> pinned{};
  std::map<std::string, int> left_out;           ///< reasons, with their counts
  std::map<std::size_t, std::string> reasons{};  ///< of the rows left out, in words with details
};

/// Takes rows that ran, with a step time, of grade A or B or without a grade, not flagged for time,
/// on a GPU of a known family; of several publishers' tables not those of models with gated delta
/// nets or state spaces, nor those of adapters, which are judged alone. `rows` must outlive the
/// result.
[[nodiscard]] Observations observe(const std::vector<MeasuredRun>& rows,
                                   const WithoutTerm& without = {});

/// "12 rows flagged for time", one entry per reason.
[[nodiscard]] std::vector<std::string> left_out_texts(const Observations& all);

}  // namespace echelon
