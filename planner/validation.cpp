#include "planner/validation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>
#include <variant>

#include "costmodel/calibration_io.hpp"
#include "costmodel/price.hpp"
#include "planner/row_filter.hpp"
#include "planner/run_cluster.hpp"
#include "planner/run_mapping.hpp"

namespace echelon {

namespace {

constexpr std::size_t kLeastGroup = 3;  ///< rows a ranking needs to say anything
constexpr double kMostOfTheGpu = 1.1;   ///< GB written for GiB, and what the driver keeps

/// Calibrations are read once per (GPU, stack).
class Calibrations {
 public:
  explicit Calibrations(const std::optional<Calibration>& given) : given_(given) {}

  Result<Calibration> pick(const GpuSpec& gpu, const Stack& stack) {
    if (given_) return *given_;
    const std::string key = gpu.name + "|" + stack.name;
    auto known = known_.find(key);
    if (known == known_.end()) {
      Result<Calibration> picked = pick_calibration(gpu, stack);
      if (!picked) return picked;
      known = known_.emplace(key, *std::move(picked)).first;
    }
    return known->second;
  }

 private:
  const std::optional<Calibration>& given_;
  std::map<std::string, Calibration> known_;
};

/// What the allocator of one stage has handed out or holds back. `nccl` is the same on all stages.
Bytes allocated_on(const MemoryPrediction& memory, int stage) {
  const auto at = [&](int s) { return memory.stages[static_cast<std::size_t>(s)]; };
  const MemoryBreakdown tightest = at(memory.tightest_stage);
  const Bytes nccl = tightest.total() - tightest.context - memory.peak_allocated;
  return at(stage).total() - at(stage).context - nccl;
}

/// The predicted figure a row's memory column is to be compared with:
///   allocated   the framework's own tensors          reserved   … and what its allocator keeps
///   nvidia_smi  … and context and NCCL: all the device has lost
/// nanotron writes down rank 0, which is on stage 0; others the largest rank.
Bytes comparable_memory(const RunRow& row, const MemoryPrediction& memory) {
  if (row.memory_kind == "nvidia_smi") return memory.peak_reserved;
  const bool first_rank = row.stack == "nanotron";
  const Bytes allocated = first_rank ? allocated_on(memory, 0) : memory.peak_allocated;
  if (row.memory_kind == "allocated") return allocated;
  const double reserve =
      memory.peak_allocated > Bytes{} ? memory.allocator_reserve / memory.peak_allocated : 0;
  return (1 + reserve) * allocated;
}

void add_memory(const RunRow& row, const MemoryPrediction& memory, ValidatedRow& out,
                std::vector<std::string>& inferred) {
  out.predicted_fits = memory.peak_reserved <= memory.capacity;
  if (row.out_of_memory() || !row.peak_memory_bytes) return;
  out.measured_peak = *row.peak_memory_bytes * kByte;
  out.predicted_peak = comparable_memory(row, memory);
  if (*out.measured_peak > kMostOfTheGpu * memory.capacity) {
    inferred.push_back("the memory figure is more than one GPU has, so it is not compared");
    return;
  }
  out.memory_error = *out.predicted_peak / *out.measured_peak - 1;
  if (row.memory_kind.empty() || row.memory_kind == "unknown") {
    inferred.push_back("the memory figure taken for reserved memory");
  }
}

ValidatedRow predict_row(const RunRow& row, RunMapper& mapper, Calibrations& calibrations) {
  ValidatedRow out;
  out.row_id = row.row_id.empty() ? fmt::format("row {}", row.row_number) : row.row_id;
  out.source = row.source;
  out.group = row.group;
  out.measured_fits = !row.out_of_memory();
  if (row.step_seconds && !row.out_of_memory()) out.measured_step = *row.step_seconds * kSecond;

  auto mapped = mapper.map(row);
  if (auto* skipped = std::get_if<SkippedRun>(&mapped)) {
    out.skipped = std::move(skipped->reason);
    return out;
  }
  MappedRun& run = std::get<MappedRun>(mapped);
  const Result<Calibration> calibration = calibrations.pick(run.cluster.gpu(), run.stack);
  if (!calibration) {
    out.skipped = "no calibration: " + calibration.error().found;
    return out;
  }
  const Pricer pricer(run.model, run.job, with_measured_network(run.cluster, row, *calibration),
                      run.stack, *calibration);
  const Prediction prediction = pricer.price(run.plan);
  if (!prediction.time.step.is_finite()) {
    out.skipped = "the predicted time is not finite";
    return out;
  }
  out.predicted_step = prediction.time.step;
  out.low = prediction.time.low;
  out.high = prediction.time.high;
  out.parts = prediction.time.parts;
  out.calibration = calibration->name;
  if (out.measured_step) out.time_error = *out.predicted_step / *out.measured_step - 1;
  add_memory(row, prediction.memory, out, run.inferred);
  out.inferred = !run.inferred.empty();
  out.inferred_what = fmt::format("{}", fmt::join(run.inferred, "; "));
  return out;
}

double quantile(const std::vector<double>& sorted, double q) {
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  const double weight = at - static_cast<double>(below);
  return (1 - weight) * sorted[below] + weight * sorted[above];
}

/// Ranks from 0, equal values sharing the mean of theirs.
std::vector<double> ranks_of(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return values[i]; });
  std::vector<double> ranks(values.size());
  for (std::size_t first = 0; first < order.size();) {
    std::size_t last = first;
    while (last + 1 < order.size() && values[order[last + 1]] == values[order[first]]) ++last;
    const double shared = static_cast<double>(first + last) / 2;
    for (std::size_t i = first; i <= last; ++i) ranks[order[i]] = shared;
    first = last + 1;
  }
  return ranks;
}

double correlation(const std::vector<double>& a, const std::vector<double>& b) {
  const auto n = static_cast<double>(a.size());
  const double mean_a = std::accumulate(a.begin(), a.end(), 0.0) / n;
  const double mean_b = std::accumulate(b.begin(), b.end(), 0.0) / n;
  double ab = 0;
  double aa = 0;
  double bb = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ab += (a[i] - mean_a) * (b[i] - mean_b);
    aa += (a[i] - mean_a) * (a[i] - mean_a);
    bb += (b[i] - mean_b) * (b[i] - mean_b);
  }
  return aa > 0 && bb > 0 ? ab / std::sqrt(aa * bb) : 0;
}

/// Collects what a summary is made of, row by row.
class Tally {
 public:
  void add(const ValidatedRow& row) {
    if (row.time_error) time_.push_back(*row.time_error);
    if (row.memory_error) memory_.push_back(*row.memory_error);
    if (row.predicted_fits && row.measured_fits) {
      ++fits_.rows;
      fits_.false_fits += *row.predicted_fits && !*row.measured_fits;
      fits_.false_ooms += !*row.predicted_fits && *row.measured_fits;
    }
    if (row.time_error && !row.group.empty()) {
      auto& [predicted, measured] = groups_[row.group];
      predicted.push_back(row.predicted_step->in(kSecond));
      measured.push_back(row.measured_step->in(kSecond));
    }
  }

  [[nodiscard]] ValidationSummary summary() const {
    ValidationSummary out{summarize(time_), summarize(memory_), fits_, {}};
    for (const auto& [group, times] : groups_) {
      if (times.first.size() < kLeastGroup) continue;
      out.ranking.push_back(rank_group(group, times.first, times.second));
    }
    return out;
  }

 private:
  using Times = std::pair<std::vector<double>, std::vector<double>>;
  std::vector<double> time_, memory_;
  FitsSummary fits_;
  std::map<std::string, Times> groups_;
};

}  // namespace

ErrorSummary summarize(std::vector<double> errors) {
  if (errors.empty()) return {};
  const auto n = static_cast<double>(errors.size());
  ErrorSummary out{.rows = static_cast<int>(errors.size())};
  out.bias = std::accumulate(errors.begin(), errors.end(), 0.0) / n;
  for (double& error : errors) error = std::abs(error);
  std::ranges::sort(errors);
  out.mean_abs = std::accumulate(errors.begin(), errors.end(), 0.0) / n;
  out.median_abs = quantile(errors, 0.5);
  out.p90_abs = quantile(errors, 0.9);
  return out;
}

Ranking rank_group(std::string group, const std::vector<double>& predicted,
                   const std::vector<double>& measured) {
  EXPECTS(!predicted.empty() && predicted.size() == measured.size(), "one prediction per run");
  std::vector<std::size_t> order(predicted.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return predicted[i]; });
  const double best = *std::ranges::min_element(measured);
  double best_of_three = measured[order.front()];
  for (std::size_t i = 0; i < std::min<std::size_t>(3, order.size()); ++i) {
    best_of_three = std::min(best_of_three, measured[order[i]]);
  }
  return {.group = std::move(group),
          .rows = static_cast<int>(predicted.size()),
          .regret = measured[order.front()] / best - 1,
          .regret3 = best_of_three / best - 1,
          .spearman = correlation(ranks_of(predicted), ranks_of(measured))};
}

Result<ValidationReport> validate(const std::vector<RunRow>& rows,
                                  const ValidationOptions& options) {
  const Result<RowFilter> filter = RowFilter::parse(options.where, "--where");
  if (!filter) return filter.error();
  RunMapper mapper;
  Calibrations calibrations(options.calibration);
  ValidationReport report;
  Tally all;
  std::map<std::string, Tally> by_source;
  for (const RunRow& row : rows) {
    if (!filter->keeps(row)) continue;
    report.rows.push_back(predict_row(row, mapper, calibrations));
    all.add(report.rows.back());
    by_source[row.source].add(report.rows.back());
  }
  static_cast<ValidationSummary&>(report) = all.summary();
  for (const auto& [source, tally] : by_source) report.by_source[source] = tally.summary();
  return report;
}

}  // namespace echelon
