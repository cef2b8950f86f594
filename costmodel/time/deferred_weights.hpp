// Memory between a layer's input gradient and its weight gradient, where those are computed apart.
#pragma once

#include "core/base/units.hpp"
#include "core/model/model.hpp"
#include "costmodel/operators/operators.hpp"

namespace echelon {

/// What weight gradients need next to what the forward kept, where they run later than the input
/// gradients: gradients of every product's result, 2·R·h + T·(q + k + v) + T·F; of a recomputed
/// layer attention's output too; of a fully recomputed one the sum behind it and T·f. Of n rows of
/// experts n·F, n·f and the gradients of the router's logits, T·E; of shared experts T·F, T·f and
/// T of their gate's logits; of fully recomputed ones also where the rows are. Source:
/// runtime/model/chunk_layout.hpp, ChunkMemory.
struct DeferredWeights {
  Bytes always, selective, full;
};
[[nodiscard]] DeferredWeights deferred_weights(const OperatorList& list, const ModelSpec& model);

}  // namespace echelon
