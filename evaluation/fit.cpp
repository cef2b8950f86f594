#include "evaluation/fit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>
#include <variant>

#include "costmodel/calibration/calibration_fields.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "costmodel/cost_model.hpp"
#include "evaluation/fit_memory.hpp"
#include "evaluation/row_quality.hpp"
#include "evaluation/run_cluster.hpp"
#include "evaluation/run_mapping.hpp"

namespace echelon {
namespace {

constexpr std::size_t kFewest = 4;         ///< runs that may move a rate
constexpr std::size_t kFewestOfABand = 8;  ///< errors a band can be read from
constexpr double kBand = 0.8;

/// A row that can be fitted to, ready to be priced again and again.
struct Observation {
  std::size_t row = 0;
  std::string family, framework, software, release, fold;
  CostModel cost_model;
  ParallelPlan plan;
  LayerSharding sharding;
  double measured = 0;  ///< seconds
  Calibration prior;
  PlanCosts scratch;
};

double log_error(Observation& run, const Calibration& calibration) {
  run.cost_model.recalibrate(calibration);
  run.cost_model.price(run.plan, run.cost_model.sharding_costs(run.sharding), run.scratch);
  return std::log(run.scratch.time.step.in(kSecond) / run.measured);
}

/// All rows of a table that can be fitted to, and the pinned rates.
struct Observations {
  std::vector<Observation> runs;
  const std::vector<MeasuredRun>* rows = nullptr;
  std::span<const PinnedRate> pinned{};
  std::map<std::string, int> left_out;
};

/// A single iteration is noisy and an odd head size slow, but they are runs of the same machine and
/// software; the robust loss bounds their influence.
bool unusable(const RowQualityFlag& flag) {
  return flag.time && flag.name != "one-iteration" && flag.name != "odd-heads";
}

void pin(Calibration& calibration, std::span<const PinnedRate> pinned) {
  for (const PinnedRate& rate : pinned) {
    set_rate(calibration, calibration_field(rate.key), rate.value);
  }
}

/// The parameters that are not pinned.
std::vector<FitParameter> free_ones(std::vector<FitParameter> parameters,
                                    std::span<const PinnedRate> pinned) {
  std::erase_if(parameters, [&](const FitParameter& parameter) {
    return std::ranges::any_of(pinned,
                               [&](const PinnedRate& rate) { return rate.key == parameter.key; });
  });
  return parameters;
}

Observations observe(const std::vector<MeasuredRun>& rows, const WithoutTerm& without = {}) {
  Observations out;
  out.rows = &rows;
  out.pinned = without.pinned;
  const CalibrationSet priors{{}};
  RunMapper mapper;
  const auto flags = quality_flags_of(rows);
  const auto folds = folds_of(rows);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const MeasuredRun& row = rows[i];
    if (!row.step_seconds || row.out_of_memory()) {
      ++out.left_out["without a step time"];
    } else if (row.grade == "C") {
      ++out.left_out["of grade C"];
    } else if (std::ranges::any_of(flags[i], unusable)) {
      ++out.left_out["flagged for time"];
    } else if (auto mapped = mapper.map(row); std::holds_alternative<SkippedRun>(mapped)) {
      ++out.left_out["not priced"];
    } else {
      MappedRun& run = std::get<MappedRun>(mapped);
      const GpuSpec& gpu = run.cluster.gpu();
      Result<Calibration> prior = priors.prior(gpu, run.framework);
      const std::string family(gpu_family(gpu));
      if (!prior || family == "generic") {  // a family of unrelated devices
        ++out.left_out["on a GPU of no family"];
        continue;
      }
      pin(*prior, without.pinned);
      CostModel cost_model(run.model, run.job, run.cluster, run.framework, *prior);
      if (const auto network = measured_network(row, run.cluster)) cost_model.set_network(*network);
      cost_model.ablate(without.ablated);
      const std::string release = release_of(row);
      out.runs.push_back({i,
                          family,
                          run.framework.calibration_key(),
                          row.framework,
                          release,
                          folds[i],
                          std::move(cost_model),
                          run.plan,
                          sharding_of(run.plan),
                          *row.step_seconds,
                          *prior,
                          {}});
    }
  }
  return out;
}

/// How far a child's rates may deviate from its parent's, as a share of the priors' own spread.
std::vector<FitParameter> within(std::vector<FitParameter> parameters, double share) {
  for (FitParameter& parameter : parameters) parameter.spread *= share;
  return parameters;
}

/// Rates that differ between releases of a software: kernels and launches, not the machine.
std::vector<FitParameter> release_parameters() {
  std::vector<FitParameter> out = {{"kernel_speed_factor", "", 0.08, false, 0.2, 5}};
  for (FitParameter& parameter : within(time_parameters(), 0.5)) {
    for (const char* key :
         {"kernel_fixed", "gemm_ramp", "host_layer_forward", "host_experts", "moe_speed_factor",
          "memory_efficiency", "attention_forward", "dp_overlap", "tp_overlap"}) {
      if (parameter.key == key) out.push_back(parameter);
    }
  }
  return out;
}

/// Rates that differ between software of the same framework: launches, latencies and overlap, and
/// less so the machine's compute and bandwidth.
std::vector<FitParameter> software_parameters() {
  std::vector<FitParameter> out = within(time_parameters(), 0.7);
  for (FitParameter& parameter : out) {
    for (const char* key :
         {"gemm_efficiency", "fp8_efficiency", "gemm_ramp", "attention_forward",
          "memory_efficiency", "optimizer_efficiency", "link_efficiency", "nic_efficiency"}) {
      if (parameter.key == key) parameter.spread *= 0.3;
    }
  }
  return out;
}

using Runs = std::vector<Observation*>;

/// Runs of one fold (evaluation/cv_folds.hpp) have the same errors for the same reasons, so n of
/// them contain less information than n runs of different jobs: each weighs 1/√n.
std::vector<double> weights_of(const Runs& runs) {
  std::map<std::string_view, int> sizes;
  for (const Observation* run : runs) ++sizes[run->fold];
  std::vector<double> weights;
  for (const Observation* run : runs) weights.push_back(1 / std::sqrt(sizes.at(run->fold)));
  return weights;
}

/// Fits one node of the tree.
FittedCalibration fit_node(const Calibration& parent, std::vector<FitParameter> parameters,
                           const Runs& runs, std::string name, std::string what) {
  Calibration base = parent;
  base.sources.clear();  // copied thousands of times
  const std::vector<double> weights = weights_of(runs);
  const Fit fit =
      fit_rates(base, parameters, weights, [&](const Calibration& c, std::span<double> errors) {
        for (std::size_t i = 0; i < runs.size(); ++i) errors[i] = log_error(*runs[i], c);
      });
  FittedCalibration out{fit.calibration, parent.name, static_cast<int>(runs.size()), fit.rates, 0};
  std::vector<double> errors;
  for (const double e : fit.errors) errors.push_back(std::exp(e) - 1);
  out.median = summarize(errors).median_abs;
  Calibration& calibration = out.calibration;
  calibration.name = std::move(name);
  calibration.gpu_family = runs.front()->family;
  calibration.framework = runs.front()->framework;
  calibration.evidence = Evidence::calibrated;
  calibration.fitted_to = std::move(what);
  calibration.sources = parent.sources;
  write_fit_sources(fit, parameters, static_cast<int>(runs.size()), 0, calibration);
  return out;
}

std::map<std::string, Runs> split_by(const Runs& runs, std::string Observation::*key) {
  std::map<std::string, Runs> out;
  for (Observation* run : runs) out[run->*key].push_back(run);
  return out;
}

/// The whole tree over the runs that `use` accepts.
std::vector<FittedCalibration> fit_tree(Observations& all,
                                        const std::function<bool(std::size_t)>& use) {
  std::map<std::pair<std::string, std::string>, Runs> roots;
  for (Observation& run : all.runs) {
    if (!use || use(run.row)) roots[{run.family, run.framework}].push_back(&run);
  }
  std::vector<FittedCalibration> out;
  const auto add = [&](const Calibration& parent, std::vector<FitParameter> parameters,
                       const Runs& runs, const std::string& name, const std::string& what) {
    out.push_back(fit_node(parent, free_ones(std::move(parameters), all.pinned), runs, name,
                           fmt::format("{} published runs of {}", runs.size(), what)));
    return out.back().calibration;
  };
  for (const auto& [key, runs] : roots) {
    if (runs.size() < kFewest) continue;
    const std::string name = key.first + "-" + key.second;
    const auto by_software = split_by(runs, &Observation::software);
    const std::string what = fmt::format("{} GPUs under {}", key.first, key.second);
    const Calibration root = add(runs.front()->prior, time_parameters(), runs, name, what);
    for (const auto& [software, own] : by_software) {
      const std::string special = name + "-" + software;
      Calibration parent = root;
      if (by_software.size() > 1) {
        if (own.size() < kFewest) continue;
        parent = add(root, software_parameters(), own, special, what + ", by " + software);
      }
      const auto by_era = split_by(own, &Observation::release);
      for (const auto& [release, some] : by_era) {
        if (release.empty() || by_era.size() < 2 || some.size() < kFewest) continue;
        (void)add(parent, release_parameters(), some, special + "-" + release,
                  fmt::format("{}, by {} {}", what, software, release));
      }
    }
  }
  const std::vector<FittedMemory> memory = fit_memory(*all.rows, use);
  for (FittedCalibration& one : out) write_memory(memory, one.calibration);
  return out;
}

std::vector<Calibration> calibrations_of(const std::vector<FittedCalibration>& tree) {
  std::vector<Calibration> out;
  for (const FittedCalibration& one : tree) out.push_back(one.calibration);
  return out;
}

/// ln-errors out of fold with the part of each, by the name of the calibration that predicted them.
/// A run counts for every calibration that may be used for it, from the one of its release to the
/// one of its framework, which is less specific and has larger errors.
using OutOfFold = std::map<std::string, std::vector<std::pair<int, double>>>;

/// The quantile kBand of the errors of all parts except `part`, or nothing if they are too few.
std::optional<double> band_of(const OutOfFold& errors, const std::string& key, int part) {
  const auto found = errors.find(key);
  if (found == errors.end()) return {};
  std::vector<double> sizes;
  for (const auto& [made_in, error] : found->second) {
    if (made_in != part) sizes.push_back(std::abs(error));
  }
  if (sizes.size() < kFewestOfABand) return {};
  const auto at = static_cast<std::size_t>(kBand * static_cast<double>(sizes.size()));
  std::ranges::nth_element(sizes, sizes.begin() + static_cast<std::ptrdiff_t>(at));
  return std::clamp(std::exp(sizes[at]) - 1, 0.005, 1.0);
}

/// From the errors of the calibration's own name, or of the nearest name above it that has enough.
void set_band(Calibration& calibration, const OutOfFold& errors, int part) {
  for (std::string key = calibration.name;;) {
    if (const auto band = band_of(errors, key, part)) {
      calibration.time_band = *band;
      set_source(calibration, calibration_field("time_band"),
                 fmt::format("holds 80 % of the runs that {} predicts and was not fitted to", key));
      return;
    }
    const std::size_t above = key.rfind('-');
    if (above == std::string::npos) return;
    key.resize(above);
  }
}

/// Trees fitted without each part, and their predictions of it.
struct CrossValidation {
  std::vector<int> part;  ///< of every row
  std::vector<std::vector<FittedCalibration>> trees;
  OutOfFold errors;
};

CrossValidation cross_validate(const std::vector<MeasuredRun>& rows, Observations& all,
                               std::vector<int> part_of_rows, const FitProgress& progress) {
  CrossValidation out;
  out.part = std::move(part_of_rows);
  const int parts = out.part.empty() ? 0 : *std::ranges::max_element(out.part) + 1;
  for (int part = 0; part < parts; ++part) {
    out.trees.push_back(fit_tree(all, [&](std::size_t row) { return out.part[row] != part; }));
    std::map<std::string, const Calibration*> fitted;
    for (const FittedCalibration& one : out.trees.back()) {
      fitted.emplace(one.calibration.name, &one.calibration);
    }
    for (Observation& run : all.runs) {
      if (out.part[run.row] != part) continue;
      const CostModel& cost_model = run.cost_model;
      for (const std::string& name :
           calibration_names(cost_model.cluster().gpu(), cost_model.framework(), rows[run.row])) {
        const auto found = fitted.find(name);
        if (found == fitted.end()) continue;
        out.errors[name].emplace_back(part, log_error(run, *found->second));
      }
    }
    if (progress) progress((part + 1.0) / (parts + 1));
  }
  return out;
}

FoldedFit fit_parts(const std::vector<MeasuredRun>& rows, std::vector<int> part_of_rows,
                    const WithoutTerm& without, const FitProgress& progress) {
  Observations all = observe(rows, without);
  CrossValidation judged = cross_validate(rows, all, std::move(part_of_rows), progress);
  FoldedFit out;
  out.ablated = without.ablated;
  for (std::size_t part = 0; part < judged.trees.size(); ++part) {
    out.sets.push_back(calibrations_of(judged.trees[part]));
    for (Calibration& calibration : out.sets.back()) {
      set_band(calibration, judged.errors, static_cast<int>(part));
    }
  }
  out.part.assign(judged.part.begin(), judged.part.end());
  return out;
}

FitTable table_of(std::vector<FittedCalibration> tree, const Observations& all) {
  FitTable out;
  out.calibrations = std::move(tree);
  out.used = static_cast<int>(all.runs.size());
  for (const auto& [why, count] : all.left_out) {
    out.left_out.push_back(fmt::format("{} rows {}", count, why));
  }
  return out;
}

}  // namespace

FitTable fit_with_bands(const std::vector<MeasuredRun>& rows, int parts,
                        const FitProgress& progress) {
  Observations all = observe(rows);
  const CrossValidation judged =
      cross_validate(rows, all, deal_folds(folds_of(rows), parts), progress);
  std::vector<FittedCalibration> tree = fit_tree(all, {});
  for (FittedCalibration& one : tree) set_band(one.calibration, judged.errors, -1);
  return table_of(std::move(tree), all);
}

FoldedFit fit_folds(const std::vector<MeasuredRun>& rows, int parts, const WithoutTerm& without,
                    const FitProgress& progress) {
  return fit_parts(rows, deal_folds(folds_of(rows), parts), without, progress);
}

FoldedFit fit_left_out(const std::vector<MeasuredRun>& rows, LeaveOut by,
                       const FitProgress& progress) {
  std::vector<std::string> groups = groups_of(rows, by);
  FoldedFit out = fit_parts(rows, parts_of(groups), {}, progress);
  out.left_out = std::move(groups);
  return out;
}

Result<ValidationReport> validate_folds(const std::vector<MeasuredRun>& rows, const FoldedFit& fit,
                                        const std::string& where) {
  ValidationOptions options;
  options.where = where;
  for (const auto& set : fit.sets) options.sets.emplace_back(set);
  options.part = fit.part;
  options.left_out = fit.left_out;
  options.ablated = fit.ablated;
  return validate(rows, options);
}

}  // namespace echelon
