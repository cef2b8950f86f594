// Instructions as CUDA graphs: the same bits, and only where calls are repeatable.
#include <cstdlib>

#include "runtime/cuda/queue/cuda_kernels.hpp"
#include "tests/runtime/cuda/backend/on_gpus.hpp"
#include "tests/runtime/cuda/backend/small_cases.hpp"
#include "tests/runtime/cuda/standins/settings.hpp"

namespace echelon {
namespace {

struct Graphed {
  Trained trained;
  std::size_t graphs = 0;
  int on_busy_devices = 0;  ///< made there
};

Graphed train_with_graphs(const TrainedCase& c, const char* use, standins::Settings machine = {}) {
  Graphed out;
  machine.devices = static_cast<int>(c.plan.gpus());
  standins::start(machine);
  const int before = standins::counts().graphs_on_busy_devices;
  setenv("ECHELON_CUDA_GRAPHS", use, 1);
  out.trained = train<Bfloat16>(
      c, open_watched_gpus([&](Backend<Bfloat16>& gpus) {
        auto& kernels = dynamic_cast<cuda::CudaKernels&>(gpus.at(0).on(Queue::compute));
        out.graphs = kernels.graph_cache().graphs();
      }));
  unsetenv("ECHELON_CUDA_GRAPHS");
  out.on_busy_devices = standins::counts().graphs_on_busy_devices - before;
  standins::check_nothing_left();
  return out;
}

TrainedCase case_with(int tp, int dp, int zero) {
  TrainedCase c;
  c.model = with_wide_heads(small_llama(2));
  c.plan = plan_for(c.model, tp, 1, dp);
  c.plan.zero = zero;
  c.plan.shard_group = zero > 0 ? dp : 1;
  c.global_batch = 2 * dp;
  c.steps = 5;
  c.rate = 1e-3;
  return c;
}

TEST_CASE("repeated forwards and backwards become graphs, with the same bits") {
  for (const int zero : {0, 3}) {
    TrainedCase c = case_with(1, 2, zero);
    INFO("ZeRO " << zero);
    const Graphed plain = train_with_graphs(c, "never");
    const Graphed graphed = train_with_graphs(c, "always");
    CHECK(plain.graphs == 0);
    CHECK(graphed.graphs >= 4);  // two microbatches, forward and backward
    for (std::size_t s = 0; s < plain.trained.steps.size(); ++s)
      CHECK(graphed.trained.steps[s].loss == plain.trained.steps[s].loss);
    CHECK(graphed.trained.weights == plain.trained.weights);
  }
}

TEST_CASE("graphs are made on an idle device, where no kernel waits for another rank") {
  TrainedCase c = case_with(1, 2, 1);
  c.late = true;  // and not beside the gather of updated weights
  CHECK(train_with_graphs(c, "always").on_busy_devices == 0);
  const Graphed graphed = train_with_graphs(case_with(1, 2, 3), "always");
  CHECK(graphed.graphs >= 4);
  CHECK(graphed.on_busy_devices == 0);
}

TEST_CASE("steps that estimate the gradient noise are not captured") {
  TrainedCase c = case_with(1, 2, 0);
  c.noise_every = 2;
  const Graphed plain = train_with_graphs(c, "never");
  c.steps = 8;
  const Graphed graphed = train_with_graphs(c, "always");
  CHECK(graphed.graphs > 0);
  for (std::size_t s = 0; s < plain.trained.steps.size(); ++s) {
    CHECK(graphed.trained.steps[s].loss == plain.trained.steps[s].loss);
    CHECK(graphed.trained.steps[s].small_norm == plain.trained.steps[s].small_norm);
  }
}

TEST_CASE("instructions with inner communication or recomputation are not captured") {
  CHECK(train_with_graphs(case_with(2, 1, 0), "always").graphs == 0);
  TrainedCase c = case_with(1, 1, 0);
  c.plan.recompute = Recompute::full;
  c.plan.recompute_layers = {2};
  CHECK(train_with_graphs(c, "always").graphs == 2);  // the forwards
}

TEST_CASE("timing decides whether graphs are used") {
  // Emulated devices are far slower than the host.
  CHECK(train_with_graphs(case_with(1, 1, 0), "").graphs == 0);
}

TEST_CASE("a host that waits for a device that lags is not too slow to do without graphs") {
  TrainedCase c = case_with(1, 1, 0);
  c.global_batch = 12;  // more calls than may be on the stream
  CHECK(train_with_graphs(c, "").graphs == 0);
}

TEST_CASE("a run goes on without graphs where they cannot be made") {
  const TrainedCase c = case_with(1, 1, 0);
  const Graphed plain = train_with_graphs(c, "never");
  standins::Settings refuses;
  refuses.refuses_captured_products = true;
  standins::Settings invalid;
  invalid.refuses_captured_launches = true;
  standins::Settings full;
  full.graph_uploads_lack_memory = true;
  for (const standins::Settings& machine : {refuses, invalid, full}) {
    const Graphed graphed = train_with_graphs(c, "always", machine);
    CHECK(graphed.graphs == 0);
    CHECK(graphed.trained.weights == plain.trained.weights);
  }
}

}  // namespace
}  // namespace echelon
