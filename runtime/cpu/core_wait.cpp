#include "runtime/cpu/core_wait.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdint>

namespace echelon::cpu {
namespace {

/// The file of the thread that opens it; read again and again.
class SchedStat {
 public:
  SchedStat() : fd_(open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)) {}
  ~SchedStat() {
    if (fd_ >= 0) close(fd_);
  }
  SchedStat(const SchedStat&) = delete;
  SchedStat& operator=(const SchedStat&) = delete;

  [[nodiscard]] Seconds run_delay() const {
    std::array<char, 96> text{};
    const ssize_t length = fd_ < 0 ? -1 : pread(fd_, text.data(), text.size(), 0);
    if (length <= 0) return {};
    const char* const end = text.data() + length;
    const char* at = text.data();
    while (at < end && *at != ' ') ++at;
    std::uint64_t nanoseconds = 0;
    if (at < end && std::from_chars(at + 1, end, nanoseconds).ec != std::errc()) return {};
    return Seconds{1e-9 * static_cast<double>(nanoseconds)};
  }

 private:
  int fd_;
};

}  // namespace

Seconds waited_for_core() {
  thread_local const SchedStat stat;
  return stat.run_delay();
}

}  // namespace echelon::cpu
