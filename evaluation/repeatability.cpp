#include "evaluation/repeatability.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <string_view>
#include <vector>

#include "core/base/quantile.hpp"
#include "evaluation/error_summary.hpp"

namespace echelon {

namespace {

/// Columns that distinguish measurements, not configurations.
constexpr std::array<std::string_view, 17> kNotConfiguration = {"row_id",
                                                                "source",
                                                                "grade",
                                                                "status",
                                                                "framework_detail",
                                                                "notes",
                                                                "group",
                                                                "step_seconds",
                                                                "tokens_per_second_per_gpu",
                                                                "tflops_per_gpu",
                                                                "peak_memory_bytes",
                                                                "static_memory_bytes",
                                                                "memory_kind",
                                                                "net_allreduce_busbw_GBps",
                                                                "net_allgather_busbw_GBps",
                                                                "net_reducescatter_busbw_GBps",
                                                                "model"};

std::string cell_key(const MeasuredRun& row, const RunField& field) {
  if (const auto* text = std::get_if<std::string MeasuredRun::*>(&field)) return row.*(*text);
  if (const auto* whole = std::get_if<WholeCell MeasuredRun::*>(&field)) {
    return row.*(*whole) ? fmt::format("{}", *(row.*(*whole))) : "";
  }
  if (const auto* flag = std::get_if<FlagCell MeasuredRun::*>(&field)) {
    return row.*(*flag) ? (*(row.*(*flag)) ? "1" : "0") : "";
  }
  const NumberCell& number = row.*std::get<NumberCell MeasuredRun::*>(field);
  return number ? fmt::format("{}", *number) : "";
}

/// "" for a row that does not describe itself well enough.
std::string configuration_of(const MeasuredRun& row) {
  if (!row.malformed.empty() || row.out_of_memory() || !row.step_seconds || !row.layers ||
      !row.hidden || !row.seq || !row.tp || !row.pp || !row.dp || !row.microbatch ||
      !row.global_batch) {
    return {};
  }
  std::string key;
  for (const RunColumn& column : run_columns()) {
    if (std::ranges::count(kNotConfiguration, column.name) == 0) {
      key += cell_key(row, column.field) + "|";
    }
  }
  return key;
}

NoiseFloor floor_of(std::vector<double> spreads, int rows) {
  std::ranges::sort(spreads);
  const auto groups = static_cast<double>(spreads.size());
  return {.groups = static_cast<int>(spreads.size()),
          .rows = rows,
          .mean = std::accumulate(spreads.begin(), spreads.end(), 0.0) / groups,
          .median = quantile(spreads, 0.5),
          .largest = spreads.back()};
}

}  // namespace

std::map<std::string, NoiseFloor> noise_of(std::span<const MeasuredRun> rows) {
  std::map<std::string, std::map<std::string, std::vector<double>>> times;
  for (const MeasuredRun& row : rows) {
    const std::string configuration = configuration_of(row);
    if (!configuration.empty()) times[row.source][configuration].push_back(*row.step_seconds);
  }
  std::map<std::string, NoiseFloor> floors;
  for (const auto& [source, configurations] : times) {
    std::vector<double> spreads;
    int repeated = 0;
    for (const auto& [configuration, seconds] : configurations) {
      if (seconds.size() < 2) continue;
      const auto [least, most] = std::ranges::minmax(seconds);
      spreads.push_back(most / least - 1);
      repeated += static_cast<int>(seconds.size());
    }
    if (!spreads.empty()) floors[source] = floor_of(std::move(spreads), repeated);
  }
  return floors;
}

}  // namespace echelon
