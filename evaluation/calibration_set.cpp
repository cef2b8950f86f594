#include "evaluation/calibration_set.hpp"

#include <utility>

#include "costmodel/calibration/calibration_io.hpp"

namespace echelon {

std::string calibration_name(const GpuSpec& gpu, const Framework& framework) {
  return gpu_family(gpu) + "-" + framework.calibration_key();
}

CalibrationSet::CalibrationSet(std::vector<Calibration> fitted) {
  fitted_.emplace();
  for (Calibration& one : fitted) {
    std::string name = one.name;
    fitted_->emplace(std::move(name), std::move(one));
  }
}

const std::optional<Calibration>& CalibrationSet::shipped(const std::string& name) const {
  auto known = shipped_.find(name);
  if (known == shipped_.end()) known = shipped_.emplace(name, shipped_calibration(name)).first;
  return known->second;
}

const Result<Calibration>& CalibrationSet::prior(const GpuSpec& gpu,
                                                 const Framework& framework) const {
  const std::string key = gpu.name + "|" + framework.calibration_key();
  auto known = priors_.find(key);
  if (known == priors_.end()) known = priors_.emplace(key, prior_calibration(gpu, framework)).first;
  return known->second;
}

Result<Calibration> CalibrationSet::pick(const GpuSpec& gpu, const Framework& framework) const {
  if (fitted_) {
    const auto own = fitted_->find(calibration_name(gpu, framework));
    if (own != fitted_->end()) return own->second;
  }
  const std::string name = rates_family(gpu) + "-" + framework.calibration_key();
  if (fitted_) {
    const auto nearest = fitted_->find(name);
    if (nearest != fitted_->end()) return applied_to(gpu, nearest->second);
  } else if (const auto& read = shipped(name)) {
    return applied_to(gpu, *read);
  }
  return prior(gpu, framework);
}

}  // namespace echelon
