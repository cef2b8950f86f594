// Detects the loss of another process of the run, independently of MPI calls.
#pragma once

#include <sys/types.h>

#include <thread>
#include <vector>

#include "runtime/threads/run_threads.hpp"

namespace echelon::mpi {

struct Neighbour {
  int rank = 0;
  pid_t process = 0;
};

/// Called before the process has threads: SIGTERM is blocked until the watch starts.
void hold_sigterm();

/// A thread that stops the run when a process on this machine ends, or on SIGTERM: mpirun sends it
/// to all processes when one of them, on any machine, is lost, and when its user interrupts it.
class Watch {
 public:
  Watch(RunThreads& run_threads, const std::vector<Neighbour>& neighbours);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  int end_;  ///< eventfd
  std::jthread thread_;
};

}  // namespace echelon::mpi
