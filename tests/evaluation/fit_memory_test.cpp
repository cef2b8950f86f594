// Fitting memory rates, on published rows with generated peaks.
#include "evaluation/fit_memory.hpp"

#include <variant>

#include "costmodel/calibration/calibration_io.hpp"
#include "costmodel/cost_model.hpp"
#include "costmodel/time/stage_model.hpp"
#include "evaluation/fit.hpp"
#include "evaluation/memory_metric.hpp"
#include "evaluation/run_mapping.hpp"
#include "tests/places.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

const std::vector<MeasuredRun>& published_rows() {
  static const std::vector<MeasuredRun> kRows =
      read_runs(ECHELON_SOURCE_DIR "/tests/validation/runs.csv").value();
  return kRows;
}

/// The rows of one source with the peaks of a machine with these rates; runs that need more than
/// all but `margin` of its memory end out of memory.
std::vector<MeasuredRun> with_planted_peaks(std::string_view source, double reserve, Bytes context,
                                            Bytes margin) {
  std::vector<MeasuredRun> rows;
  RunMapper mapper;
  for (MeasuredRun row : published_rows()) {
    if (!row.source.starts_with(source)) continue;
    row.status = "ok";
    auto mapped = mapper.map(row);
    auto* run = std::get_if<MappedRun>(&mapped);
    if (run == nullptr) continue;
    Calibration truth = prior_calibration(run->cluster.gpu(), run->framework).value();
    truth.allocator_reserve = reserve;
    truth.context = context;
    truth.fits_margin = margin;
    const CostModel cost_model(run->model, run->job, run->cluster, run->framework, truth);
    const ShardingCosts costs = cost_model.sharding_costs(sharding_of(run->plan));
    const StageModel model(cost_model, run->plan, costs);
    const MemoryPrediction memory = cost_model.price(run->plan).memory;
    row.peak_memory_bytes = memory_metric(row, model, memory, margin).in(kByte);
    if (memory.peak_reserved > memory.capacity - margin) row.status = "oom";
    rows.push_back(row);
  }
  return rows;
}

double rate_named(const FittedMemory& fit, std::string_view key) {
  for (const FittedRate& rate : fit.rates) {
    if (rate.key == key) return rate.value;
  }
  return -1;
}

}  // namespace

TEST_CASE("the fit recovers the memory rates that a table was generated with") {
  const auto rows = with_planted_peaks("bigscience", 0.2, 5000_MiB, 0_B);
  const auto fits = fit_memory(rows);
  REQUIRE(fits.size() == 1);
  CHECK(fits.front().name == "ampere-megatron-2021-megatron-deepspeed");
  Calibration c;
  fits.front().write_to(c);
  CHECK(rate_named(fits.front(), "context") > 2000);
  const auto judged = validate_folds(rows, fit_folds(rows, 4));
  REQUIRE(judged.ok());
  CHECK(judged->by_source.at("bigscience").unflagged.memory.mean_abs < 0.03);
  CHECK(c.context == Bytes{rate_named(fits.front(), "context") * 1_MiB});

  Calibration release;
  release.name = "ampere-megatron-2021-megatron-deepspeed-2022-03";
  write_memory(fits, release);
  CHECK(release.context == c.context);
  Calibration other;
  other.name = "ampere-megatron-core";
  write_memory(fits, other);
  CHECK(other.context == Bytes{});
}

TEST_CASE("the fit recovers the limit between runs that fit and runs that do not") {
  const Bytes margin = 9_GiB;
  const auto rows = with_planted_peaks("nanotron", 0.15, 700_MiB, margin);
  const auto fits = fit_memory(rows);
  REQUIRE(fits.size() == 1);
  CHECK(fits.front().out_of_memory > 30);
  CHECK(fits.front().fits_margin.in(1_GiB) == Approx(margin.in(1_GiB)).margin(1.0));
}

}  // namespace echelon
