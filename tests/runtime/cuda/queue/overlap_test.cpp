// The products of a step: their number, and collectives that run beside them.
#include "runtime/comm/world.hpp"
#include "tests/runtime/cuda/backend/on_gpus.hpp"
#include "tests/runtime/cuda/backend/small_cases.hpp"
#include "tests/runtime/cuda/standins/settings.hpp"

namespace echelon {
namespace {

/// Products that run while their GPU is in a collective, of two tensor-parallel ranks. Without
/// pipeline and data parallelism, all other collectives follow the step's last product.
int products_beside_collectives(bool split) {
  standins::Settings machine;
  machine.devices = 2;
  standins::start(machine);
  TrainedCase c;
  c.model = with_wide_heads(small_llama(2));
  c.plan = plan_for(c.model, 2, 1, 1);
  c.plan.sequence_parallel = split;
  c.global_batch = 2;
  c.steps = 2;
  static_cast<void>(train<Bfloat16>(c, open_gpus));
  const int found = standins::product_counts().beside_collectives;
  standins::check_nothing_left();
  return found;
}

/// Products that run while updated weights are gathered: nothing else is gathered at ZeRO-1.
int products_beside_updates(bool late, std::uint64_t seed) {
  standins::Settings machine;
  machine.devices = 2;
  machine.order = standins::Order::starve_one;
  machine.seed = seed;
  standins::start(machine);
  TrainedCase c;
  c.model = with_wide_heads(small_llama(2));
  c.plan = plan_for(c.model, 1, 1, 2);
  c.plan.zero = 1;
  c.plan.shard_group = 2;
  c.plan.bucket = Bytes{1};  // each layer is gathered by itself
  c.global_batch = 4;
  c.steps = 5;
  c.late = late;
  static_cast<void>(train<Bfloat16>(c, open_gpus));
  const int found = standins::product_counts().beside_gathers;
  standins::check_nothing_left();
  return found;
}

TEST_CASE("updated weights are gathered beside the next forward, where its step is issued ahead") {
  int ahead = 0;
  for (const std::uint64_t seed : {4, 11}) {  // these hold back a stream of gathers
    CHECK(products_beside_updates(false, seed) == 0);
    ahead += products_beside_updates(true, seed);
  }
  CHECK(ahead > 0);
}

TEST_CASE("products of the backward run beside tensor-parallel collectives") {
  CHECK(products_beside_collectives(false) > 0);
  CHECK(products_beside_collectives(true) > 0);
}

TEST_CASE("the stage with the loss computes its logits once where a backward follows its forward") {
  const auto products_of_step = [](ScheduleKind kind, int pp) {
    const auto products = [&](int steps) {
      standins::Settings machine;
      machine.devices = pp;
      standins::start(machine);
      TrainedCase c;
      c.model = with_wide_heads(small_llama(2));
      c.plan = plan_for(c.model, 1, pp, 1);
      c.plan.schedule = kind;
      c.global_batch = 2;  // microbatches
      c.steps = steps;
      setenv("ECHELON_CUDNN", "never", 1);  // its attention has products, too
      static_cast<void>(train<Bfloat16>(c, open_gpus));
      unsetenv("ECHELON_CUDNN");
      const int found = standins::product_counts().runs;
      standins::check_nothing_left();
      return found;
    };
    return products(3) - products(2);
  };
  constexpr int kLayers = 2;
  constexpr int kOnce = 2 * (kLayers * 4 * 3 + 3);  // forward, and the gradients of both operands
  CHECK(products_of_step(ScheduleKind::one_f_one_b, 1) == kOnce);
  CHECK(products_of_step(ScheduleKind::one_f_one_b, 2) == kOnce);
  CHECK(products_of_step(ScheduleKind::gpipe, 2) == kOnce + 2);
}

}  // namespace
}  // namespace echelon
