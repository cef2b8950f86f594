// Which GPU each rank computes on.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/base/result.hpp"
#include "runtime/comm/world.hpp"
#include "runtime/threads/run_threads.hpp"

namespace echelon::cuda {

struct Gpus {
  std::map<int, int> device;  ///< of the CUDA runtime, by local rank
  bool shared = false;        ///< all ranks of the run are on one; otherwise each has its own
};

/// Where a rank came to be, as all processes see it.
struct Seat {
  std::string host;
  std::string gpu;  ///< the address of its bus on that host
};

/// How many there are that CUDA lets us see. Error (environment): none, or no driver.
[[nodiscard]] Result<int> count_gpus();

/// `seats`: by rank; `in_one_process`: all ranks of the run are. Error (environment): ranks share a
/// GPU that cannot: NCCL takes one rank per GPU, and what we have instead needs all ranks in one
/// process, on one GPU, kMaxMembers of them.
[[nodiscard]] Result<bool> are_shared(const std::vector<Seat>& seats, bool in_one_process);

/// For the local ranks: of those of a host that see the same GPUs, the n-th takes GPU n mod the
/// number of these. All processes call it, before the run's threads start: ranks tell each other
/// where they are on GroupRole::control. What it says of sharing is the same everywhere.
[[nodiscard]] Result<Gpus> choose_gpus(RunThreads& run_threads, World& host);

}  // namespace echelon::cuda
