// The queues of a rank on a GPU.
#include "runtime/cuda/queue/cuda_processor.hpp"

#include <vector>

#include "runtime/threads/failure.hpp"
#include "runtime/threads/run_threads.hpp"
#include "tests/runtime/cuda/backend/on_gpus.hpp"
#include "tests/runtime/cuda/backend/small_cases.hpp"
#include "tests/runtime/cuda/standins/settings.hpp"
#include "tests/support/text.hpp"

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

/// The failure of an instruction that adds `calls` times, of whose launches one is refused.
std::string failure_of(int calls, int refused) {
  standins::Settings machine;
  machine.refused_launch = refused;
  standins::start(machine);
  std::string found;
  {
    RunThreads run_threads;
    Algorithms algorithms("");
    CudaProcessor processor(run_threads, 0, 0, algorithms);
    constexpr std::int64_t kCount = 8;
    void* const block = processor.allocate(2 * kCount * sizeof(Bfloat16));
    auto* const x = static_cast<Bfloat16*>(block);
    Program program;
    program.instructions.resize(1);  // a forward
    processor.begin_step(program, false, false);
    Kernels<Bfloat16>& queue = processor.on(Queue::compute);
    queue.begin(program.instructions[0]);
    for (int i = 0; i < calls; ++i) queue.add(x, x + kCount, kCount);
    try {
      queue.end(program.instructions[0]);
      processor.close_step(nullptr, 0);
      processor.end_step(nullptr, nullptr);
    } catch (const RunFailure& failure) {
      found = failure.what();
    }
    cudaStreamSynchronize(processor.stream(Queue::compute));
    processor.free(block);
  }
  standins::check_nothing_left();
  return found;
}

TEST_CASE("a refused launch ends its instruction, whatever is asked of CUDA after it") {
  const std::string expected = "start a kernel: CUDA says too many resources requested for launch";
  CHECK(test::lacks(failure_of(1, 0), expected) == "");
  // So many calls wait for events, which clears CUDA's last error.
  CHECK(test::lacks(failure_of(600, 0), expected) == "");
  CHECK(test::lacks(failure_of(600, 599), expected) == "");
  CHECK(failure_of(600, 600) == "");
}

/// The allocations and the host's waits of that many steps, without graphs: those are made or not
/// by the clock.
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
  setenv("ECHELON_CUDA_GRAPHS", "never", 1);
  train<Bfloat16>(c, open_gpus);
  unsetenv("ECHELON_CUDA_GRAPHS");
  const standins::Counts after = standins::counts();
  standins::check_nothing_left();
  return {after.taken - before.taken, after.waits - before.waits};
}

TEST_CASE("steps allocate nothing on the device, and no call of a step blocks the host") {
  counts_of_steps(1, 4);  // chooses algorithms, for as long as the clock says
  const standins::Counts few = counts_of_steps(3, 4);
  const standins::Counts more = counts_of_steps(6, 4);
  CHECK(few.taken > 0);
  CHECK(more.taken == few.taken);
  CHECK(more.waits == few.waits);
  // The same for twice as many microbatches.
  CHECK(counts_of_steps(6, 8).waits == counts_of_steps(3, 8).waits);
}

/// The products of one of two ranks' steps, without graphs.
int products_of_step(const ModelSpec& model, int ep) {
  TrainedCase c;
  c.model = model;
  c.plan = plan_for(c.model, 1, 1, 2);
  c.plan.ep = ep;
  c.global_batch = 2;
  c.sequence = 64;
  standins::Settings machine;
  machine.devices = 2;
  setenv("ECHELON_CUDA_GRAPHS", "never", 1);
  const auto products = [&](int steps) {
    c.steps = steps;
    standins::start(machine);
    train<Bfloat16>(c, open_gpus);
    return standins::product_counts().runs;
  };
  products(1);  // chooses algorithms, for as long as the clock says
  const int of_a_step = products(2) - products(1);
  unsetenv("ECHELON_CUDA_GRAPHS");
  standins::check_nothing_left();
  return of_a_step;
}

TEST_CASE("ranks that share experts multiply all rows of an expert at once") {
  const ModelSpec model = with_wide_heads(small_mixtral(2));
  // Forward and both gradients of two matrices, in each layer; a rank may have no rows of an
  // expert.
  const int of_an_expert = 3 * 2 * model.layers;
  const int fewer = products_of_step(model, 1) - products_of_step(model, 2);
  CHECK(fewer <= model.moe.experts * of_an_expert);
  CHECK(2 * fewer > model.moe.experts * of_an_expert);
}

}  // namespace
}  // namespace echelon::cuda
