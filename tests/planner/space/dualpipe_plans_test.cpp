// DualPipeV as a choice of plans: who offers it, what it demands, and what a search finds.
#include "planner/search/predict.hpp"
#include "planner/search/search.hpp"
#include "planner/space/candidates.hpp"
#include "planner/space/legality.hpp"
#include "tests/planner/requests.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

ParallelPlan v_plan() {
  ParallelPlan p;
  p.tp = 8;
  p.pp = 4;
  p.vpp = 2;
  p.dp = 2;
  p.zero = 2;
  p.shard_group = 2;
  p.sequence_parallel = true;
  p.schedule = ScheduleKind::dualpipe_v;
  p.layers_per_stage = {8, 8, 8, 8};
  p.recompute_layers = {0, 0, 0, 0};
  return p;
}

template <class Change>
std::string v_reason_after(Change change, int global_batch = 1024) {
  PlanRequest r = request_for("llama2-7b", "dgx-h100", 64, "torchtitan");
  r.job.global_batch = global_batch;
  ParallelPlan p = v_plan();
  change(p);
  const auto rejection = check_plan(r.model, r.job, r.cluster, r.framework, p);
  return rejection ? std::string(name_of(rejection->reason)) : "legal";
}

}  // namespace

TEST_CASE("torchtitan alone offers DualPipeV") {
  for (const Framework& framework : frameworks()) {
    const PlanRequest r = request_for("llama2-7b", "dgx-h100", 64, framework.name.c_str());
    ParallelPlan p = v_plan();
    if (framework.name != "torchtitan") p.zero = 0;
    const auto rejection = check_plan(r.model, r.job, r.cluster, r.framework, p);
    INFO(framework.name);
    CHECK(rejection.has_value() == (framework.name != "torchtitan"));
  }
}

TEST_CASE("DualPipeV has two chunks, a pipeline and two microbatches per rank") {
  CHECK(v_reason_after([](ParallelPlan&) {}) == "legal");
  CHECK(v_reason_after([](ParallelPlan& p) { p.vpp = 1; }) == "contradictory");
  CHECK(v_reason_after([](ParallelPlan& p) { p.vpp = 4; }) == "contradictory");
  CHECK(v_reason_after([](ParallelPlan& p) { p.microbatch_group = 4; }) == "contradictory");
  CHECK(v_reason_after([](ParallelPlan&) {}, 16) == "legal");  // m = 2 pp = 8 on dp 2
  CHECK(v_reason_after([](ParallelPlan&) {}, 14) == "microbatches-not-divisible");
  CHECK(v_reason_after([](ParallelPlan& p) {
          p.pp = 1;
          p.dp = 8;
          p.shard_group = 8;
          p.layers_per_stage = {32};
          p.recompute_layers = {0};
        }) == "contradictory");
}

TEST_CASE("DualPipeV's first rank holds two layers less where both ends take one each") {
  const Framework framework = find_framework("torchtitan").value();
  ModelSpec model = load_model("llama2-7b").value();
  const auto split = [&](int layers) {
    model.layers = layers;
    return split_layers(framework, model, 4, 2, ScheduleKind::dualpipe_v).value();
  };
  CHECK(split(32) == std::vector{8, 8, 8, 8});
  CHECK(split(30) == std::vector{6, 8, 8, 8});
  ParallelPlan plan = v_plan();
  plan.layers_per_stage = {6, 8, 8, 8};
  CHECK(layers_in_chunk(plan, 0, 0) == 3);
  CHECK(layers_in_chunk(plan, 0, 1) == 3);
  plan.layers_per_stage = {7, 8, 8, 9};
  CHECK(layers_in_chunk(plan, 0, 1) == 3);  // the loss counts as a layer
  CHECK(layers_in_chunk(plan, 3, 1) == 5);
}

TEST_CASE("the flag alone gives two chunks, and the search finds the best of all plans with it") {
  PlanRequest r = request_for("llama2-7b", "dgx-h100", 16, "torchtitan");
  r.job.global_batch = 64;
  r.constraints.pin<&ParallelPlan::schedule>(ScheduleKind::dualpipe_v);
  r.constraints.pin<&ParallelPlan::pp>(4);
  r.constraints.pin<&ParallelPlan::recompute>(Recompute::none);
  const Result<SearchOutcome> found = search(r);
  REQUIRE(found.ok());
  REQUIRE_FALSE(found->candidates.empty());
  const ParallelPlan& best = found->candidates.front().plan;
  CHECK(best.schedule == ScheduleKind::dualpipe_v);
  CHECK(best.vpp == 2);

  std::optional<Seconds> least;
  int legal = 0;
  for (const int tp : {1, 2, 4}) {
    for (const int zero : {0, 2, 3}) {
      for (const int microbatch : {1, 2, 4, 8, 16}) {
        PlanRequest asked = r;
        asked.constraints.pin<&ParallelPlan::tp>(tp);
        asked.constraints.pin<&ParallelPlan::zero>(zero);
        asked.constraints.pin<&ParallelPlan::microbatch>(microbatch);
        const Result<Candidate> priced = predict(asked);
        if (!priced) continue;
        ++legal;
        CHECK(priced->plan.vpp == 2);
        CHECK(priced->simulated);
        if (!priced->fits) continue;
        if (!least || priced->expected() < *least) least = priced->expected();
      }
    }
  }
  CHECK(legal > 5);
  REQUIRE(least);
  CHECK(found->candidates.front().expected() <= *least * (1 + 1e-9));
}

}  // namespace echelon
