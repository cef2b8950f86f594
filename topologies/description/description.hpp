// MachineDescription: the contents of a description file, complete and checked, before the graph is
// built.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/result.hpp"
#include "core/base/units.hpp"
#include "topologies/description/specs.hpp"

namespace echelon {

/// One number of a description as written in the file, in the order of reading.
struct Fact {
  std::string name;      ///< position in the file: "node.nics.rate", "gpu.hbm"
  std::string value;     ///< "400"
  std::string unit;      ///< "Gbps"; "" for a plain number
  std::string source;    ///< source of the number; "" if the file has none
  bool assumed = false;  ///< a default, or the source contains "assumed"
};

inline constexpr int kMaxGpusPerNode = 64;
inline constexpr int kMaxGpusPerDomain = 4096;
/// Latencies of a description that names none: one hop inside the node, near ASTRA-sim's 936 ns for
/// HGX-H100; and of a network card, with one leaf switch 2.7 us, NCCL's LL ring hop over a network
/// and what ib_write_lat reports between HGX B200 nodes (2.68-2.84 us).
inline constexpr Seconds kUsualLinkLatency = 1_us;
inline constexpr Seconds kUsualNicLatency = 2.5_us;

enum class Interconnect { nvswitch, nvlink_mesh, nvlink_bridge, pcie };
[[nodiscard]] std::string_view name_of(Interconnect kind);

/// `count` parallel links between two GPUs of a node (mesh or bridge).
struct GpuLink {
  int a = 0;
  int b = 0;
  int count = 1;
};

/// Attachment of one network card: to a PCIe switch, or directly to a socket.
struct NicPlace {
  int socket = 0;
  std::optional<int> pcie_switch;
  std::vector<int> gpus;  ///< GPUs next to it; empty: equally near to all GPUs of its socket
};

/// The PCIe side of a node. Every rate is one direction.
struct PcieTree {
  BytesPerSecond gpu_link;       ///< GPU to its switch, or to its socket (PCIe or C2C)
  BytesPerSecond nic_link;       ///< slot of one NIC
  BytesPerSecond switch_uplink;  ///< switch to socket
  BytesPerSecond socket_link;    ///< between two sockets
  bool c2c = false;              ///< gpu_link is NVLink-C2C: coherent, without PCIe
  bool peer_access = true;       ///< GPUs read each other's memory; else through host memory
  int sockets = 1;
  std::vector<int> gpu_socket;                 ///< per GPU
  std::vector<std::optional<int>> gpu_switch;  ///< per GPU
  std::vector<int> switch_socket;              ///< per switch
};

struct MachineDescription {
  std::string name;
  std::vector<std::string> aliases;
  std::string summary;
  std::string notes;
  GpuSpec gpu;
  NodeSpec node;
  Interconnect interconnect = Interconnect::pcie;
  BytesPerSecond link;  ///< nvswitch: one GPU's whole bandwidth; mesh, bridge: one link
  Seconds link_latency;
  std::vector<GpuLink> links;
  PcieTree pcie;
  std::vector<NicPlace> nics;
  Seconds nic_latency;
  int rails = 0;                  ///< leaf planes; 0: no rails
  std::vector<FabricTier> tiers;  ///< from the node outwards
  int nvlink_tiers = 0;           ///< number of first tiers that are NVLink instead of network
  std::int64_t default_gpus = 0;
  std::optional<std::int64_t> max_gpus;
  std::optional<Dollars> price_per_gpu_hour;
  std::optional<Seconds> mtbf_per_node;
  std::vector<Fact> facts;

  /// GPUs of a whole NVLink domain: node size × multiplicities of the NVLink tiers.
  [[nodiscard]] std::int64_t domain_gpus() const;
};

/// Reads and checks one cluster description; errors contain `where`. A GPU given by name is read
/// from the catalog.
[[nodiscard]] Result<MachineDescription> parse_machine(std::string_view json,
                                                       std::string_view where);
/// Loads and parses a description by catalog name, alias or path.
[[nodiscard]] Result<MachineDescription> load_machine(std::string_view name_or_path);

/// Every value that a prediction may depend on, in canonical form; a plan file's cluster hash is
/// computed from it. Aliases, summary and sources are excluded.
[[nodiscard]] std::string canonical_json(const MachineDescription& machine);

/// A machine of equal GPUs, each with a NIC of its own on one socket.
struct UniformMachine {
  std::string name;
  GpuSpec gpu;
  std::int64_t gpus_per_node = 1;
  std::optional<BytesPerSecond> nvlink;  ///< one GPU through its NVSwitch; without: PCIe alone
  BytesPerSecond pcie;                   ///< one GPU to its socket
  BytesPerSecond nic;                    ///< one NIC
  int nodes_per_domain = 1;              ///< nodes of one NVLink domain
};
/// Its description, with the assumptions of a file that says no more. Errors: more GPUs than a node
/// or an NVLink domain may have, or a rate out of range.
[[nodiscard]] Result<MachineDescription> describe(const UniformMachine& machine);

/// One GPU description (the file of a catalog entry).
struct GpuDescription {
  GpuSpec spec;
  std::vector<std::string> aliases;
  std::vector<std::string> driver_names;  ///< as CUDA and nvidia-smi -L print it
  std::optional<Dollars> price_per_hour;
  std::vector<Fact> facts;
};
[[nodiscard]] Result<GpuDescription> parse_gpu(std::string_view json, std::string_view where);

}  // namespace echelon
