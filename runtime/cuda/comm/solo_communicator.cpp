#include "runtime/comm/solo_communicator.hpp"

#include "runtime/cuda/comm/communicators.hpp"
#include "runtime/cuda/device/checks.hpp"

namespace echelon::cuda {

std::unique_ptr<Communicator> solo_communicator(Stream stream) {
  return echelon::solo_communicator([stream](const void* from, void* to, std::int64_t bytes) {
    check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice,
                          stream),
          "copy within the GPU");
  });
}

}  // namespace echelon::cuda
