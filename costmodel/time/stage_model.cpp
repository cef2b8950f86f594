#include "costmodel/time/stage_model.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "costmodel/collectives/exchange_buffers.hpp"
#include "costmodel/time/pipeline.hpp"
#include "costmodel/time/rates.hpp"

namespace echelon {
namespace {

/// Copies of the experts' sharded state. Every instance of the optimizer holds one, so that they
/// divide the ranks with the same experts (check_plan); measured runs may do otherwise. Without
/// ZeRO there is nothing to shard.
/// Source: Megatron-LM core/parallel_state.py, intra_partial_expert_data_parallel_size.
int expert_instances(const ParallelPlan& plan, int expert_dp) {
  return plan.zero == 0 ? 1 : static_cast<int>(std::gcd(std::int64_t{expert_dp}, plan.instances()));
}

/// A group of data-parallel ranks and those that hold the same on the mirrored pipeline rank
/// (DualPipe), which is taken to be the next one: as many network domains, at most as far apart.
///
/// The gradients of a stage's two copies are summed, as of any data-parallel replicas, and ZeRO
/// splits the states over the ranks of both. DeepSeek's public program computes the gradients of
/// each copy and leaves their sum to its caller (deepseek-ai/DualPipe @3da1bbe,
/// examples/example_dualpipe.py adds them up rank by rank); its report has ZeRO-1 data parallelism
/// and counts the parameters, not the states, twice (arXiv 2412.19437, section 3.2 and table 2).
RankGroup with_copies(RankGroup group, const ParallelPlan& plan) {
  const int copies = plan.copies();
  const bool outer = plan.rank_order == RankOrder::dp_inside_pp;
  return {group.ranks * copies, outer ? group.stride : group.stride / copies};
}

}  // namespace

StageModel::StageModel(const CostModel& cost_model, const ParallelPlan& plan,
                       const ShardingCosts& costs)
    : PipelineModel(cost_model, plan, boundary_hop(cost_model, plan, costs)),
      placement_(placement_of(plan)),
      costs_(costs),
      recipe_(cost_model.job().precision),
      copies_(plan.copies()) {
  const ProcessGrid grid(plan);
  const RankGroup data = grid.data_group();
  shard_ranks_ = plan.shard_group * copies_;
  shard_ = cost_model.data_links(with_copies(data.part(plan.shard_group), plan));
  replicas_ = cost_model.data_links(data.across(plan.shard_group));
  if (cost_model.model().moe.experts > 0) {
    const RankGroup experts = grid.group(Axis::expert_dp);
    const int of_copy = experts.ranks / expert_instances(plan, experts.ranks);
    expert_dp_ = experts.ranks * copies_;
    expert_shard_ = of_copy * copies_;
    expert_shard_links_ = cost_model.data_links(with_copies(experts.part(of_copy), plan));
    expert_replicas_ = cost_model.data_links(experts.across(of_copy));
  }
  if (plan.pp > 1 && cost_model.model().tied_embeddings && placement_.last_rank() > 0 &&
      !freezes()) {
    // First and last stage: a group of two across the pipeline.
    GroupLinks ends = cost_model.links(grid.group(Axis::pp));
    ends.ranks = 2;
    ends.domains = std::min(2, ends.domains);
    ends.ranks_per_domain = 2 / ends.domains;
    ends.inter = ends.inter_per_rank;
    const double word = padded_vocab(cost_model.model(), cost_model.framework(), plan.tp) /
                        plan.tp * cost_model.model().hidden;
    tied_sync_ = all_reduce(Bytes{word * recipe_.reduced_gradient}, ends);
  }
  layers_of_chunk_ = std::max(1.0, static_cast<double>(cost_model.model().layers) /
                                       static_cast<double>(plan.model_stages()));
  norm_sync_ = all_reduce(4_B, cost_model.links(grid.world()));
  const DeviceRates rates = device_rates(cost_model.cluster().gpu(), c_, recipe_.compute);
  optimizer_rate_ = rates.optimizer;
  memory_rate_ = rates.memory;
  host_ring_step_ = cost_model.host_ring_step();
  host_network_step_ = cost_model.host_network_step();
  dense_traffic_ = layer_traffic(costs.dense);
  moe_traffic_ = layer_traffic(costs.moe);
  follow_policy();
  const auto measure = [&](const LayerCosts& layer, Bytes& saved, double& shapes) {
    for (const LayerCosts::OfMixer& each : layer.of_mixers) {
      saved = std::max(saved, each.saved);
      // Layers of one part have nothing in common, others their MLP.
      shapes = cost_model.model().mlp_only_layers > 0 ? shapes + each.shapes
                                                      : std::max(shapes, each.shapes);
      largest_layer_ = std::max(largest_layer_, each.parameters);
    }
    largest_quantized_ = std::max(largest_quantized_, layer.quantized);
    largest_trained_ = freezes() ? std::max(largest_trained_, layer.adapters) : largest_layer_;
  };
  measure(costs.dense, dense_saved_, dense_shapes_);
  measure(costs.moe, moe_saved_, moe_shapes_);
  int communicators = (plan.tp > 1) + (plan.cp > 1) + (data.ranks * copies_ > 1) + (plan.pp > 1) +
                      (plan.ep > 1) + (expert_dp_ > 1);
  if (cost_model.framework().kernels == KernelLibrary::own) {
    const bool shards = splits_states();
    communicators = (plan.gpus() > 1) + (plan.tp > 1) + (plan.cp > 1) + (plan.ep > 1) +
                    2 * (plan.pp > 1) + (shards && plan.zero > 0) + (shards && plan.zero == 3);
  }
  nccl_ = communicators * c_.nccl_per_communicator + peer_buffers(grid) + dispatcher_buffers(grid);
  if (plan.overlap_ep) {
    unpaired_ = unpaired_share(plan.schedule, plan.pp, plan.vpp, microbatches_, plan.group_size());
  }
  dense_passes_ = layer_passes(costs.dense, dense_traffic_, dense_copies_);
  moe_passes_ = layer_passes(costs.moe, moe_traffic_, moe_copies_);
  for (int stage = 0; plan.pp > 1 && stage < plan.pp; ++stage) {
    in_flight_.push_back(microbatches_in_flight(stage, 1));
  }
}

/// NCCL's buffers of our own runtime's groups that exchange parts (of experts' rows, or of heads of
/// context-parallel ranks), R ranks of a group behind one NVSwitch:
///
///   min(R − 1, 7) · nccl_per_peer; of a ring of context-parallel ranks 1, the one before
///
/// A receiver has LL, LL128 and Simple buffers for each of a peer's channels; among more peers NCCL
/// gives each fewer channels. Elsewhere buffers are the host's (PCIe) or shared by all peers
/// (networks). Other frameworks' exchanges by NCCL have buffers too; none are counted. Source: NCCL
/// src/transport/p2p.cc (recvSize) and net.cc, src/graph/paths.cc (p2pnChannelsPerPeer is halved
/// until all peers fit). Checked by: tests/costmodel/memory/exchange_memory_test.cpp.
Bytes StageModel::peer_buffers(const ProcessGrid& grid) const {
  if (cost_model_.framework().kernels != KernelLibrary::own ||
      cost_model_.cluster().node().interconnect != "nvswitch") {
    return {};
  }
  constexpr int kMostPeers = 7;
  const auto buffers = [&](Axis axis, int most) {
    const int peers = cost_model_.links(grid.group(axis)).ranks_per_domain - 1;
    return std::min(peers, most) * c_.nccl_per_peer;
  };
  Bytes all;
  if (plan_.ep > 1) all += buffers(Axis::ep, kMostPeers);
  const bool ring = plan_.cp_comm == CpComm::ring;
  if (plan_.cp > 1) all += buffers(Axis::cp, ring ? 1 : kMostPeers);
  return all;
}

/// Buffers of DeepEP and HybridEP, where the framework makes them for the tokens of a local batch
/// (exchange_buffers.hpp). Checked by: tests/costmodel/memory/exchange_memory_test.cpp.
Bytes StageModel::dispatcher_buffers(const ProcessGrid& grid) const {
  if (plan_.ep == 1 || !cost_model_.framework().exchanges_local_batch) return {};
  const GroupLinks links = cost_model_.links(grid.group(Axis::ep));
  const ModelSpec& model = cost_model_.model();
  const TrainingJob& job = cost_model_.job();
  const std::int64_t batch = plan_.pp > 1 ? job.global_batch / plan_.dp : plan_.microbatch;
  return exchange_buffers(plan_.dispatcher, {.tokens = batch * job.sequence / (plan_.tp * plan_.cp),
                                             .hidden = model.hidden,
                                             .experts = model.moe.experts,
                                             .per_token = model.moe.experts_per_token,
                                             .ranks = plan_.ep,
                                             .domains = links.domains});
}

void StageModel::follow_policy() {
  const Framework& framework = cost_model_.framework();
  dense_part_ = selective_part(costs_.dense, framework, plan_.recompute_modules);
  moe_part_ = selective_part(costs_.moe, framework, plan_.recompute_modules);
  dense_freed_ = most_freed(costs_.dense, framework, plan_.recompute_modules);
  moe_freed_ = most_freed(costs_.moe, framework, plan_.recompute_modules);
  if (plan_.offload_modules.empty()) return;
  const RecomputeModules dropped = disjoint_parts(plan_.recompute_modules);
  const auto copies = [&](const LayerCosts& layer) {
    const auto tensors = std::ranges::count_if(
        layer.offloadable, [&](const auto& t) { return plan_.offload_modules.contains(t.module); });
    return HostCopies{offloaded_bytes(layer, plan_.offload_modules, {}),
                      offloaded_bytes(layer, plan_.offload_modules, dropped),
                      static_cast<int>(tensors)};
  };
  dense_copies_ = copies(costs_.dense);
  moe_copies_ = copies(costs_.moe);
  const ClusterTopology& cluster = cost_model_.cluster();
  host_link_ = c_.link_efficiency * cluster.host_link();
}

StageModel::Parameters StageModel::parameters(const Stage& stage) const {
  Parameters p;
  p.replicated =
      stage.layers.dense * costs_.dense.parameters + stage.layers.moe * costs_.moe.parameters;
  p.experts = stage.layers.moe * costs_.moe.experts;
  p.quantized =
      stage.layers.dense * costs_.dense.quantized + stage.layers.moe * costs_.moe.quantized;
  if (first(stage)) p.ends += costs_.embedding_parameters;
  if (last(stage)) {
    p.ends += head_parameters(stage);
    p.experts += costs_.head_experts;
  }
  p.replicated += p.ends;
  return p;
}

StageModel::Parameters StageModel::trained(const Stage& stage) const {
  if (!freezes()) return parameters(stage);
  Parameters p;
  p.replicated =
      stage.layers.dense * costs_.dense.adapters + stage.layers.moe * costs_.moe.adapters;
  if (last(stage)) p.replicated += costs_.head_adapters;
  return p;
}

/// Parameters whose state a rank keeps when ZeRO shards it from stage `from_zero` on.
double StageModel::owned(const Parameters& p, int from_zero) const {
  if (plan_.zero < from_zero) return p.replicated + p.experts;
  return p.replicated / shard_ranks_ + p.experts / expert_shard_;
}

// ------------------------------------------------------------------------------ time

/// ZeRO-3 gathers a layer's weights before its forward and again before its backward, and like
/// ZeRO-2 scatters its gradients in every backward. Each overlaps with the neighbouring layer.
/// In a pipeline (Framework::keeps_gathered) weights stay gathered from a backward to the next
/// forward.
StageModel::LayerTraffic StageModel::layer_traffic(const LayerCosts& layer) const {
  if (plan_.zero < 2 || !splits_states()) return {};
  const auto both = [&](Bytes replicated, Bytes experts, auto collective) {
    Seconds time = collective(replicated, shard_);
    if (experts > Bytes{}) time += collective(experts, expert_shard_links_);
    return time;
  };
  const double trained = freezes() ? layer.adapters : layer.parameters;
  const double trained_experts = freezes() ? 0.0 : layer.experts;
  const bool once = cost_model_.framework().reduces_once(plan_);
  Seconds backward = once ? Seconds{}
                          : both(Bytes{trained * recipe_.reduced_gradient},
                                 Bytes{trained_experts * recipe_.reduced_gradient}, reduce_scatter);
  if (replicas_.ranks > 1 && !once) {
    backward +=
        all_reduce(Bytes{trained * recipe_.reduced_gradient / plan_.shard_group}, replicas_);
  }
  LayerTraffic traffic;
  if (plan_.zero == 3) {
    const Seconds gather =
        both(gathered(layer.parameters, layer.quantized), gathered(layer.experts, 0), all_gather);
    const bool gathered_before = cost_model_.framework().keeps_gathered(plan_);
    if (!gathered_before)
      traffic.forward = exposed_beside(gather, layer.forward.device, c_, plan_.overlap_dp);
    backward += gather;
  }
  traffic.backward = exposed_beside(backward, layer.backward.device, c_, plan_.overlap_dp);
  const LayerTraffic copies =
      copies_of(gathered(layer.parameters, layer.quantized) + gathered(layer.experts, 0),
                trained + trained_experts);
  return {traffic.forward + copies.forward, traffic.backward + copies.backward};
}

/// Each way, while the passes of one layer run forward and backward:
///
///   max(0, S/C − pass) + S/M     S bytes, C the GPU's link to its host, M its memory bandwidth
///
/// A copy runs on a stream of its own beside the pass, and takes memory bandwidth from its kernels.
/// The host launches it and records its event: two launches per tensor and pass (add_layers).
/// What does not fit beside the pass is waited for: without it, the memory would not be free.
/// Source: Megatron-LM d98e8a64, core/pipeline_parallel/fine_grained_activation_offload.py
/// (d2h_stream, h2d_stream; a group is reloaded while the one behind it runs backward). Assumes
/// that no other traffic uses the link. Published: 10 to 18 % of memory for 1.6 to 2 % of time
/// (Megatron-Core MoE report, arXiv 2603.07685, as quoted). Checked by:
/// tests/costmodel/operators/offload_modules_test.cpp.
StageModel::CopyWaits StageModel::copy_waits(Bytes copied, Seconds forward,
                                             Seconds backward) const {
  if (copied <= Bytes{}) return {};
  const Seconds link = copied / host_link_;
  const Seconds slower = copied / memory_rate_;
  return {std::max(Seconds{}, link - forward) + slower,
          std::max(Seconds{}, link - backward) + slower};
}

/// The stage's layers of one kind.
void StageModel::add_layers(const Stage& stage, const LayerCosts& layer, const LayerPasses& own,
                            const LayerTraffic& traffic, const RecomputedPart& part,
                            const HostCopies& copies, int LayerCounts::*kind, Passes& passes,
                            StageTimes& t) const {
  const double layers = stage.layers.*kind;
  const double recomputed = stage.recomputed.*kind;
  const double selective = stage.selective.*kind;
  if (layers <= 0) return;
  passes.forward += layers * own.forward;
  passes.backward += layers * own.backward;
  if (recomputed > 0) {
    passes.recompute += recomputed * own.forward;
    passes.recompute += -recomputed * layer.once;
  }
  if (selective > 0) passes.recompute += selective * part.repeated;
  const bool recomputes = stage.recomputed.total() + stage.selective.total() > 0;
  // A pass that waits for the router's counts is not replayed.
  const bool replayed = cost_model_.framework().replays_passes && stage.layers.moe == 0;
  const Seconds wait_forward = own.wait_forward[replayed ? 1 : 0];
  const Seconds wait_backward = own.wait_backward[replayed && !recomputes ? 1 : 0];
  const Seconds wait_recompute = own.wait_recompute;
  t.forward += layers * (wait_forward + traffic.forward);
  t.backward += layers * (wait_backward + traffic.backward) + recomputed * wait_recompute;
  t.host += layers * (wait_forward + wait_backward) + recomputed * wait_recompute;
  t.exposed[Axis::dp] += layers * (traffic.forward + traffic.backward);
  if (!plan_.offload_modules.empty()) {
    const Seconds own_forward = own.forward_total + traffic.forward + wait_forward;
    const Seconds own_backward = own.backward_total + traffic.backward + wait_backward;
    const CopyWaits plain = copy_waits(copies.plain, own_forward, own_backward);
    const CopyWaits dropped =
        copy_waits(copies.selective, own_forward, own_backward + part.repeated.total());
    const double untouched = layers - recomputed - selective;
    const Seconds copied_forward = untouched * plain.forward + selective * dropped.forward;
    const Seconds copied_backward = untouched * plain.backward + selective * dropped.backward;
    t.forward += copied_forward;
    t.backward += copied_backward;
    t.host += copied_forward + copied_backward;
  }
  // A chunk's forward is one instruction, or one of each layer that ZeRO-3 gathers; its backward
  // is cut from ZeRO-2 on.
  const Seconds of_chunk = layers / layers_of_chunk_ * c_.host_instruction;
  const Seconds of_layers = layers * c_.host_instruction;
  const Seconds forward = plan_.zero == 3 ? of_layers : of_chunk;
  const Seconds backward = plan_.zero >= 2 ? of_layers : of_chunk;
  t.forward += forward;
  t.backward += backward;
  t.host += forward + backward;
}

/// Only GPipe runs another microbatch between the last stage's forward and backward of one. Source:
/// runtime/training/training_device_memory.cpp, backwards_at_once. Checked by:
/// tests/costmodel/time/stage_terms_test.cpp.
bool StageModel::repeats_head() const {
  return plan_.schedule == ScheduleKind::gpipe && plan_.pp > 1 && microbatches_ > 1;
}

StageTimes StageModel::times(const Stage& stage) const {
  StageTimes t;
  Passes passes;
  add_layers(stage, costs_.dense, dense_passes_, dense_traffic_, dense_part_, dense_copies_,
             &LayerCounts::dense, passes, t);
  add_layers(stage, costs_.moe, moe_passes_, moe_traffic_, moe_part_, moe_copies_,
             &LayerCounts::moe, passes, t);
  const LayerTraffic ends = copies_of_ends(stage);
  t.forward += ends.forward;
  t.backward += ends.backward;
  t.exposed[Axis::dp] += ends.forward + ends.backward;
  auto& [forward, backward, recompute] = passes;
  if (first(stage)) {
    forward += costs_.embedding_forward;
    backward += costs_.embedding_backward;
  }
  if (last(stage)) {
    forward += costs_.head_forward;
    backward += costs_.head_backward;
    if (repeats_head()) {
      backward.device += costs_.head_repeated;
      backward.exposed[Axis::tp] += costs_.head_regathered;
    }
  }
  t.compute = forward.device + backward.device;
  t.recompute = recompute.device;
  for (const Axis axis : {Axis::tp, Axis::cp, Axis::ep}) {
    t.exposed[axis] = forward.exposed[axis] + backward.exposed[axis] + recompute.exposed[axis];
  }
  t.forward += forward.total();
  t.backward += backward.total() + recompute.total();
  return t;
}

/// Passes over memory: clear the gradients; read them for the norm; read gradient, master and
/// moments, write master and moments and the low-precision weights. Sharded passes touch 1/shard.
///   bytes = P·g + P/s·(2g + 2·master + 2·moments + weight)
/// Weights without a master are read as well.
/// Offloaded states stay in host memory: gradients go down and weights come up over PCIe, and the
/// update runs at the host's memory bandwidth, shared by the GPUs of a node.
/// Source: SimuMax (explicit passes); Megatron-Core DistributedOptimizer and its CPU offload. Plus
/// one all-reduce of the norm over all ranks.
Seconds StageModel::optimizer(const Stage& stage) const {
  const Parameters p = trained(stage);
  const double shard = owned(p, 1);
  const double gradient = std::max(recipe_.main_gradient, recipe_.gradient);
  const double read = recipe_.master > 0 ? recipe_.master : recipe_.weight;
  const double states = read + recipe_.master + 2 * recipe_.moments;
  const Bytes cleared{(plan_.zero >= 2 ? shard : p.replicated + p.experts) * gradient};
  const Bytes update{shard * (2 * gradient + states + recipe_.weight)};
  const double away = plan_.offload_optimizer;
  Seconds time = (cleared + (1 - away) * update) / optimizer_rate_ + norm_sync_;
  if (away > 0) {
    const NodeSpec& node = cost_model_.cluster().node();
    const BytesPerSecond host = c_.host_memory / cost_model_.cluster().gpus_per_node();
    time += away * (Bytes{shard * (gradient + recipe_.weight)} / node.pcie + update / host);
  }
  return time;
}

/// P/s·g of the bytes above. Offloaded gradients have their norm taken with the update.
Seconds StageModel::norm(const Stage& stage) const {
  const double gradient = std::max(recipe_.main_gradient, recipe_.gradient);
  const Bytes read{owned(trained(stage), 1) * gradient};
  return (1 - plan_.offload_optimizer) * read / optimizer_rate_ + norm_sync_;
}

}  // namespace echelon
