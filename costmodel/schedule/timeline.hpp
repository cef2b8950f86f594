// Timeline: who did what, when. What the simulator returns.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/units.hpp"
#include "core/schedule/schedule.hpp"

namespace echelon {

/// One instruction in time. A communication starts when all its ends are ready.
struct Span {
  std::int32_t rank = 0;
  std::uint32_t id = 0;  ///< of the instruction in the rank's list
  Queue queue = Queue::compute;
  Seconds start;
  Seconds end;
  bool operator==(const Span&) const = default;
};

/// The head of a queue that never got to run.
struct Waiting {
  std::int32_t rank = 0;
  std::uint32_t id = 0;
  std::string what;  ///< "rank 1 #7 recv_f c0 m2 waits for its other end"
  bool operator==(const Waiting&) const = default;
};

struct Timeline {
  std::vector<Span> spans;        ///< by rank, then by id; those that ran
  Seconds makespan;               ///< end of the last
  std::vector<Waiting> deadlock;  ///< empty when everything ran

  [[nodiscard]] bool complete() const { return deadlock.empty(); }
  bool operator==(const Timeline&) const = default;
};

/// Share of the time of all compute queues, from zero to the makespan, in which nothing runs on
/// them: bubbles, and waits for what is not hidden.
[[nodiscard]] double idle_share(const Timeline& timeline, int ranks);

}  // namespace echelon
