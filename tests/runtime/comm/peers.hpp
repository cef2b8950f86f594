// Work of processes that must give the bits of threads, for any transport.
#pragma once

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "runtime/comm/world.hpp"
#include "runtime/threads/failure.hpp"
#include "tests/runtime/comm/collectives.hpp"

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

/// The memory of one process after all operations in a role. Those of all ranks may be stars.
inline Raw all_on(Communicator& comm, GroupRole role, std::uint64_t seed) {
  const MessagesOf messages =
      role == GroupRole::norm || role == GroupRole::control ? MessagesOf::first : MessagesOf::all;
  Raw all;
  for (const Element element : kElements) {
    for (const std::int64_t count : kCounts) {
      if (count > 10'000 && element != Element::f32) continue;
      const Raw some =
          all_operations(comm, count, element, seed + static_cast<std::uint64_t>(count), messages);
      all.insert(all.end(), some.begin(), some.end());
    }
  }
  return all;
}

/// The same between threads: by role and rank.
inline std::vector<std::vector<Raw>> by_threads_on(const ParallelPlan& plan,
                                                   const std::vector<GroupRole>& roles) {
  RunThreads run_threads(Seconds{120});
  const auto world = thread_world(run_threads, plan, peers_model());
  std::vector<std::vector<Raw>> all(roles.size(),
                                    std::vector<Raw>(static_cast<std::size_t>(world->ranks())));
  for (std::size_t i = 0; i < roles.size(); ++i) {
    for (const int rank : world->local_ranks()) {
      run_threads.add("thread", [&, i, rank] {
        all[i][static_cast<std::size_t>(rank)] = all_on(world->at(rank, roles[i]), roles[i], i);
      });
    }
  }
  run_threads.run();
  return all;
}

/// Without end: only a failure ends it.
[[noreturn]] inline void reduce_for_ever(Communicator& comm) {
  for (;;) {
    double one = 1;
    comm.all_reduce(&one, 1, Element::f64, Reduction::sum);
    if (one != comm.size()) throw RunFailure(RunFailure::Kind::defect, "wrong sum");
  }
}

/// The work of a member, of which the last one fails as `what` says: "disagree", "parts",
/// "message", "absent" for the given time, "throw". False if `what` is none of these.
inline bool fail_as(const std::string& what, Communicator& comm, Seconds away) {
  std::vector<float> data(1'000'000, 1.0F);
  const bool odd_one = comm.rank() + 1 == comm.size();
  if (what == "disagree") {
    odd_one ? comm.all_gather(data.data(), data.data(), 32, Element::f32)
            : comm.all_reduce(data.data(), 64, Element::f32, Reduction::sum);
  } else if (what == "parts") {
    std::vector<std::int64_t> to(static_cast<std::size_t>(comm.size()), 3);
    const std::vector<std::int64_t> from = to;
    if (odd_one) to[0] = 2;
    comm.all_to_all(data.data(), to, data.data() + 500'000, from, Element::f32);
    comm.barrier();
  } else if (what == "message") {
    if (comm.rank() == 0) comm.send(data.data(), 100, Element::f32, 1);
    if (comm.rank() == 1) comm.receive(data.data(), 99, Element::f32, 0);
    comm.barrier();
  } else if (what == "absent") {
    if (odd_one) std::this_thread::sleep_for(std::chrono::duration<double>(away.in(kSecond)));
    comm.all_reduce(data.data(), static_cast<std::int64_t>(data.size()), Element::f32,
                    Reduction::sum);
  } else if (what == "throw") {
    if (odd_one) throw RunFailure(RunFailure::Kind::diverged, "loss is NaN");
    reduce_for_ever(comm);
  } else {
    return false;
  }
  return true;
}

}  // namespace echelon
