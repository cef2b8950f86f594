// The queues of a rank on a GPU.
#include "runtime/cuda/cuda_processor.hpp"

#include <vector>

#include "runtime/crew.hpp"
#include "tests/runtime/cuda/standins/settings.hpp"
#include "tests/support/catch.hpp"

namespace echelon::cuda {
namespace {

TEST_CASE("a stream is never given more than the driver takes") {
  standins::start({});
  {
    Crew crew;
    Algorithms algorithms("");
    CudaProcessor processor(crew, 0, 0, algorithms);
    constexpr std::int64_t kBytes = 64;
    void* const block = processor.take(kBytes);
    echelon::Stream& queue = processor.on(Queue::reduce);
    for (int i = 0; i < 3000; ++i) queue.clear(block, kBytes);
    std::vector<char> found(kBytes, 1);
    cudaStreamSynchronize(processor.stream(Queue::reduce));
    processor.read(block, found.data(), kBytes);
    CHECK(found == std::vector<char>(kBytes, 0));
    processor.give_back(block);
  }
  standins::check_nothing_left();
}

}  // namespace
}  // namespace echelon::cuda
