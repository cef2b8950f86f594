#include "costmodel/time/hidden_exchange.hpp"

#include <algorithm>

namespace echelon {
namespace {

/// Share of dispatch and combine that another microbatch's kernels cover.
double paired_share(const PairedLayer& pair) {
  const Seconds all = pair.dispatch + pair.combine + pair.dispatch_backward + pair.combine_backward;
  return all > Seconds{} ? std::max(0.0, 1 - exposed_of_pair(pair) / all) : 0.0;
}

}  // namespace

HiddenExchange hidden_exchange(const PairedLayer& layer, const OperatorContext& c) {
  if (!c.sharding.overlap_ep && !c.sharding.overlap_shared) return {};
  const double slowdown = exchange_slowdown(c.sharding.dispatcher, c.links[Axis::ep], c.sms,
                                            c.calibration.overlap_slowdown);
  const double gain = c.calibration.dp_overlap * std::max(0.0, 1 - slowdown);
  if (c.sharding.overlap_ep) {
    const double share = gain * paired_share(layer);
    return {share * (layer.dispatch + layer.combine),
            share * (layer.dispatch_backward + layer.combine_backward)};
  }
  return {gain * (std::min(layer.dispatch, layer.shared_up) +
                  std::min(layer.combine, layer.shared_down)),
          gain * (std::min(layer.dispatch_backward, layer.shared_up_backward) +
                  std::min(layer.combine_backward, layer.shared_down_backward))};
}

}  // namespace echelon
