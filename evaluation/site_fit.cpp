#include "evaluation/site_fit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "core/base/expects.hpp"
#include "costmodel/calibration/calibration_fields.hpp"
#include "costmodel/calibration/calibration_io.hpp"

namespace echelon {
namespace {

constexpr std::array kSpeeds = {"kernel_speed_factor", "optimizer_efficiency", "link_efficiency",
                                "nic_efficiency", "host_memory"};
constexpr std::array kTimes = {"kernel_fixed",        "host_layer_forward",  "host_layer_backward",
                               "host_experts",        "host_instruction",    "step_fixed",
                               "collective_base",     "intra_hop",           "inter_hop",
                               "switch_base",         "dp_rank_latency",     "layer_latency_factor",
                               "ring_latency_factor", "bulk_latency_factor", "host_latency_factor"};
/// Rates of kernels differ between sites by driver, clocks and versions of libraries; those of
/// links and hosts keep near what publishers have in common. Shares of the priors' spreads.
constexpr std::array kKernels = {"gemm_efficiency",   "fp8_efficiency",      "gemm_ramp",
                                 "fp8_ramp",          "kernel_fixed",        "attention_forward",
                                 "memory_efficiency", "optimizer_efficiency"};
constexpr double kShareOfKernels = 1;
constexpr double kShareOfOthers = 0.3;
/// The fit moves the site's speed in the place of this rate, which no other parameter moves.
constexpr const char* kCarrier = "kernel_speed_factor";

void scale(Calibration& c, std::string_view key, double factor) {
  const CalibrationField& field = calibration_field(key);
  set_rate(c, field, std::clamp(rate_of(c, field) * factor, field.min, field.max));
}

/// The site's speed, then the rates of `base` that can be scaled.
std::vector<FitParameter> site_parameters(const Calibration& base) {
  const double speed = base.kernel_speed_factor;
  constexpr double kFarthest = 5;
  std::vector<FitParameter> out = {
      {kCarrier, "", kSpeedSpread, false, speed / kFarthest, speed * kFarthest}};
  for (FitParameter parameter : time_parameters()) {
    const double prior = rate_of(base, calibration_field(parameter.key));
    if (!parameter.additive && prior <= 0) continue;
    // Another generation of attention kernels is twice as fast (AttentionKernels).
    constexpr double kAttentionSpread = 0.4;
    if (parameter.key == "attention_forward") parameter.spread = kAttentionSpread;
    parameter.spread *=
        std::ranges::count(kKernels, parameter.key) > 0 ? kShareOfKernels : kShareOfOthers;
    parameter.min = std::min(parameter.min, prior);
    parameter.max = std::max(parameter.max, prior);
    out.push_back(std::move(parameter));
  }
  return out;
}

/// n runs of a model on as many GPUs share what the cost model misses of them.
std::vector<double> cell_weights(const Runs& runs) {
  std::vector<std::string> cells;
  for (const Observation* run : runs) {
    cells.push_back(fmt::format("{}|{}", run->cost_model.model().name, run->plan.gpus()));
  }
  const std::vector<std::string_view> groups(cells.begin(), cells.end());
  return shared_weights(groups);
}

void write_sources(const Fit& fit, std::span<const FitParameter> parameters, double speed, int runs,
                   Calibration& out) {
  for (const auto& keys : {std::span<const char* const>(kSpeeds), {kTimes}}) {
    for (const char* key : keys) {
      const CalibrationField& field = calibration_field(key);
      set_source(out, field,
                 fmt::format("{:.4g}: the prior on a site of {:.3f} of its speed, from {} runs",
                             rate_of(out, field), speed, runs));
    }
  }
  constexpr double kSomething = 0.01;
  Fit others = fit;
  others.rates.erase(others.rates.begin());
  for (FittedRate& rate : others.rates) {
    const double factor = std::ranges::count(kSpeeds, std::string_view(rate.key)) > 0  ? speed
                          : std::ranges::count(kTimes, std::string_view(rate.key)) > 0 ? 1 / speed
                                                                                       : 1;
    for (double* value : {&rate.value, &rate.low, &rate.high}) *value *= factor;
  }
  write_fit_sources(others, parameters.subspan(1), runs, kSomething, out);
}

}  // namespace

Calibration with_speed(Calibration base, double speed) {
  for (const char* key : kSpeeds) scale(base, key, speed);
  for (const char* key : kTimes) scale(base, key, 1 / speed);
  return base;
}

std::vector<PlanToPrice> plans_of(const Runs& runs, const Calibration& calibration) {
  std::vector<PlanToPrice> out;
  for (const Observation* run : runs) {
    out.push_back({run->cost_model, run->plan});
    out.back().cost_model.recalibrate(calibration);
  }
  return out;
}

SiteFit fit_site(const Runs& runs, const Calibration& base, const std::vector<std::string>& names) {
  EXPECTS(!runs.empty() && names.size() == runs.size(), "runs of a site, each with its name");
  Calibration bare = base;
  bare.sources.clear();  // copied thousands of times
  const double carried = bare.kernel_speed_factor;
  const auto applied = [carried](const Calibration& tried) {
    Calibration rates = tried;
    rates.kernel_speed_factor = carried;
    return with_speed(std::move(rates), tried.kernel_speed_factor / carried);
  };
  const std::vector<FitParameter> parameters = site_parameters(bare);
  const Fit fit = fit_rates(bare, parameters, cell_weights(runs),
                            [&](const Calibration& tried, std::span<double> out) {
                              const Calibration rates = applied(tried);
                              for (std::size_t i = 0; i < runs.size(); ++i)
                                out[i] = log_error(*runs[i], rates);
                            },
                            {.noise = kRunSpread});

  SiteFit out{applied(fit.calibration), base.name, base.time_band, fit.rates, {}, {}};
  out.known = {fit.calibration, parameters, fit.covariance, kRunSpread, applied};
  FittedRate& speed = out.rates.front();
  speed.key = kSiteSpeed;
  for (double* value : {&speed.prior, &speed.value, &speed.low, &speed.high}) *value /= carried;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const Seconds measured = runs[i]->measured * kSecond;
    out.runs.push_back({names[i], measured, std::exp(log_error(*runs[i], bare)) * measured,
                        std::exp(fit.errors[i]) * measured});
  }
  Calibration& mine = out.calibration;
  mine.sources = base.sources;
  const int count = static_cast<int>(runs.size());
  write_sources(fit, parameters, speed.value, count, mine);
  mine.gpu_family = gpu_family(runs.front()->cost_model.cluster().gpu());
  mine.framework = runs.front()->cost_model.framework().name;
  mine.evidence = Evidence::calibrated;
  mine.fitted_to = fmt::format("calibrated on {} of your runs, starting from {}", count, base.name);
  mine.time_band = narrowed_band(base.time_band, out.known, plans_of(runs, mine), fit.errors);
  set_source(mine, calibration_field("time_band"), narrowed_band_text(base, count));
  return out;
}

}  // namespace echelon
