#include "costmodel/schedule/gather_slots.hpp"

#include <algorithm>

#include "core/base/expects.hpp"

namespace echelon {
namespace {

struct Held {
  GatherUnit unit;
  std::size_t last = 0;  ///< latest use, and the one after it
  std::size_t next = 0;
};

/// When each use's unit is needed next; behind the last use: never again.
std::vector<std::size_t> next_uses(std::span<const GatherUnit> uses) {
  int chunks = 0;
  int units = 0;
  for (const GatherUnit& use : uses) {
    chunks = std::max(chunks, use.chunk + 1);
    units = std::max(units, use.unit.value_or(0) + 1);
  }
  const auto width = static_cast<std::size_t>(units + 1);
  std::vector<std::size_t> later(static_cast<std::size_t>(chunks) * width, uses.size());
  std::vector<std::size_t> next(uses.size());
  for (std::size_t use = uses.size(); use-- > 0;) {
    const auto place = static_cast<std::size_t>(uses[use].unit.value_or(-1) + 1);
    std::size_t& known = later[static_cast<std::size_t>(uses[use].chunk) * width + place];
    next[use] = known;
    known = use;
  }
  return next;
}

}  // namespace

std::vector<GatherSlot> gather_slots(std::span<const GatherUnit> uses, int slots) {
  EXPECTS(slots >= 1, "a gathered unit needs a place");
  const std::vector<std::size_t> next = next_uses(uses);
  std::vector<Held> held;
  std::vector<GatherSlot> out;
  out.reserve(uses.size());
  for (std::size_t use = 0; use < uses.size(); ++use) {
    auto at = std::ranges::find(held, uses[use], &Held::unit);
    const bool gathered = at == held.end();
    if (gathered && held.size() < static_cast<std::size_t>(slots)) {
      at = held.insert(held.end(), Held{});
    } else if (gathered) {
      const auto stays_longer = [&](const Held& a, const Held& b) {
        const bool a_runs = slots > 1 && a.last + 1 == use;
        const bool b_runs = slots > 1 && b.last + 1 == use;
        if (a_runs != b_runs) return a_runs;
        return a.next != b.next ? a.next < b.next : b.unit < a.unit;
      };
      at = std::ranges::max_element(held, stays_longer);
    }
    *at = {uses[use], use, next[use]};
    out.push_back({static_cast<std::size_t>(at - held.begin()), gathered});
  }
  return out;
}

}  // namespace echelon
