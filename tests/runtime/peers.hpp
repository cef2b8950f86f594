// What processes do that must come to the bits of threads, whatever carries their messages.
#pragma once

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "runtime/failure.hpp"
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

/// For ever, so that only a failure ends it.
[[noreturn]] inline void reduce_for_ever(Communicator& line) {
  for (;;) {
    double one = 1;
    line.all_reduce(&one, 1, Element::f64, Reduction::sum);
    if (one != line.size()) throw RunFailure(RunFailure::Kind::defect, "wrong sum");
  }
}

/// What a member does of which the last one fails as `what` says: "disagree", "message", "absent"
/// for so long, "throw". False: as none of these.
inline bool fail_as(const std::string& what, Communicator& line, Seconds away) {
  std::vector<float> data(1'000'000, 1.0F);
  const bool odd_one = line.rank() + 1 == line.size();
  if (what == "disagree") {
    odd_one ? line.all_gather(data.data(), data.data(), 32, Element::f32)
            : line.all_reduce(data.data(), 64, Element::f32, Reduction::sum);
  } else if (what == "message") {
    if (line.rank() == 0) line.send(data.data(), 100, Element::f32, 1);
    if (line.rank() == 1) line.receive(data.data(), 99, Element::f32, 0);
    line.barrier();
  } else if (what == "absent") {
    if (odd_one) std::this_thread::sleep_for(std::chrono::duration<double>(away.in(kSecond)));
    line.all_reduce(data.data(), static_cast<std::int64_t>(data.size()), Element::f32,
                    Reduction::sum);
  } else if (what == "throw") {
    if (odd_one) throw RunFailure(RunFailure::Kind::diverged, "loss is NaN");
    reduce_for_ever(line);
  } else {
    return false;
  }
  return true;
}

}  // namespace echelon
