// The memory of a rank that trains adapters, predicted, compared with the runtime's allocations.
#include <fmt/format.h>

#include <vector>

#include "tests/runtime/training/predicted_memory.hpp"

using namespace echelon;
using namespace echelon::predicted_memory;

namespace {

using enum AdapterTarget;
const Adapters kAllMatrices{16, {linear_qkv, linear_proj, linear_fc1, linear_fc2}};

/// Interleaved chunks may need up to three boundaries less than the closed form counts: when they
/// are used depends on the timing of the schedule.
Tolerance tolerance_of(const Grid& g) {
  if (g.pp == 1) return {.share = 5e-4, .boundaries = 0};
  return {.share = 0.02, .boundaries = g.vpp > 1 ? 3 : 1};
}

void check_all_degrees(const ModelSpec& model, const Adapters& adapters) {
  using enum ScheduleKind;
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    for (int zero = 0; zero < 4; ++zero) {
      for (const int tp : {1, 2}) {
        const int dp = zero > 0 ? 2 : 1;
        const bool split = tp > 1 && zero % 2 == 1;
        for (const Grid& g : {Grid{tp, 1, 1, dp, zero, split, recompute, one_f_one_b},
                              Grid{tp, 2, 1, dp, zero, split, recompute, one_f_one_b},
                              Grid{tp, 4, 1, dp, zero, false, recompute, gpipe},
                              Grid{tp, 2, 2, dp, zero, split, recompute, interleaved}})
          check<Bfloat16>(model, g, "bf16", tolerance_of(g), adapters);
      }
    }
  }
}

}  // namespace

TEST_CASE("memory of adapters on frozen weights is predicted, over all degrees") {
  check_all_degrees(measured_llama(), kAllMatrices);
  check_all_degrees(load_model("gpt2-tiny").value(), {8, {linear_qkv, linear_fc2}});
}

TEST_CASE("memory of wide adapters, of context parallelism and of fp64 is predicted as well") {
  using enum ScheduleKind;
  const ModelSpec model = measured_llama();
  const Adapters wide{128, {linear_qkv, linear_proj, linear_fc1, linear_fc2}};
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    for (const AdapterTargets& targets :
         {AdapterTargets{linear_qkv}, {linear_proj}, {linear_fc1}, {linear_fc2}, wide.targets}) {
      check<Bfloat16>(model, {2, 1, 1, 2, 3, true, recompute, one_f_one_b}, "bf16", {},
                      Adapters{128, targets});
      check<Bfloat16>(model, {1, 1, 1, 2, 2, false, recompute, one_f_one_b, {}, 1, 2}, "bf16", {},
                      Adapters{128, targets});
      check<double>(model, {2, 2, 1, 1, 0, false, recompute, gpipe}, "fp64", {},
                    Adapters{128, targets});
    }
  }
}

TEST_CASE("an unsharded rank of adapters is predicted to within rounding") {
  using enum ScheduleKind;
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full})
    check<float>(measured_llama(), {1, 1, 1, 1, 0, false, recompute, one_f_one_b}, "fp32",
                 {.share = 5e-4, .boundaries = 0}, kAllMatrices);
}
