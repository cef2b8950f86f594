// Machines of equal GPUs, described by values.
#include <fmt/format.h>

#include "topologies/description/description.hpp"

namespace echelon {

namespace {

bool is_link_rate(BytesPerSecond rate) {
  return rate >= BytesPerSecond{1e6} && rate <= BytesPerSecond{1e13};
}

Status check_uniform(const UniformMachine& machine) {
  const auto wrong = [&](std::string found, std::string expected) {
    return input_error(machine.name, std::move(found), std::move(expected));
  };
  if (machine.gpus_per_node < 1 || machine.gpus_per_node > kMaxGpusPerNode) {
    return wrong(fmt::format("{} GPUs per node", machine.gpus_per_node),
                 fmt::format("from 1 to {}", kMaxGpusPerNode));
  }
  if (machine.gpus_per_node * machine.nodes_per_domain > kMaxGpusPerDomain) {
    return wrong(fmt::format("an NVLink domain of {} GPUs",
                             machine.gpus_per_node * machine.nodes_per_domain),
                 fmt::format("at most {}", kMaxGpusPerDomain));
  }
  if (!is_link_rate(machine.nic)) {
    return wrong(fmt::format("network cards of {:g} Gbit/s", machine.nic.in(1_Gbps)),
                 "from 1 MB/s to 10 TB/s");
  }
  return Done{};
}

}  // namespace

Result<MachineDescription> describe(const UniformMachine& uniform) {
  if (const Status sound = check_uniform(uniform); !sound) return sound.error();
  const auto gpus = static_cast<int>(uniform.gpus_per_node);
  const auto size = static_cast<std::size_t>(gpus);
  MachineDescription machine;
  machine.name = uniform.name;
  machine.gpu = uniform.gpu;
  machine.interconnect = uniform.nvlink ? Interconnect::nvswitch : Interconnect::pcie;
  machine.link = uniform.nvlink.value_or(BytesPerSecond{});
  machine.link_latency = kUsualLinkLatency;
  machine.pcie.gpu_link = machine.pcie.nic_link = machine.pcie.switch_uplink = uniform.pcie;
  machine.pcie.peer_access = uniform.gpu.peer_access;
  machine.pcie.gpu_socket.assign(size, 0);
  machine.pcie.gpu_switch.assign(size, std::nullopt);
  for (int gpu = 0; gpu < gpus; ++gpu) machine.nics.push_back({0, std::nullopt, {gpu}});
  machine.nic_latency = kUsualNicLatency;
  machine.node.name = uniform.name;
  machine.node.gpus = machine.node.nics = gpus;
  machine.node.interconnect = name_of(machine.interconnect);
  machine.node.gpu_link = uniform.nvlink.value_or(uniform.pcie);
  machine.node.nic = uniform.nic;
  machine.node.pcie = uniform.pcie;
  constexpr int kAnyNumber = 1'000'000;
  if (uniform.nodes_per_domain > 1) {
    machine.tiers.push_back({"nvlink-rack", uniform.nodes_per_domain, 1, Seconds{}});
    machine.nvlink_tiers = 1;
  }
  machine.tiers.push_back({"network", kAnyNumber, 1, Seconds{}});
  machine.default_gpus = gpus;
  return machine;
}

}  // namespace echelon
