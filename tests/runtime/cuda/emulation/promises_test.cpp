// Properties of all kernels that can be tested only where the test controls the order of threads.
#include <map>

#include "tests/runtime/cuda/emulation/block.hpp"
#include "tests/runtime/cuda/kernels/kernel_runs.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

/// Changed for a test, and restored.
class Changed {
 public:
  Changed() : before_(emulation::settings()) {}
  Changed(const Changed&) = delete;
  Changed& operator=(const Changed&) = delete;
  ~Changed() { emulation::settings() = before_; }

 private:
  emulation::Settings before_;
};

TEST_CASE("CUDA kernels give the same bits in every order of threads and blocks") {
  for (const KernelRun& run : all_kernel_runs()) {
    CAPTURE(run.name);
    const std::string first = run.bits();
    for (const std::uint64_t seed : {2U, 3U}) {
      const Changed changed;
      emulation::settings().seed = seed;
      CHECK(run.bits() == first);
    }
  }
}

/// A fault, or different bits.
bool seen(const KernelRun& run, const std::string& expected) {
  try {
    return run.bits() != expected;
  } catch (const emulation::Fault&) {
    return true;
  }
}

TEST_CASE("a missing barrier or wait of a CUDA kernel is detected") {
  std::map<emulation::Place, bool> all;
  for (const KernelRun& run : all_kernel_runs()) {
    emulation::places().clear();
    const std::string expected = run.bits();
    for (const emulation::Place& place : std::set(emulation::places())) {
      if (all[place]) continue;
      const Changed changed;
      emulation::settings().dropped = place;
      all[place] = seen(run, expected);
    }
  }
  CHECK(all.size() >= 3);
  for (const auto& [place, found] : all) {
    CAPTURE(place.file, place.line);
    CHECK(found);
  }
}

}  // namespace
}  // namespace echelon
