// Over 400 lines because one class tells the search in one piece: collect, bound, visit, split,
// report.
#include "planner/search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "core/base/expects.hpp"
#include "core/base/saturated_product.hpp"
#include "costmodel/time/pipeline.hpp"
#include "costmodel/time/stage_model.hpp"
#include "planner/bounds.hpp"
#include "planner/candidates.hpp"
#include "planner/finalists.hpp"
#include "planner/near_miss.hpp"
#include "planner/recompute.hpp"
#include "planner/split.hpp"

namespace echelon {
namespace {

constexpr Seconds kNever{1e30};
constexpr Bytes kHuge{1e30};

/// A priced tuple that fits. `split` points into Search::splits_, or is −1 for the balanced one.
struct Scored {
  Seconds step;
  Bytes memory;
  Tuple tuple;
  int split = -1;
  auto operator<=>(const Scored&) const = default;  // time, then memory, then the tuple itself
};

/// A tuple that does not fit, and by how much.
struct TooLarge {
  Bytes missing;
  Tuple tuple;
  auto operator<=>(const TooLarge&) const = default;
};

/// Degrees and cut: what the first bound is computed for.
struct Base {
  Seconds least;  ///< no plan with these degrees takes less
  Tuple tuple;
  const ShardingCosts* costs = nullptr;
  Seconds work;     ///< least_work of the sharding
  Seconds slowest;  ///< what one stage takes at least
};

/// A tuple whose layers may be split unevenly.
struct Uneven {
  Seconds least;
  Tuple tuple;
  const ShardingCosts* costs = nullptr;
  Seconds balanced;  ///< its best plan with balanced stages
};

/// A tuple that can win and whose layers are not searched for their best split.
struct Unsplit {
  OpenSplits::Kind kind{};
  Seconds least;
};

/// The Pareto front found so far: time ascending, memory descending.
class Front {
 public:
  void add(Seconds step, Bytes memory) {
    if (dominates(step, memory)) return;
    auto at = points_.lower_bound(step);
    while (at != points_.end() && at->second >= memory) at = points_.erase(at);
    points_[step] = memory;
  }
  /// Whether some plan found is at least as fast and at least as small.
  [[nodiscard]] bool dominates(Seconds step, Bytes memory) const {
    auto after = points_.upper_bound(step);
    return after != points_.begin() && std::prev(after)->second <= memory;
  }

 private:
  std::map<Seconds, Bytes> points_;
};

void apply_split(const Split& split, ParallelPlan& plan) {
  plan.layers_per_stage = split.layers;
  plan.recompute_layers = split.recomputed;
  if (plan.recompute != Recompute::mixed) return;
  plan.selective_layers = split.selective;
  const auto none = [](const std::vector<int>& layers) {
    return std::all_of(layers.begin(), layers.end(), [](int k) { return k == 0; });
  };
  if (!none(plan.selective_layers)) return;
  plan.selective_layers.clear();
  plan.recompute = none(plan.recompute_layers) ? Recompute::none : Recompute::full;
}

class Search {
 public:
  explicit Search(const PlanRequest& request)
      : request_(request),
        cost_model_(request.model, request.job, request.cluster, request.stack,
                    request.calibration),
        usable_(request.usable_memory()),
        recomputes_(recompute_values(request)) {}

  /// False when stopped by the caller.
  bool run(const Progress& progress);
  /// The best, simulated event by event while `progress` says that they are waited for.
  SearchOutcome report(const Progress& progress);
  [[nodiscard]] bool found_legal() const {
    return counts_.fitting + counts_.too_large + counts_.bounded > 0;
  }
  [[nodiscard]] std::vector<RejectionCount> rejections() const;
  [[nodiscard]] std::vector<OpenSplits> open_splits() const;
  /// 1 − (best open bound) / (best found): how much faster an open tuple could be.
  [[nodiscard]] double gap() const;

 private:
  void collect();
  void collect_degrees(int tp, int cp, int pp);
  void add_base(const Tuple& tuple);
  void visit(const Base& base);
  /// One choice of ZeRO and offload for certain degrees.
  struct Sharding {
    int zero = 0;
    double offload = 0;
    std::vector<int> groups{};  ///< over how many ranks, largest first
    std::size_t hopeless = 0;   ///< groups from here on fit under no schedule
  };
  std::vector<Sharding> shardings_of(Tuple tuple,
                                     std::vector<std::pair<Rejection, std::int64_t>>& broken);
  void visit_shards(Tuple tuple, Sharding& sharding, const Base& base, Seconds least);
  /// Where a tuple ended, when smaller shard groups must end there too; hopeless: other schedules
  /// as well.
  enum class Outcome { too_large, hopeless, bounded, open };
  [[nodiscard]] std::optional<Rejection> broken_rule(const Tuple& tuple);
  Outcome visit_tuple(Tuple tuple, const Base& base, Seconds least);
  void note_unsplit(const Tuple& tuple, Seconds least);
  void visit_mix(Tuple tuple, const ShardingCosts& costs, Seconds bound);
  void visit_recompute(Tuple tuple, const ShardingCosts& costs);
  void price(const Tuple& tuple, const ShardingCosts& costs);
  bool split_unevenly(const Progress& progress);
  void improve_split(const Uneven& open);
  [[nodiscard]] Seconds best_of_last(std::int64_t count) const;
  void accept(const Tuple& tuple, int split);
  [[nodiscard]] int fewest_recomputed(Tuple tuple, int all, const ShardingCosts& costs);
  [[nodiscard]] Bytes missing(const Tuple& tuple, const ShardingCosts& costs);
  [[nodiscard]] Bytes least_missing(Tuple& tuple, const ShardingCosts& costs);
  [[nodiscard]] bool frees_its_buffer(std::span<const Stage> stages,
                                      const ShardingCosts& costs) const;
  [[nodiscard]] Seconds least_time(const Tuple& tuple, const Base& base);
  [[nodiscard]] Seconds least_time_of_base(const Base& base);
  [[nodiscard]] Seconds least_time_with_traffic(const ParallelPlan& plan,
                                                const ShardingCosts& costs) const;
  /// The step time a new plan must beat to be among the top K.
  [[nodiscard]] Seconds incumbent() const {
    const Seconds limit = request_.no_slower_than.value_or(kNever);
    const bool open = best_.size() < static_cast<std::size_t>(request_.top);
    return open ? limit : std::min(limit, best_.back());
  }
  /// Whether a tuple that cannot be listed is of no interest: there is no front to be on.
  [[nodiscard]] bool skips_losers() const { return request_.without_front && !request_.exhaustive; }
  void reject(const Rejection& rejection, std::int64_t tuples = 1);
  [[nodiscard]] Candidate candidate(const Scored& scored) const;

  const PlanRequest& request_;
  CostModel cost_model_;
  Bytes usable_;
  std::vector<Recompute> recomputes_;
  SearchCounts counts_;
  std::map<LayerSharding, ShardingCosts> cuts_;
  std::vector<Base> bases_;
  std::size_t next_base_ = 0;
  std::vector<Scored> fitting_;
  std::vector<Split> splits_;
  std::vector<Uneven> uneven_;
  std::size_t next_uneven_ = 0;
  std::vector<Unsplit> unsplit_;
  std::vector<Seconds> best_;  ///< step times of the top K, ascending
  Front front_;
  std::map<std::tuple<int, int, int>, TooLarge> closest_;  ///< per (tp, cp, pp)
  std::map<RejectionReason, RejectionCount> rejected_;
  ParallelPlan plan_;
  MemoryPrediction memory_;
  TimePrediction time_;
};

void Search::reject(const Rejection& rejection, std::int64_t tuples) {
  RejectionCount& entry = rejected_[rejection.reason];
  entry.reason = rejection.reason;
  if (entry.count == 0) entry.nearest = rejection.detail;
  entry.count += tuples;
  counts_.tuples += tuples;
}

// ------------------------------------------------------------------- Step 1: degrees

void Search::collect() {
  const std::int64_t gpus = request_.cluster.gpus();
  for (const int tp : tp_values(request_, gpus)) {
    if (const auto rejection = check_tensor_parallel(request_.model, tp)) {
      reject(*rejection);
      continue;
    }
    for (const int cp : cp_values(request_, gpus)) {
      for (const int pp : pp_values(request_, gpus)) collect_degrees(tp, cp, pp);
    }
  }
  std::stable_sort(bases_.begin(), bases_.end(),
                   [](const Base& a, const Base& b) { return a.least < b.least; });
}

void Search::collect_degrees(int tp, int cp, int pp) {
  const PlanConstraints& pinned = request_.constraints;
  const std::int64_t gpus = request_.cluster.gpus();
  const std::int64_t product = saturated_product({tp, cp, pp});
  if (pp > request_.model.layers + (request_.stack.any_layout ? 2 : 0)) {
    return reject({RejectionReason::too_few_layers,
                   fmt::format("{} layers for pp {}", request_.model.layers, pp)});
  }
  const int dp = pinned.dp.value_or(static_cast<int>(std::max<std::int64_t>(1, gpus / product)));
  if (saturated_product({product, dp}) != gpus) {
    if (pinned.dp || pinned.tp || pinned.cp || pinned.pp) {
      reject({RejectionReason::gpus_mismatch,
              fmt::format("tp {} x cp {} x dp {} x pp {} is not {} GPUs", tp, cp, dp, pp, gpus)});
    }
    return;
  }
  Tuple tuple;
  tuple.pp = pp;
  tuple.dp = dp;
  tuple.sharding.tp = tp;
  tuple.sharding.cp = cp;
  tuple.sharding.overlap_tp = pinned.overlap_tp.value_or(false);
  tuple.rank_order = pinned.rank_order.value_or(RankOrder::dp_inside_pp);
  for (const CpComm comm : cp_comm_values(request_, cp)) {
    for (const ExpertGrid grid : expert_values(request_, tp, tp * cp * dp)) {
      for (const int microbatch : microbatch_values(request_, dp)) {
        for (const bool sequence_parallel : sequence_parallel_values(request_, tp)) {
          tuple.sharding.cp_comm = comm;
          tuple.sharding.ep = grid.ep;
          tuple.sharding.etp = grid.etp;
          tuple.sharding.microbatch = microbatch;
          tuple.sharding.sequence_parallel = sequence_parallel;
          add_base(tuple);
        }
      }
    }
  }
}

/// Work of all layers, embedding and head of one microbatch, nothing recomputed, nothing exposed by
/// data parallelism: what the stages together take at least.
Seconds least_work(const CostModel& cost_model, const ShardingCosts& costs) {
  ParallelPlan bare;  // degrees without data parallelism: no ZeRO traffic
  bare.tp = costs.sharding.tp;
  bare.pp = 1;
  bare.microbatch = costs.sharding.microbatch;
  const StageModel model(cost_model, bare, costs);
  const int layers = cost_model.model().layers;
  const int moe = cost_model.moe_before(layers);
  return model.times({.index = 0, .layers = {layers - moe, moe}}).total();
}

/// What one of the stages takes at least because layers come whole.
Seconds slowest_stage(const CostModel& cost_model, const ShardingCosts& costs, int pp) {
  if (pp == 1) return Seconds{};
  ParallelPlan bare;
  bare.tp = costs.sharding.tp;
  bare.pp = 2;
  bare.microbatch = costs.sharding.microbatch;
  const StageModel model(cost_model, bare, costs);
  const Seconds most = full_stage(cost_model, model, pp, fullest(cost_model, pp), 0).total;
  if (!cost_model.one_kind()) return most;
  const int moe = cost_model.moe_before(1);
  const LayerAndEnds times = layer_and_ends(model, 2, {1 - moe, moe});
  return std::max(most, least_slowest(cost_model.model().layers, pp, times));
}

/// Degrees that break a rule whatever the rest are rejected once, here.
void Search::add_base(const Tuple& tuple) {
  fill_degrees(request_, tuple, plan_);
  if (const auto rejection =
          check_degrees(request_.model, request_.job, request_.cluster, request_.stack, plan_)) {
    return reject(*rejection);
  }
  auto found = cuts_.find(tuple.sharding);
  if (found == cuts_.end())
    found = cuts_.emplace(tuple.sharding, cost_model_.sharding_costs(tuple.sharding)).first;
  const Seconds work = least_work(cost_model_, found->second);
  Base base{kNever, tuple, &found->second, work,
            slowest_stage(cost_model_, found->second, tuple.pp)};
  base.slowest = std::max(base.slowest, work / tuple.pp);
  base.least = least_time_of_base(base);
  bases_.push_back(base);
}

// -------------------------------------------------------------------- Step 2: bounds

/// No split and no choice of ZeRO, recomputation or offload makes the tuple's degrees and schedule
/// faster: Σt ≥ work and max t ≥ slowest, and the pipeline's time falls with neither.
Seconds Search::least_time(const Tuple& tuple, const Base& base) {
  fill_degrees(request_, tuple, plan_);
  const StageModel model(cost_model_, plan_, *base.costs);
  return (model.pipeline(base.work, base.slowest) + cost_model_.calibration().step_fixed) *
         (1 + model.straggler_share());
}

/// The same over every schedule: the smallest bubble any number of chunks leaves.
Seconds Search::least_time_of_base(const Base& base) {
  Tuple open = base.tuple;
  Seconds least = kNever;
  const std::vector<RankOrder> rank_orders = rank_order_values(request_, open);
  for (const Chunks chunks : chunk_values(request_, open.pp)) {
    open.vpp = chunks.vpp;
    open.schedule = chunks.schedule;
    for (const RankOrder order : rank_orders) {
      open.rank_order = order;
      least = std::min(least, least_time(open, base));
    }
  }
  return least;
}

/// The same with what ZeRO moves in every microbatch, the first stage's optimizer
/// step on its embedding.
Seconds Search::least_time_with_traffic(const ParallelPlan& plan,
                                        const ShardingCosts& costs) const {
  const StageModel model(cost_model_, plan, costs);
  const int layers = request_.model.layers;
  const int moe = cost_model_.moe_before(layers);
  const int past = plan.pp == 1 ? 0 : plan.pp;  // a stage past the last: layers alone
  Seconds work = model.times({.index = past, .layers = {layers - moe, moe}}).total();
  Seconds slowest = work / plan.pp;
  if (plan.pp > 1) {
    const int first = cost_model_.moe_before(1);
    const LayerAndEnds times = layer_and_ends(model, plan.pp, {1 - first, first});
    work += times.embedding + times.head;
    slowest =
        std::max(work / plan.pp,
                 full_stage(cost_model_, model, plan.pp, fullest(cost_model_, plan.pp), 0).total);
    if (cost_model_.one_kind()) slowest = std::max(slowest, least_slowest(layers, plan.pp, times));
  }
  const Seconds optimizer = model.optimizer({.index = 0, .layers = {}});
  return (model.pipeline(work, slowest) + optimizer + cost_model_.calibration().step_fixed) *
         (1 + model.straggler_share());
}

// ---------------------------------------------------------------- Step 3: best first

bool Search::run(const Progress& progress) {
  collect();
  for (next_base_ = 0; next_base_ < bases_.size(); ++next_base_) {
    if (skips_losers() && bases_[next_base_].least > incumbent()) break;  // so are all the rest
    visit(bases_[next_base_]);
    if (progress && next_base_ % 64 == 63 &&
        !progress(static_cast<double>(next_base_) / static_cast<double>(bases_.size()))) {
      ++next_base_;
      return false;
    }
  }
  return split_unevenly(progress);
}

/// Rules about the schedule are asked once for all shardings, and the other way round.
void Search::visit(const Base& base) {
  Tuple tuple = base.tuple;
  const std::vector<RankOrder> rank_orders = rank_order_values(request_, tuple);
  std::vector<Tuple> orders;  // schedules and rank orders that break no rule
  std::vector<std::pair<Rejection, std::int64_t>> broken;
  std::vector<Sharding> shardings = shardings_of(tuple, broken);
  std::int64_t each = 0;
  for (const auto& [rejection, count] : broken) each += count;
  for (const Sharding& sharding : shardings) {
    each += static_cast<std::int64_t>(sharding.groups.size());
  }
  for (const Chunks chunks : chunk_values(request_, tuple.pp)) {
    tuple.vpp = chunks.vpp;
    tuple.schedule = chunks.schedule;
    for (const RankOrder order : rank_orders) {
      tuple.rank_order = order;
      if (const auto rejection = broken_rule(tuple)) {
        reject(*rejection, each);
      } else {
        orders.push_back(tuple);
      }
    }
  }
  if (orders.empty()) return;
  for (const auto& [rejection, count] : broken) {
    reject(rejection, count * static_cast<std::int64_t>(orders.size()));
  }
  for (Tuple& ordered : orders) {
    const Seconds least = least_time(ordered, base);
    for (Sharding& sharding : shardings) {
      ordered.zero = sharding.zero;
      ordered.offload_optimizer = sharding.offload;
      visit_shards(ordered, sharding, base, least);
    }
  }
}

/// What ZeRO and offload can be for these degrees; what breaks a rule goes to `broken`, with how
/// many shard groups it stands for.
std::vector<Search::Sharding> Search::shardings_of(
    Tuple tuple, std::vector<std::pair<Rejection, std::int64_t>>& broken) {
  std::vector<Sharding> out;
  fill_degrees(request_, tuple, plan_);
  for (const int zero : zero_values(request_, tuple)) {
    tuple.zero = plan_.zero = zero;
    const std::vector<int> groups = shard_values(request_, tuple);
    for (const double offload : offload_values(request_, zero)) {
      Sharding sharding{.zero = zero, .offload = offload};
      plan_.offload_optimizer = offload;
      for (std::size_t i = 0; i < groups.size(); ++i) {
        plan_.shard_group = groups[i];
        if (const auto rejection = check_sharding(request_.model, request_.job, request_.cluster,
                                                  request_.stack, plan_)) {
          // A smaller group needs more memory on the host too: so are the rest.
          const std::int64_t alike =
              request_.exhaustive ? 1 : static_cast<std::int64_t>(groups.size() - i);
          broken.emplace_back(*rejection, alike);
          if (!request_.exhaustive) break;
          continue;
        }
        sharding.groups.push_back(groups[i]);
      }
      sharding.hopeless = sharding.groups.size();
      if (!sharding.groups.empty()) out.push_back(std::move(sharding));
    }
  }
  return out;
}

/// A smaller shard group needs more memory on the GPU, and the bound is the same: where the largest
/// is bounded or too large, so are the rest. 1F1B keeps the fewest microbatches of all schedules:
/// what does not fit under it, whatever the split, fits under none.
void Search::visit_shards(Tuple tuple, Sharding& sharding, const Base& base, Seconds least) {
  const auto end_here = [&](Outcome outcome, std::size_t count) {
    (outcome == Outcome::bounded ? counts_.bounded : counts_.too_large) +=
        static_cast<std::int64_t>(count);
    counts_.tuples += static_cast<std::int64_t>(count);
  };
  const std::vector<int>& groups = sharding.groups;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (i == sharding.hopeless) return end_here(Outcome::hopeless, groups.size() - i);
    tuple.shard_group = groups[i];
    const Outcome outcome = visit_tuple(tuple, base, least);
    if (request_.exhaustive || outcome == Outcome::open) continue;
    if (outcome == Outcome::hopeless) sharding.hopeless = i;
    return end_here(outcome, groups.size() - i - 1);
  }
}

/// The rule that the tuple's schedule or rank order breaks, whatever it recomputes.
std::optional<Rejection> Search::broken_rule(const Tuple& tuple) {
  if (!fill_plan(request_, tuple, plan_)) {
    return Rejection{
        RejectionReason::layers_not_divisible,
        fmt::format("{} layers on pp {} x vpp {}", request_.model.layers, tuple.pp, tuple.vpp)};
  }
  return check_schedule(request_.model, request_.job, request_.stack, plan_);
}

/// Prices a tuple unless its bounds say that it can neither be listed nor lie on the Pareto front:
/// `least` against the K best, and (least, smallest memory) against the front.
Search::Outcome Search::visit_tuple(Tuple tuple, const Base& base, Seconds least) {
  const ShardingCosts& costs = *base.costs;
  const PlanConstraints& pinned = request_.constraints;
  const bool pinned_counts = pinned.recompute_layers || pinned.selective_layers;
  // The second bound is this shard group's own: smaller groups move less.
  const bool some_can_win = request_.exhaustive || least <= incumbent();
  if (some_can_win) {
    fill_degrees(request_, tuple, plan_);
    least = std::max(least, least_time_with_traffic(plan_, costs));
  }
  const bool can_win = request_.exhaustive || least <= incumbent();
  if (!can_win && skips_losers()) {
    ++counts_.tuples;
    ++counts_.bounded;
    return some_can_win ? Outcome::open : Outcome::bounded;
  }
  const Bytes shortage = least_missing(tuple, costs);
  if (!can_win && shortage <= Bytes{} && front_.dominates(least, shortage + usable_)) {
    ++counts_.tuples;
    ++counts_.bounded;
    return some_can_win ? Outcome::open : Outcome::bounded;
  }
  const std::int64_t priced = counts_.priced;
  if (shortage <= Bytes{}) visit_recompute(tuple, costs);
  const bool chunks = tuple.vpp > 1 && request_.stack.any_layout && cost_model_.one_kind();
  const bool splits = (chunks || tuple.schedule == ScheduleKind::one_f_one_b) && tuple.pp > 1 &&
                      !pinned.layers_per_stage && !pinned_counts;
  if (can_win && !splits && tuple.pp > 1 && !pinned.layers_per_stage) note_unsplit(tuple, least);
  const Seconds balanced = best_of_last(counts_.priced - priced);
  const bool least_held = splits && tuple.schedule == ScheduleKind::one_f_one_b;
  const bool may_fit = shortage <= Bytes{} || (splits && (some_can_win || least_held) &&
                                               split_may_fit(cost_model_, plan_, costs, usable_));
  if (can_win && splits && may_fit) {
    uneven_.push_back({least, tuple, &costs, balanced});
  } else if (can_win && !splits && !pinned_counts) {
    visit_mix(tuple, costs, balanced * (1 - 1e-9));
  }
  if (counts_.priced > priced) {
    ++counts_.tuples;
    ++counts_.fitting;
    return Outcome::open;
  }
  if (pinned_counts) {  // they were not checked with the rest
    (void)missing(tuple, costs);
    if (const auto rejection =
            check_plan(request_.model, request_.job, request_.cluster, request_.stack, plan_)) {
      reject(*rejection);
      return Outcome::open;
    }
  }
  ++counts_.tuples;
  ++counts_.too_large;
  const TooLarge entry{shortage, tuple};
  const auto [at, inserted] =
      closest_.try_emplace({tuple.sharding.tp, tuple.sharding.cp, tuple.pp}, entry);
  if (!inserted) at->second = std::min(at->second, entry);
  if (!may_fit && least_held) return Outcome::hopeless;
  return may_fit && some_can_win ? Outcome::open : Outcome::too_large;
}

/// Stacks that want equal chunks have one split alone.
void Search::note_unsplit(const Tuple& tuple, Seconds least) {
  using enum OpenSplits::Kind;
  const bool two_kinds = tuple.vpp > 1 && !cost_model_.one_kind();
  if (tuple.vpp > 1 && !request_.stack.any_layout) return;
  unsplit_.push_back({two_kinds                                        ? interleaved_two_kinds
                      : tuple.schedule == ScheduleKind::zero_bubble_h1 ? zero_bubble_h1
                      : tuple.schedule == ScheduleKind::gpipe          ? gpipe
                                                                       : pinned_recompute,
                      least});
}

/// Where layers cannot be split but each stage may recompute on its own: the fastest for each.
/// Listed when it is faster than what the tuple's equal counts gave.
void Search::visit_mix(Tuple tuple, const ShardingCosts& costs, Seconds bound) {
  if (!request_.stack.per_stage_recompute) return;
  for (const Recompute recompute : recomputes_) {
    if (recompute != Recompute::full && recompute != Recompute::mixed) continue;
    tuple.recompute = recompute;
    tuple.recompute_layers = 0;
    EXPECTS(fill_plan(request_, tuple, plan_), "a tuple that was legal before");
    if (!recompute_each_stage(cost_model_, costs, usable_, plan_)) continue;
    splits_.push_back(
        {plan_.layers_per_stage, plan_.recompute_layers, plan_.selective_layers, Seconds{}});
    cost_model_.price_memory(plan_, costs, memory_);
    cost_model_.price_time(plan_, costs, memory_.contents, time_);
    if (time_.step >= bound) {
      splits_.pop_back();
      continue;
    }
    bound = splits_.back().step = time_.step;
    accept(tuple, static_cast<int>(splits_.size()) - 1);
  }
}

/// Recomputation costs time, so of the counts of fully recomputed layers only two matter: the
/// fewest that fit (the fastest), and all (the smallest, for the Pareto front).
void Search::visit_recompute(Tuple tuple, const ShardingCosts& costs) {
  const std::vector<int> layers = plan_.layers_per_stage;
  const int all = *std::max_element(layers.begin(), layers.end());
  const PlanConstraints& pinned = request_.constraints;
  const bool pinned_counts = pinned.recompute_layers || pinned.selective_layers;
  for (const Recompute recompute : recomputes_) {
    tuple.recompute = recompute;
    tuple.recompute_layers = 0;
    const bool counts = recompute == Recompute::full || recompute == Recompute::mixed;
    // Equal counts on every stage are none, selective or full.
    if (recompute == Recompute::mixed && recomputes_.size() > 1) continue;
    if (!counts) {
      price(tuple, costs);
      continue;
    }
    if (!pinned_counts) {
      const int fewest = fewest_recomputed(tuple, all, costs);
      if (fewest > 0 && fewest < all) {
        tuple.recompute_layers = fewest;
        price(tuple, costs);
      }
    }
    tuple.recompute_layers = all;
    price(tuple, costs);
  }
}

Bytes Search::missing(const Tuple& tuple, const ShardingCosts& costs) {
  EXPECTS(fill_plan(request_, tuple, plan_), "a tuple that was legal before");
  if (plan_.recompute_layers.size() != static_cast<std::size_t>(plan_.pp)) return kHuge;
  cost_model_.price_memory(plan_, costs, memory_);
  return memory_.peak_reserved - usable_;
}

/// The same with whatever recomputation leaves the least: of every layer, or none, for the buffer
/// of the layer being recomputed can be larger than all it saves. Leaves the former in `tuple`.
Bytes Search::least_missing(Tuple& tuple, const ShardingCosts& costs) {
  const auto missing_with = [&](Recompute recompute) {
    tuple.recompute = recompute;
    const bool counts = recompute == Recompute::full || recompute == Recompute::mixed;
    tuple.recompute_layers = counts ? request_.model.layers : 0;
    return missing(tuple, costs);
  };
  const Bytes all = missing_with(recomputes_.back());
  if (recomputes_.size() == 1 || frees_its_buffer(memory_.contents, costs)) return all;
  Bytes least = all;
  for (const Recompute recompute : recomputes_) {
    if (recompute == Recompute::none || recompute == Recompute::selective) {
      least = std::min(least, missing_with(recompute));
    }
  }
  return std::min(least, missing_with(recomputes_.back()));
}

/// Whether the tightest stage, all of it recomputed, keeps less by more than that buffer.
bool Search::frees_its_buffer(std::span<const Stage> stages, const ShardingCosts& costs) const {
  if (stages.empty()) return false;
  // The copy of ZeRO-1's gather takes the room that activations leave (StageModel::memory), and
  // fixed blocks are no sum over layers.
  const Framework& stack = request_.stack;
  const bool gathers = stack.zero1_gather_local + stack.zero1_gather_shard > 0;
  if (stack.fixed_blocks || (plan_.zero == 1 && gathers)) return false;
  const Stage& stage = stages[static_cast<std::size_t>(memory_.tightest_stage)];
  const std::int64_t m = plan_.microbatches_rounded_up(request_.job.global_batch);
  const double in_flight =
      static_cast<double>(chunks_in_flight(plan_.schedule, plan_.pp, plan_.vpp, stage.index, m)) /
      plan_.vpp;
  const auto freed = [&](const LayerCosts& layer, int layers) {
    return layers * (layer.saved_selective - costs.layer_input);
  };
  const Bytes buffer = stage.layers.moe > 0 ? costs.moe.saved : costs.dense.saved;
  return in_flight *
             (freed(costs.dense, stage.layers.dense) + freed(costs.moe, stage.layers.moe)) >=
         buffer;
}

/// Fewest recomputed layers per stage with which the tuple fits (a multiple of vpp: every chunk
/// alike), or 0 when none are needed. Bisection: memory falls with every further layer, and all of
/// them are known to fit.
int Search::fewest_recomputed(Tuple tuple, int all, const ShardingCosts& costs) {
  tuple.recompute = Recompute::none;
  if (missing(tuple, costs) <= Bytes{}) return 0;
  tuple.recompute = Recompute::full;
  int low = 0;  // does not fit
  int high = (all + tuple.vpp - 1) / tuple.vpp;
  while (high - low > 1) {
    const int middle = std::midpoint(low, high);
    tuple.recompute_layers = std::min(all, middle * tuple.vpp);
    (missing(tuple, costs) <= Bytes{} ? high : low) = middle;
  }
  return std::min(all, high * tuple.vpp);
}

void Search::price(const Tuple& tuple, const ShardingCosts& costs) {
  if (missing(tuple, costs) > Bytes{}) return;
  const PlanConstraints& pinned = request_.constraints;
  if ((pinned.recompute_layers || pinned.selective_layers) &&
      check_plan(request_.model, request_.job, request_.cluster, request_.stack, plan_)) {
    return;
  }
  cost_model_.price_time(plan_, costs, memory_.contents, time_);
  front_.add(time_.step, memory_.peak_reserved);
  accept(tuple, -1);
}

void Search::accept(const Tuple& tuple, int split) {
  ++counts_.priced;
  fitting_.push_back({time_.step, memory_.peak_reserved, tuple, split});
  best_.insert(std::upper_bound(best_.begin(), best_.end(), time_.step), time_.step);
  if (best_.size() > static_cast<std::size_t>(request_.top)) best_.pop_back();
}

/// Step time of the fastest of the last `count` accepted plans.
Seconds Search::best_of_last(std::int64_t count) const {
  Seconds best = kNever;
  for (auto scored = fitting_.rbegin(); count > 0; ++scored, --count) {
    best = std::min(best, scored->step);
  }
  return best;
}

/// Uneven layers per stage, exactly, for tuples that can still be listed; they must beat their own
/// balanced split. Best bound first, when the K best are known and their bound is tight.
bool Search::split_unevenly(const Progress& progress) {
  std::stable_sort(uneven_.begin(), uneven_.end(),
                   [](const Uneven& a, const Uneven& b) { return a.least < b.least; });
  for (; next_uneven_ < uneven_.size(); ++next_uneven_) {
    const Uneven& open = uneven_[next_uneven_];
    if (!request_.exhaustive && open.least > incumbent()) break;
    improve_split(open);
    if (progress && next_uneven_ % 64 == 63 && !progress(1.0)) return false;
  }
  return true;
}

void Search::improve_split(const Uneven& open) {
  Tuple tuple = open.tuple;
  Seconds bound = open.balanced * (1 - 1e-9);
  if (!request_.exhaustive) bound = std::min(bound, incumbent() * (1 + 1e-12));
  for (const Recompute recompute : recomputes_) {
    tuple.recompute = recompute;
    tuple.recompute_layers = 0;
    EXPECTS(fill_plan(request_, tuple, plan_), "a tuple that was legal before");
    ++counts_.splits;
    std::optional<Split> split = best_split(cost_model_, plan_, *open.costs, usable_, bound);
    if (!split) continue;
    bound = split->step;
    splits_.push_back(*std::move(split));
    apply_split(splits_.back(), plan_);
    tuple.recompute_layers =
        *std::max_element(plan_.recompute_layers.begin(), plan_.recompute_layers.end());
    cost_model_.price_memory(plan_, *open.costs, memory_);
    cost_model_.price_time(plan_, *open.costs, memory_.contents, time_);
    accept(tuple, static_cast<int>(splits_.size()) - 1);
  }
}

// --------------------------------------------------------------------- Step 4: report

Candidate Search::candidate(const Scored& scored) const {
  Candidate out;
  EXPECTS(fill_plan(request_, scored.tuple, out.plan), "a tuple that was legal before");
  if (scored.split >= 0) apply_split(splits_[static_cast<std::size_t>(scored.split)], out.plan);
  out.prediction = cost_model_.price(out.plan);
  out.fits = out.prediction.memory.peak_reserved <= usable_;
  return out;
}

std::vector<RejectionCount> Search::rejections() const {
  std::vector<RejectionCount> out;
  for (const auto& [reason, entry] : rejected_) out.push_back(entry);
  if (counts_.too_large > 0) {
    const TooLarge* best = nullptr;
    for (const auto& [degrees, entry] : closest_) {
      if (best == nullptr || entry < *best) best = &entry;
    }
    const Tuple& t = best->tuple;
    out.push_back({RejectionReason::memory, counts_.too_large,
                   fmt::format("tp {} cp {} pp {} dp {} microbatch {} zero {}, all layers "
                               "recomputed: short by {:.2f} GiB",
                               t.sharding.tp, t.sharding.cp, t.pp, t.dp, t.sharding.microbatch,
                               t.zero, best->missing.in(1_GiB))});
  }
  return out;
}

double Search::gap() const {
  if (best_.empty()) return 1;
  Seconds open = kNever;
  if (next_base_ < bases_.size()) open = bases_[next_base_].least;
  for (std::size_t i = next_uneven_; i < uneven_.size(); ++i)
    open = std::min(open, uneven_[i].least);
  return std::max(0.0, 1 - open / best_.front());
}

std::vector<OpenSplits> Search::open_splits() const {
  std::map<OpenSplits::Kind, OpenSplits> found;
  for (const Unsplit& open : unsplit_) {
    if (best_.empty() || open.least >= best_.front()) continue;
    OpenSplits& entry = found[open.kind];
    entry.kind = open.kind;
    ++entry.tuples;
    entry.gap = std::max(entry.gap, 1 - open.least / best_.front());
  }
  std::vector<OpenSplits> out;
  for (const auto& [kind, entry] : found) out.push_back(entry);
  return out;
}

SearchOutcome Search::report(const Progress& progress) {
  SearchOutcome out;
  std::sort(fitting_.begin(), fitting_.end());
  const auto top = std::min(fitting_.size(), static_cast<std::size_t>(request_.top));
  bool wanted = true;
  for (std::size_t i = 0; i < top; ++i) {
    out.candidates.push_back(candidate(fitting_[i]));
    // A list of thousands with many microbatches takes minutes; the winner is always simulated.
    wanted = wanted && (i == 0 || !progress || progress(1.0));
    if (!wanted) continue;
    Candidate& finalist = out.candidates.back();
    finalist.simulated_step = simulated_step(cost_model_, finalist.plan, finalist.prediction);
  }
  // The front over balanced splits and the listed plans: fastest first, a running minimum.
  Bytes smallest{-1};
  for (std::size_t i = 0; i < fitting_.size() && !request_.without_front; ++i) {
    const Scored& scored = fitting_[i];
    if (scored.split >= 0 && i >= top) continue;
    if (smallest >= Bytes{} && scored.memory >= smallest) continue;
    smallest = scored.memory;
    out.pareto.push_back(candidate(scored));
  }
  out.rejected = rejections();
  out.counts = counts_;
  if (fitting_.empty()) {
    std::vector<TooLarge> misses;
    for (const auto& [degrees, entry] : closest_) misses.push_back(entry);
    std::sort(misses.begin(), misses.end());
    constexpr std::size_t kShown = 3;
    for (std::size_t i = 0; i < std::min(kShown, misses.size()); ++i) {
      out.nearest_infeasible.push_back(nearest_infeasible(request_, misses[i].tuple));
    }
  }
  return out;
}

/// Constraints that no tuple can meet, said before anything is enumerated.
std::optional<Error> contradiction(const PlanRequest& request) {
  const PlanConstraints& c = request.constraints;
  if (auto error = contradicting_counts(c)) return error;
  if (c.layers_per_stage && !c.pp) {
    return input_error("--layers-per-stage", "no --pp", "--pp with as many stages",
                       fmt::format("add --pp {}", c.layers_per_stage->size()));
  }
  if (c.schedule && *c.schedule != ScheduleKind::interleaved && c.vpp && *c.vpp > 1) {
    return input_error("--vpp", fmt::format("{} with --schedule {}", *c.vpp, name_of(*c.schedule)),
                       "--schedule interleaved", "drop one of the two flags");
  }
  if (c.bucket) {
    ParallelPlan asked;  // what is open could have buckets
    asked.dp = c.dp.value_or(2);
    asked.cp = c.cp.value_or(1);
    asked.zero = c.zero.value_or(0);
    asked.overlap_dp = c.overlap_dp.value_or(true);
    const std::string why = why_no_buckets(request.stack, asked);
    if (!why.empty()) return input_error("--bucket", why, "a plan that reduces in buckets");
  }
  return {};
}

}  // namespace

std::string_view name_of(OpenSplits::Kind kind) {
  switch (kind) {
    case OpenSplits::Kind::interleaved_two_kinds: return "interleaved-two-kinds";
    case OpenSplits::Kind::zero_bubble_h1: return "zb-h1";
    case OpenSplits::Kind::gpipe: return "gpipe";
    case OpenSplits::Kind::pinned_recompute: return "pinned-recompute";
  }
  return "?";
}

Result<SearchOutcome> search(const PlanRequest& request, const Progress& progress) {
  if (auto error = contradiction(request)) return *error;
  Search search(request);
  const bool finished = search.run(progress);
  if (finished && !search.found_legal()) {
    std::string reasons;
    for (const RejectionCount& entry : search.rejections()) {
      reasons +=
          fmt::format("{}{} ({}; {} tuple{})", reasons.empty() ? "" : "; ", describe(entry.reason),
                      entry.nearest, entry.count, entry.count == 1 ? "" : "s");
    }
    return input_error("the constraints", "no legal configuration",
                       "degrees that divide the model, the batch and the GPUs", reasons);
  }
  SearchOutcome report = search.report(progress);
  report.exhaustive = finished;
  report.gap = finished ? 0 : search.gap();
  report.open_splits = search.open_splits();
  for (const OpenSplits& open : report.open_splits) report.gap = std::max(report.gap, open.gap);
  return report;
}

Result<Candidate> predict(const PlanRequest& request) {
  Result<ParallelPlan> plan = plan_from_constraints(request);
  if (!plan) return plan.error();
  const CostModel cost_model(request.model, request.job, request.cluster, request.stack,
                             request.calibration);
  Candidate out;
  out.plan = *std::move(plan);
  out.prediction = cost_model.price(out.plan);
  out.fits = out.prediction.memory.peak_reserved <= request.usable_memory();
  return out;
}

}  // namespace echelon
