// DualPipeV and DualPipe as choices of plans: who offers them, what they demand, what a search
// finds.
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

namespace {

ParallelPlan both_ways_on_64() {
  ParallelPlan p;
  p.pp = 4;
  p.vpp = 2;
  p.dp = p.shard_group = 16;
  p.zero = 1;
  p.schedule = ScheduleKind::dualpipe;
  p.layers_per_stage = {8, 8, 8, 8};
  p.recompute_layers = {0, 0, 0, 0};
  return p;
}

/// "legal", or the reason and its words.
template <class Change>
std::string answer_after(Change change, int global_batch = 256, const char* framework = "hai-llm") {
  PlanRequest r = request_for("llama2-7b", "dgx-h100", 64, framework);
  r.job.global_batch = global_batch;
  ParallelPlan p = both_ways_on_64();
  change(p);
  const auto rejection = check_plan(r.model, r.job, r.cluster, r.framework, p);
  return rejection ? std::string(name_of(rejection->reason)) + ": " + rejection->detail : "legal";
}

}  // namespace

TEST_CASE("DeepSeek's framework alone offers DualPipe") {
  const auto same = [](ParallelPlan&) {};
  for (const Framework& framework : frameworks()) {
    INFO(framework.name);
    CHECK((answer_after(same, 256, framework.name.c_str()) == "legal") ==
          (framework.name == "hai-llm"));
  }
  CHECK(answer_after(same, 256, "megatron-core") ==
        "framework-lacks-feature: megatron-core has no DualPipe schedule");
  CHECK(answer_after(same, 256, "torchtitan") ==
        "framework-lacks-feature: torchtitan has no DualPipe schedule");
}

TEST_CASE("DualPipe has an even pp, and an even number of microbatches, two per rank or more") {
  const auto same = [](ParallelPlan&) {};
  CHECK(answer_after(same, 128) == "legal");  // m = 2 pp = 8 on dp 16
  CHECK(answer_after(same, 96) ==
        "microbatches-not-divisible: 6 microbatches for dualpipe, which needs 2 x pp 4 or more");
  CHECK(answer_after(same, 144) ==
        "microbatches-not-divisible: 9 microbatches for dualpipe, which runs as many in each of "
        "two directions and needs an even number");
  const std::string odd = answer_after([](ParallelPlan& p) {
    p.pp = 1;
    p.dp = p.shard_group = 64;
    p.layers_per_stage = {32};
    p.recompute_layers = {0};
  });
  CHECK(odd == "contradictory: dualpipe needs pp > 1");
  CHECK(answer_after([](ParallelPlan& p) { p.vpp = 1; }).starts_with("contradictory: "));
  CHECK(answer_after([](ParallelPlan& p) { p.zero = 2; }).starts_with("framework-lacks-feature: "));
  PlanRequest r = request_for("llama2-7b", "dgx-h100", 24, "hai-llm");
  r.job.global_batch = 80;
  ParallelPlan p = both_ways_on_64();
  p.pp = 3;
  p.dp = p.shard_group = 8;
  p.layers_per_stage = {11, 11, 10};
  p.recompute_layers = {0, 0, 0};
  const auto rejection = check_plan(r.model, r.job, r.cluster, r.framework, p);
  REQUIRE(rejection);
  CHECK(rejection->detail ==
        "pp 3 with dualpipe, whose ranks s and pp - 1 - s hold the same two stages: it needs an "
        "even pp");
}

TEST_CASE("a stage of DualPipe may hold one layer, and the model as many stages as layers") {
  CHECK(answer_after([](ParallelPlan& p) { p.layers_per_stage = {1, 14, 16, 1}; }) == "legal");
  const Framework framework = find_framework("hai-llm").value();
  ModelSpec model = load_model("llama2-7b").value();
  model.layers = 7;
  CHECK(split_layers(framework, model, 4, 2, ScheduleKind::dualpipe).value() ==
        split_layers(framework, model, 4, 1, ScheduleKind::one_f_one_b).value());
  ParallelPlan plan = both_ways_on_64();
  plan.layers_per_stage = {5, 8, 9, 10};
  CHECK(layers_in_chunk(plan, 1, 0) == 8);
  CHECK(layers_in_chunk(plan, 1, 1) == 9);
  CHECK(layers_in_chunk(plan, 3, 0) == 10);
  CHECK(layers_in_chunk(plan, 3, 1) == 5);
}

TEST_CASE("asked for DualPipe, the search finds the best of all plans with it") {
  PlanRequest r = request_for("llama2-7b", "dgx-h100", 16, "hai-llm");
  r.job.global_batch = 64;
  r.preference = Preference::fastest;  // else a plan that takes over 3 % longer gives way
  r.constraints.pin<&ParallelPlan::schedule>(ScheduleKind::dualpipe);
  const Result<SearchOutcome> found = search(r);
  REQUIRE(found.ok());
  REQUIRE_FALSE(found->candidates.empty());
  CHECK(found->candidates.front().plan.schedule == ScheduleKind::dualpipe);
  std::optional<Seconds> least;
  int legal = 0;
  for (const int pp : {2, 3, 4, 8, 16}) {
    for (const int zero : {0, 1}) {
      for (const int microbatch : {1, 2, 4, 8}) {
        for (const Recompute recompute : {Recompute::none, Recompute::full}) {
          PlanRequest asked = r;
          asked.constraints.pin<&ParallelPlan::pp>(pp);
          asked.constraints.pin<&ParallelPlan::zero>(zero);
          asked.constraints.pin<&ParallelPlan::microbatch>(microbatch);
          asked.constraints.pin<&ParallelPlan::recompute>(recompute);
          const Result<Candidate> priced = predict(asked);
          if (!priced) continue;
          ++legal;
          CHECK(priced->simulated);
          CHECK(priced->prediction.time.step >= Seconds{});
          if (!priced->fits) continue;
          if (!least || priced->expected() < *least) least = priced->expected();
        }
      }
    }
  }
  CHECK(legal > 8);
  REQUIRE(least);
  CHECK(found->candidates.front().expected() <= *least * (1 + 1e-9));
}

TEST_CASE("DualPipe hides the exchange of experts in its pairs alone") {
  PlanRequest r = request_for("deepseek-v3", "dgx-h800", 2048, "hai-llm");
  r.job.sequence = 4096;
  r.job.precision = find_precision("fp8:deepseek-v3").value();
  r.constraints.pin<&ParallelPlan::pp>(16);
  r.constraints.pin<&ParallelPlan::ep>(64);
  r.constraints.pin<&ParallelPlan::dispatcher>(Dispatcher::deepep);
  r.constraints.pin<&ParallelPlan::microbatch>(1);
  r.constraints.pin<&ParallelPlan::zero>(1);
  const auto exposed = [&](int microbatches, bool overlap) {
    PlanRequest asked = r;
    asked.job.global_batch = std::int64_t{128} * microbatches;
    asked.constraints.pin<&ParallelPlan::schedule>(ScheduleKind::dualpipe);
    asked.constraints.pin<&ParallelPlan::overlap_ep>(overlap);
    const Result<Candidate> priced = predict(asked);
    REQUIRE(priced.ok());
    return priced->prediction.time.parts.exposed[Axis::ep] / microbatches;
  };
  CHECK(exposed(120, true) < 0.7 * exposed(120, false));
  CHECK(exposed(120, true) < exposed(32, true));  // more of the passes are paired
  CHECK(exposed(32, true) < exposed(32, false));
  r.constraints.pin<&ParallelPlan::schedule>(ScheduleKind::one_f_one_b);
  r.constraints.pin<&ParallelPlan::overlap_ep>(true);
  r.job.global_batch = 15360;
  const Result<Candidate> line = predict(r);
  REQUIRE_FALSE(line.ok());
  CHECK(line.error().message().find("without --schedule dualpipe") != std::string::npos);
}

}  // namespace echelon
