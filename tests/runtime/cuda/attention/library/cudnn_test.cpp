// The real cuDNN, queried for a GPU described by its properties: no driver, nothing is executed.
#include <dlfcn.h>

#include "runtime/cuda/attention/cudnn_attention.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/skip.hpp"

namespace echelon {
namespace {

// An H200 as cuDNN asks for it. Memory, processors and clocks: NVIDIA's data sheet of the H200 SXM,
// and what CUDA's device attributes say of one; the rest: CUDA C++ Programming Guide, "Technical
// Specifications per Compute Capability", 9.0.
constexpr int kCapability = 90;
const std::string kH200 =
    R"({"deviceName":"NVIDIA H200","deviceVersion":900,"deviceVer":900,"driverVersion":13000,)"
    R"("driverVer":13000,"cudaDeviceId":0,"totalGlobalMem":150754820096,)"
    R"("maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],)"
    R"("regsPerBlock":65536,"multiProcessorCount":132,"smClockRateKHz":1980000,)"
    R"("memClockRateKHz":3201000,"l2CacheSize":62914560,"warpSize":32,)"
    R"("maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":232448,)"
    R"("reservedSharedMemoryPerBlock":1024,"maxRegistersPerSM":65536,"pciDeviceId":0,)"
    R"("maxCtasPerSM":32,"maxThreadsPerBlock":1024,"maxThreadsPerSM":2048,"isTccDriver":0,)"
    R"("supportCoopLaunch":1})";

/// Empty if cuDNN accepts it, forward and both backwards.
std::string refused(const AttentionShape& shape) {
  std::string why;
  for (const bool deterministic : {false, true}) {
    why += cuda::refused_by_cudnn(shape, kH200, kCapability,
                                  {.deterministic = deterministic, .limit = 80_GiB});
  }
  return why;
}

std::string refused(std::int64_t sequence, int samples, int heads, int kv_heads, int head_dim) {
  return refused({sequence, samples, heads, kv_heads, head_dim,
                  std::int64_t{heads + 2 * kv_heads} * head_dim, std::int64_t{heads} * head_dim});
}

/// Of latent attention, as DeepSeek-V3's.
std::string refused_latent(std::int64_t sequence, int samples, int heads) {
  return refused({sequence, samples, heads, heads, 192, std::int64_t{heads} * (2 * 192 + 128),
                  std::int64_t{heads} * 128, 128, 1.25});
}

TEST_CASE("cuDNN accepts attention's graphs") {
  if (dlopen("libcuda.so.1", RTLD_NOW) == nullptr) return skip("neither a driver nor its stub");
  if (cuda::cudnn_version().empty()) return skip("libcudnn.so.9 is not found, or is too old");
  INFO("cuDNN " << cuda::cudnn_version());
  CHECK(refused(1024, 64, 12, 12, 64) == "");  // GPT-2 124M
  CHECK(refused(1024, 16, 25, 25, 64) == "");  // GPT-2 1.5B
  CHECK(refused(2048, 8, 32, 8, 128) == "");   // Llama 8B
  CHECK(refused(8192, 1, 32, 8, 128) == "");
  CHECK(refused(8192, 1, 8, 1, 128) == "");  // Llama 70B by tensor parallelism of 8
  CHECK(refused(32768, 1, 8, 1, 128) == "");
  CHECK(refused(2048, 4, 8, 2, 128) == "");  // a quarter of it, by tensor parallelism
  CHECK(refused(1000, 3, 12, 4, 64) == "");
  CHECK(refused(77, 3, 4, 2, 64) == "");
  CHECK(refused(8191, 1, 9, 9, 64) == "");  // parts of a head, whose sums are not aligned
  CHECK(refused(2, 1, 1, 1, 64) == "");
  CHECK(refused_latent(4096, 1, 16) == "");  // DeepSeek-V2-Lite
  CHECK(refused_latent(4096, 1, 32) == "");  // DeepSeek-V3 by tensor parallelism of 4
  CHECK(refused_latent(1000, 3, 2) == "");
  CHECK(refused(256, 2, 4, 4, 20).find("multiple of 8") != std::string::npos);
  CHECK_FALSE(cuda::refused_by_cudnn({256, 2, 4, 4, 64, 768, 256}, "{", kCapability).empty());
}

}  // namespace
}  // namespace echelon
