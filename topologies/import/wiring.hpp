// How the GPUs and network cards of one node are wired, as other programs tell it, and the
// description of a machine that follows.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/base/result.hpp"
#include "core/base/units.hpp"
#include "core/run/measurements.hpp"
#include "topologies/description/description.hpp"

namespace echelon {

/// GPUs of one node; as descriptions take them.
inline constexpr std::size_t kMostWiredGpus = 64;

struct NodeWiring {
  struct Gpu {
    int socket = 0;                  ///< NUMA nodes count as sockets
    std::optional<int> pcie_switch;  ///< shared by those and cards with the same number
    int links_to_switch = 0;         ///< NVLinks to NVSwitches
  };
  struct Nic {
    std::string name;                    ///< "mlx5_0"
    std::optional<BytesPerSecond> rate;  ///< one direction
    std::vector<int> gpus;               ///< on its switch, else those of its socket
  };
  std::vector<Gpu> gpus;
  std::vector<GpuLink> links;              ///< NVLinks from GPU to GPU
  std::vector<Nic> nics;                   ///< those behind the switches of GPUs, if any are
  std::optional<BytesPerSecond> gpu_slot;  ///< PCIe of a GPU, the slowest one, one direction
  std::string source;                      ///< "nvidia-smi topo -m"
};

/// The text of `nvidia-smi topo -m`: the matrix of relations, affinities, the legend of NICs.
/// Two GPUs, or a GPU and a card, that are joined by PIX or PXB share a switch; those of one NUMA
/// node, or (where it is not told) not joined by SYS, a socket. Speeds are not in it. Errors
/// (input): no matrix, a row that does not fit its header, a relation that is none.
[[nodiscard]] Result<NodeWiring> parse_smi_topology(std::string_view text, std::string_view where);

/// What NCCL writes to the file that NCCL_TOPO_DUMP_FILE names: <system> of <cpu>, <pci>, <gpu>,
/// <nvlink>, <nic>, <net>. Of several hosts the first. Errors (input): not such a file, no GPU.
/// Source: NCCL 2.28 src/graph/xml.cc and topo.cc.
[[nodiscard]] Result<NodeWiring> parse_nccl_topology(std::string_view xml, std::string_view where);

/// Either of them, by how it begins.
[[nodiscard]] Result<NodeWiring> parse_wiring(std::string_view text, std::string_view where);

/// What a description needs beside the wiring.
struct WiredMachine {
  std::string name;
  std::string summary;
  std::variant<std::string, GpuFacts> gpu;  ///< a name of the catalog, or what CUDA told
  NodeWiring wiring;
  /// A GPU's slot where the wiring does not tell; without, by the GPU's generation, assumed.
  std::optional<BytesPerSecond> measured_copies;  ///< host to GPU
  std::optional<BytesPerSecond> nic_rate;         ///< of cards whose rate the wiring does not tell
  std::optional<Bytes> cpu_memory;
};

/// A description file (docs/topology-format.md), every number with its source. Cards whose rate is
/// not known are left out, which the notes say. Errors (input): an unknown GPU, a wiring no
/// description can tell.
[[nodiscard]] Result<std::string> description_of(const WiredMachine& machine);

/// The catalog's name of a GPU that the driver calls `name`; nothing for others.
[[nodiscard]] std::optional<std::string> catalog_gpu_of_driver(std::string_view name);

}  // namespace echelon
