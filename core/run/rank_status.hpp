// What each rank of a run does at a moment, and which of them holds up the others.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/units.hpp"

namespace echelon {

/// The state of one rank.
struct RankProgress {
  enum class State : std::int32_t {
    idle,   ///< waits for itself, or has ended
    works,  ///< one of its queues waits for nobody
    waits   ///< for other ranks
  };
  int rank = 0;
  State state = State::idle;
  std::uint64_t order = 0;   ///< place of `at` in the run: later activities have larger numbers
  Seconds lasting;           ///< how long the state has lasted
  std::string at;            ///< activity, with what it waits for
  std::vector<int> missing;  ///< of `waits`
};

/// The state of one rank, as known to the one who judges.
struct RankStatus {
  RankProgress progress;
  Seconds silent;  ///< since the last sign of life of its process; 0 in this one
};

/// The rank that holds up the run.
struct Suspect {
  enum class Why : std::int32_t {
    silent,  ///< nothing arrives from its process: it is stopped, or its machine is
    works,   ///< others wait for it, and it waits for nobody
    absent   ///< a wait names it, and it is elsewhere
  };
  int rank = 0;
  Why why = Why::silent;
  Seconds lasting;   ///< of `silent` and `works`
  std::string what;  ///< what it does; of `absent`: what it has not joined
};
/// "rank 2 has sent nothing for 8.0 s, last seen at step 44 #13 forward c0 m1"
[[nodiscard]] std::string describe(const Suspect& suspect);

/// A process that has sent nothing for longer than `patience` is the suspect, else the rank that
/// has worked longest, for longer than that; else the first that the earliest wait of the run
/// misses, where possible one that does not wait at that place or before it itself.
/// Checked by: tests/core/run/rank_status_test.cpp.
[[nodiscard]] std::optional<Suspect> judge(std::span<const RankStatus> ranks, Seconds patience);

}  // namespace echelon
