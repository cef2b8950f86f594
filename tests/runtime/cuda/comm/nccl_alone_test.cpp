// NCCL with a single rank, on a stand-in or on a GPU (machine.hpp).
#include <cuda_runtime_api.h>

#include <array>

#include "runtime/cuda/comm/nccl.hpp"
#include "runtime/cuda/device/checks.hpp"
#include "runtime/cuda/device/resources.hpp"
#include "tests/runtime/cuda/backend/machine.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

using Four = std::array<float, 4>;

Four read_back(const cuda::DeviceBuffer& buffer, cudaStream_t stream) {
  const auto host =
      cuda::DeviceBuffer::required(sizeof(Four), cuda::DeviceBuffer::Where::pinned, "numbers");
  cuda::check(cudaMemcpyAsync(host.as<float>(), buffer.as<float>(), sizeof(Four),
                              cudaMemcpyDeviceToHost, stream),
              "read");
  cuda::check(cudaStreamSynchronize(stream), "read");
  return *host.as<Four>();
}

TEST_CASE("NCCL serves a single rank: every collective gives back its own numbers") {
  REQUIRE(start_gpus(1, 3));
  constexpr Four kNumbers{1.5F, -2.0F, 0.25F, 1e6F};
  {
    cuda::use_device(0);
    const cuda::OwnStream own = cuda::new_stream();
    const cudaStream_t stream = own.get();
    const auto device = [] {
      return cuda::DeviceBuffer::required(sizeof(Four), cuda::DeviceBuffer::Where::device, "four");
    };
    const cuda::DeviceBuffer in = device();
    const cuda::DeviceBuffer gathered = device();
    const cuda::DeviceBuffer scattered = device();
    const auto host =
        cuda::DeviceBuffer::required(sizeof(Four), cuda::DeviceBuffer::Where::pinned, "numbers");
    *host.as<Four>() = kNumbers;
    RunThreads run_threads(Seconds{60});
    cuda::Nccl nccl(run_threads);  // ends before the stream its work is on
    const cuda::NcclId id = cuda::new_nccl_id();
    run_threads.add("rank 0", [&] {
      cuda::use_device(0);
      const auto alone = nccl.join({"alone", {0}}, 0, id, stream);
      CHECK(alone->size() == 1);
      cuda::check(cudaMemcpyAsync(in.as<float>(), host.as<float>(), sizeof(Four),
                                  cudaMemcpyHostToDevice, stream),
                  "write");
      alone->all_reduce(in.as<float>(), 4, Element::f32, Reduction::sum);
      alone->broadcast(in.as<float>(), 4, Element::f32, 0);
      alone->all_gather(in.as<float>(), gathered.as<float>(), 4, Element::f32);
      alone->reduce_scatter(in.as<float>(), scattered.as<float>(), 4, Element::f32);
      alone->barrier();
      run_threads.poll(
          [&] {
            nccl.check(0);
            return cuda::is_idle(stream);
          },
          [] { return std::string("the GPU"); });
    });
    run_threads.run();
    CHECK(read_back(in, stream) == kNumbers);
    CHECK(read_back(gathered, stream) == kNumbers);
    CHECK(read_back(scattered, stream) == kNumbers);
  }
  end_gpus();
}

}  // namespace
}  // namespace echelon
