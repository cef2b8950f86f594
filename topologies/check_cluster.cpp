#include "topologies/check_cluster.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "topologies/graph/graph.hpp"

namespace echelon {

namespace {

constexpr BytesPerSecond kGBps{1e9};

/// Rates derived from the graph of one domain.
struct DerivedRates {
  BytesPerSecond domain_egress;  ///< out of the domain while all its GPUs send
  BytesPerSecond gpu_egress;     ///< share of the GPU with the smallest share
  BytesPerSecond ring;           ///< per rank, a ring over the whole domain
};

TopologyGraph whole_domain(const MachineDescription& machine) {
  return {machine, static_cast<int>(machine.domain_gpus()), 2};
}

Group all_gpus(const TopologyGraph& graph) {
  Group all(static_cast<std::size_t>(graph.gpus()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::vector<Group> one_by_one(const TopologyGraph& graph) {
  std::vector<Group> groups;
  for (int gpu = 0; gpu < graph.gpus(); ++gpu) groups.push_back({gpu});
  return groups;
}

DerivedRates rates_of(const TopologyGraph& graph) {
  const Group all = all_gpus(graph);
  return {.domain_egress = graph.egress(all),
          .gpu_egress = graph.fair_egress(one_by_one(graph)),
          .ring = graph.group_bandwidth(std::span(&all, 1))};
}

void warn_about_sources(const MachineDescription& machine, std::vector<std::string>& warnings) {
  constexpr std::ptrdiff_t kShown = 5;
  const auto no_source = [](const Fact& fact) { return fact.source.empty(); };
  std::string names;
  std::ptrdiff_t count = 0;
  for (const Fact& fact : machine.facts) {
    if (!no_source(fact)) continue;
    if (count < kShown) names += (count == 0 ? "" : ", ") + fact.name;
    ++count;
  }
  if (count == 0) return;
  if (count > kShown) names += ", ...";
  warnings.push_back(
      fmt::format("{} of {} numbers have no source: {}", count, machine.facts.size(), names));
}

void warn_about_links(const MachineDescription& machine, const DerivedRates& rates,
                      std::vector<std::string>& warnings) {
  if (machine.nics.empty()) {
    warnings.emplace_back("no network cards: the machine is one node");
    return;
  }
  const BytesPerSecond nic = machine.node.nic;
  if (nic > machine.pcie.nic_link) {
    warnings.push_back(fmt::format("a NIC of {:.4g} GB/s is faster than its PCIe slot, {:.4g} GB/s",
                                   nic / kGBps, machine.pcie.nic_link / kGBps));
  }
  const double domains = static_cast<double>(machine.domain_gpus()) / machine.node.gpus;
  const BytesPerSecond cards = nic * (machine.node.nics * domains);
  if (rates.domain_egress < cards * 0.999) {
    warnings.push_back(
        fmt::format("PCIe limits a domain's egress to {:.4g} of its NICs' {:.4g} GB/s",
                    rates.domain_egress / kGBps, cards / kGBps));
  }
  const BytesPerSecond even = rates.domain_egress / static_cast<double>(machine.domain_gpus());
  if (rates.gpu_egress < even * 0.999) {
    warnings.push_back(fmt::format(
        "GPUs share the NICs unevenly: the slowest gets {:.4g} GB/s, an even share is {:.4g}",
        rates.gpu_egress / kGBps, even / kGBps));
  }
}

void warn_about_rest(const MachineDescription& machine, std::vector<std::string>& warnings) {
  if (machine.node.cpu_memory <= Bytes{} && machine.node.cores == 0) {
    warnings.emplace_back("no cpu_memory of a node: no plan offloads the optimizer to it");
  }
  if (machine.max_gpus && *machine.max_gpus % machine.node.gpus != 0) {
    warnings.push_back(fmt::format("max_gpus {} is not a multiple of the node's {}",
                                   *machine.max_gpus, machine.node.gpus));
  }
  for (const FabricTier& tier : machine.tiers) {
    if (tier.oversubscription > 1) {
      warnings.push_back(
          fmt::format("tier '{}' is oversubscribed {:.4g} to 1", tier.name, tier.oversubscription));
    }
  }
}

}  // namespace

ClusterCheck check_cluster(const ClusterTopology& cluster) {
  const MachineDescription& machine = cluster.machine();
  const TopologyGraph graph = whole_domain(machine);
  const DerivedRates rates = rates_of(graph);
  ClusterCheck check;
  const auto verified = [&check](std::string text) { check.verified.push_back(std::move(text)); };
  const auto assumed = std::count_if(machine.facts.begin(), machine.facts.end(),
                                     [](const Fact& fact) { return fact.assumed; });
  verified(fmt::format("{} numbers with units in range, {} of them assumed", machine.facts.size(),
                       assumed));
  verified(fmt::format("{} GPUs of a domain connected, {:.4g} GB/s per rank around a ring",
                       graph.gpus(), rates.ring / kGBps));
  if (graph.nics() > 0) {
    verified(fmt::format("every GPU reaches a NIC, {:.4g} GB/s each when all send",
                         rates.gpu_egress / kGBps));
  }
  warn_about_sources(machine, check.warnings);
  warn_about_links(machine, rates, check.warnings);
  warn_about_rest(machine, check.warnings);
  return check;
}

}  // namespace echelon
