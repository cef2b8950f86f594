#include "costmodel/cost_model.hpp"

#include "core/base/expects.hpp"

namespace echelon {

namespace {

/// With adapters: frozen weights are multiplied forward and for their input's gradient, adapters
/// for their own as well.
Flops model_flops_per_token(const ModelSpec& model, const TrainingJob& job,
                            const Framework& framework) {
  const Flops model_flops = model.flops_per_token(job.document_span(), job.adapters.has_value());
  if (!job.adapters) return model_flops;
  const std::int64_t adapters =
      adapter_parameters(model, *job.adapters, framework.adapts_each_module);
  return model_flops + Flops{6 * static_cast<double>(adapters)};
}

}  // namespace

CostModel::CostModel(const ModelSpec& model, const TrainingJob& job, const ClusterTopology& cluster,
                     const Framework& framework, const Calibration& calibration)
    : model_(model),
      job_(job),
      cluster_(cluster),
      framework_(framework),
      calibration_(calibration),
      peak_(cluster.gpu().peak(job.precision.compute)),
      flops_per_token_(model_flops_per_token(model, job, framework)) {
  EXPECTS(peak_ > FlopsPerSecond{}, "the GPU has no units for the job's dtype");
  moe_before_.assign(static_cast<std::size_t>(model.layers) + 1, 0);
  for (int layer = 0; layer < model.layers; ++layer) {
    const auto l = static_cast<std::size_t>(layer);
    moe_before_[l + 1] = moe_before_[l] + (model.layer_kind(layer) == LayerKind::moe ? 1 : 0);
  }
}

GroupLinks CostModel::links(RankGroup group) const {
  const GroupNetwork network = cluster_.group(group);
  GroupLinks links = apply(network, calibration_);
  if (ablated_ == AblatedFeature::unshared_nics) links.inter *= network.sharing_groups;
  if (ablated_ == AblatedFeature::single_nics) links.inter = links.inter_per_rank;
  return links;
}

GroupLinks CostModel::data_links(RankGroup of) const {
  GroupLinks group = links(of);
  if (!network_ || group.domains < 2) return group;
  const NodeSpec& node = cluster_.node();
  const BytesPerSecond described = node.nics * node.nic * calibration_.nic_efficiency;
  const double share = std::min(1.0, network_->bandwidth().in(described));
  group.inter *= share;
  group.inter_per_rank *= share;
  group.inter_exchange *= share;
  if (network_->hop <= Seconds{}) return group;
  group.intra_hop += calibration_.ring_latency_factor * network_->device_hop();
  group.inter_hop = network_->stalls() ? calibration_.bulk_latency_factor * network_->hop
                                       : network_->device_hop();
  return group;
}

Seconds CostModel::host_ring_step() const {
  if (!network_ || !network_->stalls()) return Seconds{};
  return calibration_.host_latency_factor / 8 * network_->hop;
}

Seconds CostModel::host_network_step() const {
  constexpr Seconds kUsual = 250_us;
  if (!network_ || network_->hop <= Seconds{}) return Seconds{};
  return calibration_.layer_latency_factor * kUsual;
}

PlanCosts CostModel::price(const ParallelPlan& plan) const {
  PlanCosts prediction;
  price(plan, sharding_costs(plan), prediction);
  return prediction;
}

void CostModel::price(const ParallelPlan& plan, const ShardingCosts& costs, PlanCosts& out) const {
  EXPECTS(costs.sharding == sharding_of(plan), "costs of another sharding");
  EXPECTS(plan.layers_per_stage.size() == static_cast<std::size_t>(plan.pp), "one entry per stage");
  price_memory(plan, costs, out.memory);
  price_time(plan, costs, out.memory.contents, out.time);
  price_throughput(plan, out);
}

void CostModel::price_throughput(const ParallelPlan& plan, PlanCosts& out) const {
  // No rate of their kernels was measured (costmodel/operators/delta_net.cpp, state_space.cpp,
  // sparse_attention.cpp, short_convolution.cpp; of heads wider than flash attention takes).
  // And no fit has seen a run of adapters.
  const bool unmeasured = model_.delta.layers > 0 || model_.ssm.layers > 0 || model_.sparse() ||
                          model_.global.layers > 0 || model_.conv.layers > 0 ||
                          job_.adapters.has_value();
  out.evidence = unmeasured ? Evidence::extrapolated : calibration_.evidence;
  out.tokens_per_second = job_.tokens_per_step() / out.time.step.in(kSecond);
  out.model_flops_per_gpu =
      flops_per_token_ * (out.tokens_per_second / static_cast<double>(plan.gpus())) / kSecond;
  out.mfu = out.model_flops_per_gpu / peak_;
}

}  // namespace echelon
