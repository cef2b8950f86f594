// GPUs for plan-run that are not there: as many as PRETENDED_GPUS says.
#include <algorithm>
#include <cstdlib>

#include "tests/runtime/cuda/backend/small_cases.hpp"
#include "tests/runtime/cuda/standins/settings.hpp"

namespace echelon {
namespace {

/// When the plugin is loaded.
const bool kStarted = [] {
  const char* count = std::getenv("PRETENDED_GPUS");
  const char* mebibytes = std::getenv("PRETENDED_MEBIBYTES");
  standins::Settings machine;
  machine.devices = count == nullptr ? 1 : std::max(1, std::atoi(count));
  if (mebibytes != nullptr)
    machine.device_bytes = static_cast<std::size_t>(std::atoi(mebibytes)) << 20U;
  standins::start(machine);
  return true;
}();

}  // namespace

/// What emulated threads can do in a test's time.
cuda::MeasuredSizes cuda::usual_sizes() {
  MeasuredSizes sizes = small_sizes();
  sizes.most = Seconds{20};
  return sizes;
}

}  // namespace echelon
