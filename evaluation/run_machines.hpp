// The machines behind measured runs, by the GPU a table names:
// evaluation/catalog/run_machines.json.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/units.hpp"
#include "topologies/topology.hpp"

namespace echelon {

/// The GPU that a row means when its memory column gives at most `memory`.
struct SmallerGpu {
  std::string name;
  Bytes memory;
};

/// A GPU as tables of runs name it, and the machine it is usually sold in.
struct RunMachine {
  std::string name;         ///< column `gpu`
  std::string catalog_gpu;  ///< the GPU catalog's name; "" where the file describes the GPU itself
  GpuSpec gpu;
  std::optional<BytesPerSecond> nvlink;  ///< one GPU, one direction, all its links; else PCIe alone
  BytesPerSecond pcie;  ///< one GPU, one direction; NVLink-C2C where that leads to the host
  BytesPerSecond nic;   ///< usual network of a node, per GPU
  std::optional<SmallerGpu> smaller;
  int nodes_per_domain = 1;  ///< nodes of one NVLink domain
};

/// In the file's order.
[[nodiscard]] const std::vector<RunMachine>& run_machines();

}  // namespace echelon
