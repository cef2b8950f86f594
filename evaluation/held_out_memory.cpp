#include "evaluation/held_out_memory.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "evaluation/cv_folds.hpp"
#include "evaluation/fit_levels.hpp"

namespace echelon {
namespace {

constexpr int kFewestOfAnEnd = 20;
constexpr std::size_t kFewestPeaks = 30;
constexpr std::size_t kFewestSites = 5;
constexpr double kLeastSpread = 0.03;

/// Needs of the runs that ran and of those that ended out of memory.
struct Ends {
  std::vector<double> ran, failed;
};

Ends ends_of(std::span<const FitOutcome> outcomes) {
  Ends out;
  for (const FitOutcome& one : outcomes) (one.ran ? out.ran : out.failed).push_back(one.log_need);
  return out;
}

MemoryBand logistic(double bias, double spread) {
  return {MemoryBandKind::measured, std::clamp(bias, -kMostMemoryBias, kMostMemoryBias),
          std::clamp(spread, kLeastLogisticSpread, kMostMemorySpread), ""};
}

/// A run with its weight in the fit.
struct WeightedOutcome {
  double log_need = 0;
  bool ran = true;
  double weight = 1;
};

/// −ln(likelihood) of P(ran) = 1 / (1 + exp(a + b·x)), without overflow.
double loss(std::span<const WeightedOutcome> outcomes, double a, double b) {
  double sum = 0;
  for (const WeightedOutcome& one : outcomes) {
    const double z = (one.ran ? 1 : -1) * (a + b * one.log_need);
    sum += one.weight * (z > 0 ? z + std::log1p(std::exp(-z)) : std::log1p(std::exp(z)));
  }
  return sum;
}

/// One step of Newton's method, halved until the loss falls; false where it does not.
bool newton_step(std::span<const WeightedOutcome> outcomes, double& a, double& b) {
  double ga = 0;
  double gb = 0;
  double haa = 0;
  double hab = 0;
  double hbb = 0;
  for (const WeightedOutcome& one : outcomes) {
    const double x = one.log_need;
    const double failed = 1 / (1 + std::exp(-(a + b * x)));
    const double error = one.weight * (failed - (one.ran ? 0 : 1));
    const double curvature = one.weight * failed * (1 - failed);
    ga += error;
    gb += error * x;
    haa += curvature;
    hab += curvature * x;
    hbb += curvature * x * x;
  }
  const double determinant = haa * hbb - hab * hab;
  if (!(determinant > 0)) return false;
  const double da = (hbb * ga - hab * gb) / determinant;
  const double db = (haa * gb - hab * ga) / determinant;
  const double before = loss(outcomes, a, b);
  for (double step = 1; step > 1e-6; step /= 2) {
    if (loss(outcomes, a - step * da, b - step * db) < before) {
      a -= step * da;
      b -= step * db;
      return true;
    }
  }
  return false;
}

/// Weights of the runs: how likely each is none of the odd ones, times 2 out of memory.
void weigh(double a, double b, std::vector<WeightedOutcome>& outcomes) {
  for (WeightedOutcome& one : outcomes) {
    const double failed = 1 / (1 + std::exp(-(a + b * one.log_need)));
    const double seen = (1 - 2 * kOddOutcomes) * (one.ran ? 1 - failed : failed);
    one.weight = (one.ran ? 1 : kWeightOutOfMemory) * seen / (kOddOutcomes + seen);
  }
}

}  // namespace

std::optional<MemoryBand> fit_logistic(std::span<const FitOutcome> outcomes) {
  const Ends ends = ends_of(outcomes);
  if (ends.ran.empty() || ends.failed.empty()) return std::nullopt;
  const double most = std::ranges::max(ends.ran);
  const double least = std::ranges::min(ends.failed);
  if (most < least) return logistic(-(most + least) / 2, kLeastLogisticSpread);
  constexpr double kStartWidth = 0.1;
  double b = 1 / kStartWidth;
  double a = -b * (most + least) / 2;
  std::vector<WeightedOutcome> weighted;
  for (const FitOutcome& one : outcomes) weighted.push_back({one.log_need, one.ran});
  constexpr int kMostSteps = 1000;
  constexpr double kSettled = 1e-9;
  for (int i = 0; i < kMostSteps; ++i) {
    const double before = b;
    weigh(a, b, weighted);
    if (!newton_step(weighted, a, b)) break;
    if (std::abs(b - before) < kSettled * std::abs(b)) break;
  }
  if (b <= 0) return std::nullopt;
  return logistic(a / b, 1 / b);
}

HeldOutMemory::HeldOutMemory(const std::vector<MeasuredRun>& rows)
    : publishers_(groups_of(rows, LeaveOut::publisher)) {}

void HeldOutMemory::add(std::span<const MemoryOutcome> outcomes, int part) {
  for (const MemoryOutcome& one : outcomes) all_.push_back({one, part});
}

std::optional<MemoryBand> HeldOutMemory::measured_band(const std::string& framework,
                                                       std::optional<int> left_out) const {
  std::vector<FitOutcome> outcomes;
  for (const One& one : all_) {
    const MemoryOutcome& run = one.outcome;
    if (one.part == left_out || run.framework != framework || !run.counts_for_fits) continue;
    outcomes.push_back({run.log_need, run.ran});
  }
  const auto ran = std::ranges::count_if(outcomes, &FitOutcome::ran);
  const auto failed = std::ssize(outcomes) - ran;
  if (ran < kFewestOfAnEnd || failed < kFewestOfAnEnd) return std::nullopt;
  std::optional<MemoryBand> band = fit_logistic(outcomes);
  if (band) {
    band->source = fmt::format(
        "fitted to {} runs that ended out of memory and {} that ran, each predicted without them",
        failed, ran);
  }
  return band;
}

std::optional<MemoryBand> HeldOutMemory::extrapolated_band(const std::string& framework,
                                                           std::optional<int> left_out) const {
  std::vector<double> errors;
  std::vector<std::string_view> publishers;
  for (const One& one : all_) {
    const MemoryOutcome& run = one.outcome;
    if (one.part == left_out || !run.log_error) continue;
    if (!framework.empty() && run.framework != framework) continue;
    errors.push_back(*run.log_error);
    publishers.emplace_back(publishers_[run.row]);
  }
  const std::set<std::string_view> different(publishers.begin(), publishers.end());
  if (errors.size() < kFewestPeaks || different.size() < kFewestSites) return std::nullopt;
  const std::vector<double> weights = shared_weights(publishers);
  double sum = 0;
  double mean = 0;
  for (std::size_t i = 0; i < errors.size(); ++i) {
    sum += weights[i];
    mean += weights[i] * errors[i];
  }
  mean /= sum;
  double variance = 0;
  for (std::size_t i = 0; i < errors.size(); ++i) {
    variance += weights[i] * (errors[i] - mean) * (errors[i] - mean) / sum;
  }
  return MemoryBand{
      MemoryBandKind::extrapolated, mean, std::max(kLeastSpread, std::sqrt(variance)),
      fmt::format("{} peaks of {} publishers {}, each predicted without the publisher",
                  errors.size(), different.size(),
                  framework.empty() ? "of all software" : "of the same software")};
}

void HeldOutMemory::set_band(Calibration& calibration, std::optional<int> left_out) const {
  std::optional<MemoryBand> band = measured_band(calibration.framework, left_out);
  if (!band && calibration.memory_band) return;
  if (!band) band = extrapolated_band(calibration.framework, left_out);
  const bool fixed_blocks = find_framework(calibration.framework).value().fixed_blocks;
  if (!band && !fixed_blocks) band = extrapolated_band("", left_out);
  if (band) calibration.memory_band = std::move(band);
}

std::vector<int> memory_parts(const std::vector<MeasuredRun>& rows, const MemoryRuns& runs,
                              int parts) {
  const std::vector<std::string> publishers = groups_of(rows, LeaveOut::publisher);
  std::map<std::string, std::set<std::string_view>> of_framework;
  for (const MemoryRun& run : runs.runs()) {
    if (run.measured) of_framework[run.framework].insert(publishers[run.row]);
  }
  std::vector<int> out = parts_of(publishers);
  const std::vector<int> folds = deal_folds(folds_of(rows), parts);
  for (const MemoryRun& run : runs.runs()) {
    if (of_framework[run.framework].size() <= 1) out[run.row] = folds[run.row];
  }
  return out;
}

HeldOutMemory hold_out_memory(const std::vector<MeasuredRun>& rows, MemoryRuns& runs,
                              std::span<const int> part_of_rows) {
  HeldOutMemory out(rows);
  const std::set<int> parts(part_of_rows.begin(), part_of_rows.end());
  for (const int part : parts) {
    const auto inside = [&](std::size_t row) { return part_of_rows[row] == part; };
    out.add(runs.outcomes(runs.fit(std::not_fn(inside)), inside), part);
  }
  return out;
}

}  // namespace echelon
