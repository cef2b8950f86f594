#include "runtime/cuda/device/checks.hpp"

#include "runtime/threads/failure.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/text.hpp"

using namespace echelon;
using echelon::test::lacks;

TEST_CASE("errors of the GPU are the environment's, exhausted memory is memory, others are ours") {
  struct Case {
    cudaError_t status;
    int exit_code;
    bool drains;
  };
  for (const Case& each :
       {Case{cudaErrorECCUncorrectable, 3, true}, Case{cudaErrorNvlinkUncorrectable, 3, true},
        Case{static_cast<cudaError_t>(226), 3, true}, Case{cudaErrorHardwareStackError, 3, true},
        Case{cudaErrorDevicesUnavailable, 3, true}, Case{cudaErrorSystemNotReady, 3, true},
        Case{cudaErrorMemoryAllocation, 5, false}, Case{cudaErrorInvalidValue, 70, false},
        Case{cudaErrorLaunchFailure, 70, false}}) {
    INFO(static_cast<int>(each.status));
    try {
      cuda::check(each.status, "run a step");
      FAIL("nothing was thrown");
    } catch (const RunFailure& failure) {
      CHECK(exit_code_of(failure.kind()) == each.exit_code);
      CHECK(lacks(failure.what(), "run a step: CUDA says ") == "");
      CHECK(lacks(failure.what(), "take this node out of service").empty() == each.drains);
    }
  }
  cuda::check(cudaSuccess, "run a step");
}
