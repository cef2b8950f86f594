// The emulation detects errors that a GPU tolerates or does not report.
#include <algorithm>
#include <string>
#include <vector>

#include "runtime/cuda/kernels/common.cuh"
#include "tests/support/catch.hpp"

namespace echelon::cuda {
namespace {

/// All of the parts are in the text.
bool says(const std::string& text, const std::vector<std::string>& parts) {
  return std::all_of(parts.begin(), parts.end(),
                     [&](const std::string& part) { return text.find(part) != std::string::npos; });
}

/// The fault found in running a body as one block of 64 threads; empty if there is none.
template <auto body>
std::string wrong_with(std::size_t shared_bytes = 1024, unsigned threads = 64) {
  try {
    launch<body>(nullptr, dim3(1), dim3(threads), shared_bytes);
  } catch (const emulation::Fault& fault) {
    return fault.what();
  }
  return "";
}

template <int barriers>
__global__ void neighbours() {
  SharedMemory shared;
  const auto all = shared.allocate<int>(64);
  const int me = static_cast<int>(threadIdx.x);
  all.write(me, me);
  if (barriers == 1) __syncthreads();
  if (barriers == 2) __syncwarp();
  if (all.read((me + 1) % 64) != (me + 1) % 64) throw emulation::Fault("wrong number");
}

TEST_CASE("emulated threads that share memory without a barrier are named") {
  CHECK(wrong_with<neighbours<1>>().empty());
  const std::string wrong = wrong_with<neighbours<0>>();
  CHECK(says(wrong, {"neighbours<0>, block (0, 0, 0), thread ("}));
  CHECK((says(wrong, {"without a barrier"}) || says(wrong, {"nobody has written"})));
  // A warp's barrier is not enough between warps.
  CHECK_FALSE(wrong_with<neighbours<2>>().empty());
}

__global__ void within_warp(bool synchronised) {
  SharedMemory shared;
  const auto all = shared.allocate<float>(32);
  all.write(lane_index(), 1);
  if (synchronised) __syncwarp();
  all.write(31 - lane_index(), 2);
}

TEST_CASE("lanes of an emulated warp are ordered only by __syncwarp") {
  launch<within_warp>(nullptr, dim3(1), dim3(32), 1024, true);
  CHECK_THROWS_AS(launch<within_warp>(nullptr, dim3(1), dim3(32), 1024, false), emulation::Fault);
}

__global__ void apart() {
  if (threadIdx.x < 40) __syncthreads();
}
__global__ void two_barriers() {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}
__global__ void half_a_warp() {
  if (lane_index() < 16) warp_sum(1.0F);
}

TEST_CASE("emulated threads that wait for different things are an error") {
  const std::string wrong = wrong_with<apart>();
  CHECK((says(wrong, {"apart", "leaves while others wait"}) ||
         says(wrong, {"apart", "others have left"})));
  CHECK(says(wrong_with<two_barriers>(), {"two_barriers", "waits at"}));
  CHECK(says(wrong_with<half_a_warp>(), {"half_a_warp", "waits at"}));
}

__global__ void beyond() {
  SharedMemory shared;
  shared.allocate<float>(32).write(threadIdx.x, 1);
}
__global__ void never_written() {
  SharedMemory shared;
  shared.allocate<float>(64).read(threadIdx.x);
}

TEST_CASE("emulated shared memory is bounded and initially undefined") {
  CHECK(wrong_with<beyond>(256).empty());
  CHECK(says(wrong_with<beyond>(252), {"of 252 of shared memory"}));
  CHECK(says(wrong_with<never_written>(), {"nobody has written"}));
}

__global__ void misaligned() { load_bits<uint4>(reinterpret_cast<const void*>(8)); }

TEST_CASE("an emulated launch keeps a device's limits and alignment") {
  CHECK(says(wrong_with<misaligned>(), {"not aligned"}));
  CHECK(says(wrong_with<beyond>(256, 33), {"no device takes"}));
  CHECK(says(wrong_with<beyond>(256, 2048), {"no device takes"}));
  CHECK(says(wrong_with<beyond>(200 * 1024), {"more shared memory"}));
}

}  // namespace
}  // namespace echelon::cuda
