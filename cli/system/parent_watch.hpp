// ParentWatch: ends this process as SIGTERM does when the program that started it is gone.
#pragma once

#include <thread>

namespace echelon::cli {

/// While it exists. For launchers whose processes nobody ends when they are killed themselves:
/// mpirun knows of MPI programs alone. Not PR_SET_PDEATHSIG, which a launcher's thread that ends
/// would set off. Does nothing on kernels without pidfd_open(2), those before 5.3.
class ParentWatch {
 public:
  ParentWatch();
  ~ParentWatch();
  ParentWatch(const ParentWatch&) = delete;
  ParentWatch& operator=(const ParentWatch&) = delete;

 private:
  int end_;
  std::jthread thread_;
};

}  // namespace echelon::cli
