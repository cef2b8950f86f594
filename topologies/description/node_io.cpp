// The "node" of a cluster description: interconnect, PCIe tree, network cards.
#include "topologies/description/node_io.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace echelon {

namespace {

constexpr int kMaxNics = 64;
constexpr int kMaxCores = 4096;
constexpr NumberRule kLinkRate{Dimension::bandwidth, 1e6, 1e13};
constexpr NumberRule kLinkLatency{Dimension::time, 0, 1};
constexpr NumberRule kNodeMemory{Dimension::bytes, 1e6, 1e18};

/// Reads the indices of a JSON list, each in [0, count).
std::vector<int> index_list(Document& document, const Json& list, const std::string& at, int count,
                            std::string_view what) {
  std::vector<int> indices;
  if (!list.is_array()) {
    document.fail(at, "not a list", fmt::format("a list of {} indices", what));
    return indices;
  }
  for (const Json& item : list) {
    const bool number = item.is_number_integer();
    if (!number || item.get<std::int64_t>() < 0 || item.get<std::int64_t>() >= count) {
      document.fail(at, item.dump(), fmt::format("a {} index from 0 to {}", what, count - 1));
      return indices;
    }
    indices.push_back(item.get<int>());
  }
  return indices;
}

void read_links(Document& document, Section& in, MachineDescription& machine) {
  const bool mesh = machine.interconnect == Interconnect::nvlink_mesh;
  const char* key = mesh ? "links" : "pairs";
  const Json* list = in.reader.member(key);
  if (list == nullptr || !list->is_array()) {
    document.fail(in.at(key), list == nullptr ? "no list of links" : "not a list",
                  mesh ? "links as [gpu, gpu, count]" : "bridged pairs as [gpu, gpu]");
    return;
  }
  for (std::size_t i = 0; i < list->size(); ++i) {
    const std::string at = fmt::format("{}/{}", in.at(key), i);
    Json ends = (*list)[i];
    int count = 1;
    if (mesh && ends.is_array() && ends.size() == 3) {
      if (!ends[2].is_number_integer() || ends[2].get<std::int64_t>() < 1 ||
          ends[2].get<std::int64_t>() > 64) {
        document.fail(at, ends[2].dump() + " links", "between 1 and 64");
        return;
      }
      count = ends[2].get<int>();
      ends.erase(2);
    }
    const std::vector<int> gpus = index_list(document, ends, at, machine.node.gpus, "GPU");
    if (document.error()) return;
    if (gpus.size() != 2 || gpus[0] == gpus[1]) {
      document.fail(at, (*list)[i].dump(), mesh ? "[gpu, gpu, count]" : "[gpu, gpu]");
      return;
    }
    machine.links.push_back({gpus[0], gpus[1], count});
  }
}

/// Checks that every GPU of a mesh can be reached over NVLink from GPU 0.
void check_connected(Document& document, const MachineDescription& machine) {
  std::vector<int> group(static_cast<std::size_t>(machine.node.gpus));
  for (std::size_t i = 0; i < group.size(); ++i) group[i] = static_cast<int>(i);
  for (const GpuLink& link : machine.links) {
    const int from = group[static_cast<std::size_t>(link.b)];
    const int into = group[static_cast<std::size_t>(link.a)];
    std::replace(group.begin(), group.end(), from, into);
  }
  for (std::size_t i = 0; i < group.size(); ++i) {
    if (group[i] != group[0]) {
      document.fail("/node/interconnect/links",
                    fmt::format("no NVLink path from GPU 0 to GPU {}", i),
                    "links that connect every GPU", "GPUs without NVLink make a \"pcie\" node");
      return;
    }
  }
}

void read_interconnect(Document& document, const Json& object, MachineDescription& machine) {
  Section in(object, document.where(), "/node/interconnect");
  const std::string kind =
      in.reader.choice("kind", {"nvswitch", "nvlink-mesh", "nvlink-bridge", "pcie"});
  if (in.reader.failed()) return document.keep(in.reader.finish());
  for (const Interconnect one : {Interconnect::nvswitch, Interconnect::nvlink_mesh,
                                 Interconnect::nvlink_bridge, Interconnect::pcie}) {
    if (name_of(one) == kind) machine.interconnect = one;
  }
  if (machine.interconnect == Interconnect::nvswitch) {
    machine.link = BytesPerSecond{document.number(in, "per_gpu", kLinkRate)};
  } else if (machine.interconnect != Interconnect::pcie) {
    machine.link = BytesPerSecond{document.number(in, "link", kLinkRate)};
    read_links(document, in, machine);
    const bool mesh = machine.interconnect == Interconnect::nvlink_mesh;
    if (mesh && !document.error()) check_connected(document, machine);
  }
  machine.link_latency = Seconds{
      document.number_or(in, "latency", kLinkLatency,
                         {kUsualLinkLatency.in(1_us), "us",
                          "one hop inside the node, near ASTRA-sim's 936 ns for HGX-H100"})};
  document.keep(in.reader.finish());
}

/// GPUs of each switch: "gpus_per_switch": 2, or "switches": [[0, 1], [2, 3]]; none without either.
void read_switches(Document& document, Section& in, MachineDescription& machine) {
  PcieTree& pcie = machine.pcie;
  const int gpus = machine.node.gpus;
  std::vector<std::vector<int>> switches;
  if (const Json* list = in.reader.member("switches")) {
    for (std::size_t i = 0; list->is_array() && i < list->size(); ++i) {
      const std::string at = fmt::format("{}/{}", in.at("switches"), i);
      switches.push_back(index_list(document, (*list)[i], at, gpus, "GPU"));
    }
    if (switches.empty()) document.fail(in.at("switches"), "no switches", "lists of GPU indices");
  } else if (in.reader.member("gpus_per_switch") != nullptr) {
    const int each = document.count(in, "gpus_per_switch", 1, gpus);
    for (int gpu = 0; gpu < gpus; ++gpu) {
      if (gpu % each == 0) switches.emplace_back();
      switches.back().push_back(gpu);
    }
  }
  for (std::size_t i = 0; i < switches.size() && !document.error(); ++i) {
    const std::string at = fmt::format("{}/{}", in.at("switches"), i);
    if (switches[i].empty()) {
      document.fail(at, "a switch without GPUs", "the GPUs of the switch");
      return;
    }
    const auto first = static_cast<std::size_t>(switches[i].front());
    pcie.switch_socket.push_back(pcie.gpu_socket[first]);
    for (const int gpu : switches[i]) {
      const auto g = static_cast<std::size_t>(gpu);
      if (pcie.gpu_switch[g]) {
        document.fail(at, fmt::format("GPU {} under two switches", gpu), "one switch per GPU");
      } else if (pcie.gpu_socket[g] != pcie.switch_socket.back()) {
        document.fail(
            at, fmt::format("GPUs {} and {} are on different sockets", switches[i].front(), gpu),
            "one socket per switch", "see \"gpu_sockets\"");
      }
      pcie.gpu_switch[g] = static_cast<int>(i);
    }
  }
}

void read_pcie(Document& document, const Json& object, MachineDescription& machine) {
  Section in(object, document.where(), "/node/pcie");
  PcieTree& pcie = machine.pcie;
  const int gpus = machine.node.gpus;
  pcie.gpu_link = BytesPerSecond{document.number(in, "gpu_link", kLinkRate)};
  const double gbps = pcie.gpu_link.in(1_GBps);
  pcie.c2c = in.reader.boolean_or("c2c", false);
  pcie.peer_access = in.reader.boolean_or("peer_access", machine.gpu.peer_access);
  pcie.nic_link = BytesPerSecond{
      document.number_or(in, "nic_link", kLinkRate, {gbps, "GB/s", "the rate of a GPU's link"})};
  pcie.switch_uplink = BytesPerSecond{document.number_or(
      in, "switch_uplink", kLinkRate, {gbps, "GB/s", "the rate of a GPU's link"})};
  pcie.sockets = document.count_or(in, "sockets", 1, gpus, {1, "", "one socket"});
  if (pcie.sockets > 1) {
    pcie.socket_link = BytesPerSecond{document.number(in, "socket_link", kLinkRate)};
  } else if (in.reader.has("socket_link")) {
    document.fail(in.at("socket_link"), "a link between sockets of a node with one socket",
                  "\"sockets\": 2 or more next to it, or no socket_link");
  }
  const auto size = static_cast<std::size_t>(gpus);
  pcie.gpu_switch.assign(size, std::nullopt);
  if (const Json* sockets = in.reader.member("gpu_sockets")) {
    pcie.gpu_socket = index_list(document, *sockets, in.at("gpu_sockets"), pcie.sockets, "socket");
    if (pcie.gpu_socket.size() != size) {
      document.fail(in.at("gpu_sockets"), fmt::format("{} entries", pcie.gpu_socket.size()),
                    fmt::format("one socket for each of {} GPUs", gpus));
    }
  } else {
    for (int gpu = 0; gpu < gpus; ++gpu) pcie.gpu_socket.push_back(gpu * pcie.sockets / gpus);
  }
  if (!document.error()) read_switches(document, in, machine);
  document.keep(in.reader.finish());
}

/// Attaches a NIC next to these GPUs: to their common switch, else to their common socket.
void place_nic(Document& document, const std::string& at, const std::vector<int>& gpus,
               MachineDescription& machine) {
  if (gpus.empty()) {
    document.fail(at, "a NIC without GPUs", "the indices of its nearest GPUs");
    return;
  }
  const PcieTree& pcie = machine.pcie;
  const auto first = static_cast<std::size_t>(gpus.front());
  NicPlace nic{pcie.gpu_socket[first], pcie.gpu_switch[first], gpus};
  for (const int gpu : gpus) {
    const auto g = static_cast<std::size_t>(gpu);
    if (pcie.gpu_switch[g] != nic.pcie_switch) nic.pcie_switch.reset();
    if (pcie.gpu_socket[g] != nic.socket) {
      document.fail(at,
                    fmt::format("a NIC next to GPUs {} and {}, which are on different sockets",
                                gpus.front(), gpu),
                    "GPUs of one socket",
                    R"("next_to": "sockets" describes cards that serve all GPUs of the node)");
    }
  }
  machine.nics.push_back(std::move(nic));
}

void read_places(Document& document, Section& in, MachineDescription& machine) {
  const int nics = machine.node.nics;
  const int gpus = machine.node.gpus;
  constexpr const char* kFormerKey = "beside";
  const bool former = in.reader.has(kFormerKey) && !in.reader.has("next_to");
  const char* key = former ? kFormerKey : "next_to";
  const Json* placement = in.reader.member(key);
  const std::string at = in.at(key);
  if (placement == nullptr || (placement->is_string() && placement->get<std::string>() == "gpus")) {
    const bool many = nics >= gpus;
    if ((many && nics % gpus != 0) || (!many && gpus % nics != 0)) {
      document.fail(at, fmt::format("{} NICs spread over {} GPUs", nics, gpus),
                    "one number that divides the other",
                    R"(or list the GPUs of each NIC: [[0, 1], [2, 3]], or "sockets")");
      return;
    }
    for (int nic = 0; nic < nics; ++nic) {
      std::vector<int> nearest;
      const int each = many ? 1 : gpus / nics;
      const int start = many ? nic / (nics / gpus) : nic * each;
      for (int gpu = start; gpu < start + each; ++gpu) nearest.push_back(gpu);
      place_nic(document, at, nearest, machine);
    }
  } else if (placement->is_string() && placement->get<std::string>() == "sockets") {
    for (int nic = 0; nic < nics; ++nic) {
      machine.nics.push_back({nic * machine.pcie.sockets / nics, std::nullopt, {}});
    }
  } else if (placement->is_array() && static_cast<int>(placement->size()) == nics) {
    for (std::size_t i = 0; i < placement->size(); ++i) {
      const std::string one = fmt::format("{}/{}", at, i);
      place_nic(document, one, index_list(document, (*placement)[i], one, gpus, "GPU"), machine);
    }
  } else {
    document.fail(
        at,
        placement->is_array() ? fmt::format("{} entries", placement->size()) : placement->dump(),
        fmt::format(R"("gpus", "sockets", or the GPUs of each of the {} NICs)", nics));
  }
}

void read_nics(Document& document, const Json& object, MachineDescription& machine) {
  Section in(object, document.where(), "/node/nics");
  if (in.reader.has("kind")) {
    const std::string kind =
        in.reader.choice("kind", {"infiniband", "roce", "efa", "tcpx", "slingshot", "ethernet"});
    if (in.reader.failed()) return document.keep(in.reader.finish());
    machine.node.nic_kind =
        *std::ranges::find(kNicKinds, kind, [](NicKind k) { return name_of(k); });
  }
  machine.node.nics = document.count(in, "count", 1, kMaxNics);
  machine.node.nic = BytesPerSecond{document.number(in, "rate", kLinkRate)};
  machine.nic_latency = Seconds{document.number_or(
      in, "latency", kLinkLatency,
      {kUsualNicLatency.in(1_us), "us",
       "with one leaf switch 2.7 us, NCCL's LL ring hop over a network and what ib_write_lat "
       "reports between HGX B200 nodes (2.68-2.84 us)"})};
  if (!document.error()) read_places(document, in, machine);
  document.keep(in.reader.finish());
}

/// Total bandwidth of the in-node links of one GPU, the GPU with the fewest links.
BytesPerSecond gpu_link_of(const MachineDescription& machine) {
  if (machine.interconnect == Interconnect::nvswitch) return machine.link;
  if (machine.links.empty()) return machine.pcie.gpu_link;
  std::vector<int> counts(static_cast<std::size_t>(machine.node.gpus), 0);
  for (const GpuLink& link : machine.links) {
    counts[static_cast<std::size_t>(link.a)] += link.count;
    counts[static_cast<std::size_t>(link.b)] += link.count;
  }
  const int min_links = *std::min_element(counts.begin(), counts.end());
  return std::max(machine.link * min_links, machine.pcie.gpu_link);
}

}  // namespace

void read_node(Document& document, const Json& object, MachineDescription& machine) {
  Section in(object, document.where(), "/node");
  NodeSpec& node = machine.node;
  node.name = in.reader.string_or("name", machine.name);
  node.gpus = document.count(in, "gpus", 1, kMaxGpusPerNode);
  if (const auto memory = document.optional_number(in, "cpu_memory", kNodeMemory)) {
    node.cpu_memory = Bytes{*memory};
  }
  if (in.reader.has("cores")) node.cores = document.count(in, "cores", 1, kMaxCores);
  if (const auto nvme = document.optional_number(in, "nvme", kNodeMemory)) node.nvme = Bytes{*nvme};
  if (const auto storage = document.optional_number(in, "storage", kLinkRate)) {
    node.storage = BytesPerSecond{*storage};
  }
  const auto part = [&](const char* key) -> const Json* {
    const Json* member = in.reader.member(key);
    if (member == nullptr) document.fail(in.at(key), "the key is missing", "an object");
    return document.error() ? nullptr : member;
  };
  if (const Json* member = part("interconnect")) read_interconnect(document, *member, machine);
  if (const Json* member = part("pcie")) read_pcie(document, *member, machine);
  const Json* nics = in.reader.member("nics");
  if (nics != nullptr && !document.error()) read_nics(document, *nics, machine);
  node.interconnect = name_of(machine.interconnect);
  node.pcie = machine.pcie.gpu_link;
  if (!document.error()) node.gpu_link = gpu_link_of(machine);
  document.keep(in.reader.finish());
}

}  // namespace echelon
