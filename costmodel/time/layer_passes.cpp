// What a layer of one kind takes on a stage (stage_model.hpp), whatever else the stage holds.
#include <algorithm>

#include "costmodel/time/host_shares.hpp"
#include "costmodel/time/stage_model.hpp"

namespace echelon {
namespace {

/// The host cannot launch a layer faster than it can; the device waits for the difference.
Seconds wait_for_host(Seconds host, Seconds busy) { return std::max(Seconds{}, host - busy); }

}  // namespace

/// Where the host reads the counts of experts' rows, in a forward and in one that is repeated, the
/// device stands still for Calibration::host_wait: expert-parallel ranks wait for their exchange,
/// others for the host, which launches meanwhile.
StageModel::LayerPasses StageModel::layer_passes(const LayerCosts& layer,
                                                 const LayerTraffic& traffic,
                                                 const HostCopies& copies) const {
  const Framework& framework = cost_model_.framework();
  LayerPasses out;
  out.forward = layer.forward;
  out.backward = layer.backward;
  out.forward.exposed[Axis::ep] += unpaired_ * layer.alone_forward;
  out.backward.exposed[Axis::ep] += unpaired_ * layer.alone_backward;
  const bool exchanges = costs_.sharding.ep > 1;
  Seconds for_host;
  if (framework.awaits_counts) {
    const Seconds wait = layer.with_experts * c_.host_wait;
    (exchanges ? out.forward.exposed[Axis::ep] : for_host) += wait;
  }
  if (plan_.schedule == ScheduleKind::zero_bubble_h1)
    out.backward.exposed[Axis::tp] += layer.apart_backward;
  out.forward_total = out.forward.total();
  out.backward_total = out.backward.total();
  const auto launch = [&](Seconds host, const PassCosts& pass, double share, bool replayed) {
    const HostShares shares = host_shares(plan_, layer.experts > 0, replayed);
    const double experts =
        layer.experts > 0
            ? layer.with_experts * share *
                  expert_launches(framework, cost_model_.model().moe, recipe_, costs_.sharding.ep,
                                  {.experts = framework.host_experts_share * shares.experts,
                                   .products = framework.host_products_share * shares.products})
            : 0.0;
    const double copied = 2.0 * copies.tensors / kLaunchesOfExperts;
    return framework.host_share * shares.layer * layer.launches * host +
           (experts + copied) * c_.host_experts + pass.ring_steps * host_ring_step_ +
           pass.network_steps * host_network_step_;
  };
  for (const bool replayed : {false, true}) {
    const std::size_t i = replayed ? 1 : 0;
    out.wait_forward[i] = std::max(
        for_host, wait_for_host(launch(c_.host_layer_forward, layer.forward, 0.4, replayed),
                                out.forward_total + traffic.forward));
    out.wait_backward[i] =
        wait_for_host(launch(c_.host_layer_backward, layer.backward, 0.6, replayed),
                      out.backward_total + traffic.backward);
    if (!framework.replays_passes) break;
  }
  out.wait_recompute = std::max(
      for_host,
      wait_for_host(launch(c_.host_layer_forward, layer.forward, 0.4, false), out.forward_total));
  return out;
}

}  // namespace echelon
