// Time of one optimizer step, part by part.
#include <algorithm>
#include <cmath>

#include "costmodel/collectives.hpp"
#include "costmodel/pipeline.hpp"
#include "costmodel/price.hpp"
#include "costmodel/rates.hpp"

namespace echelon {
namespace {

/// Forward and backward of one microbatch through all chunks of one stage.
struct StageTimes {
  Seconds compute, recompute, tp, dp, host;  // dp: ZeRO-2/3 traffic of every microbatch
  Seconds forward;
  Seconds backward;
  [[nodiscard]] Seconds total() const { return compute + recompute + tp + dp + host; }
};

/// Data-parallel traffic of one layer that is repeated for every microbatch (ZeRO-2 and 3).
struct LayerTraffic {
  Seconds forward_exposed;
  Seconds backward_exposed;
};

/// Comm that `cover` seconds of compute hide up to a share, plus what hiding it costs the compute.
Seconds exposed_beside(Seconds comm, Seconds cover, const Calibration& c, bool overlaps) {
  const Seconds hidden = overlaps ? std::min(comm, c.dp_overlap * cover) : Seconds{};
  return comm - hidden + c.overlap_slowdown * hidden;
}

}  // namespace

/// The closed forms of one plan, with the groups' networks looked up once.
class StepTime {
 public:
  StepTime(const Pricer& pricer, const ParallelPlan& plan, const CutCosts& costs)
      : pricer_(pricer), plan_(plan), costs_(costs), c_(pricer.calibration()),
        recipe_(pricer.job().precision),
        m_(plan.microbatches_rounded_up(pricer.job().global_batch)),
        shard_(links(plan.shard_group, plan.tp * plan.cp)),
        data_(links(plan.dp * plan.cp, plan.tp)),
        replicas_(links(plan.dp / plan.shard_group, plan.tp * plan.cp * plan.shard_group)),
        hop_(plan.pp > 1 ? send_receive(costs.boundary,
                                        links(plan.pp, plan.tp * plan.cp * plan.dp))
                         : Seconds{}) {}

  void price(TimePrediction& out) const;

 private:
  [[nodiscard]] GroupLinks links(int ranks, int stride) const {
    return apply(pricer_.cluster().group(ranks, stride), c_);
  }
  [[nodiscard]] LayerTraffic layer_traffic() const;
  [[nodiscard]] StageTimes stage_times(int stage, const LayerTraffic& traffic) const;
  [[nodiscard]] double stage_parameters(int stage) const;
  [[nodiscard]] Seconds gradient_reduction(int stage, const StageTimes& times) const;
  [[nodiscard]] Seconds parameter_gather(int stage, const StageTimes& times) const;
  [[nodiscard]] Seconds tied_embedding_sync(int stage) const;
  [[nodiscard]] Seconds optimizer_time(int stage) const;
  [[nodiscard]] Seconds steady_hops(Seconds busy) const;
  [[nodiscard]] Seconds bucketed(Seconds whole, Seconds latency, double parameters) const;

  const Pricer& pricer_;
  const ParallelPlan& plan_;
  const CutCosts& costs_;
  const Calibration& c_;
  const PrecisionRecipe& recipe_;
  std::int64_t m_;
  GroupLinks shard_, data_, replicas_;
  Seconds hop_;
};

/// ZeRO-3 gathers a layer's weights before its forward and again before its backward, and like
/// ZeRO-2 scatters its gradients in every backward. Each runs beside the neighbouring layer.
LayerTraffic StepTime::layer_traffic() const {
  if (plan_.zero < 2 || plan_.shard_group == 1) return {};
  const double parameters = costs_.layer_parameters;
  const bool overlaps = plan_.overlap_dp;
  Seconds backward = reduce_scatter(Bytes{parameters * recipe_.reduced_gradient}, shard_);
  if (plan_.dp > plan_.shard_group) {
    backward += all_reduce(Bytes{parameters * recipe_.reduced_gradient / plan_.shard_group},
                           replicas_);
  }
  LayerTraffic traffic;
  if (plan_.zero == 3) {
    const Seconds gather = all_gather(Bytes{parameters * recipe_.gathered_weight}, shard_);
    traffic.forward_exposed = exposed_beside(gather, costs_.layer_forward.device, c_, overlaps);
    backward += gather;
  }
  traffic.backward_exposed = exposed_beside(backward, costs_.layer_backward.device, c_, overlaps);
  return traffic;
}

StageTimes StepTime::stage_times(int stage, const LayerTraffic& traffic) const {
  const auto s = static_cast<std::size_t>(stage);
  const double layers = plan_.layers_per_stage[s];
  const double recomputed =
      plan_.recompute == Recompute::full ? plan_.recompute_layers[s] : 0.0;
  const double selective = plan_.recompute == Recompute::selective ? layers : 0.0;
  StageTimes t;

  // Step 1: kernels and the collectives they wait for.
  CutCosts::Pass forward{layers * costs_.layer_forward.device,
                         layers * costs_.layer_forward.exposed};
  CutCosts::Pass backward{layers * costs_.layer_backward.device,
                          layers * costs_.layer_backward.exposed};
  const auto add = [](CutCosts::Pass& sum, const CutCosts::Pass& part) {
    sum.device += part.device;
    sum.exposed += part.exposed;
  };
  if (stage == 0) {
    add(forward, costs_.embedding_forward);
    add(backward, costs_.embedding_backward);
  }
  if (stage == plan_.pp - 1) {
    add(forward, costs_.head_forward);
    add(backward, costs_.head_backward);
  }
  const CutCosts::Pass again{recomputed * costs_.layer_forward.device + selective * costs_.selective,
                             recomputed * costs_.layer_forward.exposed};

  // Step 2: the host cannot launch faster than it can; the device waits for the difference.
  const Seconds host_forward = layers * c_.host_layer_forward;
  const Seconds host_backward =
      layers * c_.host_layer_backward + recomputed * c_.host_layer_forward;
  const Seconds traffic_forward = layers * traffic.forward_exposed;
  const Seconds traffic_backward = layers * traffic.backward_exposed;
  const Seconds busy_forward = forward.device + forward.exposed + traffic_forward;
  const Seconds busy_backward =
      backward.device + backward.exposed + again.device + again.exposed + traffic_backward;
  const Seconds wait_forward = std::max(Seconds{}, host_forward - busy_forward);
  const Seconds wait_backward = std::max(Seconds{}, host_backward - busy_backward);

  t.compute = forward.device + backward.device;
  t.recompute = again.device;
  t.tp = forward.exposed + backward.exposed + again.exposed;
  t.dp = traffic_forward + traffic_backward;
  t.host = wait_forward + wait_backward;
  t.forward = busy_forward + wait_forward;
  t.backward = busy_backward + wait_backward;
  return t;
}

double StepTime::stage_parameters(int stage) const {
  double sum = plan_.layers_per_stage[static_cast<std::size_t>(stage)] * costs_.layer_parameters;
  if (stage == 0) sum += costs_.embedding_parameters;
  if (stage == plan_.pp - 1) {
    sum += plan_.pp > 1 ? costs_.head_parameters_last : costs_.head_parameters;
  }
  return sum;
}

/// A reduction is cut into buckets of max(40 M, 1 M · dp) parameters; every bucket after the first
/// pays the latency again. Source: Megatron-Core distributed_data_parallel_config, bucket_size.
Seconds StepTime::bucketed(Seconds whole, Seconds latency, double parameters) const {
  const double bucket = std::max(40e6, 1e6 * plan_.dp);
  return whole + (std::ceil(parameters / bucket) - 1) * latency;
}

/// What the compute queue waits for after the last backward: ZeRO-0 all-reduces, ZeRO-1
/// reduce-scatters (ZeRO-2/3 did it per microbatch). Buckets start as soon as the last microbatch's
/// gradients are complete, so they run beside the rest of that backward pass; the last bucket
/// cannot.
Seconds StepTime::gradient_reduction(int stage, const StageTimes& times) const {
  if (plan_.dp * plan_.cp == 1 || plan_.zero >= 2) return Seconds{};
  const double parameters = stage_parameters(stage);
  const Bytes payload{parameters * recipe_.reduced_gradient};
  Seconds comm;
  if (plan_.zero == 0) {
    comm = bucketed(all_reduce(payload, data_), data_.base + ring_latency(data_, 1), parameters);
  } else {
    comm = bucketed(reduce_scatter(payload, shard_), shard_.base + ring_latency(shard_, 1),
                    parameters);
    if (plan_.dp > plan_.shard_group) {
      comm += all_reduce(payload / plan_.shard_group, replicas_);
    }
  }
  // Chunks complete one after the other: with v chunks the first is done (v − 1)·p chunk backwards
  // before the last one starts.
  const double chunk = 1.0 / plan_.vpp;
  const Seconds window = times.backward * chunk * (1.0 + (plan_.vpp - 1.0) * plan_.pp);
  const double buckets = std::max(1.0, std::ceil(parameters / std::max(40e6, 1e6 * plan_.dp)));
  const Seconds last_bucket = comm / buckets;
  const bool overlaps = plan_.overlap_dp && pricer_.stack().overlaps_dp;
  return std::max(exposed_beside(comm, window, c_, overlaps), overlaps ? last_bucket : comm);
}

/// ZeRO-1/2 gather the updated parameters; beside the next step's first forward where the stack can.
Seconds StepTime::parameter_gather(int stage, const StageTimes& times) const {
  if (plan_.shard_group == 1) return Seconds{};
  const double ends = stage_parameters(stage) -
                      plan_.layers_per_stage[static_cast<std::size_t>(stage)] *
                          costs_.layer_parameters;
  if (plan_.zero == 3) {  // the first unit has nothing to run beside
    return all_gather(Bytes{(costs_.layer_parameters + ends) * recipe_.gathered_weight}, shard_);
  }
  if (plan_.zero == 0) return Seconds{};
  const double parameters = stage_parameters(stage);
  const Seconds comm =
      bucketed(all_gather(Bytes{parameters * recipe_.gathered_weight}, shard_),
               shard_.base + ring_latency(shard_, 1), parameters);
  const bool overlaps = plan_.overlap_dp && pricer_.stack().overlaps_gather;
  return exposed_beside(comm, times.forward, c_, overlaps);
}

/// Tied embeddings on two stages: their gradients are summed over {first, last} after the backward.
Seconds StepTime::tied_embedding_sync(int stage) const {
  const bool holds = stage == 0 || stage == plan_.pp - 1;
  if (!pricer_.model().tied_embeddings || plan_.pp == 1 || !holds) return Seconds{};
  const int distance = plan_.tp * plan_.cp * plan_.dp * (plan_.pp - 1);
  const double word = padded_vocab(pricer_.model(), pricer_.stack(), plan_.tp) / plan_.tp *
                      pricer_.model().hidden;
  return all_reduce(Bytes{word * recipe_.reduced_gradient}, links(2, distance));
}

/// Passes over memory: clear the gradients; read them for the norm; read gradient, master and
/// moments, write master and moments and the low-precision weights. Sharded passes touch 1/shard.
///   bytes = P·g + P/s·(2g + 2·master + 2·moments + weight)
/// Source: SimuMax (explicit passes); Megatron-Core DistributedOptimizer. Plus one all-reduce of
/// the norm over all ranks.
Seconds StepTime::optimizer_time(int stage) const {
  const double parameters = stage_parameters(stage);
  const double owned = plan_.zero >= 1 ? parameters / plan_.shard_group : parameters;
  const double gradient = std::max(recipe_.main_gradient, recipe_.gradient);
  const double cleared = plan_.zero >= 2 ? owned : parameters;
  const Bytes traffic{cleared * gradient +
                      owned * (2 * gradient + 2 * recipe_.master + 2 * recipe_.moments +
                               recipe_.weight)};
  const DeviceRates rates = device_rates(pricer_.cluster().gpu(), c_, recipe_.compute);
  return traffic / rates.optimizer + all_reduce(4_B, links(pricer_.cluster().gpus(), 1));
}

/// What a stage in the middle loses to its boundary messages in the steady state, per microbatch:
/// one in each direction and chunk, hidden behind that chunk's compute where sends overlap.
Seconds StepTime::steady_hops(Seconds busy) const {
  if (plan_.pp == 1) return Seconds{};
  const double chunks = plan_.vpp;
  const Seconds cover = busy / (2.0 * chunks);
  return 2.0 * chunks * exposed_beside(hop_, cover, c_, plan_.overlap_pp);
}

void StepTime::price(TimePrediction& out) const {
  const LayerTraffic traffic = layer_traffic();
  const int pp = plan_.pp;

  // Step 1: the pipeline. Stages that look alike cost alike; compute each kind once.
  Seconds sum;
  Seconds slowest;
  Seconds gather_exposed;
  Seconds forward_before;  // forward time of earlier stages: a later stage's gather hides there
  StageTimes times;
  const auto same_as_previous = [&](int stage) {
    if (stage <= 1 || stage == pp - 1) return false;
    const auto s = static_cast<std::size_t>(stage);
    return plan_.layers_per_stage[s] == plan_.layers_per_stage[s - 1] &&
           (plan_.recompute != Recompute::full ||
            plan_.recompute_layers[s] == plan_.recompute_layers[s - 1]);
  };
  Seconds gather;
  for (int stage = 0; stage < pp; ++stage) {
    if (!same_as_previous(stage)) {
      times = stage_times(stage, traffic);
      gather = parameter_gather(stage, times);
    }
    sum += times.total();
    slowest = std::max(slowest, times.total());
    gather_exposed = std::max(gather_exposed, gather - forward_before);
    forward_before += times.forward / plan_.vpp + hop_;
  }
  const double m = static_cast<double>(m_);
  const Seconds fill_hops = 2.0 * (pp - 1) * hop_;
  const Seconds steady = (m - 1) * steady_hops(slowest);
  const Seconds pipeline =
      pipeline_time(plan_.schedule, sum, slowest, plan_.vpp, m_) + fill_hops + steady;

  // Step 2: each stage ends its last backward, finishes its reduction and updates its weights; the
  // step ends with the last of them.
  Seconds backward_before;  // last microbatch's backward still to run on earlier stages
  Seconds latest{-1};
  CostBreakdown& parts = out.parts;
  Seconds reduction;
  Seconds optimizer;
  for (int stage = 0; stage < pp; ++stage) {
    if (!same_as_previous(stage)) {
      times = stage_times(stage, traffic);
      reduction = gradient_reduction(stage, times) + tied_embedding_sync(stage);
      optimizer = optimizer_time(stage);
    }
    const Seconds end = pipeline - backward_before;
    const Seconds finish = end + reduction + optimizer;
    backward_before += times.backward / plan_.vpp + hop_;
    if (finish <= latest) continue;
    latest = finish;
    parts = CostBreakdown{};
    parts.compute = m * times.compute;
    parts.recompute = m * times.recompute;
    parts.tp_comm_exposed = m * times.tp;
    parts.host = m * times.host;
    parts.pp_comm_exposed = steady;
    parts.bubble = std::max(Seconds{}, end - m * times.total() - steady);
    parts.dp_comm_exposed = m * times.dp + reduction + gather_exposed;
    parts.optimizer = optimizer;
  }

  // Step 3: what every step pays, and the wait for the slowest of many nodes.
  parts.host += c_.step_fixed;
  const int nodes = pricer_.cluster().nodes();
  if (nodes > 1) {
    const Seconds wait = c_.straggler_per_doubling * std::log2(nodes) * parts.total();
    (plan_.dp > 1 ? parts.dp_comm_exposed : parts.bubble) += wait;
  }
  out.step = parts.total();
  out.low = out.step * (1 - c_.time_band);
  out.high = out.step * (1 + c_.time_band);
}

void Pricer::price_time(const ParallelPlan& plan, const CutCosts& costs,
                        TimePrediction& out) const {
  StepTime(*this, plan, costs).price(out);
}

}  // namespace echelon
