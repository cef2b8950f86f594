// What the host launches itself of a layer whose kernels are replayed as CUDA graphs.
#pragma once

#include "core/plan/parallel_plan.hpp"

namespace echelon {

/// Shares of a layer's launches, and of what experts add to them, that the host makes itself.
struct HostShares {
  double layer = 1;
  double experts = 1;
};

/// Graphs of layers hold attention, router and preprocessing of a layer with experts, half of its
/// launches; dispatch, grouped GEMMs and combine wait for token counts. A dense layer is one graph
/// in place of about 20 kernels. Source: Megatron-LM d98e8a64, docs/cuda_graph.md. Checked by:
/// tests/costmodel/operators/experts_test.cpp.
[[nodiscard]] inline HostShares host_shares(CudaGraphs graphs, bool experts) {
  switch (graphs) {
    case CudaGraphs::none: return {};
    case CudaGraphs::layers: return experts ? HostShares{0.5, 0.5} : HostShares{0.05, 1};
    case CudaGraphs::full_iteration: break;
  }
  return {0, 0};
}

}  // namespace echelon
