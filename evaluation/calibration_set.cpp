#include "evaluation/calibration_set.hpp"

#include <regex>
#include <utility>

#include "costmodel/calibration/calibration_io.hpp"

namespace echelon {

std::string release_of(const MeasuredRun& row) {
  static const std::regex kRelease(R"((\d{4}-\d{2})|(\d{2}\.\d{2}))");
  std::smatch found;
  return std::regex_search(row.framework_detail, found, kRelease) ? found.str() : "";
}

std::vector<std::string> calibration_names(const GpuSpec& gpu, const Framework& framework,
                                           const MeasuredRun& row) {
  const std::string any = gpu_family(gpu) + "-" + framework.calibration_key();
  std::vector<std::string> names;
  if (const std::string release = release_of(row); !release.empty()) {
    names.push_back(any + "-" + row.framework + "-" + release);
  }
  names.push_back(any + "-" + row.framework);
  names.push_back(any);
  return names;
}

CalibrationSet::CalibrationSet(std::vector<Calibration> fitted) {
  fitted_.emplace();
  for (Calibration& one : fitted) {
    std::string name = one.name;
    fitted_->emplace(std::move(name), std::move(one));
  }
}

CalibrationSet CalibrationSet::with_releases(std::vector<Calibration> releases) {
  CalibrationSet set;
  for (Calibration& one : releases) {
    std::string name = one.name;
    set.shipped_.emplace(std::move(name), std::move(one));
  }
  return set;
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

Result<Calibration> CalibrationSet::pick(const GpuSpec& gpu, const Framework& framework,
                                         const MeasuredRun& row) const {
  for (const std::string& name : calibration_names(gpu, framework, row)) {
    if (fitted_) {
      if (const auto found = fitted_->find(name); found != fitted_->end()) return found->second;
    } else if (const auto& read = shipped(name)) {
      return *read;
    }
  }
  return prior(gpu, framework);
}

}  // namespace echelon
