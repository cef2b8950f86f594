#include "planner/explain/chain.hpp"

#include <algorithm>

#include "planner/explain/why_not.hpp"
#include "tests/planner/requests.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

Explanation of(const char* model, int gpus, const char* framework = "megatron-core") {
  return explain(request_for(model, "dgx-h100", gpus, framework)).value();
}

bool fits(const ChainStep& step) { return step.plan && step.plan->fits; }

/// The winner of `r` and why `asked` is not it.
WhyNot ask(const PlanRequest& r, const PlanConstraints& asked) {
  const SearchOutcome report = search(r).value();
  return why_not(r, asked, report.winner());
}

}  // namespace

TEST_CASE("the chain starts on one GPU and ends at the winner") {
  for (const auto& [model, gpus, framework] :
       {std::tuple{"7b", 64, "megatron-core"}, std::tuple{"70b", 256, "megatron-core"},
        std::tuple{"gpt3-175b", 1024, "megatron-core"}, std::tuple{"70b", 256, "torchtitan"},
        std::tuple{"gpt2", 8, "deepspeed"}, std::tuple{"gpt2", 1, "megatron-core"}}) {
    INFO(model << " on " << gpus << ", " << framework);
    const Explanation e = of(model, gpus, framework);
    REQUIRE_FALSE(e.chain.empty());
    CHECK(e.chain[0].technique == Technique::one_gpu);
    CHECK(e.chain[0].gpus == 1);
    if (gpus > 1) CHECK(e.chain[1].technique == Technique::data_parallel);
    REQUIRE(e.choice.report.winner() != nullptr);
    CHECK(e.chain.back().plan->plan == e.choice.report.winner()->plan);
  }
}

TEST_CASE("once a step fits the later ones fit and are faster") {
  for (const auto& [model, gpus] : {std::pair{"7b", 64}, std::pair{"gpt3-175b", 1024}}) {
    const Explanation e = of(model, gpus);
    bool found = false;
    for (std::size_t i = 2; i < e.chain.size(); ++i) {
      found = found || fits(e.chain[i - 1]);
      if (!found) continue;
      CHECK(fits(e.chain[i]));
      CHECK(e.chain[i].plan->prediction.time.step <= e.chain[i - 1].plan->prediction.time.step);
    }
  }
}

TEST_CASE("a step that does not fit is short of memory and names the largest category") {
  const Explanation e = of("70b", 256);
  int misses = 0;
  for (const ChainStep& step : e.chain) {
    if (fits(step)) continue;
    ++misses;
    CHECK(step.missing > Bytes{});
    CHECK(step.limit.bottleneck == Bottleneck::memory);
    REQUIRE(step.pressing.has_value());
    CHECK(step.pressing->bytes > Bytes{});
  }
  CHECK(misses >= 2);
}

TEST_CASE("a 70b model on one GPU lacks the memory of its states") {
  const ChainStep first = of("70b", 256).chain.front();
  // 2 + 4 + 12 bytes of weights, main gradients, master weights and moments per parameter.
  CHECK(first.missing > 1000_GiB);
}

TEST_CASE("a batch that the GPUs cannot share is named as the bottleneck of data parallelism") {
  PlanRequest r = request_for("7b", "dgx-h100", 64);
  r.job.global_batch = 48;
  const Explanation e = explain(r).value();
  CHECK_FALSE(e.chain[1].plan.has_value());
  CHECK(e.chain[1].limit.bottleneck == Bottleneck::batch);
  CHECK_FALSE(e.chain[1].illegal.empty());
}

TEST_CASE("constraints of the user hold where their axis is taken up") {
  PlanRequest r = request_for("70b", "dgx-h100", 256);
  r.constraints.pin<&ParallelPlan::tp>(8);
  r.constraints.pin<&ParallelPlan::recompute>(Recompute::none);
  const Explanation e = explain(r).value();
  CHECK(e.chain.back().plan->plan.tp == 8);
  for (const ChainStep& step : e.chain) {
    CHECK(step.technique != Technique::recompute);
    if (step.technique == Technique::tensor) CHECK(step.plan->plan.tp == 8);
  }
}

TEST_CASE("where nothing fits the chain ends at the nearest miss and nothing is promised") {
  const Explanation e = of("gpt3-175b", 8);
  CHECK(e.choice.report.winner() == nullptr);
  CHECK_FALSE(fits(e.chain.back()));
  CHECK(e.chain.back().missing == e.choice.report.nearest_infeasible.front().missing);
  CHECK(e.sensitivities.empty());
  CHECK(e.layout.empty());
}

TEST_CASE("tensor parallelism across nodes is slower than inside one") {
  const Explanation e = of("gpt3-175b", 1024);
  const auto tp = std::find_if(e.layout.begin(), e.layout.end(),
                               [](const AxisLayout& a) { return a.axis == Axis::tp; });
  REQUIRE(tp != e.layout.end());
  CHECK(tp->domains == 1);
  CHECK(tp->other_domains == tp->ranks);
  CHECK(tp->elsewhere > 2.0 * tp->placed);
  for (const AxisLayout& axis : e.layout) CHECK(axis.sent > Bytes{});
}

TEST_CASE("the category named is the largest") {
  MemoryBreakdown memory;
  memory.weights = 10_GiB;
  memory.gradients = 20_GiB;
  memory.activations = 15_GiB;
  memory.workspace = 6_GiB;
  CHECK(pressing_of(memory).category == MemoryCategory::activations);
  CHECK(pressing_of(memory).bytes == 21_GiB);
  memory.gradients = 22_GiB;
  CHECK(pressing_of(memory).category == MemoryCategory::gradients);
}

TEST_CASE("why not the winner: it is the winner") {
  const PlanRequest r = request_for("7b", "dgx-h100", 64);
  const ParallelPlan best = search(r)->winner()->plan;
  PlanConstraints asked;
  asked.pin<&ParallelPlan::tp>(best.tp);
  asked.pin<&ParallelPlan::pp>(best.pp);
  CHECK(ask(r, asked).verdict == WhyNot::Verdict::winner);
}

TEST_CASE("why not a degree that does not divide: the rule, and a neighbour one value away") {
  const PlanRequest r = request_for("7b", "dgx-h100", 64);
  PlanConstraints asked;
  asked.pin<&ParallelPlan::tp>(3);
  const WhyNot answer = ask(r, asked);
  CHECK(answer.verdict == WhyNot::Verdict::illegal);
  CHECK(answer.rule->reason == RejectionReason::heads_not_divisible);
  REQUIRE(answer.neighbor.has_value());
  CHECK(answer.changes == 1);
  CHECK((answer.neighbor->plan.tp == 2 || answer.neighbor->plan.tp == 4));
}

TEST_CASE("why not degrees whose product is not the GPUs: the product") {
  const PlanRequest r = request_for("7b", "dgx-h100", 64);
  PlanConstraints asked;
  asked.pin<&ParallelPlan::tp>(4);
  asked.pin<&ParallelPlan::pp>(2);
  asked.pin<&ParallelPlan::dp>(4);
  asked.pin<&ParallelPlan::cp>(1);
  const WhyNot answer = ask(r, asked);
  CHECK(answer.verdict == WhyNot::Verdict::illegal);
  CHECK(answer.rule->reason == RejectionReason::gpus_mismatch);
  REQUIRE(answer.neighbor.has_value());
  CHECK(answer.changes == 1);
}

TEST_CASE("why not a plan that does not fit: the stage, the bytes, and a neighbour that fits") {
  const PlanRequest r = request_for("70b", "dgx-h100", 256);
  PlanConstraints asked;
  asked.pin<&ParallelPlan::tp>(1);
  asked.pin<&ParallelPlan::pp>(1);
  asked.pin<&ParallelPlan::zero>(1);
  const WhyNot answer = ask(r, asked);
  CHECK(answer.verdict == WhyNot::Verdict::too_large);
  CHECK(answer.missing > Bytes{});
  REQUIRE(answer.neighbor.has_value());
  CHECK(answer.neighbor->fits);
  CHECK(answer.changes == 1);
}

TEST_CASE("why not a slower plan: it is the best with those values, and slower") {
  const PlanRequest r = request_for("gpt3-175b", "dgx-h100", 1024);
  PlanConstraints asked;
  asked.pin<&ParallelPlan::tp>(8);
  asked.pin<&ParallelPlan::pp>(16);
  const WhyNot answer = ask(r, asked);
  CHECK(answer.verdict == WhyNot::Verdict::slower);
  CHECK(answer.asked->plan.tp == 8);
  CHECK(answer.asked->plan.pp == 16);
  CHECK(answer.asked->prediction.time.step > search(r)->winner()->prediction.time.step);
}

TEST_CASE("why not what the user's own flag forbids: it would be better") {
  PlanRequest r = request_for("70b", "dgx-h100", 256);
  const ParallelPlan best = search(r)->winner()->plan;
  r.constraints.pin<&ParallelPlan::tp>(best.tp == 8 ? 4 : 8);
  PlanConstraints asked;
  asked.pin<&ParallelPlan::tp>(best.tp);
  CHECK(ask(r, asked).verdict == WhyNot::Verdict::better);
}

TEST_CASE("why not experts that do not divide: the nearest number that does") {
  const PlanRequest r = request_for("mixtral-8x7b", "dgx-h100", 64);
  PlanConstraints asked;
  asked.pin<&ParallelPlan::ep>(3);
  const WhyNot answer = ask(r, asked);
  CHECK(answer.verdict == WhyNot::Verdict::illegal);
  CHECK(answer.rule->reason == RejectionReason::experts_not_divisible);
  REQUIRE(answer.neighbor.has_value());
  CHECK((answer.neighbor->plan.ep == 2 || answer.neighbor->plan.ep == 4));
}

TEST_CASE("an explanation ends when it is told to, and says that it is not whole") {
  const PlanRequest request = request_for("7b", "dgx-h100", 64, "megatron-core");
  CHECK(explain(request)->unfinished.empty());
  // The search itself ends at 0.2.
  const Explanation early = explain(request, [](double share) { return share <= 0.2; }).value();
  CHECK_FALSE(early.unfinished.empty());
  CHECK(early.sensitivities.empty());
  CHECK_FALSE(explain(request)->sensitivities.empty());
  const Explanation at_once = explain(request, [](double) { return false; }).value();
  CHECK(at_once.unfinished.front() == "the search");
}

TEST_CASE("a why-not that is stopped says that it is not whole") {
  const PlanRequest r = request_for("7b", "dgx-h100", 64, "megatron-core");
  const SearchOutcome found = search(r).value();
  PlanConstraints asked;
  asked.pin<&ParallelPlan::tp>(2);
  const WhyNot cut = why_not(r, asked, found.winner(), [](double) { return false; });
  CHECK_FALSE(cut.whole);
  const WhyNot all = why_not(r, asked, found.winner(), [](double) { return true; });
  CHECK(all.whole);
  CHECK(all.verdict == WhyNot::Verdict::slower);
}

TEST_CASE("why-not answers although the request has a limit that no plan meets") {
  PlanRequest r = request_for("gpt3-175b", "dgx-h100", 8);
  r.no_worse_than = 1_us;
  const SearchOutcome limited = search(r).value();
  REQUIRE(limited.winner() == nullptr);
  const WhyNot answer = why_not(r, {}, nullptr);
  CHECK(answer.verdict == WhyNot::Verdict::too_large);
  CHECK(answer.missing > Bytes{});
}
