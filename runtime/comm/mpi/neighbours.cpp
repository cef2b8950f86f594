#include "runtime/comm/mpi/neighbours.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

#include "core/base/expects.hpp"

namespace echelon::mpi {
namespace {

/// mpirun kills the remaining processes a second after its SIGTERM, or the seconds that `plan run`
/// sets (odls_base_sigkill_timeout); until then the lost process may be found.
constexpr int kLookRoundMilliseconds = 200;

sigset_t sigterm_alone() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  return set;
}

bool is_ready(const pollfd& file) { return (file.revents & (POLLIN | POLLHUP | POLLERR)) != 0; }

/// Descriptors 0 and 1: the end of the watch, signals; then one per neighbour.
void watch(RunThreads& run_threads, std::vector<pollfd> files,
           const std::vector<Neighbour>& neighbours) {
  bool term = false;
  for (;;) {
    const int ready = ::poll(files.data(), files.size(), term ? kLookRoundMilliseconds : -1);
    if (ready < 0) continue;  // a signal that is not ours
    if (is_ready(files[0])) break;
    for (std::size_t i = 0; i < neighbours.size(); ++i) {
      if (!is_ready(files[2 + i])) continue;
      run_threads.stop(RunFailure::Kind::peer_lost, "rank " + std::to_string(neighbours[i].rank) +
                                                        " is gone: its process " +
                                                        std::to_string(neighbours[i].process) +
                                                        " ended in the middle of the run");
      files[2 + i].fd = -1;
      term = false;
    }
    if (term && ready == 0) {
      run_threads.stop(RunFailure::Kind::stopped,
                       "SIGTERM: mpirun ended the run, on request or because a process on another "
                       "machine is gone");
      term = false;
    }
    if (is_ready(files[1])) {
      signalfd_siginfo which{};
      term = ::read(files[1].fd, &which, sizeof which) == sizeof which && !run_threads.stopping();
    }
  }
  for (std::size_t i = 1; i < files.size(); ++i) {
    if (files[i].fd >= 0) ::close(files[i].fd);
  }
}

}  // namespace

void hold_sigterm() {
  const sigset_t set = sigterm_alone();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

Watch::Watch(RunThreads& run_threads, const std::vector<Neighbour>& neighbours)
    : end_(::eventfd(0, EFD_CLOEXEC)) {
  EXPECTS(end_ >= 0, "a process may have a few files");
  const sigset_t set = sigterm_alone();
  std::vector<pollfd> files{{end_, POLLIN, 0},
                            {::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK), POLLIN, 0}};
  for (const Neighbour& neighbour : neighbours) {
    // -1, which poll ignores, on kernels before 5.3: then only mpirun detects it.
    files.push_back({static_cast<int>(::syscall(SYS_pidfd_open, neighbour.process, 0)), POLLIN, 0});
  }
  thread_ =
      std::jthread([&run_threads, files, neighbours] { watch(run_threads, files, neighbours); });
}

Watch::~Watch() {
  const std::uint64_t one = 1;
  EXPECTS(::write(end_, &one, sizeof one) == sizeof one, "an eventfd takes a number");
  thread_.join();
  ::close(end_);
}

}  // namespace echelon::mpi
