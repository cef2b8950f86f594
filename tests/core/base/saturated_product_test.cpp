#include "core/base/saturated_product.hpp"

#include <limits>

#include "core/plan/parallel_plan.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

TEST_CASE("a product that exceeds 64 bits is nothing") {
  constexpr std::int64_t kInt = std::numeric_limits<int>::max();
  CHECK(checked_product({}) == 1);
  CHECK(checked_product({3, 5, 7}) == 105);
  CHECK(checked_product({kInt, kInt}) == kInt * kInt);
  CHECK_FALSE(checked_product({kInt, kInt, kInt}));
  CHECK_FALSE(checked_product({64, 1048576, 1048576, 262144}));  // 2^64: wraps to 0
  CHECK(checked_product({kInt, kInt, kInt, 0}) == 0);
  CHECK(saturated_product({kInt, kInt, kInt}) == std::numeric_limits<std::int64_t>::max());
}

TEST_CASE("the GPUs of an impossible plan do not wrap around") {
  ParallelPlan plan;
  plan.tp = 64;
  plan.cp = plan.pp = 1048576;
  plan.dp = 262144;
  CHECK(plan.gpus() == std::numeric_limits<std::int64_t>::max());
}
