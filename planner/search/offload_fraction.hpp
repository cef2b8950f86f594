// Step 4 for optimizers that are offloaded in part.
#pragma once

#include <array>
#include <vector>

#include "planner/search/visit_point.hpp"

namespace echelon {

/// The parts of the optimizer that are offloaded besides none and all. Megatron-Core takes any
/// fraction (--optimizer-offload-fraction); the best fifth costs at most a fifth of what offloading
/// all does more than the best fraction.
inline constexpr std::array kOffloadParts{0.2, 0.4, 0.6, 0.8};

/// The fractions of the optimizer to try for a point, ascending: its own, and where that is a part
/// that the request leaves open the larger parts that the hosts hold.
[[nodiscard]] std::vector<double> offload_fractions(const SearchContext& context,
                                                    const SearchPoint& point);

/// Opens the partition of `point`, whose optimizer is offloaded as far as may be, with a smaller
/// part of it offloaded: from the smallest fraction on with which it may fit into `limit` and still
/// be listed. Memory falls with the fraction and the step rises, so there is nothing to open where
/// the balanced plan fits with no recomputation and no offload. `bound`: of the point's degrees and
/// schedule. Returns whether it opened one.
bool open_offload_fractions(const SearchContext& context, SearchPoint point,
                            const PointBound& bound, Bytes limit, Findings& found, Priced& work);

}  // namespace echelon
