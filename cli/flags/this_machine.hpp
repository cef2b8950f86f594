// This computer: its hardware, and where its measured rates are kept.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/result.hpp"
#include "topologies/import/this_machine.hpp"

namespace echelon::cli {

/// Cores, clock, vector width and memory, from the operating system; the same at every call, so
/// that the hash of the machine in plan files does not change.
[[nodiscard]] HostFacts host_facts();

/// ClusterTopology::load, kThisMachine and kThisMachineGpus, which errors where no GPUs were
/// measured.
[[nodiscard]] Result<ClusterTopology> load_cluster(const std::string& name, std::int64_t gpus);

/// Where `plan calibrate` writes: this-machine.json next to the user's config.json; "" without a
/// home.
[[nodiscard]] std::string machine_calibration_file();
/// The same for its GPUs: this-machine-gpus.json, and the description next to such a file:
/// this-machine-gpus.cluster.json.
[[nodiscard]] std::string gpus_calibration_file();
[[nodiscard]] std::string description_next_to(const std::string& calibration);

}  // namespace echelon::cli
