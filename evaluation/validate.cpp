#include "evaluation/validate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <set>
#include <utility>
#include <variant>

#include "core/base/expects.hpp"
#include "costmodel/cost_model.hpp"
#include "costmodel/time/stage_model.hpp"
#include "evaluation/cv_folds.hpp"
#include "evaluation/memory_metric.hpp"
#include "evaluation/row_filter.hpp"
#include "evaluation/run_cluster.hpp"
#include "evaluation/run_mapping.hpp"

namespace echelon {

namespace {

constexpr std::size_t kLeastGroup = 3;  ///< rows a ranking needs to say anything

/// Why `used` is only the nearest for this run, and a wider band in it if no runs gave it one; ""
/// when it was fitted to runs of the GPU's family and framework, or given by the user.
std::string nearest_for(const MappedRun& run, Calibration& used) {
  const bool any_gpu = used.gpu_family == "any";
  if (!run.substitute.empty() || any_gpu) used.time_band = std::hypot(used.time_band, kUnseenBand);
  if (used.evidence == Evidence::extrapolated) {
    return fmt::format("no calibration fitted to {} on {}: {} is the nearest{}", run.framework.name,
                       run.cluster.gpu().name, used.name,
                       run.substitute.empty() ? "" : ", and " + run.substitute);
  }
  if (run.substitute.empty()) return {};
  return fmt::format("{} is the nearest calibration: {}", used.name, run.substitute);
}

void add_memory(const MeasuredRun& row, const StageModel& model, const MemoryPrediction& memory,
                const MemoryBand& band, ValidatedRow& out, std::vector<std::string>& inferred) {
  constexpr double kEven = 0.5;
  out.predicted_need = memory.peak_reserved;
  out.spare = 1 - memory.peak_reserved / memory.capacity;
  out.fits_probability = fit_probability(band, memory.peak_reserved, memory.capacity);
  out.predicted_fits = *out.fits_probability >= kEven;
  out.memory_band = band;
  if (row.out_of_memory() || !row.peak_memory_bytes) return;
  out.measured_peak = *row.peak_memory_bytes * kByte;
  out.predicted_peak = memory_metric(row, model, memory, limit_of_runs(band, memory.capacity));
  if (!is_of_one_gpu(*out.measured_peak, memory.capacity)) {
    inferred.push_back("the memory figure is more than one GPU has, so it is not compared");
    return;
  }
  out.memory_error = *out.predicted_peak / *out.measured_peak - 1;
  if (row.memory_kind.empty() || row.memory_kind == "unknown") {
    inferred.push_back("the memory figure taken for reserved memory");
  }
}

void add_static(const MeasuredRun& row, const StageModel& model, const MemoryPrediction& memory,
                ValidatedRow& out) {
  if (row.out_of_memory() || !row.static_memory_bytes) return;
  out.measured_static = *row.static_memory_bytes * kByte;
  out.predicted_static = model.standing(memory.contents.front());
  out.static_error = *out.predicted_static / *out.measured_static - 1;
}

ValidatedRow predict_row(const MeasuredRun& row, const CalibrationSet& set, RunMapper& mapper,
                         const ValidationOptions& options) {
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
  const GpuSpec& gpu = run.cluster.gpu();
  const Result<Calibration> calibration =
      options.calibration ? *options.calibration : set.pick(gpu, run.framework);
  if (!calibration) {
    out.skipped = "no calibration: " + calibration.error().found;
    return out;
  }
  Calibration used = *calibration;
  if (!options.calibration) out.nearest = nearest_for(run, used);
  CostModel cost_model(run.model, run.job, run.cluster, run.framework, used);
  if (const auto network = measured_network(row, run.cluster)) cost_model.set_network(*network);
  cost_model.ablate(options.ablated);
  const PlanCosts prediction = cost_model.price(run.plan);
  if (!prediction.time.step.is_finite()) {
    out.skipped = "the predicted time is not finite";
    return out;
  }
  out.predicted_step = prediction.time.step;
  out.low = prediction.time.low;
  out.high = prediction.time.high;
  out.parts = prediction.time.parts;
  out.calibration = calibration->name;
  out.evidence = calibration->evidence;
  if (out.measured_step) out.time_error = *out.predicted_step / *out.measured_step - 1;
  if (out.measured_step && !options.sets.empty()) {
    const Result<Calibration>& prior = set.prior(gpu, run.framework);
    if (prior) {
      CostModel unfitted = cost_model;
      unfitted.recalibrate(*prior);
      out.prior_time_error = unfitted.price(run.plan).time.step / *out.measured_step - 1;
    }
  }
  const ShardingCosts costs = cost_model.sharding_costs(run.plan);
  const StageModel model(cost_model, run.plan, costs);
  add_memory(row, model, prediction.memory, memory_band_of(used, run.framework), out, run.inferred);
  out.framework = run.framework.calibration_key();
  add_static(row, model, prediction.memory, out);
  out.inferred = !run.inferred.empty();
  out.inferred_what = fmt::format("{}", fmt::join(run.inferred, "; "));
  return out;
}

/// The rows that a tally counts.
enum class Take { all, unflagged };

/// Collects what became of rows with a predicted P(fits).
class FitsTally {
 public:
  FitsTally() {
    for (const double from : kSpareBins) bins_.push_back({from});
  }

  void add(const ValidatedRow& row) {
    const double ran = *row.measured_fits ? 1 : 0;
    const double probability = *row.fits_probability;
    ++sums_.rows;
    sums_.ran += *row.measured_fits;
    sums_.false_fits += *row.predicted_fits && !*row.measured_fits;
    sums_.false_ooms += !*row.predicted_fits && *row.measured_fits;
    sums_.brier += (probability - ran) * (probability - ran);
    const auto above = std::ranges::upper_bound(bins_, row.spare, {}, &SpareBin::from);
    SpareBin& bin = *std::prev(above);
    ++bin.rows;
    bin.ran += *row.measured_fits;
    bin.probability += probability;
  }

  [[nodiscard]] FitsSummary summary() const {
    FitsSummary out = sums_;
    if (out.rows == 0) return out;
    out.brier /= out.rows;
    for (SpareBin bin : bins_) {
      if (bin.rows == 0) continue;
      bin.probability /= bin.rows;
      out.bins.push_back(bin);
    }
    return out;
  }

 private:
  FitsSummary sums_;
  std::vector<SpareBin> bins_;
};

/// Collects the data of a summary, row by row.
class Tally {
 public:
  explicit Tally(Take take) : take_(take) {}

  void add(const ValidatedRow& row) {
    const bool all = take_ == Take::all;
    if (row.memory_error && (all || !row.flagged_for_memory())) {
      memory_.push_back(*row.memory_error);
      memory_folds_.push_back(row.fold);
    }
    if (row.static_error && (all || !row.flagged_for_memory())) {
      static_.push_back(*row.static_error);
      static_folds_.push_back(row.fold);
    }
    if (row.fits_probability && row.measured_fits && (all || !row.flagged_for_fits())) {
      fits_.add(row);
    }
    if (!row.time_error || (!all && row.flagged_for_time())) return;
    time_.push_back(*row.time_error);
    if (row.prior_time_error) prior_time_.push_back(*row.prior_time_error);
    time_folds_.push_back(row.fold);
    in_band_ += *row.measured_step >= row.low && *row.measured_step <= row.high;
    if (row.group.empty()) return;
    auto& [predicted, measured] = groups_[row.group];
    predicted.push_back(row.predicted_step->in(kSecond));
    measured.push_back(row.measured_step->in(kSecond));
  }

  [[nodiscard]] ValidationSummary summary() const {
    ValidationSummary out{with_intervals(time_, time_folds_),
                          summarize(prior_time_),
                          with_intervals(memory_, memory_folds_),
                          with_intervals(static_, static_folds_),
                          fits_.summary(),
                          {}};
    if (!time_.empty()) out.time.in_band = in_band_ / static_cast<double>(time_.size());
    for (const auto& [group, times] : groups_) {
      if (times.first.size() < kLeastGroup) continue;
      out.ranking.push_back(rank_group(group, times.first, times.second));
    }
    return out;
  }

 private:
  static ErrorSummary with_intervals(const std::vector<double>& errors,
                                     const std::vector<std::string>& folds) {
    ErrorSummary out = summarize(errors);
    std::vector<double> sizes;
    for (const double error : errors) sizes.push_back(std::abs(error));
    const MeanIntervals intervals = bootstrap_mean(sizes, folds);
    out.mean_80 = intervals.at_80;
    out.mean_95 = intervals.at_95;
    return out;
  }

  using Times = std::pair<std::vector<double>, std::vector<double>>;
  Take take_;
  std::vector<double> time_, prior_time_, memory_, static_;
  std::vector<std::string> time_folds_, memory_folds_, static_folds_;
  double in_band_ = 0;
  FitsTally fits_;
  std::map<std::string, Times> groups_;
};

struct TallyPair {
  Tally all{Take::all};
  Tally unflagged{Take::unflagged};

  void add(const ValidatedRow& row) {
    all.add(row);
    unflagged.add(row);
  }
  [[nodiscard]] ValidationPair summary() const { return {all.summary(), unflagged.summary()}; }
};

std::map<std::string, ValidationPair> summaries_of(
    const std::map<std::string, TallyPair>& tallies) {
  std::map<std::string, ValidationPair> out;
  for (const auto& [name, tally] : tallies) out[name] = tally.summary();
  return out;
}

/// Subsets of a source with separate lines: by grade if it has several, and by the network if the
/// jobs measured it.
std::vector<std::string> parts_of(const MeasuredRun& row, bool several_grades) {
  std::vector<std::string> parts;
  if (several_grades && !row.grade.empty()) {
    parts.push_back(fmt::format("{}, grade {}", row.source, row.grade));
  }
  if (measured_ring_step(row) && row.grade != "C") {
    parts.push_back(
        fmt::format("{}, {} network", row.source, has_slow_network(row) ? "slow" : "healthy"));
  }
  return parts;
}

template <class Choose>
GroupMeans means_of(const std::map<std::string, ValidationPair>& groups, const Choose& choose) {
  GroupMeans out;
  for (const auto& [name, pair] : groups) {
    const ValidationSummary& summary = choose(pair);
    if (summary.time.rows == 0) continue;
    ++out.groups;
    out.time += summary.time.mean_abs;
    out.prior_time += summary.prior_time.mean_abs;
  }
  if (out.groups > 0) {
    out.time /= out.groups;
    out.prior_time /= out.groups;
  }
  return out;
}

}  // namespace

GroupMeans means_over(const std::map<std::string, ValidationPair>& groups) {
  return means_of(
      groups, [](const ValidationPair& pair) -> auto& { return pair; });
}

GroupMeans means_over_unflagged(const std::map<std::string, ValidationPair>& groups) {
  return means_of(
      groups, [](const ValidationPair& pair) -> auto& { return pair.unflagged; });
}

Result<ValidationReport> validate(const std::vector<MeasuredRun>& rows,
                                  const ValidationOptions& options) {
  const Result<RowFilter> filter = RowFilter::parse(options.where, "--where");
  if (!filter) return filter.error();
  EXPECTS(options.sets.empty() || options.part.size() == rows.size(), "one set per row");
  // Step 1: properties of the whole table, before any filter, which could remove twins.
  const std::vector<std::string> folds = folds_of(rows);
  const std::vector<std::vector<RowQualityFlag>> flags = quality_flags_of(rows);
  std::map<std::string, std::set<std::string>> grades;
  for (const MeasuredRun& row : rows) grades[row.source].insert(row.grade);

  // Step 2: predict and summarize.
  const CalibrationSet shipped;
  RunMapper mapper;
  ValidationReport report;
  TallyPair all;
  std::map<std::string, TallyPair> by_source;
  std::map<std::string, TallyPair> by_part;
  std::map<std::string, TallyPair> by_left_out;
  std::map<std::string, std::pair<MemoryBand, FitsTally>> by_framework;
  std::vector<MeasuredRun> kept;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const MeasuredRun& row = rows[i];
    if (!filter->keeps(row)) continue;
    const CalibrationSet& set = options.sets.empty() ? shipped : options.sets[options.part[i]];
    ValidatedRow out = predict_row(row, set, mapper, options);
    out.fold = folds[i];
    out.flags = flags[i];
    out.parts_of_source = parts_of(row, grades[row.source].size() > 1);
    const bool seen = options.sets.empty() && out.evidence != Evidence::extrapolated;
    report.out_of_fold = report.out_of_fold && !seen;
    all.add(out);
    by_source[row.source].add(out);
    if (!options.left_out.empty()) by_left_out[options.left_out[i]].add(out);
    for (const std::string& part : out.parts_of_source) by_part[part].add(out);
    if (out.fits_probability && out.measured_fits && !out.flagged_for_fits()) {
      const auto [found, first] = by_framework.try_emplace(out.framework);
      if (first) found->second.first = out.memory_band;
      found->second.second.add(out);
    }
    report.rows.push_back(std::move(out));
    kept.push_back(row);
  }
  static_cast<ValidationPair&>(report) = all.summary();
  report.by_source = summaries_of(by_source);
  report.by_part = summaries_of(by_part);
  report.by_left_out = summaries_of(by_left_out);
  for (const auto& [framework, one] : by_framework) {
    report.by_framework[framework] = {one.first, one.second.summary()};
  }
  report.noise = noise_of(kept);
  return report;
}

}  // namespace echelon
