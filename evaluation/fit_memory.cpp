#include "evaluation/fit_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <variant>

#include "costmodel/calibration/calibration_fields.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "costmodel/cost_model.hpp"
#include "costmodel/time/stage_model.hpp"
#include "evaluation/calibration_set.hpp"
#include "evaluation/fit_levels.hpp"
#include "evaluation/memory_metric.hpp"
#include "evaluation/row_quality.hpp"
#include "evaluation/run_mapping.hpp"

namespace echelon {
namespace {

constexpr std::size_t kFewestFigures = 4;

struct MemoryGuess {
  double figure = 0;    ///< bytes, as the row counts
  double reserved = 0;  ///< bytes
  Bytes need;           ///< on the fullest rank
  Bytes capacity;
};

/// `limited`: a run that continued is not above the limit (memory_metric).
MemoryGuess guess(const MeasuredRun& row, MemoryRun& run, const Calibration& calibration,
                  bool limited) {
  run.cost_model.recalibrate(calibration);
  MemoryPrediction memory;
  run.cost_model.price_memory(run.plan, run.costs, memory);
  const StageModel model(run.cost_model, run.plan, run.costs);
  if (!limited) {
    constexpr Bytes kUnlimited{1e18};
    return {memory_metric(row, model, memory, kUnlimited).in(kByte), 0, memory.peak_reserved,
            memory.capacity};
  }
  const MemoryBand& band = memory_band_of(calibration, run.cost_model.framework());
  const Bytes limit = limit_of_runs(band, memory.capacity);
  return {memory_metric(row, model, memory, limit).in(kByte),
          reserved_metric(model, memory, limit).in(kByte), memory.peak_reserved, memory.capacity};
}

using RunsOfFramework = std::vector<MemoryRun*>;

/// A peak to fit to: a run's own figure or, `reserved`, the one next to it.
struct MemoryFigure {
  MemoryRun* run;
  bool reserved;
};

std::vector<MemoryFigure> figures_of(const RunsOfFramework& runs) {
  std::vector<MemoryFigure> out;
  for (MemoryRun* run : runs) {
    if (!run->measured) continue;
    out.push_back({run, false});
    if (run->reserved) out.push_back({run, true});
  }
  return out;
}

/// The memory rates of `start` fitted to the figures.
Fit fit_figures(const std::vector<MeasuredRun>& rows, const Calibration& start,
                const std::vector<MemoryFigure>& figures, const FitOptions& options) {
  std::vector<std::string_view> sources;
  for (const MemoryFigure& figure : figures) sources.emplace_back(rows[figure.run->row].source);
  const std::vector<double> weights = shared_weights(sources);
  const auto errors = [&](const Calibration& c, std::span<double> into) {
    for (std::size_t i = 0; i < figures.size(); ++i) {
      MemoryRun& run = *figures[i].run;
      const MemoryGuess made = guess(rows[run.row], run, c, true);
      into[i] = figures[i].reserved ? std::log(made.reserved / *run.reserved)
                                    : std::log(made.figure / *run.measured);
    }
  };
  return fit_rates(start, memory_parameters(), weights, errors, options);
}

FittedMemory fit_framework(const std::vector<MeasuredRun>& rows, const std::string& framework,
                           const RunsOfFramework& runs) {
  FittedMemory out;
  out.framework = framework;
  const Calibration& prior = runs.front()->prior;
  const std::vector<MemoryFigure> figures = figures_of(runs);
  out.figures = static_cast<int>(figures.size());
  if (figures.size() >= kFewestFigures) {
    out.rates = fit_figures(rows, prior, figures, {.max_iterations = 15}).rates;
  }
  return out;
}

}  // namespace

void FittedMemory::write_to(Calibration& calibration) const {
  for (const FittedRate& rate : rates) {
    const CalibrationField& field = calibration_field(rate.key);
    set_rate(calibration, field, rate.value);
    set_source(
        calibration, field,
        fmt::format("fitted to {} peaks of memory: {:.4g} ({:.4g} to {:.4g}), prior {:.4g}, "
                    "learned {:.0f} %",
                    figures, rate.value, rate.low, rate.high, rate.prior, 100 * rate.learned));
  }
}

MemoryRuns::MemoryRuns(const std::vector<MeasuredRun>& rows) : rows_(&rows) {
  const CalibrationSet priors{{}};
  RunMapper mapper;
  const auto flags = quality_flags_of(rows);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const MeasuredRun& row = rows[i];
    auto mapped = mapper.map(row);
    const auto* run = std::get_if<MappedRun>(&mapped);
    if (run == nullptr) continue;
    const GpuSpec& gpu = run->cluster.gpu();
    Result<Calibration> prior = priors.prior(gpu, run->framework);
    if (!prior) continue;
    prior->sources.clear();  // copied thousands of times
    CostModel cost_model(run->model, run->job, run->cluster, run->framework, *prior);
    ShardingCosts costs = cost_model.sharding_costs(run->plan);
    std::optional<double> measured;
    std::optional<double> reserved;
    const bool possible =
        row.peak_memory_bytes && is_of_one_gpu(*row.peak_memory_bytes * kByte, gpu.memory);
    if (!row.out_of_memory() && possible &&
        std::ranges::none_of(flags[i], &RowQualityFlag::memory)) {
      measured = *row.peak_memory_bytes;
      if (const auto largest = largest_reserved(row)) reserved = largest->in(kByte);
    }
    runs_.push_back({i, run->framework.calibration_key(), std::move(cost_model), run->plan, costs,
                     *std::move(prior), measured, reserved,
                     std::ranges::none_of(flags[i], &RowQualityFlag::fits),
                     run->substitute.empty()});
  }
}

std::vector<MemoryRun*> MemoryRuns::each() {
  std::vector<MemoryRun*> out;
  for (MemoryRun& run : runs_) out.push_back(&run);
  return out;
}

std::vector<FittedMemory> MemoryRuns::fit(const std::function<bool(std::size_t)>& use) {
  std::set<std::string_view> left_out;
  for (const MemoryRun& run : runs_) {
    if (use && !use(run.row)) left_out.insert(run.framework);
  }
  std::map<std::string, RunsOfFramework> frameworks;
  for (MemoryRun& run : runs_) {
    // Allocator and context of another vendor say nothing of CUDA's, nor the tensors of software
    // that the framework only stands for of its own.
    if (run.cost_model.cluster().gpu().compute_capability <= 0 || !run.own_software) continue;
    if (use && (!use(run.row) || !left_out.contains(run.framework))) continue;
    frameworks[run.framework].push_back(&run);
  }
  std::vector<FittedMemory> out;
  for (const auto& [framework, runs] : frameworks) {
    FittedMemory fit = fit_framework(*rows_, framework, runs);
    if (!fit.rates.empty()) out.push_back(std::move(fit));
  }
  return out;
}

std::vector<MemoryOutcome> MemoryRuns::outcomes(const std::vector<FittedMemory>& fits,
                                                const std::function<bool(std::size_t)>& of) {
  std::vector<MemoryOutcome> out;
  for (MemoryRun& run : runs_) {
    if (!of(run.row)) continue;
    const MeasuredRun& row = (*rows_)[run.row];
    Calibration fitted = run.prior;
    fitted.framework = run.framework;
    write_memory(fits, fitted);
    const MemoryGuess made = guess(row, run, fitted, false);
    MemoryOutcome one{run.row,
                      run.framework,
                      std::log(made.need / made.capacity),
                      !row.out_of_memory(),
                      run.counts_for_fits,
                      {}};
    const bool cached = row.memory_kind == "nvidia_smi";
    if (run.measured && !cached && run.own_software)
      one.log_error = std::log(*run.measured / made.figure);
    out.push_back(std::move(one));
  }
  return out;
}

FittedMemory fit_site_memory(const std::vector<MeasuredRun>& rows, const Calibration& base) {
  // Mean error of peaks of publishers left out (docs/accuracy.md, Peak memory).
  constexpr double kFigureSpread = 0.06;
  FittedMemory out;
  out.framework = base.framework;
  MemoryRuns all(rows);
  const std::vector<MemoryFigure> figures = figures_of(all.each());
  out.figures = static_cast<int>(figures.size());
  if (figures.empty()) return out;
  Calibration bare = base;
  bare.sources.clear();  // copied many times
  out.rates = fit_figures(rows, bare, figures, {.noise = kFigureSpread}).rates;
  return out;
}

void write_memory(const std::vector<FittedMemory>& fits, Calibration& calibration) {
  const auto own = std::ranges::find(fits, calibration.framework, &FittedMemory::framework);
  if (own != fits.end()) own->write_to(calibration);
}

}  // namespace echelon
