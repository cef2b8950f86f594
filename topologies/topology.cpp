#include "topologies/topology.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "core/base/expects.hpp"
#include "core/base/saturated_product.hpp"
#include "topologies/description/catalog.hpp"
#include "topologies/description/description.hpp"
#include "topologies/graph/graph.hpp"
#include "topologies/graph/group_table.hpp"
#include "topologies/graph/placement.hpp"

namespace echelon {
namespace {

/// A network tier for group(): its size and the cost of reaching it.
struct Reach {
  std::int64_t gpus;        ///< GPUs inside one unit of the tier
  double oversubscription;  ///< product over the tiers below, which a way through this one leaves
  Seconds latency;          ///< NIC and tiers, summed
};

/// `domain`: GPUs in use of each NVLink domain.
std::vector<Reach> reaches(const MachineDescription& machine, std::int64_t domain) {
  std::vector<Reach> result;
  Reach reach{domain, 1, machine.nic_latency};
  for (std::size_t t = static_cast<std::size_t>(machine.nvlink_tiers); t < machine.tiers.size();
       ++t) {
    const FabricTier& tier = machine.tiers[t];
    reach.gpus = saturated_product({reach.gpus, tier.multiplicity});
    reach.latency += tier.latency;
    result.push_back(reach);
    reach.oversubscription *= tier.oversubscription;
  }
  return result;
}

/// GPUs in use of each NVLink domain.
std::int64_t domain_in_use(const MachineDescription& machine, std::int64_t gpus) {
  const std::int64_t node = machine.node.gpus;
  return gpus <= node ? gpus
                      : node * nodes_of_each_domain(gpus / node, machine.domain_gpus() / node);
}

/// NVLink SHARP exists since the third-generation NVSwitch, used with Hopper GPUs (NVIDIA H100
/// whitepaper).
bool switch_reduces(const MachineDescription& machine) {
  return machine.interconnect == Interconnect::nvswitch && machine.gpu.compute_capability >= 9;
}

Error size_error(std::int64_t gpus, std::int64_t node, std::int64_t max_gpus) {
  const std::int64_t below = gpus / node * node;
  const std::int64_t above = below + node;
  const std::string nearest = above <= max_gpus ? fmt::format("nearest: {} or {}", below, above)
                                                : fmt::format("nearest: {}", below);
  return input_error("--gpus", fmt::format("{}", gpus),
                     fmt::format("at most {} or a multiple of {}", node, node), nearest);
}

Status check_size(const MachineDescription& machine, std::int64_t gpus) {
  const std::int64_t node = machine.node.gpus;
  constexpr std::int64_t kMaxGpus = 100'000'000;
  const std::int64_t max_gpus = std::min(kMaxGpus, machine.max_gpus.value_or(kMaxGpus));
  if (gpus > max_gpus) {
    return input_error("--gpus", fmt::format("{}", gpus),
                       fmt::format("at most {}, {}", max_gpus,
                                   machine.max_gpus ? "the size of '" + machine.name + "'"
                                                    : "the limit of this program"));
  }
  if (gpus > node && machine.nics.empty()) {
    return input_error(
        "--gpus", fmt::format("{}", gpus),
        fmt::format("at most {}: '{}' describes no network cards", node, machine.name),
        "describe \"nics\" in the node to use several nodes");
  }
  if (gpus > node && gpus % node != 0) return size_error(gpus, node, max_gpus);
  return Done{};
}

/// `built` for `gpus` GPUs; where no number was asked for, an error about it is one of the file's
/// own.
Result<ClusterTopology> blaming_file(Result<ClusterTopology> built, std::string_view where,
                                     std::int64_t asked) {
  if (built || asked > 0 || built.error().where != "--gpus") return built;
  Error error = built.error();
  error.where = std::string(where) + " at /gpus";
  return error;
}

}  // namespace

struct ClusterTopology::State {
  std::shared_ptr<const MachineDescription> machine;
  std::shared_ptr<const TopologyGraph> graph;
  std::shared_ptr<const GroupTable> table;
  std::vector<Reach> reaches;
  NodeSpec node;
  int gpus = 0;
  int domain = 0;
  int node_gpus = 0;
  Seconds intra_latency;
  bool switch_reduces = false;
};

ClusterTopology::ClusterTopology(std::shared_ptr<const State> state) : state_(std::move(state)) {}

Result<ClusterTopology> ClusterTopology::build(std::shared_ptr<const MachineDescription> machine,
                                               std::int64_t gpus, const State* reuse) {
  if (gpus <= 0) gpus = machine->default_gpus;
  if (const Status fits = check_size(*machine, gpus); !fits.ok()) return fits.error();
  auto state = std::make_shared<State>();
  state->gpus = static_cast<int>(gpus);
  state->domain = static_cast<int>(domain_in_use(*machine, gpus));
  state->node_gpus = static_cast<int>(std::min<std::int64_t>(machine->node.gpus, gpus));
  state->reaches = reaches(*machine, state->domain);
  state->node = machine->node;
  state->intra_latency = machine->link_latency;
  state->switch_reduces = switch_reduces(*machine);
  for (int tier = 0; tier < machine->nvlink_tiers; ++tier) {
    state->intra_latency += machine->tiers[static_cast<std::size_t>(tier)].latency;
  }
  const std::int64_t domains = (gpus + state->domain - 1) / state->domain;
  state->graph = std::make_shared<TopologyGraph>(*machine, state->domain, domains);
  const bool same = reuse != nullptr && reuse->domain == state->domain;
  state->table = same ? reuse->table : std::make_shared<const GroupTable>(*state->graph);
  state->machine = std::move(machine);
  return ClusterTopology(std::move(state));
}

Result<ClusterTopology> ClusterTopology::load(std::string_view name_or_path, std::int64_t gpus) {
  Result<MachineDescription> machine = load_machine(name_or_path);
  if (!machine) return machine.error();
  return blaming_file(of(*std::move(machine), gpus), name_or_path, gpus);
}

Result<ClusterTopology> ClusterTopology::parse(std::string_view json, std::string_view where,
                                               std::int64_t gpus) {
  Result<MachineDescription> machine = parse_machine(json, where);
  if (!machine) return machine.error();
  return blaming_file(of(*std::move(machine), gpus), where, gpus);
}

Result<ClusterTopology> ClusterTopology::of(MachineDescription machine, std::int64_t gpus) {
  return build(std::make_shared<MachineDescription>(std::move(machine)), gpus, nullptr);
}

Result<ClusterTopology> ClusterTopology::resized(std::int64_t gpus) const {
  return build(state_->machine, gpus, state_.get());
}

ClusterTopology ClusterTopology::with_node_network(BytesPerSecond per_node) const {
  EXPECTS(per_node > BytesPerSecond{} && per_node.is_finite(), "a network rate is positive");
  auto machine = std::make_shared<MachineDescription>(*state_->machine);
  EXPECTS(!machine->nics.empty(), "a node without network cards has no network rate");
  machine->node.nic = per_node / static_cast<double>(machine->nics.size());
  machine->pcie.nic_link = std::max(machine->pcie.nic_link, machine->node.nic);
  return *build(std::move(machine), state_->gpus, nullptr);
}

ClusterTopology ClusterTopology::with_gpu(GpuSpec gpu) const {
  auto machine = std::make_shared<MachineDescription>(*state_->machine);
  machine->gpu = std::move(gpu);
  auto state = std::make_shared<State>(*state_);  // the links are unchanged, and so is the graph
  state->machine = std::move(machine);
  return ClusterTopology(std::move(state));
}

const std::string& ClusterTopology::name() const { return state_->machine->name; }
const std::string& ClusterTopology::description() const { return state_->machine->summary; }
int ClusterTopology::gpus() const { return state_->gpus; }
int ClusterTopology::gpus_per_node() const { return state_->node_gpus; }
int ClusterTopology::nodes() const { return state_->gpus / state_->node_gpus; }
int ClusterTopology::domain_gpus() const { return state_->domain; }
int ClusterTopology::rails() const { return state_->machine->rails; }
const GpuSpec& ClusterTopology::gpu() const { return state_->machine->gpu; }
const NodeSpec& ClusterTopology::node() const { return state_->node; }
const TopologyGraph& ClusterTopology::graph() const { return *state_->graph; }
const std::vector<FabricTier>& ClusterTopology::tiers() const { return state_->machine->tiers; }
const MachineDescription& ClusterTopology::machine() const { return *state_->machine; }
BytesPerSecond ClusterTopology::host_link() const {
  const PcieTree& pcie = state_->machine->pcie;
  // NVLink-C2C is faster than the LPDDR5X of a Grace CPU, 512 GB/s. Source: GB200 superchip, as in
  // yobitel.com/knowledge-base/nvidia-gb200. That of a Vera CPU, which comes with Rubin GPUs, has
  // 1.2 TB/s. Source: nvidia.com/en-us/data-center/vera-rubin-nvl72, read second-hand.
  constexpr BytesPerSecond kGraceMemory{512e9};
  constexpr BytesPerSecond kVeraMemory{1200e9};
  const BytesPerSecond memory = gpu().family == "rubin" ? kVeraMemory : kGraceMemory;
  BytesPerSecond rate = pcie.gpu_link;
  if (pcie.c2c) rate = std::min(rate, pcie.sockets * memory / node().gpus);
  for (const std::optional<int>& at : pcie.gpu_switch) {
    if (!at) continue;
    const auto sharing = static_cast<double>(std::ranges::count(pcie.gpu_switch, at));
    rate = std::min(rate, pcie.switch_uplink / sharing);
  }
  return rate;
}
std::optional<Dollars> ClusterTopology::price_per_gpu_hour() const {
  return state_->machine->price_per_gpu_hour;
}
std::optional<Seconds> ClusterTopology::mtbf_per_node() const {
  return state_->machine->mtbf_per_node;
}

GroupNetwork ClusterTopology::group(RankGroup of) const {
  const auto [ranks, stride] = of;
  EXPECTS(ranks >= 1 && stride >= 1, "a group has at least one rank and a positive stride");
  const State& state = *state_;
  const GroupTable& table = *state.table;
  const Placement at = place(ranks, stride, state.domain, state.gpus);
  GroupNetwork group;
  group.ranks = ranks;
  group.ranks_per_domain = at.per_domain;
  group.domains = at.domains;
  group.sharing_groups = at.sharing;
  const int local_stride = std::min(stride, state.domain);
  group.intra = table.intra(at.per_domain, local_stride);
  group.intra_exchange = table.intra_exchange(at.per_domain, local_stride);
  group.intra_latency = state.intra_latency;
  group.switch_reduces = state.switch_reduces;
  if (state.reaches.empty()) return group;

  // The smallest tier that contains the span for any position of its block.
  const std::int64_t span = std::int64_t{ranks} * stride;
  std::size_t tier = 0;
  const auto holds = [&](const Reach& reach) {
    return reach.gpus >= state.gpus || (span <= reach.gpus && reach.gpus % span == 0);
  };
  while (tier + 1 < state.reaches.size() && !holds(state.reaches[tier])) ++tier;
  const Reach& reach = state.reaches[tier];
  const bool through = at.regular && at.domains > 1 && stride < state.domain;
  const BytesPerSecond egress =
      through ? table.inter(stride)
              : table.per_gpu(state.domain) * static_cast<double>(at.min_members);
  group.inter = egress / reach.oversubscription;
  group.inter_per_rank = table.per_gpu(local_stride) / reach.oversubscription;
  group.inter_exchange = table.per_gpu(state.domain) / reach.oversubscription;
  group.inter_latency = reach.latency;
  return group;
}

}  // namespace echelon
