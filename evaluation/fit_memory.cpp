#include "evaluation/fit_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <optional>
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
constexpr int kFewestFailures = 20;
constexpr double kFalseFitWeight = 2;

/// A row with information on memory, ready to be priced repeatedly.
struct MemoryRun {
  std::size_t row = 0;
  std::string framework;  ///< calibration_key()
  CostModel cost_model;
  ParallelPlan plan;
  ShardingCosts costs;
  Calibration prior;
  std::optional<double> measured;  ///< bytes; none if the figure is not to be compared
  std::optional<double> reserved;  ///< … where the row gives it next to another figure
  bool counts_for_fits = true;
};

struct MemoryGuess {
  double figure = 0;    ///< bytes, as the row counts
  double reserved = 0;  ///< bytes
  Bytes need;           ///< on the fullest rank
  Bytes capacity;
};

MemoryGuess guess(const MeasuredRun& row, MemoryRun& run, const Calibration& calibration) {
  run.cost_model.recalibrate(calibration);
  MemoryPrediction memory;
  run.cost_model.price_memory(run.plan, run.costs, memory);
  const StageModel model(run.cost_model, run.plan, run.costs);
  const Bytes margin = calibration.fits_margin;
  return {memory_metric(row, model, memory, margin).in(kByte),
          reserved_metric(model, memory, margin).in(kByte), memory.peak_reserved, memory.capacity};
}

std::vector<MemoryRun> memory_runs(const std::vector<MeasuredRun>& rows) {
  std::vector<MemoryRun> out;
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
    out.push_back({i, run->framework.calibration_key(), std::move(cost_model), run->plan, costs,
                   *std::move(prior), measured, reserved,
                   std::ranges::none_of(flags[i], &RowQualityFlag::fits)});
  }
  return out;
}

using MemoryRuns = std::vector<MemoryRun*>;

/// Needs of the runs that ended out of memory and of those that did not, less the capacity.
struct Limits {
  std::vector<double> failed, ran;

  [[nodiscard]] double cost(double limit) const {
    const auto above = [&](const std::vector<double>& needs) {
      const auto count = std::ranges::count_if(needs, [&](double need) { return need > limit; });
      return static_cast<double>(count) /
             static_cast<double>(std::max<std::size_t>(1, needs.size()));
    };
    return kFalseFitWeight * (1 - above(failed)) + above(ran);
  }
};

Bytes fitted_margin(const std::vector<MeasuredRun>& rows, const MemoryRuns& runs,
                    const Calibration& c) {
  Limits limits;
  for (MemoryRun* run : runs) {
    if (!run->counts_for_fits) continue;
    const MeasuredRun& row = rows[run->row];
    const MemoryGuess made = guess(row, *run, c);
    (row.out_of_memory() ? limits.failed : limits.ran)
        .push_back((made.need - made.capacity).in(kByte));
  }
  constexpr double kStep = 256.0 * (1 << 20);
  double best = 0;
  for (int steps = 1; steps <= 80; ++steps) {  // at most 20 GiB
    if (limits.cost(-steps * kStep) < limits.cost(-best)) best = steps * kStep;
  }
  return Bytes{best};
}

/// A peak to fit to: a run's own figure or, `reserved`, the one next to it.
struct MemoryFigure {
  MemoryRun* run;
  bool reserved;
};

std::vector<MemoryFigure> figures_of(const MemoryRuns& runs) {
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
  const auto errors = [&](const Calibration& c, std::span<double> into) {
    for (std::size_t i = 0; i < figures.size(); ++i) {
      MemoryRun& run = *figures[i].run;
      const MemoryGuess made = guess(rows[run.row], run, c);
      into[i] = figures[i].reserved ? std::log(made.reserved / *run.reserved)
                                    : std::log(made.figure / *run.measured);
    }
  };
  return fit_rates(start, memory_parameters(), shared_weights(sources), errors, options);
}

FittedMemory fit_framework(const std::vector<MeasuredRun>& rows, const std::string& framework,
                           const MemoryRuns& runs) {
  FittedMemory out;
  out.framework = framework;
  Calibration fitted = runs.front()->prior;
  for (const MemoryRun* run : runs) {
    out.out_of_memory += rows[run->row].out_of_memory() && run->counts_for_fits;
  }
  const std::vector<MemoryFigure> figures = figures_of(runs);
  out.figures = static_cast<int>(figures.size());
  if (figures.size() >= kFewestFigures) {
    Fit fit = fit_figures(rows, fitted, figures, {.max_iterations = 15});
    fitted = std::move(fit.calibration);
    out.rates = std::move(fit.rates);
  }
  if (out.out_of_memory >= kFewestFailures) {
    fitted.fits_margin = fitted_margin(rows, runs, fitted);
  } else {
    out.out_of_memory = 0;
  }
  out.fits_margin = fitted.fits_margin;
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
  if (out_of_memory == 0) return;
  calibration.fits_margin = fits_margin;
  set_source(calibration, calibration_field("fits_margin"),
             fmt::format("fewest wrong answers on {} runs out of memory and {} that ran",
                         out_of_memory, figures));
}

std::vector<FittedMemory> fit_memory(const std::vector<MeasuredRun>& rows,
                                     const std::function<bool(std::size_t)>& use) {
  std::vector<MemoryRun> all = memory_runs(rows);
  std::map<std::string, MemoryRuns> frameworks;
  for (MemoryRun& run : all) {
    if (!use || use(run.row)) frameworks[run.framework].push_back(&run);
  }
  std::vector<FittedMemory> out;
  for (const auto& [framework, runs] : frameworks) {
    FittedMemory fit = fit_framework(rows, framework, runs);
    if (!fit.rates.empty() || fit.out_of_memory > 0) out.push_back(std::move(fit));
  }
  return out;
}

FittedMemory fit_site_memory(const std::vector<MeasuredRun>& rows, const Calibration& base) {
  // Mean error of peaks of publishers left out (docs/accuracy.md, Peak memory).
  constexpr double kFigureSpread = 0.06;
  FittedMemory out;
  out.framework = base.framework;
  std::vector<MemoryRun> all = memory_runs(rows);
  MemoryRuns runs;
  for (MemoryRun& run : all) runs.push_back(&run);
  const std::vector<MemoryFigure> figures = figures_of(runs);
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
