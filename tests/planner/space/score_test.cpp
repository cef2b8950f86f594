#include "planner/space/score.hpp"

#include <algorithm>
#include <cmath>

#include "planner/search/search.hpp"
#include "tests/planner/requests.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

ParallelPlan plan_of(const PlanRequest& request) { return predict(request).value().plan; }

/// Names of a plan's unusual features.
std::vector<std::string> names_of(const PlanRequest& request, const ParallelPlan& plan) {
  std::vector<std::string> out;
  const UnusualFeatures unusual = features_of(request, plan);
  for (const FeaturePrice& each : kFeaturePrices) {
    if (unusual.has(each.feature)) out.emplace_back(each.name);
  }
  return out;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("the probability of fitting is that of the calibration's memory band") {
  PlanRequest r = request_for("7b", "dgx-h100", 8, "nanotron");
  r.calibration.memory_band = MemoryBand{MemoryBandKind::extrapolated, 0, 0.03, "test"};
  const Bytes all = r.cluster.gpu().memory;
  // No bias, 3 %: one standard deviation below, and two.
  CHECK(*fit_probability(r, all) == Approx(0.5));
  CHECK(*fit_probability(r, all / std::exp(0.03)) == Approx(0.841345).epsilon(1e-5));
  CHECK(*fit_probability(r, all / std::exp(0.06)) == Approx(0.977250).epsilon(1e-5));
  CHECK(*fit_probability(r, all * std::exp(0.06)) == Approx(0.022750).epsilon(1e-4));
  r.keep_free = 4_GiB;
  CHECK(*fit_probability(r, all - 4_GiB) == Approx(0.5));
  r.keep_free = {};
  // A logistic around 80 % of the memory, 2 % wide: 1 / (1 + 1/e) one width below.
  r.calibration.memory_band = MemoryBand{MemoryBandKind::measured, -std::log(0.8), 0.02, "test"};
  CHECK(*fit_probability(r, 0.8 * all) == Approx(0.5));
  CHECK(*fit_probability(r, 0.8 * all / std::exp(0.02)) == Approx(0.731059).epsilon(1e-5));
  // Without a band in the calibration one is assumed.
  r.calibration.memory_band.reset();
  const MemoryBand assumed = memory_band_of(r);
  CHECK(assumed.kind == MemoryBandKind::assumed);
  CHECK(assumed.spread >= 0.05);
  CHECK(*fit_probability(r, all / std::exp(assumed.bias + assumed.spread)) ==
        Approx(0.841345).epsilon(1e-5));
  r.max_memory = 70_GiB;
  CHECK_FALSE(fit_probability(r, 69_GiB));
}

TEST_CASE("the memory limit of a probability is where it is reached") {
  PlanRequest r = request_for("7b", "dgx-h100", 8);
  r.calibration.memory_band = MemoryBand{MemoryBandKind::extrapolated, 0.03, 0.04, "test"};
  for (const double probability : {0.05, 0.5, 0.9, 0.999}) {
    CHECK(*fit_probability(r, memory_limit(r, probability)) == Approx(probability).epsilon(1e-9));
  }
  CHECK(memory_limit(r, 0.9) < memory_limit(r, 0.5));
  CHECK(r.usable_memory() == memory_limit(r, 0.5));
  CHECK(r.usable_memory() < r.capacity());
  r.max_memory = 33_GiB;
  CHECK(memory_limit(r, 0.9) == 33_GiB);
  CHECK(r.usable_memory() == 33_GiB);
  CHECK(r.capacity() == 33_GiB);
}

TEST_CASE("each unusual feature is found, and plain plans have none") {
  PlanRequest r = request_for("7b", "dgx-h100", 64);  // 32 layers
  using P = ParallelPlan;
  r.constraints.pin<&P::tp>(2);
  r.constraints.pin<&P::pp>(4);
  r.constraints.pin<&P::microbatch>(1);
  CHECK(names_of(r, plan_of(r)) == Names{"stages"});
  const auto with = [&](auto change) {  // besides its stages
    PlanRequest changed = r;
    change(changed.constraints);
    Names names = names_of(changed, plan_of(changed));
    names.erase(std::remove(names.begin(), names.end(), "stages"), names.end());
    return names;
  };
  CHECK(with([](auto& c) { c.template pin<&P::vpp>(4); }).empty());
  CHECK(with([](auto& c) { c.template pin<&P::layers_per_stage>({7, 9, 9, 7}); }).empty());
  CHECK(with([](auto& c) {
          c.template pin<&P::layers_per_stage>({7, 8, 9, 8});
        }) == Names{"own-layout"});
  CHECK(with([](auto& c) {
          c.template pin<&P::vpp>(2);
          c.template pin<&P::layers_per_stage>({9, 7, 9, 7});
        }) == Names{"unequal-chunks", "own-layout"});
  CHECK(with([](auto& c) { c.template pin<&P::shard_group>(4); }) == Names{"zero-group"});
  CHECK(with([](auto& c) { c.template pin<&P::offload_optimizer>(0.5); }) == Names{"offload"});
  CHECK(with([](auto& c) { c.template pin<&P::rank_order>(RankOrder::pp_inside_dp); }) ==
        Names{"pp-inside-dp"});
  CHECK(with([](auto& c) {
          c.template pin<&P::recompute>(Recompute::full);
          c.template pin<&P::recompute_layers>({2, 2, 2, 2});
        }) == Names{"partial-recomputation"});
  CHECK(with([](auto& c) { c.template pin<&P::recompute>(Recompute::full); }).empty());
  CHECK(with([](auto& c) { c.template pin<&P::tp>(16); }) == Names{"crosses-domains"});
  CHECK(with([](auto& c) {
          c.template pin<&P::pp>(1);
          c.template pin<&P::zero>(3);
        }) == Names{"fsdp", "fsdp-with-tp"});
  PlanRequest zero = request_for("7b", "dgx-h100", 64);
  zero.framework = *find_framework("deepspeed");
  CHECK(names_of(zero, plan_of(zero)).empty());
  zero.constraints.pin<&P::pp>(4);
  CHECK(names_of(zero, plan_of(zero)) == Names{"stages"});
  PlanRequest deep = request_for("gpt3-175b", "dgx-h100", 64);
  deep.constraints.pin<&P::pp>(4);
  deep.constraints.pin<&P::vpp>(12);
  deep.constraints.pin<&P::microbatch>(1);
  CHECK(names_of(deep, plan_of(deep)) == Names{"many-chunks", "stages"});
  PlanRequest sharded = request_for("7b", "dgx-h100", 64);
  CHECK(names_of(sharded, plan_of(sharded)).empty());
  sharded.constraints.pin<&P::zero>(2);
  CHECK(names_of(sharded, plan_of(sharded)) == Names{"fsdp"});
  sharded.framework = *find_framework("torchtitan");  // whose wrapper is FSDP
  CHECK(names_of(sharded, plan_of(sharded)).empty());
}

TEST_CASE("the weight of a plan is at least one, and its parts are those of the formula") {
  PlanRequest r = request_for("7b", "dgx-h100", 8);
  UnusualFeatures unusual;
  CHECK(score_of(r, unusual, 1_GiB).weight == Approx(1));
  unusual.add(UnusualFeature::offload);
  unusual.add(UnusualFeature::own_layout);
  const Bytes reserved = memory_limit(r, 0.75);
  CHECK(score_of(r, unusual, reserved).weight == Approx((1 + 2 * 0.25) * 1.017));
  r.preference = Preference::robust;
  CHECK(score_of(r, unusual, reserved).weight == Approx((1 + 4 * 0.25) * 1.017));
  r.preference = Preference::fastest;
  CHECK(score_of(r, unusual, reserved).weight == Approx(1));
  CHECK(least_weight(r, unusual) == 1);
  r.preference = Preference::balanced;
  CHECK(least_weight(r, unusual) == Approx(1.017));
  r.max_memory = 70_GiB;
  CHECK(score_of(r, unusual, reserved).weight == Approx(1.017));
}

TEST_CASE("preferences have names, and an unknown one names them all") {
  for (const Preference each : {Preference::robust, Preference::balanced, Preference::fastest}) {
    CHECK(parse_preference(name_of(each), "--prefer").value() == each);
  }
  const Result<Preference> unknown = parse_preference("fast", "--prefer");
  REQUIRE_FALSE(unknown.ok());
  CHECK(unknown.error().where == "--prefer");
  CHECK(unknown.error().expected == "one of robust, balanced, fastest");
}
