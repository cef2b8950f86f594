// Collectives that run beside products.
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

TEST_CASE("products of the backward run beside tensor-parallel collectives") {
  CHECK(products_beside_collectives(false) > 0);
  CHECK(products_beside_collectives(true) > 0);
}

}  // namespace
}  // namespace echelon
