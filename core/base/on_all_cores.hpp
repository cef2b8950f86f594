// Independent pieces of work, on all cores that the process may use.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

namespace echelon {

/// Calls work(i) once for every i below `count`. The calls run in any order and at once: none may
/// read what another writes, and none may throw. All have returned when this returns.
template <class Work>
void on_all_cores(std::size_t count, const Work& work) {
  std::atomic<std::size_t> next{0};
  const auto take_turns = [&] {
    for (std::size_t i = next++; i < count; i = next++) work(i);
  };
  const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
  std::vector<std::jthread> others;  // which join when they go
  for (std::size_t n = 1; n < std::min(cores, count); ++n) others.emplace_back(take_turns);
  take_turns();
}

}  // namespace echelon
