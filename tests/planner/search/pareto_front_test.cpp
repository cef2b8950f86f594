#include "planner/search/pareto_front.hpp"

#include <algorithm>
#include <random>

#include "planner/economics.hpp"
#include "planner/search/optimize.hpp"
#include "planner/space/candidates.hpp"
#include "planner/space/legality.hpp"
#include "tests/planner/requests.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

/// Every legal plan with balanced stages that fits, by nested loops. ZeRO only where there are
/// ranks to share the states. Without what random_case() pins.
class AllPlans {
 public:
  explicit AllPlans(const PlanRequest& request)
      : r_(request), cost_model_(r_.model, r_.job, r_.cluster, r_.framework, r_.calibration) {}

  std::vector<ParetoPoint> list() {
    const int gpus = r_.cluster.gpus();
    for (int tp = 1; tp <= gpus; ++tp) {
      for (int pp = 1; pp * tp <= gpus; ++pp) {
        for (int microbatch = 1; microbatch <= r_.job.global_batch; ++microbatch) {
          if (gpus % (tp * pp) == 0) schedules(tp, pp, microbatch);
        }
      }
    }
    return std::move(plans_);
  }

 private:
  void schedules(int tp, int pp, int microbatch) {
    for (int vpp = 1; vpp * pp <= r_.model.layers; ++vpp) {
      for (int zero = 0; zero <= (tp * pp < r_.cluster.gpus() ? 3 : 0); ++zero) {
        for (const bool sequence_parallel : {false, true}) {
          SearchPoint t;
          t.sharding.tp = tp;
          t.sharding.microbatch = microbatch;
          t.sharding.sequence_parallel = sequence_parallel;
          t.pp = pp;
          t.vpp = vpp;
          t.schedule = vpp > 1 ? ScheduleKind::interleaved : ScheduleKind::one_f_one_b;
          t.dp = t.shard_group = r_.cluster.gpus() / (tp * pp);
          t.zero = zero;
          if (vpp > 1) {
            const std::int64_t m = r_.job.global_batch / std::max(1, t.dp * microbatch);
            t.microbatch_group = smallest_group(m, pp, pp).value_or(pp);
          }
          recomputations(t);
        }
      }
    }
  }

  void price(ParallelPlan plan) {
    if (check_plan(r_.model, r_.job, r_.cluster, r_.framework, plan)) return;
    Candidate c = candidate_of(r_, cost_model_, std::move(plan));
    if (!c.fits) return;
    const Seconds paid = paid_per_step(r_, c.prediction.time.step);
    plans_.push_back({r_.cluster, std::move(c), paid});
  }

  void recomputations(SearchPoint t) {
    for (const RecomputeModules& modules : module_chain(cost_model_)) {
      t.recompute = {Recompute::selective, modules};
      ParallelPlan plan;
      if (!fill_plan(r_, t, plan)) return;
      price(std::move(plan));
    }
    for (int k = 0; k <= r_.model.layers; ++k) {
      t.recompute = k > 0 ? Recompute::full : Recompute::none;
      t.recompute_layers = k;
      ParallelPlan plan;
      if (!fill_plan(r_, t, plan)) return;
      const auto& layers = plan.layers_per_stage;
      const int most = *std::max_element(layers.begin(), layers.end());
      if (k > most) break;
      if (k % t.vpp != 0 && k != most) continue;
      if (check_plan(r_.model, r_.job, r_.cluster, r_.framework, plan)) {
        if (k == 0) return;  // what else it recomputes changes nothing
        continue;            // of all layers or none
      }
      price(std::move(plan));
    }
  }

  const PlanRequest& r_;
  CostModel cost_model_;
  std::vector<ParetoPoint> plans_;
};

/// A small request over several numbers of GPUs. What the loops above leave out is pinned.
PlanRequest random_case(std::mt19937& random) {
  const auto draw = [&](int low, int high) {
    return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
  };
  const char* frameworks[] = {"megatron-core", "nanotron", "torchtitan", "megatron-2021"};
  const char* machines[] = {"dgx-h100", "dgx-a100", "l40s"};
  PlanRequest r = request_for("llama3.2-1b", machines[draw(0, 2)], 8, frameworks[draw(0, 3)]);
  r.model.layers = draw(2, 6);
  r.model.hidden = 1024 * draw(1, 4);
  r.model.heads = 8;
  r.model.kv_heads = 1 << draw(0, 3);
  r.model.head_dim = r.model.hidden / 8;
  r.model.ffn_hidden = 4 * r.model.hidden;
  r.job.sequence = 512 << draw(0, 3);
  r.job.global_batch = 8 << draw(0, 2);
  r.max_memory = Bytes{(3.0 + draw(0, 40)) * 0x1p30};
  r.max_gpus = 16;
  r.whole_front = true;
  if (draw(0, 1) == 1) r.economics.mtbf_per_node = Seconds{3600.0 * draw(1, 5000)};
  r.constraints.pin<&ParallelPlan::cp>(1);
  r.constraints.pin<&ParallelPlan::offload_optimizer>(0.0);
  r.constraints.pin<&ParallelPlan::rank_order>(RankOrder::dp_inside_pp);
  return r;
}

/// Half a percent: where messages block, one of these simulated steps is shorter than its closed
/// form by more than the search assumes (kClosedFormExcess), and a plan 0.3 % slower stands for it.
bool as_good(const ParetoPoint& a, const ParetoPoint& b) {
  constexpr double kAsFast = 1.005;
  return a.step() <= kAsFast * b.step() && a.memory() <= b.memory() && a.gpus() <= b.gpus() &&
         a.gpu_time <= kAsFast * b.gpu_time;
}

}  // namespace

TEST_CASE("the front over GPU counts is that of all plans enumerated by brute force") {
  std::mt19937 random(20261121);
  int over_several = 0;
  for (int i = 0; i < 40; ++i) {
    const PlanRequest r = random_case(random);
    const Result<SearchResult> choice = optimize(r);
    if (!choice) continue;
    INFO("case " << i << ": " << r.framework.name << ", " << r.model.layers << " layers");
    std::vector<ParetoPoint> all;
    for (const GpuCountResult& count : choice->counts) {
      PlanRequest sized = r;
      sized.cluster = r.cluster.resized(count.gpus).value();
      for (ParetoPoint& plan : AllPlans(sized).list()) all.push_back(std::move(plan));
    }
    const std::vector<ParetoPoint>& front = choice->front;
    REQUIRE(front.empty() == all.empty());
    int missed = 0;
    int dominated = 0;
    for (const ParetoPoint& plan : all) {
      missed += std::none_of(front.begin(), front.end(),
                             [&](const ParetoPoint& f) { return as_good(f, plan); });
    }
    for (const ParetoPoint& f : front) {
      const auto beats = [&](const ParetoPoint& plan) { return dominates(plan, f); };
      dominated += std::any_of(all.begin(), all.end(), beats);
      dominated += std::any_of(front.begin(), front.end(), beats);
    }
    CHECK(missed == 0);
    CHECK(dominated == 0);
    over_several += !front.empty() && std::any_of(front.begin(), front.end(), [&](const auto& f) {
      return f.gpus() != front.front().gpus();
    });
  }
  CHECK(over_several > 20);
}

TEST_CASE("on one number of GPUs the front is that of the search") {
  PlanRequest r = request_for("7b", "dgx-h100", 16);
  r.whole_front = true;
  const SearchResult choice = optimize(r).value();
  REQUIRE(choice.front.size() == choice.report.pareto.size());
  REQUIRE(choice.front.size() > 3);
  for (std::size_t i = 0; i < choice.front.size(); ++i) {
    CHECK(choice.front[i].candidate.plan == choice.report.pareto[i].plan);
    CHECK(choice.front[i].gpus() == 16);
  }
  CHECK(undominated(choice.front).size() == choice.front.size());
}

TEST_CASE("a plan that is worse in one thing alone is dominated, an equal one is not") {
  const ParetoPoint plan = optimize(request_for("7b", "dgx-h100", 16))->front.front();
  CHECK_FALSE(dominates(plan, plan));
  ParetoPoint other = plan;
  other.candidate.prediction.time.step *= 1.01;
  CHECK(dominates(plan, other));
  other.candidate.prediction.memory.peak_reserved -= 1_GiB;
  CHECK_FALSE(dominates(plan, other));
  CHECK_FALSE(dominates(other, plan));
  other = plan;
  other.cluster = plan.cluster.resized(24).value();
  CHECK(dominates(plan, other));
  other.gpu_time *= 0.99;
  CHECK_FALSE(dominates(plan, other));
  other = plan;
  other.gpu_time *= 1.01;
  CHECK(undominated({other, plan}).size() == 1);
}

TEST_CASE("a search without a front, or from a known time on, finds the same winner") {
  std::mt19937 random(11);
  int winners = 0;
  for (int i = 0; i < 100; ++i) {
    PlanRequest r = random_case(random);
    const Result<SearchOutcome> whole = search(r);
    r.whole_front = false;
    const Result<SearchOutcome> bare = search(r);
    INFO("case " << i << ": " << r.framework.name << ", " << r.cluster.gpus() << " GPUs");
    REQUIRE(bare.ok() == whole.ok());
    if (!whole.ok()) continue;
    CHECK(whole->whole_front);
    CHECK_FALSE(bare->whole_front);
    REQUIRE(bare->candidates.size() == whole->candidates.size());
    for (std::size_t c = 0; c < whole->candidates.size(); ++c) {
      CHECK(bare->candidates[c].plan == whole->candidates[c].plan);
    }
    if (whole->winner() == nullptr) {
      CHECK(bare->nearest_infeasible.size() == whole->nearest_infeasible.size());
      continue;
    }
    ++winners;
    r.top = 1;
    const Seconds expected = whole->winner()->expected();
    r.no_worse_than = expected;
    const Result<SearchOutcome> seeded = search(r);
    REQUIRE(seeded.ok());
    REQUIRE(seeded->winner() != nullptr);
    CHECK(seeded->winner()->plan == whole->winner()->plan);
    r.no_worse_than = 0.999 * expected;
    const Result<SearchOutcome> better = search(r);
    const bool none = !better || better->winner() == nullptr;
    CHECK((none || better->winner()->expected() >= expected));
  }
  CHECK(winners > 50);
}
