// Sees when another process of the run is gone, although nobody calls MPI.
#pragma once

#include <sys/types.h>

#include <thread>
#include <vector>

#include "runtime/crew.hpp"

namespace echelon::mpi {

struct Neighbour {
  int rank = 0;
  pid_t process = 0;
};

/// Before the process has threads: SIGTERM waits until somebody watches.
void hold_sigterm();

/// A thread that ends the crew when a process on this machine ends, or SIGTERM comes: that is how
/// mpirun ends all processes when one of them, on whatever machine, is gone, and when its user
/// wants it to.
class Watch {
 public:
  Watch(Crew& crew, const std::vector<Neighbour>& neighbours);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  int end_;  ///< eventfd
  std::jthread thread_;
};

}  // namespace echelon::mpi
