#include "core/plan/cost.hpp"

namespace echelon {

StageTime stage_time(const CostBreakdown& parts) {
  return {.compute = parts.compute,
          .recompute = parts.recompute,
          .communication_wait = parts.communication(),
          .fill_drain = parts.fill_drain,
          .imbalance = parts.imbalance,
          .stragglers = parts.stragglers,
          .optimizer = parts.optimizer,
          .host = parts.host,
          .data = parts.data};
}

}  // namespace echelon
