#include "topologies/describe.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/base/expects.hpp"
#include "topologies/description/catalog.hpp"
#include "topologies/graph/graph.hpp"
#include "topologies/topology.hpp"

namespace echelon {

namespace {

constexpr BytesPerSecond kGBps{1e9};

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
          .domain_bisection = graph.domain_bisection(),
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

ClusterSummary summary_of(const MachineDescription& machine) {
  ClusterSummary summary{.name = machine.name,
                         .aliases = machine.aliases,
                         .summary = machine.summary,
                         .gpu = machine.gpu.name,
                         .gpus_per_node = machine.node.gpus,
                         .domain_gpus = machine.domain_gpus(),
                         .interconnect = machine.node.interconnect,
                         .nics = machine.node.nics,
                         .nic = machine.node.nic,
                         .fabric = {}};
  for (const FabricTier& tier : machine.tiers) summary.fabric.push_back(tier.name);
  return summary;
}

std::vector<ClusterSummary> list_clusters() {
  std::vector<ClusterSummary> list;
  for (const std::string& name : cluster_catalog()) {
    const Result<MachineDescription> machine = load_machine(name);
    EXPECTS(machine.ok(), machine.ok() ? "" : machine.error().message());
    list.push_back(summary_of(*machine));
  }
  return list;
}

std::vector<GpuSummary> list_gpus() {
  std::vector<GpuSummary> list;
  for (const std::string& name : gpu_catalog()) {
    const Result<GpuDescription> gpu = load_gpu(name, "catalog");
    EXPECTS(gpu.ok(), gpu.ok() ? "" : gpu.error().message());
    list.push_back({name, gpu->aliases, gpu->spec});
  }
  return list;
}

Result<ClusterDetails> describe_cluster(std::string_view name_or_path) {
  const Result<MachineDescription> machine = load_machine(name_or_path);
  if (!machine) return machine.error();
  return ClusterDetails{summary_of(*machine), machine->facts, rates_of(whole_domain(*machine))};
}

Result<CheckReport> check_cluster(std::string_view name_or_path) {
  const Result<MachineDescription> machine = load_machine(name_or_path);
  if (!machine) return machine.error();
  const Result<ClusterTopology> cluster =
      ClusterTopology::load(name_or_path, machine->default_gpus);
  if (!cluster) return cluster.error();
  const TopologyGraph graph = whole_domain(*machine);
  const DerivedRates rates = rates_of(graph);
  CheckReport report{summary_of(*machine), {}, {}};
  const auto verified = [&report](std::string text) { report.verified.push_back(std::move(text)); };
  const auto assumed = std::count_if(machine->facts.begin(), machine->facts.end(),
                                     [](const Fact& fact) { return fact.assumed; });
  verified(fmt::format("{} numbers with units in range, {} of them assumed", machine->facts.size(),
                       assumed));
  verified(fmt::format("{} GPUs of a domain connected, {:.4g} GB/s per rank around a ring",
                       graph.gpus(), rates.ring / kGBps));
  if (graph.nics() > 0) {
    verified(fmt::format("every GPU reaches a NIC, {:.4g} GB/s each when all send",
                         rates.gpu_egress / kGBps));
  }
  verified(fmt::format("the description supports plans for {} GPUs", cluster->gpus()));
  warn_about_sources(*machine, report.warnings);
  warn_about_links(*machine, rates, report.warnings);
  warn_about_rest(*machine, report.warnings);
  return report;
}

}  // namespace echelon
