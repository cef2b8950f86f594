// Which groups of microbatches a search tries, and what plans with larger groups gain.
#include "costmodel/time/pipeline.hpp"
#include "planner/search/search.hpp"
#include "planner/space/candidates.hpp"
#include "planner/space/legality.hpp"
#include "tests/planner/requests.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

/// 4 stages of `vpp` chunks each.
SearchPoint interleaved_point(int vpp = 2) {
  SearchPoint point;
  point.pp = 4;
  point.dp = 1;
  point.vpp = vpp;
  point.schedule = ScheduleKind::interleaved;
  return point;
}

PlanRequest request_of(std::int64_t batch, const char* framework = "megatron-core") {
  PlanRequest r = request_for("llama2-7b", "dgx-h100", 4, framework);
  r.job.global_batch = batch;
  return r;
}

/// llama2-7b with 4 stages that NICs connect; 32 microbatches.
PlanRequest over_nics() {
  PlanRequest r = request_for("llama2-7b", "a100-pcie", 32);
  r.job.sequence = 1024;
  r.job.global_batch = 256;
  r.constraints.pin<&ParallelPlan::tp>(1);
  r.constraints.pin<&ParallelPlan::pp>(4);
  r.constraints.pin<&ParallelPlan::vpp>(8);
  r.constraints.pin<&ParallelPlan::microbatch>(1);
  r.constraints.pin<&ParallelPlan::zero>(1);
  return r;
}

}  // namespace

TEST_CASE("groups of pp alone are tried where messages are not exposed") {
  const SearchPoint point = interleaved_point();
  CHECK(group_values(request_of(32), point, Seconds{}, 1_s) == std::vector{4});
  CHECK(group_values(request_of(32), point, 1_us, 1_s) == std::vector{4});
  SearchPoint plain = interleaved_point(1);
  CHECK(group_values(request_of(32), plain, 100_ms, 1_s) == std::vector{1});
}

TEST_CASE("where pp does not divide the microbatches the smallest legal group is tried") {
  const SearchPoint point = interleaved_point();
  CHECK(group_values(request_of(13), point, Seconds{}, 1_s) == std::vector{7});  // and six
  CHECK(group_values(request_of(14), point, Seconds{}, 1_s) == std::vector{5});  // 5, 5, 4
  CHECK(group_values(request_of(5), point, Seconds{}, 1_s) == std::vector{5});
  CHECK(group_values(request_of(13, "megatron-2021"), point, Seconds{}, 1_s) == std::vector{4});
}

TEST_CASE("the second group is the smallest that hides every message") {
  const PlanRequest r = request_of(64);
  for (const int vpp : {2, 4, 8}) {
    const SearchPoint point = interleaved_point(vpp);
    for (const double share : {0.1, 0.3, 0.6, 1.5}) {  // of a chunk's forward
      const Seconds chunk = 1_s / vpp;
      const Seconds hop = share * chunk / 3;
      const std::vector<int> values = group_values(r, point, hop, 1_s);
      INFO("vpp " << vpp << " hop " << share);
      if (values.size() == 1) {
        CHECK(exposed_rounds(4, vpp, 4, hop, chunk) <= 0.01 * 64 * 1_s);
        continue;
      }
      REQUIRE(values.size() == 2);
      CHECK(exposed_rounds(4, vpp, values[1], hop, chunk) <= 1e-9 * hop);
      for (int smaller = 4; smaller < values[1]; ++smaller) {
        if (!groups_fill(64, 4, smaller)) continue;
        CHECK(exposed_rounds(4, vpp, smaller, hop, chunk) > 1e-9 * hop);
      }
    }
  }
  // More than the microbatches are no group: all of them are the largest.
  CHECK(group_values(request_of(8), interleaved_point(), 3_s, 1_s) == std::vector{4, 8});
  PlanRequest pinned = r;
  pinned.constraints.pin<&ParallelPlan::microbatch_group>(16);
  CHECK(group_values(pinned, interleaved_point(), 1_s, 1_s) == std::vector{16});
}

TEST_CASE("a larger group saves exposed messages in the closed form and in the simulation") {
  PlanRequest r = over_nics();
  const Candidate small = predict(r).value();
  CHECK(small.plan.microbatch_group == 4);
  r.constraints.pin<&ParallelPlan::microbatch_group>(32);
  const Candidate large = predict(r).value();
  REQUIRE(large.plan.microbatch_group == 32);
  const Seconds closed = small.prediction.time.closed_form - large.prediction.time.closed_form;
  const Seconds simulated = small.prediction.time.step - large.prediction.time.step;
  INFO(closed.in(1_ms) << " ms by the closed form, " << simulated.in(1_ms) << " simulated");
  CHECK(closed > Seconds{});
  CHECK(simulated / closed == Approx(1).epsilon(0.26));
  CHECK(large.prediction.memory.peak > small.prediction.memory.peak);
}

TEST_CASE("a group that leaves a smaller rest is refused with the nearest ones") {
  PlanRequest r = over_nics();
  r.constraints.pin<&ParallelPlan::microbatch_group>(29);  // 32 − 29 = 3 < pp
  const Error error = predict(r).error();
  CHECK(error.where == "--microbatch-group-size");
  CHECK(error.found == "32 microbatches in groups of 29, pp 4");
  CHECK(error.hint.find("--microbatch-group-size 28 or 32") != std::string::npos);
  r.constraints.pin<&ParallelPlan::microbatch_group>(3);
  CHECK(predict(r).error().expected == "at least pp, 4");
  r.constraints.pin<&ParallelPlan::microbatch_group>(8);
  r.constraints.pin<&ParallelPlan::vpp>(1);
  CHECK(search(r).error().where == "--microbatch-group-size");
}
