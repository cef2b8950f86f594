// Emulated GPUs for plan-run: PRETENDED_GPUS gives their number, or CUDA_VISIBLE_DEVICES lists them
// one after the other. With PRETENDED_NETWORK every process behaves as if on its own computer.
#include <algorithm>
#include <cstdlib>
#include <string>

#include "tests/runtime/cuda/backend/small_cases.hpp"
#include "tests/runtime/cuda/standins/settings.hpp"

namespace echelon {
namespace {

/// Runs when the plugin is loaded.
const bool kStarted = [] {
  const char* count = std::getenv("PRETENDED_GPUS");
  const char* mebibytes = std::getenv("PRETENDED_MEBIBYTES");
  standins::Settings machine;
  machine.devices = count == nullptr ? 1 : std::max(1, std::atoi(count));
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES"); visible != nullptr) {
    const std::string list = visible;
    machine.first_device = std::atoi(visible);
    machine.devices =
        static_cast<int>(std::count(list.begin(), list.end(), ',')) + (list.empty() ? 0 : 1);
  }
  machine.cache_bytes = 1 << 20;
  machine.over_network = std::getenv("PRETENDED_NETWORK") != nullptr;
  if (mebibytes != nullptr)
    machine.device_bytes = static_cast<std::size_t>(std::atoi(mebibytes)) << 20U;
  standins::start(machine);
  return true;
}();

}  // namespace

/// The work that emulated threads can do within a test's time.
cuda::MeasuredSizes cuda::usual_sizes() {
  MeasuredSizes sizes = small_sizes();
  sizes.max_time = Seconds{20};
  return sizes;
}

}  // namespace echelon
