#include "evaluation/run_cluster.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "core/base/text.hpp"
#include "evaluation/run_machines.hpp"
#include "evaluation/run_wording.hpp"
#include "topologies/description/catalog.hpp"

namespace echelon {

namespace {

constexpr std::int64_t kUsualGpusPerNode = 8;

/// The table's own name, corrected where its memory column contradicts it.
std::string_view gpu_name(const MeasuredRun& row) {
  const auto named = std::ranges::find(run_machines(), row.gpu, &RunMachine::name);
  if (named == run_machines().end() || !named->smaller || !row.gpu_memory_gb) return row.gpu;
  const bool smaller = *row.gpu_memory_gb * 1_GB <= named->smaller->memory;
  return smaller ? std::string_view(named->smaller->name) : std::string_view(row.gpu);
}

/// "RTX 4090", "rtx-4090" and "RTX4090" are one name.
std::string plain_gpu_name(std::string_view name) {
  std::string plain;
  for (const std::string& word : words_of(name)) plain += word;
  return plain;
}

/// Number of words of a GPU's name in `words`, plus 1 if its chip alone means that GPU (the alias
/// "h100"); 0 without the chip, its first word with a digit.
std::size_t likeness(const GpuSummary& gpu, const std::vector<std::string>& words) {
  const std::vector<std::string> own = words_of(gpu.spec.name);
  const auto chip = std::ranges::find_if(own, [](const std::string& word) {
    return word.find_first_of("0123456789") != std::string::npos;
  });
  if (chip == own.end() || std::ranges::count(words, *chip) == 0) return 0;
  const auto shared = std::ranges::count_if(
      own, [&](const std::string& word) { return std::ranges::count(words, word) > 0; });
  return 2 * static_cast<std::size_t>(shared) +
         (std::ranges::count(gpu.aliases, *chip) > 0 ? 1 : 0);
}

/// The entry for a name as tables, drivers or vendors write it; null for an unknown chip.
const RunMachine* find_run_machine(std::string_view name) {
  const std::vector<RunMachine>& machines = run_machines();
  const std::string plain = plain_gpu_name(name);
  const auto exact = std::ranges::find_if(
      machines, [&](const RunMachine& each) { return plain_gpu_name(each.name) == plain; });
  if (exact != machines.end()) return &*exact;
  const std::vector<std::string> words = words_of(name);
  std::string nearest;
  std::size_t best = 0;
  for (const GpuSummary& gpu : list_gpus()) {
    const bool is_alias = std::ranges::any_of(
        gpu.aliases, [&](const std::string& alias) { return plain_gpu_name(alias) == plain; });
    if (is_alias || plain_gpu_name(gpu.spec.name) == plain) {
      nearest = gpu.spec.name;
      break;
    }
    if (const std::size_t like = likeness(gpu, words); like > best) {
      best = like;
      nearest = gpu.spec.name;
    }
  }
  const auto like = std::ranges::find(machines, nearest, &RunMachine::catalog_gpu);
  return nearest.empty() || like == machines.end() ? nullptr : &*like;
}

/// What the row says of the GPU's memory where that contradicts the GPU's own: data sheets give GB
/// for GiB, of which about 1 % is not usable (topologies/catalog/gpus).
std::optional<Bytes> other_memory(const MeasuredRun& row, Bytes known) {
  if (!row.gpu_memory_gb) return {};
  constexpr double kUsable = 0.99;
  constexpr double kLeast = 0.85;  // 80 GB written for 80 GiB, less what the driver keeps: 0.94
  constexpr double kMost = 1.1;
  const double ratio = *row.gpu_memory_gb * 1_GB / known;
  if (ratio >= kLeast && ratio <= kMost) return {};
  return kUsable * *row.gpu_memory_gb * 1_GiB;
}

std::int64_t node_gpus(const MeasuredRun& row, std::int64_t gpus) {
  return row.gpus_per_node.value_or(std::min(kUsualGpusPerNode, gpus));
}

}  // namespace

std::string cluster_key(const MeasuredRun& row, std::int64_t gpus) {
  return fmt::format("{}|{}|{}|{}|{}", gpu_name(row), row.gpu_memory_gb.value_or(0), gpus,
                     node_gpus(row, gpus), row.nic_gbps_per_node.value_or(0));
}

Result<ClusterTopology> cluster_of(const MeasuredRun& row, std::int64_t gpus,
                                   std::vector<std::string>& inferred) {
  const std::string_view name = gpu_name(row);
  const RunMachine* known = find_run_machine(name);
  if (known == nullptr) {
    std::vector<std::string_view> names;
    for (const RunMachine& one : run_machines()) names.push_back(one.name);
    return input_error("gpu", "unknown GPU " + in_quotes(row.gpu),
                       fmt::format("one of {}", fmt::join(names, ", ")));
  }
  const std::int64_t per_node = node_gpus(row, gpus);
  double nic_gbps = row.nic_gbps_per_node.value_or(0);
  if (name != known->name) {
    inferred.push_back(fmt::format("GPU {} taken for {}", in_quotes(row.gpu), known->name));
  }
  if (name != row.gpu) {
    inferred.push_back(fmt::format("the GPU is {}: the row says {} GB", name, *row.gpu_memory_gb));
  }
  if (nic_gbps == 0) {
    nic_gbps = known->nic.in(1_Gbps) * static_cast<double>(per_node);
    if (gpus > per_node) {
      inferred.push_back(fmt::format("a network of {:g} Gbit/s per node", nic_gbps));
    }
  }
  GpuSpec gpu = known->gpu;
  if (const auto memory = other_memory(row, gpu.memory)) {
    gpu.memory = *memory;
    inferred.push_back(fmt::format("a {} with {:g} GB", known->name, *row.gpu_memory_gb));
  }
  Result<MachineDescription> machine =
      describe({.name = fmt::format("{} x {}", per_node, known->name),
                .gpu = gpu,
                .gpus_per_node = per_node,
                .nvlink = known->nvlink,
                .pcie = known->pcie,
                .nic = nic_gbps / static_cast<double>(per_node) * 1_Gbps,
                .nodes_per_domain = known->nodes_per_domain});
  if (!machine) return machine.error();
  return ClusterTopology::of(*std::move(machine), gpus);
}

std::optional<Seconds> measured_ring_step(const MeasuredRun& row) {
  if (!row.net_allgather_busbw_GBps || !row.net_reducescatter_busbw_GBps || !row.gpus) return {};
  constexpr Bytes kMeasured{1.07e9};
  const BytesPerSecond seen =
      std::max(*row.net_allgather_busbw_GBps, *row.net_reducescatter_busbw_GBps) * 1_GBps;
  return (kMeasured / seen - kMeasured / MeasuredNetwork::kUnhindered) /
         static_cast<double>(*row.gpus);
}

std::optional<Seconds> measured_hop(const MeasuredRun& row) {
  const auto step = measured_ring_step(row);
  if (!step) return {};
  const auto gpus = static_cast<double>(*row.gpus);
  const double nodes = std::ceil(gpus / static_cast<double>(node_gpus(row, *row.gpus)));
  return nodes > 1 ? *step * (gpus / (nodes - 1)) : *step;
}

std::optional<MeasuredNetwork> measured_network(const MeasuredRun& row,
                                                const ClusterTopology& cluster) {
  if (!row.net_allreduce_busbw_GBps || cluster.nodes() < 2) return {};
  MeasuredNetwork network{*row.net_allreduce_busbw_GBps * 1_GBps, Seconds{}};
  constexpr Seconds kLeastHop = 20_us;  // below it the bandwidths give no latency
  if (const auto hop = measured_hop(row)) network.hop = std::max(kLeastHop, *hop);
  return network;
}

bool has_slow_network(const MeasuredRun& row) {
  const std::optional<Seconds> hop = measured_hop(row);
  return hop && MeasuredNetwork{{}, *hop}.stalls();
}

}  // namespace echelon
