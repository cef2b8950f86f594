#include "evaluation/held_out_errors.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>
#include <utility>

#include "core/framework/framework.hpp"
#include "costmodel/calibration/calibration_fields.hpp"

namespace echelon {
namespace {

constexpr std::size_t kFewestErrors = 8;
constexpr std::size_t kFewestPublishers = 3;
constexpr double kHeld = 0.8;

/// Under which the errors of all software with the same kernels are listed.
std::string key_of(KernelLibrary kernels) {
  return fmt::format("kernels {}", static_cast<int>(kernels));
}

}  // namespace

void HeldOutErrors::add(const std::string& name, const Observation& run, int part, double error) {
  for (const std::string& key : {name, key_of(run.kernels), std::string()}) {
    errors_[key].push_back({part, error, run.publisher});
  }
}

std::optional<double> HeldOutErrors::band_of(const std::string& key,
                                             std::optional<int> left_out) const {
  const auto found = errors_.find(key);
  if (found == errors_.end()) return {};
  std::vector<std::string_view> publishers;
  std::vector<std::pair<double, double>> sizes;  // and their weights
  for (const One& one : found->second) {
    if (one.part == left_out) continue;
    publishers.emplace_back(one.publisher);
    sizes.emplace_back(std::abs(one.error), 0);
  }
  const std::set<std::string_view> different(publishers.begin(), publishers.end());
  if (sizes.size() < kFewestErrors) return {};
  if (sites_ == Sites::any && different.size() < kFewestPublishers) return {};
  const std::vector<double> weights = shared_weights(publishers);
  double all = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) all += sizes[i].second = weights[i];
  std::ranges::sort(sizes);
  double held = 0;
  double size = 0;
  for (const auto& [each, weight] : sizes) {
    size = each;
    held += weight;
    if (held > kHeld * all) break;
  }
  return std::clamp(std::exp(size) - 1, 0.005, 1.0);
}

void HeldOutErrors::set_band(Calibration& calibration, std::optional<int> left_out) const {
  const std::string kernels = key_of(find_framework(calibration.framework).value().kernels);
  for (const auto& [key, whose] :
       {std::pair(calibration.name, calibration.name + " predicts"),
        std::pair(kernels, std::string("software with the same kernels has")),
        std::pair(std::string(), std::string("any software has"))}) {
    const auto band = band_of(key, left_out);
    if (!band) continue;
    calibration.time_band = *band;
    set_source(calibration, calibration_field("time_band"),
               fmt::format("holds 80 % of the runs that {} and no rate was fitted to", whose));
    return;
  }
}

}  // namespace echelon
