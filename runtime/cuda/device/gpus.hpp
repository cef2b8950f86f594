// Assignment of ranks to GPUs.
#pragma once

#include <cuda_runtime_api.h>

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

/// The place of a rank, as all processes see it.
struct Seat {
  std::string host;
  std::string gpu;  ///< its bus address on that host
};

/// Why CUDA counts no GPUs, of its answer and of the versions that the driver (0: there is none)
/// and this build's runtime support, as 1000 · major + 10 · minor.
[[nodiscard]] std::string why_no_gpu(cudaError_t status, int driver, int runtime);
/// Number of visible GPUs. Error (environment): none, no driver, or one too old.
[[nodiscard]] Result<int> count_gpus();

/// `seats`: by rank; `in_one_process`: all ranks of the run are. Error (environment): ranks share a
/// GPU although they cannot: NCCL supports one rank per GPU, and our replacement needs all ranks in
/// one process, on one GPU, at most kMaxMembers of them.
[[nodiscard]] Result<bool> are_shared(const std::vector<Seat>& seats, bool in_one_process);

/// For the local ranks: of those of a host that see the same GPUs, the n-th takes GPU n mod the
/// number of these. All processes call it, before the run's threads start: ranks exchange their
/// places on GroupRole::control. All processes get the same answer about sharing.
[[nodiscard]] Result<Gpus> choose_gpus(RunThreads& run_threads, World& host);

}  // namespace echelon::cuda
