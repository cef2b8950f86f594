// Which gathered units of parameters a rank holds at a time (ZeRO-3).
#pragma once

#include <compare>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace echelon {

/// Gathered units that a rank has room for: the one that runs, and the next.
inline constexpr int kGatherSlots = 2;

/// Parameters that are gathered together: a unit of a chunk; none: of the whole chunk.
struct GatherUnit {
  int chunk = 0;
  std::optional<int> unit{};
  auto operator<=>(const GatherUnit&) const = default;
};

/// Where a use finds its unit.
struct GatherSlot {
  std::size_t slot = 0;
  bool gathered = false;  ///< for this use; else it was there
};

/// Uses of units in the order in which a rank computes, and `slots` places for them. A unit that is
/// needed again stays; the one that is needed last leaves (Belady), but not the one that runs
/// meanwhile.
/// Checked by: tests/costmodel/schedule/gather_slots_test.cpp.
[[nodiscard]] std::vector<GatherSlot> gather_slots(std::span<const GatherUnit> uses, int slots);

}  // namespace echelon
