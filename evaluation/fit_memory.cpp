#include "evaluation/fit_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <optional>
#include <utility>
#include <variant>

#include "costmodel/calibration/calibration_fields.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "costmodel/cost_model.hpp"
#include "costmodel/time/stage_model.hpp"
#include "evaluation/calibration_set.hpp"
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
  std::string name;
  CostModel cost_model;
  ParallelPlan plan;
  ShardingCosts costs;
  Calibration prior;
  std::optional<double> measured;  ///< bytes; none if the figure is not to be compared
  bool counts_for_fits = true;
};

struct MemoryGuess {
  double figure = 0;  ///< bytes, as the row counts
  Bytes need;         ///< on the fullest rank
  Bytes capacity;
};

MemoryGuess guess(const MeasuredRun& row, MemoryRun& run, const Calibration& calibration) {
  run.cost_model.recalibrate(calibration);
  MemoryPrediction memory;
  run.cost_model.price_memory(run.plan, run.costs, memory);
  const StageModel model(run.cost_model, run.plan, run.costs);
  return {memory_metric(row, model, memory, calibration.fits_margin).in(kByte),
          memory.peak_reserved, memory.capacity};
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
    const bool possible =
        row.peak_memory_bytes && is_of_one_gpu(*row.peak_memory_bytes * kByte, gpu.memory);
    if (!row.out_of_memory() && possible &&
        std::ranges::none_of(flags[i], &RowQualityFlag::memory)) {
      measured = *row.peak_memory_bytes;
    }
    out.push_back(
        {i,
         fmt::format("{}-{}-{}", gpu_family(gpu), run->framework.calibration_key(), row.framework),
         std::move(cost_model), run->plan, costs, *std::move(prior), measured,
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

FittedMemory fit_group(const std::vector<MeasuredRun>& rows, const std::string& name,
                       const MemoryRuns& runs) {
  FittedMemory out;
  out.name = name;
  MemoryRuns measured;
  for (MemoryRun* run : runs) {
    if (run->measured) measured.push_back(run);
    out.out_of_memory += rows[run->row].out_of_memory() && run->counts_for_fits;
  }
  out.runs = static_cast<int>(measured.size());
  Calibration fitted = runs.front()->prior;
  if (measured.size() >= kFewestFigures) {
    const std::vector<double> weights(measured.size(), 1.0);
    const auto errors = [&](const Calibration& c, std::span<double> into) {
      for (std::size_t i = 0; i < measured.size(); ++i) {
        MemoryRun& run = *measured[i];
        into[i] = std::log(guess(rows[run.row], run, c).figure / *run.measured);
      }
    };
    Fit fit = fit_rates(fitted, memory_parameters(), weights, errors, {.max_iterations = 15});
    fitted = std::move(fit.calibration);
    out.rates = std::move(fit.rates);
  }
  out.fits_margin = fitted.fits_margin;
  if (out.out_of_memory >= kFewestFailures) {
    out.fits_margin = fitted_margin(rows, runs, fitted);
  } else {
    out.out_of_memory = 0;
  }
  return out;
}

}  // namespace

void FittedMemory::write_to(Calibration& calibration) const {
  for (const FittedRate& rate : rates) {
    const CalibrationField& field = calibration_field(rate.key);
    set_rate(calibration, field, rate.value);
    set_source(calibration, field,
               fmt::format("fitted to {} peaks of memory: {:.4g} ({:.4g} to {:.4g}), prior {:.4g}, "
                           "learned {:.0f} %",
                           runs, rate.value, rate.low, rate.high, rate.prior, 100 * rate.learned));
  }
  if (out_of_memory == 0) return;
  calibration.fits_margin = fits_margin;
  set_source(calibration, calibration_field("fits_margin"),
             fmt::format("fewest wrong answers on {} runs out of memory and {} that ran",
                         out_of_memory, runs));
}

std::vector<FittedMemory> fit_memory(const std::vector<MeasuredRun>& rows,
                                     const std::function<bool(std::size_t)>& use) {
  std::vector<MemoryRun> all = memory_runs(rows);
  std::map<std::string, MemoryRuns> groups;
  for (MemoryRun& run : all) {
    if (!use || use(run.row)) groups[run.name].push_back(&run);
  }
  std::vector<FittedMemory> out;
  for (const auto& [name, runs] : groups) {
    FittedMemory one = fit_group(rows, name, runs);
    if (!one.rates.empty() || one.out_of_memory > 0) out.push_back(std::move(one));
  }
  return out;
}

void write_memory(const std::vector<FittedMemory>& fits, Calibration& calibration) {
  const FittedMemory* below = nullptr;
  int several = 0;
  for (const FittedMemory& fit : fits) {
    if (calibration.name == fit.name || calibration.name.starts_with(fit.name + "-")) {
      fit.write_to(calibration);
      return;
    }
    if (!fit.name.starts_with(calibration.name + "-")) continue;
    below = &fit;
    ++several;
  }
  if (several == 1) below->write_to(calibration);
}

}  // namespace echelon
