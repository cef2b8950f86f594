// Wiring of the GPUs and network cards of one node, as reported by other programs, and the machine
// description derived from it.
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

/// Maximum number of GPUs per node, as in descriptions.
inline constexpr std::size_t kMaxWiredGpus = 64;

struct NodeWiring {
  struct Gpu {
    int socket = 0;                  ///< NUMA nodes count as sockets
    std::optional<int> pcie_switch;  ///< shared by GPUs and cards with the same number
    int links_to_switch = 0;         ///< NVLinks to NVSwitches
  };
  struct Nic {
    std::string name;                    ///< "mlx5_0"
    std::optional<BytesPerSecond> rate;  ///< one direction
    std::vector<int> gpus;  ///< on its switch, else of its socket; empty: equally far from all
  };
  std::vector<Gpu> gpus;
  std::vector<GpuLink> links;              ///< NVLinks from GPU to GPU
  std::vector<Nic> nics;                   ///< those nearest to GPUs: all on switches of GPUs, if
                                           ///< there are any, else all on their sockets
  std::optional<BytesPerSecond> gpu_slot;  ///< slowest PCIe slot of a GPU, one direction
  std::string source;                      ///< "nvidia-smi topo -m"
};

/// Parses the output of `nvidia-smi topo -m`: the matrix of relations, affinities, the legend of
/// NICs. Two GPUs, or a GPU and a card, share a switch if their relation is PIX or PXB; they share
/// a socket if they are in one NUMA node or, if it is unknown, have the same CPU affinity or,
/// without one, if their relation is not SYS. The output contains no speeds. Errors (input): no
/// matrix, a row that does not match its header, an unknown relation.
[[nodiscard]] Result<NodeWiring> parse_smi_topology(std::string_view text, std::string_view where);

/// Parses the file that NCCL writes to NCCL_TOPO_DUMP_FILE: <system> with <cpu>, <pci>, <gpu>,
/// <nvlink> (RCCL: <xgmi>), <nic>, <net>. Only the first of several hosts is used. Errors (input):
/// another kind of file, no GPU. Source: NCCL 2.28 src/graph/xml.cc and topo.cc.
[[nodiscard]] Result<NodeWiring> parse_nccl_topology(std::string_view xml, std::string_view where);

/// Parses the output of `rocm-smi --showtopo`: xGMI between GPUs one hop apart, one link each (it
/// contains no number of links, and no cards), NUMA nodes as sockets. Errors (input): tables of
/// different sizes, a link that is neither XGMI nor PCIE.
[[nodiscard]] Result<NodeWiring> parse_rocm_topology(std::string_view text, std::string_view where);

/// Parses any of the formats, which it recognizes by their contents.
[[nodiscard]] Result<NodeWiring> parse_wiring(std::string_view text, std::string_view where);

/// A machine's wiring and the other data that its description needs.
struct WiredMachine {
  std::string name;
  std::string summary;
  std::variant<std::string, GpuFacts> gpu;  ///< a catalog name, or the properties reported by CUDA
  NodeWiring wiring;
  /// Determines a GPU's slot if the wiring does not contain it; default: assumed from the GPU's
  /// generation.
  std::optional<BytesPerSecond> measured_copies;  ///< host to GPU
  std::optional<BytesPerSecond> nic_rate;         ///< of cards whose rate is not in the wiring
  std::optional<Bytes> cpu_memory;
};

/// A description file (docs/topology-format.md), every number with its source. Cards with unknown
/// rate are omitted and listed in the notes. Errors (input): an unknown GPU, a wiring that a
/// description cannot express.
[[nodiscard]] Result<std::string> description_of(const WiredMachine& machine);

/// The catalog name of the GPU with the driver name `name`; nothing if unknown.
[[nodiscard]] std::optional<std::string> catalog_gpu_of_driver(std::string_view name);

}  // namespace echelon
