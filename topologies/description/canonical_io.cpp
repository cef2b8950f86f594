// The canonical form of a description's numbers, for hashing.
#include "core/json/json_io.hpp"
#include "topologies/description/description.hpp"

namespace echelon {

namespace {

template <class T>
Json json_or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

Json gpu_json(const GpuSpec& gpu) {
  Json json{{"name", gpu.name},
            {"memory", gpu.memory.in(kByte)},
            {"hbm", gpu.hbm.in(kBytePerSecond)},
            {"fp32", gpu.fp32.in(kFlopPerSecond)},
            {"tf32", gpu.tf32.in(kFlopPerSecond)},
            {"bf16", gpu.bf16.in(kFlopPerSecond)},
            {"fp16", gpu.fp16.in(kFlopPerSecond)},
            {"fp8", gpu.fp8.in(kFlopPerSecond)},
            {"sms", gpu.sms},
            {"boost_mhz", gpu.boost_mhz},
            {"l2", gpu.l2.in(kByte)},
            {"launch", gpu.launch.in(kSecond)},
            {"compute_capability", gpu.compute_capability}};
  if (gpu.fp64 > FlopsPerSecond{}) json["fp64"] = gpu.fp64.in(kFlopPerSecond);
  return json;
}

Json node_json(const NodeSpec& node) {
  Json json{{"name", node.name},
            {"gpus", node.gpus},
            {"interconnect", node.interconnect},
            {"gpu_link", node.gpu_link.in(kBytePerSecond)},
            {"nics", node.nics},
            {"nic", node.nic.in(kBytePerSecond)},
            {"cpu_memory", node.cpu_memory.in(kByte)},
            {"pcie", node.pcie.in(kBytePerSecond)},
            {"nvme", node.nvme ? Json(node.nvme->in(kByte)) : Json()}};
  if (node.nic_kind) json["nic_kind"] = name_of(*node.nic_kind);
  if (node.cores > 0) json["cores"] = node.cores;
  if (node.storage) json["storage"] = node.storage->in(kBytePerSecond);
  return json;
}

Json pcie_json(const PcieTree& pcie) {
  Json switches = Json::array();
  for (const std::optional<int>& at : pcie.gpu_switch) switches.push_back(json_or_null(at));
  Json json{{"gpu_link", pcie.gpu_link.in(kBytePerSecond)},
            {"nic_link", pcie.nic_link.in(kBytePerSecond)},
            {"switch_uplink", pcie.switch_uplink.in(kBytePerSecond)},
            {"socket_link", pcie.socket_link.in(kBytePerSecond)},
            {"c2c", pcie.c2c},
            {"sockets", pcie.sockets},
            {"gpu_socket", pcie.gpu_socket},
            {"gpu_switch", std::move(switches)},
            {"switch_socket", pcie.switch_socket}};
  if (!pcie.peer_access) json["peer_access"] = false;
  return json;
}

Json fabric_json(const MachineDescription& machine) {
  Json tiers = Json::array();
  for (const FabricTier& tier : machine.tiers) {
    tiers.push_back({{"name", tier.name},
                     {"multiplicity", tier.multiplicity},
                     {"oversubscription", tier.oversubscription},
                     {"latency", tier.latency.in(kSecond)}});
  }
  return Json{{"rails", machine.rails},
              {"nvlink_tiers", machine.nvlink_tiers},
              {"tiers", std::move(tiers)}};
}

}  // namespace

std::string canonical_json(const MachineDescription& machine) {
  Json links = Json::array();
  for (const GpuLink& link : machine.links) links.push_back({link.a, link.b, link.count});
  Json nics = Json::array();
  for (const NicPlace& nic : machine.nics) {
    nics.push_back({{"socket", nic.socket},
                    {"pcie_switch", json_or_null(nic.pcie_switch)},
                    {"gpus", nic.gpus}});
  }
  const Json root{
      {"name", machine.name},
      {"gpu", gpu_json(machine.gpu)},
      {"node", node_json(machine.node)},
      {"interconnect", name_of(machine.interconnect)},
      {"link", machine.link.in(kBytePerSecond)},
      {"link_latency", machine.link_latency.in(kSecond)},
      {"links", std::move(links)},
      {"pcie", pcie_json(machine.pcie)},
      {"nics", std::move(nics)},
      {"nic_latency", machine.nic_latency.in(kSecond)},
      {"fabric", fabric_json(machine)},
      {"default_gpus", machine.default_gpus},
      {"max_gpus", json_or_null(machine.max_gpus)},
      {"price_per_gpu_hour",
       machine.price_per_gpu_hour ? Json(machine.price_per_gpu_hour->in(kDollar)) : Json()},
      {"mtbf_per_node", machine.mtbf_per_node ? Json(machine.mtbf_per_node->in(kSecond)) : Json()}};
  return root.dump();
}

}  // namespace echelon
