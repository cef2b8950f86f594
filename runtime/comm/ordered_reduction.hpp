// The arithmetic of all_reduce and reduce_scatter, the same for every backend on the host.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/comm/communicator.hpp"

namespace echelon {

/// out[k][out_at + i] = in[0][in_at + i] ∘ in[1][in_at + i] ∘ ..., in this order, in the
/// accumulator type of the element, rounded once; the same into every `out`. An `out` may be an
/// `in` when in_at = out_at or the ranges are disjoint. i32 is summed modulo 2^32; a maximum with
/// NaN is NaN. Checked by: tests/runtime/comm/ordered_reduction_test.cpp.
void reduce_in_order(std::span<const void* const> in, std::int64_t in_at,
                     std::span<void* const> out, std::int64_t out_at, std::int64_t count,
                     Element element, Reduction how);

}  // namespace echelon
