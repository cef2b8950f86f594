// The computer we run on: what it has, and where its measured rates are kept.
#pragma once

#include <cstdint>
#include <string>

#include "core/result.hpp"
#include "topologies/this_machine.hpp"

namespace echelon::cli {

/// Cores, clock, vector width and memory, from the operating system; the same at every call, so
/// that a plan's hash of it stays.
[[nodiscard]] HostFacts host_facts();

/// ClusterTopology::load, and kThisMachine.
[[nodiscard]] Result<ClusterTopology> load_cluster(const std::string& name, std::int64_t gpus);

/// Where `plan calibrate` writes: this-machine.json beside the user's config.json; "" without a
/// home.
[[nodiscard]] std::string machine_calibration_file();

}  // namespace echelon::cli
