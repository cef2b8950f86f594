// Over 400 lines because every partition is compared with what the partitioner says of it.
#include "planner/search/partition.hpp"

#include <algorithm>
#include <numeric>
#include <random>

#include "planner/search/bounds.hpp"
#include "planner/search/layer_partitioner.hpp"
#include "planner/search/simulate_step.hpp"
#include "planner/space/candidates.hpp"
#include "planner/space/legality.hpp"
#include "tests/planner/requests.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

ParallelPlan plan_for(const PlanRequest& r, int tp, int pp, Recompute recompute) {
  ParallelPlan p;
  p.tp = tp;
  p.pp = pp;
  p.dp = r.cluster.gpus() / (tp * pp);
  p.shard_group = p.dp;
  p.zero = p.dp > 1 ? 1 : 0;
  p.sequence_parallel = tp > 1;
  p.recompute = recompute;
  p.layers_per_stage = balanced_layers(r.model.layers, pp);
  p.recompute_layers.assign(static_cast<std::size_t>(pp), 0);
  return p;
}

/// Calls `use` with every way to write `total` as `parts` numbers ≥ 0, in order.
template <class Use>
void all_splits(int total, int parts, std::vector<int>& prefix, const Use& use) {
  for (int first = parts == 1 ? total : 0; first <= total; ++first) {
    prefix.push_back(first);
    if (parts == 1) {
      use(prefix);
    } else {
      all_splits(total - first, parts - 1, prefix, use);
    }
    prefix.pop_back();
  }
}

/// The fastest plan with p's degrees that fits, over all splits and all recompute counts its
/// framework and policy allow, priced one by one.
class AllSplits {
 public:
  AllSplits(const PlanRequest& r, const CostModel& cost_model, ParallelPlan p, Bytes usable)
      : r_(r), cost_model_(cost_model), p_(std::move(p)), usable_(usable) {}

  Seconds best() {
    std::vector<int> prefix;
    all_splits(r_.model.layers, p_.pp, prefix, [&](const std::vector<int>& layers) {
      p_.layers_per_stage = layers;
      p_.recompute_layers.assign(layers.size(), 0);
      p_.selective_layers.assign(p_.recompute == Recompute::mixed ? layers.size() : 0, 0);
      if (r_.framework.per_stage_recompute) {
        each_stage(0);
      } else {
        same_on_every_stage();
      }
    });
    return best_;
  }

 private:
  void each_stage(std::size_t s) {
    if (s == p_.layers_per_stage.size()) return price();
    const bool counts = p_.recompute == Recompute::full || p_.recompute == Recompute::mixed;
    const int layers = p_.layers_per_stage[s];
    for (int full = 0; full <= (counts ? layers : 0); ++full) {
      const int most = p_.recompute == Recompute::mixed ? layers - full : 0;
      for (int selective = 0; selective <= most; ++selective) {
        p_.recompute_layers[s] = full;
        if (most > 0 || !p_.selective_layers.empty()) p_.selective_layers[s] = selective;
        each_stage(s + 1);
      }
    }
  }
  void same_on_every_stage() {
    const int most = *std::max_element(p_.layers_per_stage.begin(), p_.layers_per_stage.end());
    for (int k = 0; k < most + p_.vpp; k += p_.vpp) {
      for (std::size_t s = 0; s < p_.layers_per_stage.size(); ++s) {
        p_.recompute_layers[s] = std::min(k, p_.layers_per_stage[s]);
      }
      price();
      if (p_.recompute != Recompute::full) return;
    }
  }
  void price() {
    if (check_plan(r_.model, r_.job, r_.cluster, r_.framework, p_)) return;
    const PlanCosts found = cost_model_.price(p_);
    if (found.memory.peak_reserved <= usable_) best_ = std::min(best_, found.time.step);
  }

  const PlanRequest& r_;
  const CostModel& cost_model_;
  ParallelPlan p_;
  Bytes usable_;
  Seconds best_ = kUnbounded;
};

/// `bound`: of the simulated step; `closed_form`: of that.
std::optional<LayerPartition> partition_of(const CostModel& cost_model, const ParallelPlan& p,
                                           Bytes usable, std::optional<Seconds> bound,
                                           Seconds closed_form = kUnbounded) {
  const ShardingCosts costs = cost_model.sharding_costs(sharding_of(p));
  LayerPartitioner partitioner(cost_model, p, costs);
  partitioner.set_limits(usable, bound);
  partitioner.tighten(closed_form);
  return best_partition(partitioner);
}

/// That found by positions, in place of one partition after the other.
std::optional<LayerPartition> partition_by_positions(const CostModel& cost_model,
                                                     const ParallelPlan& p, Bytes usable) {
  const ShardingCosts costs = cost_model.sharding_costs(sharding_of(p));
  LayerPartitioner partitioner(cost_model, p, costs);
  partitioner.set_limits(usable, std::nullopt);
  partitioner.try_below(0);
  return best_partition(partitioner);
}

/// What the simulated step of a plan with this partition is not below.
Seconds least_step_of(const CostModel& cost_model, ParallelPlan p, const LayerPartition& split) {
  apply_partition(split, p);
  const ShardingCosts costs = cost_model.sharding_costs(sharding_of(p));
  return least_step(StageModel(cost_model, p, costs), cost_model.price(p).time);
}

/// Bounds just above the best partition cut off none as good; just below it none passes.
void check_bounds(const CostModel& cost_model, const ParallelPlan& p, Bytes usable,
                  const LayerPartition& best) {
  const Seconds least = least_step_of(cost_model, p, best);
  const auto bounded = partition_of(cost_model, p, usable, just_above(least));
  REQUIRE(bounded);
  CHECK(bounded->step.in(1_us) == Approx(best.step.in(1_us)).epsilon(1e-12));
  CHECK(partition_of(cost_model, p, usable, std::nullopt, *just_above(best.step)));
  CHECK_FALSE(partition_of(cost_model, p, usable, std::nullopt, best.step * (1 - 1e-6)));
  const Seconds shorter = least * (1 - 1e-6);
  const auto other = partition_of(cost_model, p, usable, shorter);
  CHECK((!other || other->step > best.step * (1 - 1e-12)));
  CHECK((!other || least_step_of(cost_model, p, *other) < shorter));
  ParallelPlan none = p;
  none.recompute = Recompute::none;
  const ShardingCosts costs = cost_model.sharding_costs(sharding_of(p));
  LayerPartitioner partitioner(cost_model, none, costs);
  partitioner.set_limits({}, just_above(least));
  CHECK(any_partition_may_win(partitioner));
}

/// What a search rejects points by lets a partition that was found pass.
void check_rejections(const PlanRequest& r, const CostModel& cost_model, ParallelPlan p,
                      Bytes usable, const LayerPartition& split) {
  const ShardingCosts costs = cost_model.sharding_costs(sharding_of(p));
  const std::vector<RecomputePolicy> policies = {{p.recompute, p.recompute_modules}};
  const Seconds least = least_step_of(cost_model, p, split);
  const auto may_win = [&](Bytes reserved, Seconds bound) {
    const auto limit = [&](Seconds step) { return step <= least ? reserved : Bytes{}; };
    return partition_may_win(cost_model, p, costs, limit, bound, policies);
  };
  CHECK(may_win(usable, *just_above(least)));
  CHECK_FALSE(may_win({}, *just_above(least)));
  CHECK_FALSE(may_win(usable, least / 2));
  if (r.framework.per_stage_recompute || p.recompute == Recompute::selective) return;
  p.schedule = ScheduleKind::one_f_one_b;
  p.vpp = 1;
  const std::vector<RecomputePolicy> all = {Recompute::none, Recompute::full};
  const int fewest = least_recomputation(cost_model, p, costs, usable, all).full;
  for (std::size_t s = 0; s < split.layers.size(); ++s) {
    CHECK(split.recomputed[s] >= std::min(fewest, split.layers[s]));
  }
}

}  // namespace

TEST_CASE("the partitioner finds the fastest of all splits and all mixes of recomputation") {
  std::mt19937 random(20261121);
  const auto draw = [&](int low, int high) {
    return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
  };
  int found = 0;
  int mixed = 0;
  int bare = 0;
  for (int i = 0; i < 400; ++i) {
    const bool ours = draw(0, 1) == 0;
    PlanRequest r = request_for("llama3.2-1b", "dgx-a100", 8, ours ? "echelon" : "megatron-core");
    const int pp = 1 << draw(1, 2);
    const int vpp = ours ? 1 : draw(1, 2);
    r.model.layers = draw(pp * vpp - 1, ours && pp > 2 ? 5 : 8);
    r.model.vocab = 1000 * draw(1, 128);
    r.model.hidden = 2048;
    if (draw(0, 3) == 0 && vpp == 1) {
      r.model.moe = {.experts = 2,
                     .experts_per_token = 1,
                     .expert_ffn_hidden = r.model.hidden,
                     .first_dense_layers = draw(0, 2)};
    }
    r.job.flash_attention = draw(0, 3) == 0;
    r.job.sequence = 1024;
    r.job.global_batch = 64;
    const CostModel cost_model(r.model, r.job, r.cluster, r.framework, r.calibration);
    const Recompute policies[] = {Recompute::none, Recompute::selective, Recompute::full,
                                  Recompute::mixed};
    ParallelPlan p = plan_for(r, 2, pp, Recompute::none);
    p.vpp = vpp;
    if (r.model.moe.experts > 0 && r.framework.splits_experts_as_mlp) p.etp = p.tp;
    if (vpp > 1) p.schedule = ScheduleKind::interleaved;
    p.overlap_pp = vpp > 1;
    p.microbatch = 1 << draw(0, 1);
    // Memory between what nothing and what everything recomputed needs, more or less.
    ParallelPlan least = p;
    p.layers_per_stage = least.layers_per_stage =
        split_layers(r.framework, r.model, pp, vpp).value();
    p.recompute = Recompute::none;
    least.recompute = Recompute::full;
    least.recompute_layers = least.layers_per_stage;
    const double high = cost_model.price(p).memory.peak_reserved.in(kByte);
    const double low = cost_model.price(least).memory.peak_reserved.in(kByte);
    p.recompute = policies[ours ? std::min(3, draw(0, 6)) : draw(0, 2)];
    const double share = 0.1 * draw(-2, 12);
    const Bytes usable{low + (high - low) * share};
    const auto split = partition_of(cost_model, p, usable, std::nullopt);
    const Seconds best = AllSplits(r, cost_model, p, usable).best();
    INFO("case " << i << ": " << r.framework.name << ", " << r.model.layers << " layers, pp " << pp
                 << ", vpp " << vpp << ", " << name_of(p.recompute));
    REQUIRE(split.has_value() == (best < Seconds{1e29}));
    if (!split) continue;
    ++found;
    CHECK(split->step.in(1_us) == Approx(best.in(1_us)).epsilon(1e-9));
    check_bounds(cost_model, p, usable, *split);
    check_rejections(r, cost_model, p, usable, *split);
    for (std::size_t s = 0; s < split->layers.size(); ++s) {
      if (split->recomputed[s] > 0 && split->selective[s] > 0) ++mixed;
      if (split->layers[s] == 0) ++bare;
    }
  }
  CHECK(found > 150);
  CHECK(mixed > 5);
  CHECK(bare > 10);
}

namespace {

/// Compares best_partition() with all partitions of p, with memory between what everything and what
/// nothing recomputed needs, more or less. Returns whether one was found.
bool check_against_all(const PlanRequest& r, ParallelPlan p, double share) {
  const CostModel cost_model(r.model, r.job, r.cluster, r.framework, r.calibration);
  const Recompute policy = p.recompute;
  p.layers_per_stage = split_layers(r.framework, r.model, p.pp, p.vpp).value();
  p.recompute = Recompute::full;
  p.recompute_layers = p.layers_per_stage;
  const double low = cost_model.price(p).memory.peak_reserved.in(kByte);
  p.recompute = Recompute::none;
  p.recompute_layers.assign(p.layers_per_stage.size(), 0);
  const double high = cost_model.price(p).memory.peak_reserved.in(kByte);
  p.recompute = policy;
  const Bytes usable{low + (high - low) * share};
  const auto split = partition_of(cost_model, p, usable, std::nullopt);
  const Seconds best = AllSplits(r, cost_model, p, usable).best();
  INFO(r.model.layers << " layers, the first " << r.model.moe.first_dense_layers
                      << " dense, then experts in every " << r.model.moe.every << "., pp " << p.pp
                      << ", vpp " << p.vpp << ", " << name_of(p.schedule) << ", "
                      << name_of(p.recompute));
  REQUIRE(split.has_value() == (best < Seconds{1e29}));
  const auto by_positions = partition_by_positions(cost_model, p, usable);
  REQUIRE(by_positions.has_value() == split.has_value());
  if (!split) return false;
  CHECK(by_positions->layers == split->layers);
  CHECK(by_positions->recomputed == split->recomputed);
  CHECK(by_positions->step == split->step);
  CHECK(split->step.in(1_us) == Approx(best.in(1_us)).epsilon(1e-9));
  check_bounds(cost_model, p, usable, *split);
  check_rejections(r, cost_model, p, usable, *split);
  p.layers_per_stage = split->layers;
  p.recompute_layers = split->recomputed;
  CHECK(cost_model.price(p).time.step.in(1_us) == Approx(split->step.in(1_us)).epsilon(1e-12));
  return true;
}

}  // namespace

TEST_CASE("chunks of layers of two kinds: the fastest of all splits") {
  std::mt19937 random(20261122);
  const auto draw = [&](int low, int high) {
    return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
  };
  int found = 0;
  for (int i = 0; i < 300; ++i) {
    PlanRequest r = request_for("llama3.2-1b", "dgx-a100", 8);
    const int pp = 1 << draw(1, 2);
    const int vpp = draw(2, pp == 2 ? 4 : 3);
    r.model.layers = draw(pp * vpp - 1, 13);
    r.model.vocab = 1000 * draw(1, 128);
    r.model.hidden = 2048;
    r.model.moe = {.experts = 2 << draw(0, 1),
                   .experts_per_token = draw(1, 2),
                   .expert_ffn_hidden = r.model.hidden * draw(1, 6),
                   .first_dense_layers = draw(0, 4),
                   .every = draw(1, 3)};
    r.job.flash_attention = draw(0, 3) == 0;
    r.job.sequence = 1024;
    r.job.global_batch = 32;
    const Recompute policies[] = {Recompute::none, Recompute::selective, Recompute::full,
                                  Recompute::full};
    ParallelPlan p = plan_for(r, 2, pp, policies[draw(0, 3)]);
    p.vpp = vpp;
    p.schedule = ScheduleKind::interleaved;
    p.overlap_pp = true;
    if (check_against_all(r, p, 0.1 * draw(-2, 14))) ++found;
  }
  CHECK(found > 150);
}

// Eight of them, so that what the middle ones hold is found by halving between them.
TEST_CASE("many stages: the fastest of all splits") {
  std::mt19937 random(20261124);
  const auto draw = [&](int low, int high) {
    return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
  };
  int found = 0;
  for (int i = 0; i < 24; ++i) {
    PlanRequest r = request_for("llama3.2-1b", "dgx-a100", 16);
    const int vpp = draw(1, 2);
    r.model.layers = vpp == 1 ? draw(9, 11) : draw(15, 17);
    r.model.vocab = 1000 * draw(1, 64);
    r.model.hidden = 2048;
    if (vpp > 1) {
      r.model.moe = {.experts = 2,
                     .experts_per_token = 1,
                     .expert_ffn_hidden = r.model.hidden * draw(1, 4),
                     .first_dense_layers = draw(0, 4)};
    }
    r.job.sequence = 4096;
    r.job.global_batch = 8 << draw(0, 2);
    ParallelPlan p = plan_for(r, 2, 8, draw(0, 1) == 0 ? Recompute::none : Recompute::full);
    p.vpp = vpp;
    if (vpp > 1) p.schedule = ScheduleKind::interleaved;
    p.overlap_pp = vpp > 1;
    if (check_against_all(r, p, 0.1 * draw(2, 12))) ++found;
  }
  CHECK(found > 8);
}

TEST_CASE("ZB-H1 and GPipe: the fastest of all splits") {
  std::mt19937 random(20261123);
  const auto draw = [&](int low, int high) {
    return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
  };
  int found = 0;
  for (int i = 0; i < 200; ++i) {
    PlanRequest r = request_for("llama3.2-1b", "dgx-a100", 8, "echelon");
    r.framework.per_stage_recompute = false;  // then every count is tried, as AllSplits does
    const int pp = 1 << draw(1, 2);
    r.model.layers = draw(pp, 9);
    r.model.vocab = 1000 * draw(1, 128);
    r.model.hidden = 2048;
    r.job.flash_attention = draw(0, 1) == 0;
    r.job.sequence = 1024;
    r.job.global_batch = 8 << draw(0, 2);
    const Recompute policies[] = {Recompute::none, Recompute::selective, Recompute::full};
    ParallelPlan p = plan_for(r, 2, pp, policies[draw(0, 2)]);
    p.schedule = draw(0, 2) > 0 ? ScheduleKind::zero_bubble_h1 : ScheduleKind::gpipe;
    if (check_against_all(r, p, 0.1 * draw(-2, 14))) ++found;
  }
  CHECK(found > 100);
}

TEST_CASE("no split has a slowest stage below the bound, and one reaches it") {
  std::mt19937 random(5);
  const auto draw = [&](double most) { return most * static_cast<double>(random() % 1000) / 999; };
  for (int i = 0; i < 300; ++i) {
    const int pp = 2 + static_cast<int>(random() % 3);
    const int layers = 1 + static_cast<int>(random() % 9);
    const LayerAndEnds times{Seconds{0.1 + draw(1)}, Seconds{draw(3)}, Seconds{draw(3)}};
    Seconds best = kUnbounded;
    std::vector<int> prefix;
    all_splits(layers, pp, prefix, [&](const std::vector<int>& split) {
      Seconds slowest;
      for (std::size_t s = 0; s < split.size(); ++s) {
        Seconds time = split[s] * times.layer;
        if (s == 0) time += times.embedding;
        if (s + 1 == split.size()) time += times.head;
        slowest = std::max(slowest, time);
      }
      best = std::min(best, slowest);
    });
    const Seconds bound = least_slowest(layers, pp, times);
    CHECK(bound <= best);
    CHECK(bound / best == Approx(1).epsilon(1e-6));
  }
}

TEST_CASE("the partitioner's step time is the price of the split it returns") {
  for (const char* model : {"llama3-8b", "gpt2-xl", "70b"}) {
    const PlanRequest r = request_for(model, "dgx-h100", 64);
    const CostModel cost_model(r.model, r.job, r.cluster, r.framework, r.calibration);
    for (const auto& [tp, pp] : {std::pair{4, 2}, std::pair{4, 4}, std::pair{8, 8}}) {
      if (r.model.heads % tp != 0) continue;
      ParallelPlan p = plan_for(r, tp, pp, Recompute::none);
      const ShardingCosts costs = cost_model.sharding_costs(sharding_of(p));
      const auto split = partition_of(cost_model, p, Bytes{1e15}, std::nullopt);
      REQUIRE(split);
      CHECK(std::accumulate(split->layers.begin(), split->layers.end(), 0) == r.model.layers);
      const Seconds balanced = cost_model.price(p).time.step;
      p.layers_per_stage = split->layers;
      p.recompute_layers = split->recomputed;
      CHECK(cost_model.price(p).time.step.in(1_us) == Approx(split->step.in(1_us)).epsilon(1e-12));
      CHECK(split->step <= balanced * (1 + 1e-12));
    }
  }
}

TEST_CASE("a heavy output head takes layers from the last stage") {
  PlanRequest r = request_for("llama3-8b", "dgx-h100", 8);
  const CostModel cost_model(r.model, r.job, r.cluster, r.framework, r.calibration);
  const ParallelPlan p = plan_for(r, 1, 8, Recompute::none);
  const auto split = partition_of(cost_model, p, Bytes{1e15}, std::nullopt);
  REQUIRE(split);
  CHECK(split->layers.back() < *std::max_element(split->layers.begin(), split->layers.end()));
}

TEST_CASE("a stack that may differ between stages recomputes less on later stages") {
  PlanRequest r = request_for("13b", "dgx-h100", 8, "echelon");
  const CostModel cost_model(r.model, r.job, r.cluster, r.framework, r.calibration);
  const ParallelPlan p = plan_for(r, 1, 8, Recompute::full);
  const auto split = partition_of(cost_model, p, 38_GiB, std::nullopt);
  REQUIRE(split);
  CHECK(split->recomputed.front() > 0);
  CHECK(split->recomputed.front() > split->recomputed.back());
}

TEST_CASE("no split is returned when the bound cannot be beaten or nothing fits") {
  const PlanRequest r = request_for("llama3-8b", "dgx-h100", 8);
  const CostModel cost_model(r.model, r.job, r.cluster, r.framework, r.calibration);
  const ParallelPlan p = plan_for(r, 1, 8, Recompute::full);
  const ShardingCosts costs = cost_model.sharding_costs(sharding_of(p));
  CHECK_FALSE(partition_of(cost_model, p, r.usable_memory(), 1_ms));
  CHECK_FALSE(partition_of(cost_model, p, 1_GiB, std::nullopt));
}
