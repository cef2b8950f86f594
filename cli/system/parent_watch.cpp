#include "cli/system/parent_watch.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdint>

namespace echelon::cli {

ParentWatch::ParentWatch() : end_(::eventfd(0, EFD_CLOEXEC)) {
  const int parent = static_cast<int>(::syscall(SYS_pidfd_open, ::getppid(), 0));
  if (parent < 0) return;
  thread_ = std::jthread([end = end_, parent] {
    std::array<pollfd, 2> files{{{end, POLLIN, 0}, {parent, POLLIN, 0}}};
    while (::poll(files.data(), files.size(), -1) < 0) {  // a signal
    }
    if (files[0].revents == 0) ::kill(::getpid(), SIGTERM);
    ::close(parent);
  });
}

ParentWatch::~ParentWatch() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(end_, &one, sizeof one);
  if (thread_.joinable()) thread_.join();
  ::close(end_);
}

}  // namespace echelon::cli
