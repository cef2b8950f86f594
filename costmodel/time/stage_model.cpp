#include "costmodel/time/stage_model.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/schedule/stage_waits.hpp"
#include "costmodel/time/host_shares.hpp"
#include "costmodel/time/pipeline.hpp"
#include "costmodel/time/rates.hpp"

namespace echelon {
namespace {

/// The host cannot launch a layer faster than it can; the device waits for the difference.
Seconds wait_for_host(Seconds host, Seconds busy) { return std::max(Seconds{}, host - busy); }

/// Copies of the experts' sharded state. Every instance of the optimizer holds one, so that they
/// divide the ranks with the same experts (check_plan); measured runs may do otherwise. Without
/// ZeRO there is nothing to shard.
/// Source: Megatron-LM core/parallel_state.py, intra_partial_expert_data_parallel_size.
int expert_instances(const ParallelPlan& plan, int expert_dp) {
  return plan.zero == 0 ? 1 : static_cast<int>(std::gcd(std::int64_t{expert_dp}, plan.instances()));
}

/// One boundary message of S bytes:
///
///   send(S)                             as it is
///   send(S/tp) + all-gather over tp(S)  scattered: each of the tp ranks, which hold the same
///                                       tensor, sends its part, and the receivers gather it
///
/// With sequence parallelism S is a rank's own part already.
/// Source: Narayanan et al. (arXiv 2104.04473) section 4.1, "Scatter/gather communication
/// optimization". Checked by: tests/costmodel/time/stage_terms_test.cpp.
Seconds boundary_message(const CostModel& cost_model, const ParallelPlan& plan, Bytes payload,
                         const GroupLinks& pipe) {
  if (!cost_model.framework().scatters(plan)) return send_receive(payload, pipe);
  const GroupLinks receivers = cost_model.links(ProcessGrid(plan).group(Axis::tp));
  return send_receive(payload / plan.tp, pipe) + all_gather(payload, receivers);
}

}  // namespace

StageModel::StageModel(const CostModel& cost_model, const ParallelPlan& plan,
                       const ShardingCosts& costs)
    : cost_model_(cost_model),
      plan_(plan),
      placement_(placement_of(plan)),
      costs_(costs),
      c_(cost_model.calibration()),
      recipe_(cost_model.job().precision),
      microbatches_(plan.microbatches_rounded_up(cost_model.job().global_batch)) {
  const ProcessGrid grid(plan);
  const RankGroup data = grid.data_group();
  shard_ = cost_model.data_links(data.part(plan.shard_group));
  replicas_ = cost_model.data_links(data.across(plan.shard_group));
  if (cost_model.model().moe.experts > 0) {
    const RankGroup experts = grid.group(Axis::expert_dp);
    expert_dp_ = experts.ranks;
    expert_shard_ = expert_dp_ / expert_instances(plan, expert_dp_);
    expert_shard_links_ = cost_model.data_links(experts.part(expert_shard_));
    expert_replicas_ = cost_model.data_links(experts.across(expert_shard_));
  }
  if (plan.pp > 1) {
    const GroupLinks pipe = cost_model.links(grid.group(Axis::pp));
    hop_ = boundary_message(cost_model, plan, costs.layer_input, pipe);
    if (cost_model.model().tied_embeddings && placement_.last_rank() > 0) {
      // First and last stage: a group of two across the pipeline.
      GroupLinks ends = pipe;
      ends.ranks = 2;
      ends.domains = std::min(2, pipe.domains);
      ends.ranks_per_domain = 2 / ends.domains;
      ends.inter = pipe.inter_per_rank;
      const double word = padded_vocab(cost_model.model(), cost_model.framework(), plan.tp) /
                          plan.tp * cost_model.model().hidden;
      tied_sync_ = all_reduce(Bytes{word * recipe_.reduced_gradient}, ends);
    }
  }
  layers_of_chunk_ =
      std::max(1.0, static_cast<double>(cost_model.model().layers) / (plan.pp * plan.vpp));
  norm_sync_ = all_reduce(4_B, cost_model.links(grid.world()));
  optimizer_rate_ = device_rates(cost_model.cluster().gpu(), c_, recipe_.compute).optimizer;
  host_ring_step_ = cost_model.host_ring_step();
  host_network_step_ = cost_model.host_network_step();
  dense_traffic_ = layer_traffic(costs.dense);
  moe_traffic_ = layer_traffic(costs.moe);
  follow_policy();
  const int communicators = (plan.tp > 1) + (plan.cp > 1) + (data.ranks > 1) + (plan.pp > 1) +
                            (plan.ep > 1) + (expert_dp_ > 1);
  nccl_ = communicators * c_.nccl_per_communicator;
  if (plan.overlap_ep) {
    unpaired_ = unpaired_share(plan.schedule, plan.pp, plan.vpp, microbatches_, plan.group_size());
  }
  const int nodes = cost_model.cluster().nodes();
  straggler_ = nodes > 1 ? c_.straggler_per_doubling * std::log2(nodes) : 0.0;
}

void StageModel::follow_policy() {
  const Framework& framework = cost_model_.framework();
  dense_part_ = selective_part(costs_.dense, framework, plan_.recompute_modules);
  moe_part_ = selective_part(costs_.moe, framework, plan_.recompute_modules);
}

StageModel::Parameters StageModel::parameters(const Stage& stage) const {
  Parameters p;
  p.replicated =
      stage.layers.dense * costs_.dense.parameters + stage.layers.moe * costs_.moe.parameters;
  p.experts = stage.layers.moe * costs_.moe.experts;
  if (first(stage)) p.ends += costs_.embedding_parameters;
  if (last(stage)) p.ends += head_parameters(stage);
  p.replicated += p.ends;
  return p;
}

/// Parameters whose state a rank keeps when ZeRO shards it from stage `from_zero` on.
double StageModel::owned(const Parameters& p, int from_zero) const {
  if (plan_.zero < from_zero) return p.replicated + p.experts;
  return p.replicated / plan_.shard_group + p.experts / expert_shard_;
}

// ------------------------------------------------------------------------------ time

/// ZeRO-3 gathers a layer's weights before its forward and again before its backward, and like
/// ZeRO-2 scatters its gradients in every backward. Each overlaps with the neighbouring layer.
/// Where they are reduced once, weights stay gathered from a backward to the next forward.
StageModel::LayerTraffic StageModel::layer_traffic(const LayerCosts& layer) const {
  if (plan_.zero < 2 || plan_.shard_group * expert_shard_ == 1) return {};
  const auto both = [&](double width, auto collective) {
    Seconds time = collective(Bytes{layer.parameters * width}, shard_);
    if (layer.experts > 0) time += collective(Bytes{layer.experts * width}, expert_shard_links_);
    return time;
  };
  const bool once = cost_model_.framework().reduces_once(plan_);
  Seconds backward = once ? Seconds{} : both(recipe_.reduced_gradient, reduce_scatter);
  if (replicas_.ranks > 1 && !once) {
    backward += all_reduce(Bytes{layer.parameters * recipe_.reduced_gradient / plan_.shard_group},
                           replicas_);
  }
  LayerTraffic traffic;
  if (plan_.zero == 3) {
    const Seconds gather = both(recipe_.gathered_weight, all_gather);
    if (!once) traffic.forward = exposed_beside(gather, layer.forward.device, c_, plan_.overlap_dp);
    backward += gather;
  }
  traffic.backward = exposed_beside(backward, layer.backward.device, c_, plan_.overlap_dp);
  return traffic;
}

/// The stage's layers of one kind.
void StageModel::add_layers(const Stage& stage, const LayerCosts& layer,
                            const LayerTraffic& traffic, const RecomputedPart& part,
                            int LayerCounts::*kind, Passes& passes, StageTimes& t) const {
  const double layers = stage.layers.*kind;
  const double recomputed = stage.recomputed.*kind;
  const double selective = stage.selective.*kind;
  if (layers <= 0) return;
  PassCosts once_forward = layer.forward;
  PassCosts once_backward = layer.backward;
  once_forward.exposed[Axis::ep] += unpaired_ * layer.alone_forward;
  once_backward.exposed[Axis::ep] += unpaired_ * layer.alone_backward;
  passes.forward += layers * once_forward;
  passes.backward += layers * once_backward;
  passes.recompute += recomputed * once_forward;
  passes.recompute += selective * part.repeated;
  const auto launch = [&](Seconds host, const PassCosts& pass, double share) {
    const Framework& framework = cost_model_.framework();
    const HostShares shares = host_shares(plan_.cuda_graphs, layer.experts > 0);
    const double experts = layer.experts > 0 ? share * framework.host_experts_share : 0.0;
    return framework.host_share * shares.layer * host + experts * shares.experts * c_.host_experts +
           pass.ring_steps * host_ring_step_ + pass.network_steps * host_network_step_;
  };
  const Seconds launch_forward = launch(c_.host_layer_forward, layer.forward, 0.4);
  const Seconds wait_forward =
      wait_for_host(launch_forward, once_forward.total() + traffic.forward);
  const Seconds wait_backward = wait_for_host(launch(c_.host_layer_backward, layer.backward, 0.6),
                                              once_backward.total() + traffic.backward);
  const Seconds wait_recompute = wait_for_host(launch_forward, once_forward.total());
  t.forward += layers * (wait_forward + traffic.forward);
  t.backward += layers * (wait_backward + traffic.backward) + recomputed * wait_recompute;
  t.host += layers * (wait_forward + wait_backward) + recomputed * wait_recompute;
  t.exposed[Axis::dp] += layers * (traffic.forward + traffic.backward);
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

StageTimes StageModel::times(const Stage& stage) const {
  StageTimes t;
  Passes passes;
  add_layers(stage, costs_.dense, dense_traffic_, dense_part_, &LayerCounts::dense, passes, t);
  add_layers(stage, costs_.moe, moe_traffic_, moe_part_, &LayerCounts::moe, passes, t);
  auto& [forward, backward, recompute] = passes;
  if (first(stage)) {
    forward += costs_.embedding_forward;
    backward += costs_.embedding_backward;
  }
  if (last(stage)) {
    forward += costs_.head_forward;
    backward += costs_.head_backward;
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
/// Offloaded states stay in host memory: gradients go down and weights come up over PCIe, and the
/// update runs at the host's memory bandwidth, shared by the GPUs of a node.
/// Source: SimuMax (explicit passes); Megatron-Core DistributedOptimizer and its CPU offload. Plus
/// one all-reduce of the norm over all ranks.
Seconds StageModel::optimizer(const Stage& stage) const {
  const Parameters p = parameters(stage);
  const double shard = owned(p, 1);
  const double gradient = std::max(recipe_.main_gradient, recipe_.gradient);
  const double states = 2 * recipe_.master + 2 * recipe_.moments;
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
  const Bytes read{owned(parameters(stage), 1) * gradient};
  return (1 - plan_.offload_optimizer) * read / optimizer_rate_ + norm_sync_;
}

/// A stage sends after each pass of a microbatch; of two stages, each has one pass that ends there.
double StageModel::sends() const {
  const bool ends = plan_.pp == 2 && plan_.schedule != ScheduleKind::dualpipe_v;
  return 2.0 * plan_.vpp - (ends ? 1 : 0);
}

/// Each message is hidden behind the compute of a chunk's pass where sends overlap.
Seconds StageModel::steady_hops(Seconds busy) const {
  if (plan_.pp == 1) return Seconds{};
  const Seconds cover = busy / (2.0 * plan_.vpp);
  return sends() * exposed_beside(hop_, cover, c_, plan_.overlap_pp);
}

Seconds StageModel::pipeline(Seconds sum, Seconds slowest) const {
  const double microbatches = static_cast<double>(microbatches_);
  const Seconds hops = (microbatches - 1) * steady_hops(slowest);
  if (cost_model_.ablated() == AblatedFeature::no_bubble) return microbatches * slowest + hops;
  return pipeline_time(plan_.schedule, sum, slowest, plan_.vpp, microbatches_) +
         2.0 * (plan_.pp - 1) * hop_ + hops;
}

Seconds StageModel::blocking_hop(Seconds slowest) const {
  if (plan_.overlap_pp || plan_.pp == 1) return Seconds{};
  return steady_hops(slowest) / sends();
}

/// All passes of a microbatch send but the last chunk's forward and the first chunk's backward, and
/// DualPipeV's two at the turn on its last rank. Of a stage all but one do, of a V's ends all but
/// two.
Seconds StageModel::least_pipeline(Seconds sum, Seconds slowest) const {
  if (cost_model_.ablated() == AblatedFeature::no_bubble) return pipeline(sum, slowest);
  const Seconds blocking = blocking_hop(slowest);
  const double turn = plan_.schedule == ScheduleKind::dualpipe_v ? 1 : 0;
  return least_pipeline_time({.schedule = plan_.schedule,
                              .pp = plan_.pp,
                              .vpp = plan_.vpp,
                              .microbatches = microbatches_,
                              .sum = sum + (2.0 * plan_.pp * plan_.vpp - 2 - 2 * turn) * blocking,
                              .slowest = slowest + (2.0 * plan_.vpp - 1 - turn) * blocking,
                              .hop = hop_ - blocking,
                              .least_chunk = {}});
}

Seconds StageModel::imposed(Seconds sum, Seconds own) const {
  if (cost_model_.ablated() == AblatedFeature::no_bubble) return Seconds{};
  return imposed_waiting(plan_.schedule, plan_.vpp, microbatches_, sum - own, own) +
         2.0 * (plan_.pp - 1) * hop_;
}

}  // namespace echelon
