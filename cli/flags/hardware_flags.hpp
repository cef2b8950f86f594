// Settings that name the hardware: cluster, number of GPUs, framework and calibration.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/flags/settings.hpp"
#include "core/framework/framework.hpp"
#include "costmodel/calibration/calibration.hpp"
#include "topologies/topology.hpp"

namespace echelon::cli {

/// A cluster with the rates of a framework on it.
struct HardwareModel {
  ClusterTopology cluster;
  std::string cluster_name;  ///< as given
  Framework framework;
  Calibration calibration;
  std::string calibration_path;
  std::vector<std::string> remarks;  ///< what a plan file does not say of it
};
/// `gpus` ≤ 0 takes the description's own size. Defaults are stated in `assumptions`.
[[nodiscard]] Result<HardwareModel> hardware_model_of(const Settings& settings, std::int64_t gpus,
                                                      std::vector<std::string>& assumptions);

/// --gpus; with --max-gpus the largest legal number that it allows; 0 without both.
[[nodiscard]] Result<std::int64_t> gpus_of(const Settings& settings);

inline constexpr const char* kDefaultCluster = "dgx-h100";

}  // namespace echelon::cli
