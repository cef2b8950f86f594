#include "evaluation/fit_levels.hpp"

#include <algorithm>
#include <cmath>

#include "core/base/expects.hpp"
#include "costmodel/calibration/calibration_fields.hpp"
#include "costmodel/time/stage_model.hpp"

namespace echelon {
namespace {

constexpr FitOptions kOptions{};

std::vector<double> weights_of(const Runs& runs) {
  std::vector<std::string_view> sources;
  for (const Observation* run : runs) sources.emplace_back(run->source);
  return shared_weights(sources);
}

/// The random effects of publishers.
class SiteEffects {
 public:
  SiteEffects(const Runs& runs, std::vector<double> weights, Sites sites)
      : weights_(std::move(weights)) {
    if (sites == Sites::own) return;
    std::map<std::string_view, std::size_t> numbers;
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const auto [number, added] = numbers.emplace(runs[i]->publisher, sites_.size());
      if (added) sites_.emplace_back();
      sites_[number->second].push_back(i);
    }
  }

  /// Of the runs, then 1 of every effect.
  [[nodiscard]] std::vector<double> weights() const {
    std::vector<double> all = weights_;
    all.resize(weights_.size() + sites_.size(), 1);
    return all;
  }

  /// Takes the likeliest effect of every site from the errors of its runs. After the runs stand the
  /// effects, in such a unit that fit_rates() charges ρ(effect / spread): the square of a small
  /// one, less of a large one.
  void take_from(std::span<double> errors) const {
    for (std::size_t site = 0; site < sites_.size(); ++site) {
      const double effect = likeliest(sites_[site], errors);
      for (const std::size_t i : sites_[site]) errors[i] -= effect;
      errors[weights_.size() + site] = effect / kSiteSpread * kOptions.noise;
    }
  }

 private:
  /// The minimum of the loss of fit_rates() over the effect, by iterated weights: its robust mean,
  /// shrunk towards 0.
  [[nodiscard]] double likeliest(const std::vector<std::size_t>& runs,
                                 std::span<const double> errors) const {
    constexpr int kRounds = 8;
    const double noise = kOptions.noise;
    double effect = 0;
    for (int round = 0; round < kRounds; ++round) {
      double sum = 0;
      double weight = 1 / (kSiteSpread * kSiteSpread);
      for (const std::size_t i : runs) {
        const double r = (errors[i] - effect) / noise;
        const double own = weights_[i] / (std::sqrt(1 + r * r) * noise * noise);
        sum += own * errors[i];
        weight += own;
      }
      effect = sum / weight;
    }
    return effect;
  }

  std::vector<double> weights_;
  std::vector<std::vector<std::size_t>> sites_;  ///< runs of each
};

/// Rates without their sources' texts, which would be copied thousands of times.
Calibration bare(Calibration calibration) {
  calibration.sources.clear();
  return calibration;
}

}  // namespace

std::vector<double> shared_weights(std::span<const std::string_view> groups) {
  std::map<std::string_view, int> sizes;
  for (const std::string_view group : groups) ++sizes[group];
  std::vector<double> weights;
  for (const std::string_view group : groups) weights.push_back(1 / std::sqrt(sizes.at(group)));
  return weights;
}

double log_error(Observation& run, const Calibration& calibration) {
  run.cost_model.recalibrate(calibration);
  if (run.stages.empty()) stages_of(run.cost_model, run.plan, run.stages);
  run.cost_model.price_time(run.plan, run.cost_model.sharding_costs(run.sharding), run.stages,
                            run.scratch);
  return std::log(run.scratch.step.in(kSecond) / run.measured);
}

void Moves::apply(Calibration& calibration) const {
  for (std::size_t j = 0; j < parameters_.size(); ++j) {
    const FitParameter& parameter = parameters_[j];
    const FittedRate& rate = fit_.rates[j];
    const auto moved = [&](const CalibrationField& field) {
      const double own = rate_of(calibration, field);
      return parameter.additive ? own + rate.value - rate.prior : own * (rate.value / rate.prior);
    };
    const CalibrationField& field = calibration_field(parameter.key);
    set_rate(calibration, field, std::clamp(moved(field), parameter.min, parameter.max));
    if (parameter.along.empty()) continue;
    const CalibrationField& along = calibration_field(parameter.along);
    set_rate(calibration, along, moved(along));
  }
}

Moves fit_moves(std::vector<FitParameter> parameters, const Runs& runs, const StartOf& start,
                Sites of) {
  EXPECTS(!runs.empty(), "runs to fit to");
  const SiteEffects sites(runs, weights_of(runs), of);
  std::map<const Calibration*, std::pair<Calibration, Calibration>> moved;  // where from, where to
  for (const Observation* run : runs) {
    const Calibration& from = start(*run);
    if (!moved.contains(&from)) moved.emplace(&from, std::pair(bare(from), bare(from)));
  }
  const Calibration reference = bare(start(*runs.front()));
  const auto errors = [&](const Calibration& tried, std::span<double> out) {
    Fit so_far;
    for (const FitParameter& parameter : parameters) {
      const CalibrationField& field = calibration_field(parameter.key);
      so_far.rates.push_back(
          {.key = parameter.key,
           .prior = std::clamp(rate_of(reference, field), parameter.min, parameter.max),
           .value = rate_of(tried, field)});
    }
    const Moves moves(std::move(so_far), parameters);
    for (auto& [key, pair] : moved) {
      pair.second = pair.first;
      moves.apply(pair.second);
    }
    for (std::size_t i = 0; i < runs.size(); ++i) {
      out[i] = log_error(*runs[i], moved.at(&start(*runs[i])).second);
    }
    sites.take_from(out);
  };
  Fit fit = fit_rates(reference, parameters, sites.weights(), errors, kOptions);
  fit.errors.resize(runs.size());
  return {std::move(fit), std::move(parameters)};
}

}  // namespace echelon
