// What processes do that must come to the bits of threads, whatever carries their messages.
#pragma once

#include <vector>

#include "runtime/world.hpp"
#include "tests/runtime/collectives.hpp"

namespace echelon {

/// 56 f32 fit the first message, 57 do not; the last is more than a slice of four processes.
inline constexpr std::int64_t kCounts[] = {0, 1, 7, 56, 57, 4099, 270'001};

inline ModelSpec peers_model() {
  ModelSpec model;
  model.kv_heads = 1;
  model.tied_embeddings = true;
  return model;
}

inline ParallelPlan peers_plan(int processes) {
  ParallelPlan plan;
  plan.tp = processes % 2 == 0 ? 2 : 1;
  plan.pp = processes % 4 == 0 ? 2 : 1;
  plan.dp = processes / plan.tp / plan.pp;
  plan.shard_group = plan.dp;
  return plan;
}

/// All that one process holds after all operations on a line.
inline Raw all_on(Communicator& line, std::uint64_t seed) {
  Raw all;
  for (const Element element : kElements) {
    for (const std::int64_t count : kCounts) {
      if (count > 10'000 && element != Element::f32) continue;
      const Raw some =
          all_operations(line, count, element, seed + static_cast<std::uint64_t>(count));
      all.insert(all.end(), some.begin(), some.end());
    }
  }
  return all;
}

/// The same between threads: by line and rank.
inline std::vector<std::vector<Raw>> by_threads_on(const ParallelPlan& plan,
                                                   const std::vector<Line>& lines) {
  Crew crew(Seconds{120});
  const auto world = thread_world(crew, plan, peers_model());
  std::vector<std::vector<Raw>> all(lines.size(),
                                    std::vector<Raw>(static_cast<std::size_t>(world->ranks())));
  for (std::size_t i = 0; i < lines.size(); ++i) {
    for (const int rank : world->local_ranks()) {
      crew.add("thread", [&, i, rank] {
        all[i][static_cast<std::size_t>(rank)] = all_on(world->at(rank, lines[i]), i);
      });
    }
  }
  crew.run();
  return all;
}

}  // namespace echelon
