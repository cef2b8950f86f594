#include "report/format.hpp"

#include <algorithm>
#include <string>

#include "core/model/model_io.hpp"
#include "report/plan_files.hpp"
#include "report/text/text.hpp"
#include "tests/core/plan/one_field_changed.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

TEST_CASE("numbers are grouped by thousands") {
  CHECK(grouped(0) == "0");
  CHECK(grouped(999) == "999");
  CHECK(grouped(4194304) == "4,194,304");
  CHECK(grouped(-1000) == "-1,000");
}

TEST_CASE("the formula behind MFU names what a query attends to") {
  TrainingJob job;
  job.sequence = 8192;
  const ModelSpec full = load_model("deepseek-v3").value();
  const ModelSpec sparse = load_model("deepseek-v3.2").value();
  CHECK(flops_formula(full, job) == "6N + 12LhT FLOPs per token");
  CHECK(flops_formula(sparse, job) == "6N + 12LhK FLOPs per token, K = 2,048, and the indexer's");
  job.sequence = 1024;
  CHECK(flops_formula(sparse, job) == "6N + 12LhK FLOPs per token, K = 1,024, and the indexer's");
}

TEST_CASE("times have three digits and a suitable unit") {
  CHECK(duration(Seconds{0}) == "0 s");
  CHECK(duration(Seconds{5.829}) == "5.83 s");
  CHECK(duration(Seconds{0.4118}) == "412 ms");
  CHECK(duration(Seconds{37.25e-6}) == "37.2 us");
  CHECK(duration(Seconds{0.9999}) == "1.00 s");
  CHECK(duration(Seconds{600}) == "600 s");
  CHECK(duration(Seconds{7200}) == "2.00 h");
  CHECK(duration(Seconds{86400.0 * 27}) == "27.0 days");
  CHECK(signed_duration(Seconds{-0.25}) == "-250 ms");
  CHECK(signed_duration(Seconds{2e-9}) == "+2.00 ns");
  CHECK(signed_duration(Seconds{6.9e-18}) == "0 s");  // 10.1 ms - 10.1 ms, summed otherwise
}

TEST_CASE("shares are never shown as minus zero") {
  CHECK(percent(0.4752) == "47.5 %");
  CHECK(signed_percent(-1e-6) == "0.0 %");
  CHECK(signed_percent(0.031) == "+3.1 %");
}

TEST_CASE("binary units are named") {
  CHECK(with_gib(2_GiB) == "2 GiB");
  CHECK(with_gib(Bytes{61.24 * 0x1p30}) == "61.2 GiB");
  CHECK(gib(1_GB) == "0.93");
}

TEST_CASE("only existing parts are shown") {
  CostBreakdown time;
  MemoryBreakdown memory;
  double value = 1;
  for (const StepPart& part : kStepParts) part.of(time) = Seconds{value *= 2};
  for (Bytes MemoryBreakdown::*part :
       {&MemoryBreakdown::weights, &MemoryBreakdown::gradients, &MemoryBreakdown::optimizer,
        &MemoryBreakdown::activations, &MemoryBreakdown::workspace, &MemoryBreakdown::communication,
        &MemoryBreakdown::context}) {
    memory.*part = Bytes{value *= 2};
  }
  Seconds sum;
  for (const TimePart& part : parts_of(time)) sum += part.time;
  CHECK(sum == time.total());
  Bytes bytes;
  for (const MemoryPart& part : parts_of(memory)) bytes += part.bytes;
  CHECK(bytes == memory.total());
}

TEST_CASE("a plan's description contains only the techniques it uses") {
  ParallelPlan plan;
  plan.tp = 4;
  plan.pp = 2;
  plan.dp = 8;
  plan.zero = 1;
  plan.shard_group = 8;
  plan.sequence_parallel = true;
  plan.recompute = Recompute::full;
  plan.layers_per_stage = {16, 16};
  plan.recompute_layers = {4, 0};
  CHECK(described(plan, {80, false, false}) ==
        "tp 4, pp 2, dp 8, microbatch 1, ZeRO 1, sequence parallel, recompute full 0-4/16, 1f1b");
  plan.shard_group = 4;
  plan.recompute = Recompute::none;
  CHECK(described(plan, {80, false, false}) ==
        "tp 4, pp 2, dp 8, microbatch 1, ZeRO 1 over 4 ranks, sequence parallel, no recompute, "
        "1f1b");
}

TEST_CASE("commands to copy are quoted for a shell") {
  CHECK(shell_quoted("--model=7b") == "--model=7b");
  CHECK(shell_quoted("it's") == "'it'\\''s'");
  CHECK(shell_quoted("") == "''");
  CHECK(shell_quoted("a;b") == "'a;b'");
}

TEST_CASE("a difference in any one field is reported under its name") {
  const ParallelPlan plan = plain_plan();
  CHECK(differences(plan, plan).empty());
  for (const PlanField& field : plan_fields()) {
    CAPTURE(field.key);
    const std::string words = differences(plan, with_changed(field, plan));
    CAPTURE(words);
    const bool is_list = std::holds_alternative<std::vector<int> ParallelPlan::*>(field.member) ||
                         field.kind == PlanFieldKind::modules;
    if (!is_list) CHECK(words.find(',') == std::string::npos);
    const bool names_it = words.find(field.label) != std::string::npos;
    const bool as_recompute =
        field.is(&ParallelPlan::recompute_layers) && words.starts_with("recompute");
    CHECK((names_it || as_recompute));
  }
}

TEST_CASE("differences exclude values that follow from other differences") {
  const ParallelPlan plan = plain_plan();
  ParallelPlan other = plan;
  other.pp = 4;
  other.dp = 1;
  other.shard_group = 2;
  other.layers_per_stage = {8, 8, 8, 8};
  other.recompute = Recompute::none;
  other.recompute_layers = {0, 0, 0, 0};
  other.schedule = ScheduleKind::zero_bubble_h1;
  CHECK(differences(plan, other) == "pp 4, dp 1, recompute none, schedule zb-h1");
  other = plan;
  other.sequence_parallel = false;
  other.layers_per_stage = {17, 15};
  CHECK(differences(plan, other) == "no sequence parallel, layers per stage 17, 15");
}

TEST_CASE("many equal layers are counted") {
  ParallelPlan plan;
  plan.layers_per_stage = {7, 8, 8, 8, 8, 7};
  for (const PlanField& field : plan_fields()) {
    if (field.is(&ParallelPlan::layers_per_stage)) CHECK(field_text(field, plan) == "7, 4 x 8, 7");
    if (field.is(&ParallelPlan::selective_layers)) CHECK(field_text(field, plan) == "none");
  }
}

TEST_CASE("the largest increase is that of one part, the first of equals, or none") {
  CostBreakdown a;
  a.compute = 4_s;
  CostBreakdown b = a;
  CHECK_FALSE(largest_increase(a, b));
  b.compute = 3_s;
  CHECK_FALSE(largest_increase(a, b));
  b.optimizer = 2_s;
  b.host = 2_s;
  b.data = 1_s;
  const auto part = largest_increase(a, b);
  REQUIRE(part);
  const std::vector<TimePart> parts = parts_of(b);
  const auto first = std::find_if(parts.begin(), parts.end(),
                                  [](const TimePart& each) { return each.time == 2_s; });
  CHECK(part->name == first->name);
  CHECK(part->more() == 2_s);
  CHECK(largest_increase(b, a)->more() == 1_s);  // compute
}

TEST_CASE("a fix is described as one change") {
  CHECK(fix_text(RecomputeEveryLayer{}) == "--recompute full instead of the pinned recomputation");
  CHECK(fix_text(HigherZero{3}) == "--zero 3 instead of the pinned ZeRO stage");
  CHECK(fix_text(MoreGpus{128, 64, Axis::dp, 16}) == "128 GPUs instead of 64 (dp 16)");
  CHECK(fix_text(MoreGpus{128, 64, Axis::pp, 4}) == "128 GPUs instead of 64 (pp 4)");
  CHECK(fix_text(LargerGpus{100.2 * 1_GiB, 80_GiB}) == "GPUs with 101 GiB instead of 80 GiB");
  NearestInfeasible miss;
  miss.fix = HigherZero{3};
  CHECK(fixes_text(miss) == "--zero 3 instead of the pinned ZeRO stage");
  miss.narrower_states = "bf16:precision-aware";
  CHECK(fixes_text(miss) ==
        "--zero 3 instead of the pinned ZeRO stage, or --precision bf16:precision-aware");
  miss.narrower_states.reset();
  miss.adapters = Adapters{16, {}};
  CHECK(fixes_text(miss) ==
        "--zero 3 instead of the pinned ZeRO stage, or --lora 16 (adapters alone)");
  miss.quantized_weights = QuantizedWeights{};
  CHECK(fixes_text(miss) ==
        "--zero 3 instead of the pinned ZeRO stage, or --lora 16 --quantized-weights nf4 (adapters "
        "alone)");
}

TEST_CASE("a probability is never told as certain") {
  CHECK(probability(1) == "> 99.9 %");
  CHECK(probability(0.9993) == "> 99.9 %");
  CHECK(probability(0.9944) == "99.4 %");
  CHECK(probability(0.61) == "61 %");
  CHECK(probability(0.004) == "0.4 %");
  CHECK(probability(0) == "< 0.1 %");
  CHECK(likely_to_fit(1) == "over 99.9 % likely to fit");
  CHECK(likely_to_fit(0.66) == "66 % likely to fit");
  CHECK(likely_to_fit(0) == "under 0.1 % likely to fit");
}
