// Which checkpoints are kept, and the disk space they need.
#pragma once

#include <cstdint>
#include <vector>

namespace echelon {

struct KeepPolicy {
  std::int64_t last = 2;   ///< newest ones; 0: all
  std::int64_t every = 0;  ///< and those of steps that it divides; 0: none
  bool operator==(const KeepPolicy&) const = default;
};

/// Of checkpoints after `steps` steps each, in any order: those to remove when the one of `newest`
/// is complete. Later ones than that, which are damaged or of a run that went on from an earlier
/// step, stay.
[[nodiscard]] std::vector<std::int64_t> superseded(std::vector<std::int64_t> steps,
                                                   std::int64_t newest, const KeepPolicy& keep);

/// The steps after which a run from step `first` to step `last` writes one.
[[nodiscard]] std::vector<std::int64_t> planned_checkpoints(std::int64_t first, std::int64_t last,
                                                            std::int64_t every);
/// The most checkpoints on the disk at a time, the one that is being written included, for a run
/// that writes `planned` (ascending) where those of `existing` are.
[[nodiscard]] std::int64_t most_at_once(const std::vector<std::int64_t>& existing,
                                        const std::vector<std::int64_t>& planned,
                                        const KeepPolicy& keep);

}  // namespace echelon
