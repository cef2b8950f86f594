// Named parts of a prediction. The parts are all there is: total() is their sum.
#pragma once

#include <array>
#include <string_view>

#include "core/units.hpp"

namespace echelon {

/// Where a number comes from; a prediction is no better than its weakest rate.
enum class Evidence { measured, calibrated, extrapolated };
[[nodiscard]] std::string_view name_of(Evidence evidence);

/// Peak device memory of one pipeline stage (every rank of the stage holds the same).
struct MemoryBreakdown {
  Bytes weights;
  Bytes gradients;
  Bytes optimizer;      ///< master weights and Adam moments
  Bytes activations;    ///< saved for backward, all microbatches in flight, logits and loss
  Bytes workspace;      ///< transient tensors of the running layer, GEMM workspace
  Bytes communication;  ///< gather and bucket buffers, NCCL's own buffers
  Bytes context;        ///< CUDA context and loaded libraries

  [[nodiscard]] Bytes total() const {
    return weights + gradients + optimizer + activations + workspace + communication + context;
  }
  bool operator==(const MemoryBreakdown&) const = default;
};

/// The parts by what files and messages call them.
struct NamedMemory {
  std::string_view name;
  Bytes MemoryBreakdown::*part;
};
inline constexpr std::array<NamedMemory, 7> kMemoryParts = {
    {{"weights", &MemoryBreakdown::weights},
     {"gradients", &MemoryBreakdown::gradients},
     {"optimizer", &MemoryBreakdown::optimizer},
     {"activations", &MemoryBreakdown::activations},
     {"workspace", &MemoryBreakdown::workspace},
     {"communication", &MemoryBreakdown::communication},
     {"context", &MemoryBreakdown::context}}};

/// One optimizer step on the rank that finishes last. *Exposed* communication is time its compute
/// queue waits on that collective; *bubble* is waiting on pipeline receives.
struct CostBreakdown {
  Seconds compute;
  Seconds recompute;
  Seconds tp_comm_exposed;
  Seconds cp_comm_exposed;
  Seconds ep_comm_exposed;
  Seconds pp_comm_exposed;
  Seconds dp_comm_exposed;
  Seconds bubble;
  Seconds optimizer;
  Seconds host;  ///< GPU waiting for the host to launch work; fixed work per step
  Seconds data;

  [[nodiscard]] Seconds total() const {
    return compute + recompute + tp_comm_exposed + cp_comm_exposed + ep_comm_exposed +
           pp_comm_exposed + dp_comm_exposed + bubble + optimizer + host + data;
  }
  bool operator==(const CostBreakdown&) const = default;
};

}  // namespace echelon
