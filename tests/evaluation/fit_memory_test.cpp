// Fitting memory rates, on published rows with generated peaks.
#include "evaluation/fit_memory.hpp"

#include <cmath>
#include <set>
#include <variant>

#include "costmodel/calibration/calibration_io.hpp"
#include "costmodel/cost_model.hpp"
#include "costmodel/time/stage_model.hpp"
#include "evaluation/fit.hpp"
#include "evaluation/held_out_memory.hpp"
#include "evaluation/memory_metric.hpp"
#include "tests/evaluation/table_rows.hpp"

namespace echelon {
namespace {

/// The rows of one source with the peaks of a machine with these rates; runs that need more than
/// all but `margin` of its memory end out of memory.
std::vector<MeasuredRun> with_planted_peaks(std::string_view source, double reserve, Bytes cache,
                                            Bytes margin) {
  std::vector<MeasuredRun> rows;
  RunMapper mapper;
  for (MeasuredRun row : whole_table()) {
    if (!row.source.starts_with(source)) continue;
    row.status = "ok";
    auto mapped = mapper.map(row);
    auto* run = std::get_if<MappedRun>(&mapped);
    if (run == nullptr) continue;
    Calibration truth = prior_calibration(run->cluster.gpu(), run->framework).value();
    truth.allocator_reserve = reserve;
    truth.nvidia_smi_cache = cache;
    const Bytes limit = run->cluster.gpu().memory - margin;
    const CostModel cost_model(run->model, run->job, run->cluster, run->framework, truth);
    const ShardingCosts costs = cost_model.sharding_costs(sharding_of(run->plan));
    const StageModel model(cost_model, run->plan, costs);
    const MemoryPrediction memory = cost_model.price(run->plan).memory;
    row.peak_memory_bytes = memory_metric(row, model, memory, limit).in(kByte);
    if (memory.peak_reserved > limit) row.status = "oom";
    rows.push_back(row);
  }
  return rows;
}

std::vector<FittedMemory> fitted(const std::vector<MeasuredRun>& rows) {
  return MemoryRuns(rows).fit();
}

double rate_named(const FittedMemory& fit, std::string_view key) {
  for (const FittedRate& rate : fit.rates) {
    if (rate.key == key) return rate.value;
  }
  return -1;
}

}  // namespace

TEST_CASE("what nvidia-smi shows beyond a context is cached and no part of what runs need") {
  const auto rows = with_planted_peaks("bigscience", 0.2, 8000_MiB, 0_B);
  const auto fits = fitted(rows);
  REQUIRE(fits.size() == 1);
  CHECK(fits.front().framework == "megatron-2021");
  CHECK(rate_named(fits.front(), "nvidia_smi_cache") == Approx(8000).epsilon(0.2));
  CHECK(rate_named(fits.front(), "context") == Approx(700).epsilon(0.1));
  const auto judged = validate_folds(rows, fit_folds(rows, 4));
  REQUIRE(judged.ok());
  CHECK(judged->by_source.at("bigscience").unflagged.memory.mean_abs < 0.03);

  Calibration cached;
  Calibration bare = cached;
  bare.nvidia_smi_cache = 0_B;
  fits.front().write_to(cached);
  CHECK(cached.nvidia_smi_cache > bare.nvidia_smi_cache);
}

TEST_CASE("one peak of a site draws its memory rates towards it, none leaves them") {
  auto rows = with_planted_peaks("bigscience", 0.2, 8000_MiB, 0_B);
  std::erase_if(rows, [](const MeasuredRun& row) { return row.out_of_memory(); });
  rows.resize(1);
  const MappedRun run = mapped(rows.front());
  const Calibration prior = prior_calibration(run.cluster.gpu(), run.framework).value();
  const FittedMemory fit = fit_site_memory(rows, prior);
  CHECK(fit.figures == 1);
  Calibration mine = prior;
  fit.write_to(mine);
  const auto missing = [&](const Calibration& c) {
    CostModel cost_model(run.model, run.job, run.cluster, run.framework, c);
    const ShardingCosts costs = cost_model.sharding_costs(sharding_of(run.plan));
    const StageModel model(cost_model, run.plan, costs);
    const MemoryPrediction memory = cost_model.price(run.plan).memory;
    const Bytes figure =
        memory_metric(rows.front(), model, memory,
                      limit_of_runs(memory_band_of(c, run.framework), memory.capacity));
    return std::abs(figure.in(kByte) - *rows.front().peak_memory_bytes);
  };
  CHECK(missing(mine) < 0.7 * missing(prior));
  CHECK(memory_band_of(mine, run.framework) == memory_band_of(prior, run.framework));

  rows.front().peak_memory_bytes.reset();
  CHECK(fit_site_memory(rows, prior).rates.empty());
}

TEST_CASE("memory rates of a framework hold on GPUs of every family") {
  const auto fits = fitted(with_planted_peaks("bigscience", 0.2, 8000_MiB, 0_B));
  Calibration ampere;
  ampere.gpu_family = "ampere";
  ampere.framework = "megatron-2021";
  write_memory(fits, ampere);
  CHECK(ampere.nvidia_smi_cache > 4000_MiB);
  Calibration elsewhere;
  elsewhere.gpu_family = "hopper";
  elsewhere.framework = "megatron-2021";
  write_memory(fits, elsewhere);
  CHECK(elsewhere.nvidia_smi_cache == ampere.nvidia_smi_cache);
  Calibration other;
  other.gpu_family = "ampere";
  other.framework = "megatron-core";
  write_memory(fits, other);
  CHECK(other.nvidia_smi_cache == Bytes{});
}

TEST_CASE("software that a framework only stands for, and GPUs without CUDA, move no memory rate") {
  CHECK(fitted(with_planted_peaks("prime-rl", 0.5, 0_B, 0_B)).empty());
  CHECK(fitted(with_planted_peaks("primus-mi325x", 0.5, 0_B, 0_B)).empty());
  auto rows = with_planted_peaks("torchtitan", 0.5, 0_B, 0_B);
  CHECK_FALSE(fitted(rows).empty());
  for (MeasuredRun& row : rows) row.framework = "prime-rl";
  MemoryRuns runs(rows);
  CHECK(runs.fit().empty());
  for (const MemoryOutcome& one : runs.outcomes({}, [](std::size_t) { return true; })) {
    CHECK_FALSE(one.log_error);
  }
}

TEST_CASE("reserved memory printed next to allocated memory determines the allocator's reserve") {
  MeasuredRun row;
  CHECK_FALSE(largest_reserved(row).has_value());
  row.memory_by_stage = "46.80/38.93";
  CHECK_FALSE(largest_reserved(row).has_value());
  row.memory_by_stage = "r0 alloc 66.55 resv 69.07; r1 alloc 66.55 resv 70.88";
  CHECK(largest_reserved(row)->in(1_GiB) == Approx(70.88));

  std::vector<MeasuredRun> rows;
  for (const MeasuredRun& each : whole_table()) {
    if (each.source == "simumax-b200") rows.push_back(each);
  }
  const auto fits = fitted(rows);
  REQUIRE(fits.size() == 1);
  CHECK(rate_named(fits.front(), "allocator_reserve") > 0.05);
  CHECK(rate_named(fits.front(), "allocator_reserve") < 0.2);
  for (MeasuredRun& each : rows) each.memory_by_stage.clear();
  for (const FittedMemory& fit : fitted(rows)) {
    CHECK(rate_named(fit, "allocator_reserve") == Approx(0.05));  // the prior
  }
}

TEST_CASE("the fit recovers the limit between runs that fit and runs that do not") {
  const Bytes margin = 9_GiB;
  const auto rows = with_planted_peaks("nanotron", 0.15, 700_MiB, margin);
  MemoryRuns runs(rows);
  const std::vector<int> parts = memory_parts(rows, runs, 4);
  CHECK(std::set<int>(parts.begin(), parts.end()).size() == 4);  // one publisher: parts of folds
  Calibration calibration;
  calibration.framework = "nanotron";
  hold_out_memory(rows, runs, parts).set_band(calibration);
  REQUIRE(calibration.memory_band);
  CHECK(calibration.memory_band->kind == MemoryBandKind::measured);
  const Bytes limit = most_need(*calibration.memory_band, 0.5, 79.2 * 1_GiB);
  CHECK(limit.in(1_GiB) == Approx(79.2 - 9).margin(1.0));
}

}  // namespace echelon
