#include "runtime/io/weights/retention.hpp"

#include <algorithm>

namespace echelon {

std::vector<std::int64_t> superseded(std::vector<std::int64_t> steps, std::int64_t newest,
                                     const KeepPolicy& keep) {
  std::sort(steps.rbegin(), steps.rend());
  std::vector<std::int64_t> out;
  std::int64_t kept = 0;
  for (const std::int64_t step : steps) {
    if (step > newest || keep.last == 0 || kept++ < keep.last) continue;
    if (keep.every > 0 && step % keep.every == 0) continue;
    out.push_back(step);
  }
  return out;
}

std::vector<std::int64_t> planned_checkpoints(std::int64_t first, std::int64_t last,
                                              std::int64_t every) {
  std::vector<std::int64_t> steps;
  if (every > 0) {
    for (std::int64_t step = (first / every + 1) * every; step < last; step += every)
      steps.push_back(step);
  }
  if (last > first) steps.push_back(last);
  return steps;
}

/// Old ones go when a new one is complete, so the most are there while the first is written, or the
/// last.
std::int64_t most_at_once(const std::vector<std::int64_t>& existing,
                          const std::vector<std::int64_t>& planned, const KeepPolicy& keep) {
  if (planned.empty()) return static_cast<std::int64_t>(existing.size());
  const auto at_first = static_cast<std::int64_t>(existing.size()) + 1;
  if (planned.size() == 1) return at_first;
  std::vector<std::int64_t> before = existing;
  before.insert(before.end(), planned.begin(), planned.end() - 1);
  std::sort(before.begin(), before.end());
  before.erase(std::unique(before.begin(), before.end()), before.end());
  const std::vector<std::int64_t> gone = superseded(before, planned[planned.size() - 2], keep);
  return std::max(at_first, static_cast<std::int64_t>(before.size() - gone.size()) + 1);
}

}  // namespace echelon
