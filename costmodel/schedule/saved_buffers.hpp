// Which chunks the buffers of saved activations serve, where they are allocated before the first
// step.
#pragma once

#include <vector>

#include "costmodel/schedule/compute_order.hpp"

namespace echelon {

/// Buffers of one rank that serve the same chunks.
struct BuffersAlike {
  std::vector<int> chunks;  ///< in increasing order
  double count = 0;
};

/// The buffers of saved activations of one rank, one for each chunk that a microbatch has in flight
/// there: a forward takes the first free one, whatever its chunk, and its backward frees it. They
/// follow from the schedule alone, so each shape and rank is found once, for all threads.
/// Source: costmodel/schedule/buffer_allocation.cpp, which gives them to a lowered plan.
/// Checked by: tests/costmodel/schedule/saved_buffers_test.cpp.
[[nodiscard]] const std::vector<BuffersAlike>& saved_buffers(const PipelineShape& shape, int rank);

}  // namespace echelon
