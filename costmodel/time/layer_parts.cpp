// The parts of a layer that a plan recomputes or keeps in host memory, summed.
#include <algorithm>

#include "costmodel/cost_model.hpp"

namespace echelon {

RecomputedPart selective_part(const LayerCosts& layer, const Framework& framework,
                              RecomputeModules modules) {
  RecomputedPart sum;
  if (framework.recompute_modules.empty()) {
    sum.repeated = layer.selective;
    sum.freed = layer.saved - layer.saved_selective;
    return sum;
  }
  const RecomputeModules parts = disjoint_parts(modules);
  for (std::size_t i = 0; i < layer.modules.size(); ++i) {
    if (parts.contains(kRecomputeModules[i])) sum += layer.modules[i];
  }
  return sum;
}

Bytes most_freed(const LayerCosts& layer, const Framework& framework, RecomputeModules modules) {
  const RecomputeModules parts = disjoint_parts(modules);
  Bytes most;
  for (const LayerCosts::OfMixer& each : layer.of_mixers) {
    Bytes sum;
    for (std::size_t i = 0; i < each.freed.size(); ++i) {
      if (parts.contains(kRecomputeModules[i])) sum += each.freed[i];
    }
    most = std::max(most, framework.recompute_modules.empty() ? each.freed_selective : sum);
  }
  return most;
}

Bytes offloaded_bytes(const LayerCosts& layer, OffloadModules modules, RecomputeModules dropped) {
  Bytes sum;
  for (const OffloadableTensor& tensor : layer.offloadable) {
    if (modules.contains(tensor.module) && !tensor.freed_by.intersects(dropped)) {
      sum += tensor.bytes;
    }
  }
  return sum;
}

}  // namespace echelon
