#include "evaluation/fit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "costmodel/calibration/calibration_fields.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "costmodel/cost_model.hpp"
#include "evaluation/fit_levels.hpp"
#include "evaluation/fit_memory.hpp"
#include "evaluation/held_out_errors.hpp"
#include "evaluation/held_out_memory.hpp"

namespace echelon {
namespace {

constexpr std::size_t kFewest = 4;  ///< runs that may move a rate

/// The parameters that are not pinned.
std::vector<FitParameter> free_ones(std::vector<FitParameter> parameters,
                                    std::span<const PinnedRate> pinned) {
  std::erase_if(parameters, [&](const FitParameter& parameter) {
    return std::ranges::any_of(pinned,
                               [&](const PinnedRate& rate) { return rate.key == parameter.key; });
  });
  return parameters;
}

/// With a share of the priors' own spread.
std::vector<FitParameter> within(std::vector<FitParameter> parameters, double share) {
  for (FitParameter& parameter : parameters) parameter.spread *= share;
  return parameters;
}

/// Rates of kernels and links: those that software with the same kernels has in common.
std::vector<FitParameter> kernel_parameters() {
  constexpr double kShare = 0.7;  // of the priors' spread; see kSiteSpread
  std::vector<FitParameter> out;
  for (FitParameter& parameter : within(time_parameters(), kShare)) {
    for (const char* key :
         {"gemm_efficiency", "fp8_efficiency", "gemm_ramp", "kernel_fixed", "attention_forward",
          "attention_overhead", "memory_efficiency", "optimizer_efficiency", "link_efficiency",
          "nic_efficiency", "intra_hop", "inter_hop"}) {
      if (parameter.key == key) out.push_back(std::move(parameter));
    }
  }
  return out;
}

/// A table of one publisher is taken for the runs of the site that is to be predicted.
Sites sites_of(const Observations& all) {
  if (all.runs.empty()) return Sites::own;
  const auto differs = [&](const Observation& run) {
    return run.publisher != all.runs.front().publisher;
  };
  return std::ranges::any_of(all.runs, differs) ? Sites::any : Sites::own;
}

/// "hopper GPUs under echelon"; if the framework only stands for all of the software that ran, that
/// software, whose rates are extrapolated to it.
std::pair<std::string, Evidence> origin_of(const Runs& runs) {
  const Observation& first = *runs.front();
  std::set<std::string> others;
  for (const Observation* run : runs) others.insert(run->other);
  if (others.contains("")) {
    return {fmt::format("{} GPUs under {}", first.family, first.framework), Evidence::calibrated};
  }
  return {fmt::format("{} GPUs under {}, for which {} stands", first.family,
                      fmt::join(others, " and "), first.framework),
          Evidence::extrapolated};
}

/// Fits the rates of one GPU family and framework.
FittedCalibration fit_pair(const Calibration& parent, std::vector<FitParameter> parameters,
                           const Runs& runs, std::string name, Sites sites) {
  const Moves moves = fit_moves(
      std::move(parameters), runs, [&](const Observation&) -> const Calibration& { return parent; },
      sites);
  const Fit& fit = moves.fit();
  FittedCalibration out{fit.calibration, parent.name, static_cast<int>(runs.size()), fit.rates, 0};
  std::vector<double> errors;
  for (Observation* run : runs) errors.push_back(std::exp(log_error(*run, fit.calibration)) - 1);
  out.median = summarize(errors).median_abs;
  Calibration& calibration = out.calibration;
  calibration.name = std::move(name);
  calibration.gpu_family = runs.front()->family;
  calibration.framework = runs.front()->framework;
  const auto [origin, evidence] = origin_of(runs);
  calibration.evidence = evidence;
  calibration.fitted_to = fmt::format("{} published runs of {}", runs.size(), origin);
  calibration.sources = parent.sources;
  write_fit_sources(fit, moves.parameters(), out.runs, 0, calibration);
  return out;
}

/// A GPU family and a framework.
using Pair = std::pair<std::string, std::string>;

/// Where the fit of a pair starts.
using Starts = std::map<Pair, Calibration>;

/// The priors of the runs, and of all other frameworks on the families with runs.
Starts priors_of(const Observations& all) {
  Starts out;
  for (const Observation& run : all.runs) {
    out.try_emplace({run.family, run.framework}, run.prior);
    for (const Framework& framework : frameworks()) {
      const std::pair key(run.family, framework.calibration_key());
      if (out.contains(key)) continue;
      if (auto prior = prior_calibration(run.cost_model.cluster().gpu(), framework)) {
        pin(*prior, all.pinned);
        out.emplace(key, *std::move(prior));
      }
    }
  }
  return out;
}

KernelLibrary kernels_of(const std::string& framework) {
  return find_framework(framework).value().kernels;
}

/// Moves every start as the runs of software with the same kernels move theirs, on all GPUs. Runs
/// with experts do not count: exchange and launches hide what their products and bytes take. What
/// moves none of the `wanted` is left out.
void move_by_kernels(const Observations& all, const Runs& runs, const std::set<Pair>& wanted,
                     Starts& starts) {
  std::map<KernelLibrary, Runs> by_kernels;
  for (Observation* run : runs) {
    if (run->cost_model.model().moe.experts == 0) by_kernels[run->kernels].push_back(run);
  }
  for (const auto& [kernels, alike] : by_kernels) {
    const bool moves_wanted = std::ranges::any_of(wanted, [&, kernels = kernels](const Pair& pair) {
      return kernels_of(pair.second) == kernels;
    });
    if (alike.size() < kFewest || !moves_wanted) continue;
    const Moves moves = fit_moves(
        free_ones(kernel_parameters(), all.pinned), alike,
        [&](const Observation& run) -> const Calibration& {
          return starts.at({run.family, run.framework});
        },
        Sites::any);
    for (auto& [key, start] : starts) {
      if (kernels_of(key.second) != kernels) continue;
      moves.apply(start);
      for (const FitParameter& parameter : moves.parameters()) {
        for (const std::string& key : {parameter.key, parameter.along}) {
          if (key.empty()) continue;
          const CalibrationField& field = calibration_field(key);
          set_source(start, field,
                     fmt::format("{:.4g}: the prior, moved as by {} runs of software with the same "
                                 "kernels",
                                 rate_of(start, field), alike.size()));
        }
      }
    }
  }
}

/// The calibration of a family and framework without runs of its own.
FittedCalibration borrowed(const Pair& key, Calibration start) {
  FittedCalibration out{std::move(start), "", 0, {}, 0};
  Calibration& calibration = out.calibration;
  out.base = calibration.name;
  calibration.name = key.first + "-" + key.second;
  calibration.gpu_family = key.first;
  calibration.framework = key.second;
  calibration.evidence = Evidence::extrapolated;
  calibration.fitted_to = fmt::format(
      "no run of {} GPUs under {}: runs of software with like kernels", key.first, key.second);
  return out;
}

/// The pairs that predict the rows that `use` leaves out; without it, all that have a start.
std::set<Pair> wanted_pairs(const Observations& all, const std::function<bool(std::size_t)>& use,
                            const Starts& starts) {
  std::set<Pair> out;
  if (!use) {
    for (const auto& [pair, start] : starts) out.insert(pair);
    return out;
  }
  for (const MemoryRun& run : all.memory->runs()) {
    if (!use(run.row)) out.emplace(gpu_family(run.cost_model.cluster().gpu()), run.framework);
  }
  return out;
}

/// The calibrations of all pairs, from the runs that `use` accepts, with the memory rates `memory`;
/// where it leaves rows out, of those that predict them.
std::vector<FittedCalibration> fit_pairs(Observations& all,
                                         const std::function<bool(std::size_t)>& use,
                                         const std::vector<FittedMemory>& memory) {
  const Sites sites = sites_of(all);
  // Of the priors' spread, beyond what like software has in common; see kSiteSpread.
  const double share = sites == Sites::any ? 0.3 : 1;
  Runs used;
  std::map<Pair, Runs> own;
  for (Observation& run : all.runs) {
    if (use && !use(run.row)) continue;
    used.push_back(&run);
    own[{run.family, run.framework}].push_back(&run);
  }
  Starts starts = priors_of(all);
  const std::set<Pair> wanted = wanted_pairs(all, use, starts);
  if (sites == Sites::any) move_by_kernels(all, used, wanted, starts);
  std::vector<FittedCalibration> out;
  for (const auto& [key, start] : starts) {
    if (!wanted.contains(key)) continue;
    const Runs& runs = own[key];
    if (runs.size() < kFewest) {
      if (sites == Sites::any) out.push_back(borrowed(key, start));
      continue;
    }
    out.push_back(fit_pair(start, free_ones(within(time_parameters(), share), all.pinned), runs,
                           key.first + "-" + key.second, sites));
  }
  for (FittedCalibration& one : out) write_memory(memory, one.calibration);
  return out;
}

std::vector<Calibration> calibrations_of(const std::vector<FittedCalibration>& tree) {
  std::vector<Calibration> out;
  for (const FittedCalibration& one : tree) out.push_back(one.calibration);
  return out;
}

/// Calibrations fitted without each part, of the pairs that predict it, and their predictions.
struct CrossValidation {
  std::vector<int> part;  ///< of every row
  std::vector<std::vector<FittedCalibration>> trees;
  HeldOutErrors errors;
  HeldOutMemory memory;
};

CrossValidation cross_validate(Observations& all, std::vector<int> part_of_rows,
                               HeldOutMemory memory, const FitProgress& progress) {
  CrossValidation out{std::move(part_of_rows), {}, HeldOutErrors(sites_of(all)), std::move(memory)};
  const int parts = out.part.empty() ? 0 : *std::ranges::max_element(out.part) + 1;
  for (int part = 0; part < parts; ++part) {
    const auto outside = [&](std::size_t row) { return out.part[row] != part; };
    const std::vector<FittedMemory> rates = all.memory->fit(outside);
    out.memory.add(all.memory->outcomes(rates, std::not_fn(outside)), part);
    out.trees.push_back(fit_pairs(all, outside, rates));
    std::map<std::string, const Calibration*> fitted;
    for (const FittedCalibration& one : out.trees.back()) {
      fitted.emplace(one.calibration.name, &one.calibration);
    }
    for (Observation& run : all.runs) {
      if (out.part[run.row] != part) continue;
      const CostModel& cost_model = run.cost_model;
      const std::string name = calibration_name(cost_model.cluster().gpu(), cost_model.framework());
      const auto found = fitted.find(name);
      if (found == fitted.end()) continue;
      out.errors.add(name, run, part, log_error(run, *found->second));
    }
    if (progress) progress((part + 1.0) / (parts + 1));
  }
  return out;
}

FoldedFit fit_parts(const std::vector<MeasuredRun>& rows, std::vector<int> part_of_rows,
                    const WithoutTerm& without, const FitProgress& progress) {
  Observations all = observe(rows, without);
  CrossValidation judged =
      cross_validate(all, std::move(part_of_rows), HeldOutMemory(rows), progress);
  FoldedFit out;
  out.ablated = without.ablated;
  for (std::size_t part = 0; part < judged.trees.size(); ++part) {
    out.sets.push_back(calibrations_of(judged.trees[part]));
    for (Calibration& calibration : out.sets.back()) {
      judged.errors.set_band(calibration, static_cast<int>(part));
      judged.memory.set_band(calibration, static_cast<int>(part));
    }
  }
  out.part.assign(judged.part.begin(), judged.part.end());
  return out;
}

FitTable table_of(std::vector<FittedCalibration> tree, const Observations& all) {
  FitTable out;
  out.calibrations = std::move(tree);
  out.used = static_cast<int>(all.runs.size());
  out.left_out = left_out_texts(all);
  return out;
}

}  // namespace

FitTable fit_with_bands(const std::vector<MeasuredRun>& rows, int parts,
                        const FitProgress& progress) {
  Observations all = observe(rows);
  const CrossValidation judged =
      cross_validate(all,
                     sites_of(all) == Sites::any ? parts_of(groups_of(rows, LeaveOut::publisher))
                                                 : deal_folds(folds_of(rows), parts),
                     HeldOutMemory(rows), progress);
  const HeldOutMemory memory =
      hold_out_memory(rows, *all.memory, memory_parts(rows, *all.memory, parts));
  std::vector<FittedCalibration> tree = fit_pairs(all, {}, all.memory->fit());
  for (FittedCalibration& one : tree) {
    judged.errors.set_band(one.calibration);
    memory.set_band(one.calibration);
  }
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
