// The queues of a rank on a GPU.
#include "runtime/cuda/queue/cuda_processor.hpp"

#include <vector>

#include "runtime/threads/run_threads.hpp"
#include "tests/runtime/cuda/backend/on_gpus.hpp"
#include "tests/runtime/cuda/backend/small_cases.hpp"
#include "tests/runtime/cuda/standins/settings.hpp"

namespace echelon::cuda {
namespace {

TEST_CASE("a stream never exceeds the driver's queue capacity") {
  standins::start({});
  {
    RunThreads run_threads;
    Algorithms algorithms("");
    CudaProcessor processor(run_threads, 0, 0, algorithms);
    constexpr std::int64_t kBytes = 64;
    void* const block = processor.allocate(kBytes);
    echelon::Stream& queue = processor.on(Queue::reduce);
    for (int i = 0; i < 3000; ++i) queue.clear(block, kBytes);
    std::vector<char> found(kBytes, 1);
    cudaStreamSynchronize(processor.stream(Queue::reduce));
    processor.read(block, found.data(), kBytes);
    CHECK(found == std::vector<char>(kBytes, 0));
    processor.free(block);
  }
  standins::check_nothing_left();
}

/// The allocations and the host's waits of that many steps.
standins::Counts counts_of_steps(int steps, std::int64_t global_batch) {
  TrainedCase c;
  c.model = with_wide_heads(small_llama(2));
  c.plan = plan_for(c.model, 1, 1, 2);
  c.plan.zero = 3;
  c.plan.shard_group = 2;
  c.global_batch = global_batch;
  c.steps = steps;
  standins::Settings machine;
  machine.devices = 2;
  standins::start(machine);
  const standins::Counts before = standins::counts();
  train<Bfloat16>(c, open_gpus);
  const standins::Counts after = standins::counts();
  standins::check_nothing_left();
  return {after.taken - before.taken, after.waits - before.waits};
}

TEST_CASE("steps allocate nothing on the device, and the host waits only at their end") {
  constexpr int kRanks = 2;
  const standins::Counts few = counts_of_steps(3, 4);
  const standins::Counts more = counts_of_steps(6, 4);
  CHECK(few.taken > 0);
  CHECK(more.taken == few.taken);
  CHECK(more.waits - few.waits == 3 * kRanks);
  // Twice as many microbatches wait no more often.
  CHECK(counts_of_steps(6, 8).waits - counts_of_steps(3, 8).waits == 3 * kRanks);
}

}  // namespace
}  // namespace echelon::cuda
