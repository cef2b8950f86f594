// Over 400 lines because what matters, what is simulated and what is listed judge the same records.
#include "planner/search/plan_pool.hpp"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

#include "core/base/expects.hpp"
#include "planner/search/simulate_step.hpp"

namespace echelon {
namespace {

/// While the search goes on, plans that can be better by less than this share wait for settle().
constexpr double kWorthSimulating = 2e-3;

void lower(std::optional<Seconds>& least, Seconds to) {
  if (!least || to < *least) least = to;
}

/// Total order: equal plans are listed in the same order on every machine.
auto order_of(const PricedPoint& plan) {
  return std::tuple<Seconds, Bytes, const SearchPoint&>(plan.least_expected(), plan.memory,
                                                        plan.point);
}

/// Indices of the plans for which `counts` holds, smallest key first; of equal ones, which are
/// points with other layers per stage, those found first.
std::vector<std::size_t> sorted(const std::vector<PricedPoint>& plans, auto counts, auto key) {
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    if (counts(plans[i])) out.push_back(i);
  }
  std::stable_sort(out.begin(), out.end(), [&](std::size_t a, std::size_t b) {
    const auto left = key(plans[a]);
    const auto right = key(plans[b]);
    return left < right || (!(right < left) && order_of(plans[a]) < order_of(plans[b]));
  });
  return out;
}

Seconds least_known_step(const PricedPoint& plan) { return plan.simulated.value_or(plan.least); }

/// Whether the winner may not be much slower than the plan: it fits, with its states on the GPU.
bool limits_winner(const PricedPoint& plan) {
  return plan.fits_probability() >= kSafeProbability && plan.point.offload_optimizer == 0;
}

}  // namespace

PlanFamily family_of(const SearchPoint& point) {
  const LayerSharding& s = point.sharding;
  return {s.tp, s.cp, point.pp, s.ep, s.etp, point.zero >= 2};
}

PlanFamily family_of(const ParallelPlan& plan) { return family_of(point_of(plan)); }

PlanPool PlanPool::fork() const {
  PlanPool out(context_);
  out.known_ = this;
  out.listed_ = listed_;
  out.fastest_ = fastest_;
  out.fastest_safe_ = fastest_safe_;
  out.winner_ = winner_;
  out.undominated_ = undominated_;
  return out;
}

void PlanPool::join(PlanPool&& fork) {
  const auto before = static_cast<int>(partitions_.size());
  std::ranges::move(fork.partitions_, std::back_inserter(partitions_));
  simulated_ += fork.simulated_;
  for (PricedPoint& plan : fork.plans_) {
    if (plan.partition) *plan.partition += before;
    plans_.push_back(std::move(plan));
    if (plans_.back().simulated) note(plans_.back());
  }
}

PricedPoint PlanPool::priced_point(const SearchPoint& point, const ShardingCosts& costs,
                                   const Priced& priced, std::optional<LayerPartition> partition) {
  EXPECTS(priced.time.step.is_finite(), "a step that takes a finite time");
  const Bytes reserved = priced.memory.peak_reserved;
  PricedPoint found{
      .closed_form = priced.time.closed_form,
      .least = least_step(StageModel(context_.cost_model, priced.plan, costs), priced.time),
      .bound = priced.plan.pp == 1 ? StepBound::passing : StepBound::sum_and_largest,
      .memory = reserved,
      .score = score_of(context_.request, features_of(context_.request, priced.plan), reserved),
      .point = point};
  if (partition) {
    partitions_.push_back(*std::move(partition));
    found.partition = static_cast<int>(partitions_.size()) - 1;
  }
  return found;
}

bool PlanPool::may_win(const PricedPoint& found) const {
  const std::optional<Seconds> most = context_.request.no_worse_than;
  return !most || found.least_expected() <= *most;
}

bool PlanPool::may_limit_winner(const PricedPoint& found) const {
  const std::optional<Seconds> most = context_.request.no_worse_than;
  return limits_winner(found) &&
         (!most || least_weight(context_.request, found.score.unusual) * found.least <
                       *most / (1 + kMostGivenUp));
}

bool PlanPool::may_lead(const PricedPoint& found) const {
  const auto gains = [](const std::optional<Seconds>& best, Seconds least) {
    return !best || least < *best * (1 - kWorthSimulating);
  };
  if (may_limit_winner(found) && gains(fastest_safe_, found.least)) return true;
  if (!may_win(found)) return false;
  if (gains(fastest_, found.least)) return true;
  return gains(best_of(family_of(found.point)), found.least_expected()) &&
         (!last_listed() || found.least_expected() <= *last_listed());
}

void PlanPool::price_again(const PricedPoint& found, const ShardingCosts& costs) {
  fill(found, work_.plan);
  context_.cost_model.price_memory(work_.plan, costs, work_.memory);
  context_.cost_model.price_time(work_.plan, costs, work_.memory.contents, work_.time);
}

void PlanPool::tighten(PricedPoint& found, const ShardingCosts& costs, const Priced& priced) {
  const bool by_chains = found.bound == StepBound::sum_and_largest;
  // Both ways, the chains are lowered with messages that pass one another already.
  const bool last = !by_chains || runs_both_ways(priced.plan.schedule);
  found.bound = last ? StepBound::passing : StepBound::chains;
  found.least = std::max(
      found.least, by_chains
                       ? least_step_of_chains(context_.cost_model, priced.plan, costs, priced.time)
                       : least_step_of_passing(context_.cost_model, priced.plan, costs, priced.time,
                                               simulator_));
}

void PlanPool::simulate(PricedPoint& found, const ShardingCosts& costs, Priced& priced) {
  price_simulated(context_.cost_model, priced.plan, costs, priced.memory.contents, simulator_,
                  priced.time);
  found.simulated = priced.time.step;
  ++simulated_;
  note(found);
}

void PlanPool::note(const PricedPoint& found) {
  const Seconds step = *found.simulated;
  lower(fastest_, step);
  const Seconds handled = least_weight(context_.request, found.score.unusual) * step;
  if (limits_winner(found) && (!fastest_safe_ || handled < *fastest_safe_)) {
    fastest_safe_ = handled;
    winner_.reset();  // some may now be too slow
    note_winners();
  }
  note_winner(found);
  const Seconds expected = found.least_expected();
  note_undominated(step, expected);
  const PlanFamily family = family_of(found.point);
  const std::optional<Seconds> before = best_of(family);
  if (before && expected >= *before) return;
  best_[family] = expected;
  if (before) {
    const auto at = std::ranges::find(listed_, *before);
    if (at != listed_.end()) listed_.erase(at);
  }
  listed_.insert(std::ranges::upper_bound(listed_, expected), expected);
  listed_.resize(std::min(listed_.size(), static_cast<std::size_t>(context_.request.top)));
}

std::optional<Seconds> PlanPool::best_of(const PlanFamily& family) const {
  if (const auto best = best_.find(family); best != best_.end()) return best->second;
  return known_ != nullptr ? known_->best_of(family) : std::nullopt;
}

void PlanPool::note_winner(const PricedPoint& found) {
  const std::optional<Seconds> most = most_given_up();
  if (found.simulated && (!most || *found.simulated <= *most)) {
    lower(winner_, found.least_expected());
  }
}

void PlanPool::note_undominated(Seconds step, Seconds expected) {
  const std::optional<Seconds> known = least_expected_within(step);
  if (known && *known <= expected) return;
  std::erase_if(undominated_,
                [&](const auto& each) { return each.first >= step && each.second >= expected; });
  undominated_.insert(std::ranges::upper_bound(undominated_, std::pair(step, expected)),
                      {step, expected});
}

/// The least expected step of simulated plans that take at most `step`.
std::optional<Seconds> PlanPool::least_expected_within(Seconds step) const {
  std::optional<Seconds> least;
  for (const auto& [taken, expected] : undominated_) {
    if (taken > step) break;
    least = expected;
  }
  return least;
}

/// A plan of this weight with a longer step is beaten in both by a simulated one.
Seconds PlanPool::longest_unbeaten(double weight) const {
  EXPECTS(!undominated_.empty(), "a simulated plan");
  Seconds out = std::max(undominated_.front().first, undominated_.front().second / weight);
  for (const auto& [taken, expected] : undominated_) {
    out = std::min(out, std::max(taken, expected / weight));
  }
  return out;
}

void PlanPool::note_winners() {
  for (const PlanPool* pool = this; pool != nullptr; pool = pool->known_) {
    for (const PricedPoint& each : pool->plans_) note_winner(each);
  }
}

/// The expected step of the last family listed, once there are enough.
std::optional<Seconds> PlanPool::last_listed() const {
  if (listed_.size() < static_cast<std::size_t>(context_.request.top)) return std::nullopt;
  return listed_.back();
}

/// The longest step that the winner may take.
std::optional<Seconds> PlanPool::most_given_up() const {
  return fastest_safe_ ? std::optional(*fastest_safe_ * (1 + kMostGivenUp)) : std::nullopt;
}

std::optional<Seconds> PlanPool::best() const {
  return listed_.empty() ? std::nullopt : std::optional(listed_.front());
}

bool PlanPool::matters(Seconds least) const {
  const PlanRequest& request = context_.request;
  if (request.exhaustive) return true;
  if (request.no_worse_than && least > *request.no_worse_than) return false;
  const std::optional<Seconds> last = last_listed();
  if (!last || !winner_) return true;
  return least <= std::max(*last, *winner_);  // nor does a longer one limit the winner
}

bool PlanPool::matters(const SearchPoint& point, Seconds least, double weight) const {
  const PlanRequest& request = context_.request;
  if (request.exhaustive) return true;
  if (request.no_worse_than && least * weight > *request.no_worse_than) return false;
  const std::optional<Seconds> most = longest(point, weight);
  return !most || least <= *most;
}

/// Above it no plan of the point's family is listed; nothing: any is.
std::optional<Seconds> PlanPool::most_expected(const SearchPoint& point) const {
  const std::optional<Seconds> last = last_listed();
  const std::optional<Seconds> best = best_of(family_of(point));
  return last && best ? std::min(*last, *best) : best ? best : last;
}

/// A plan of the point with a longer step limits the winner no more than those known do: it is
/// offloaded, slower than the fastest safe one, or so slow that the winner, whose step is at most
/// its expected one, is within its limit. That stays so: while the limit falls to exclude the
/// winner, it falls below that of such a plan.
Seconds PlanPool::limiting(const SearchPoint& point, double weight) const {
  if (point.offload_optimizer > 0) return {};
  const Seconds excludes = *winner_ / (1 + kMostGivenUp);
  return std::min(fastest_safe_.value_or(excludes), excludes) / weight;
}

std::optional<Seconds> PlanPool::longest(const SearchPoint& point, double weight) const {
  const std::optional<Seconds> expected = most_expected(point);
  const std::optional<Seconds> limit = context_.request.no_worse_than;
  const std::optional<Seconds> at_most = limit ? std::optional(*limit / weight) : std::nullopt;
  if (!expected || !winner_) return at_most;
  // Until a safe plan is found, one limits the winner only where it is faster than that.
  const Seconds as_winner =
      fastest_safe_
          ? std::max(limiting(point, weight), std::min(*most_given_up(), longest_unbeaten(weight)))
          : longest_unbeaten(weight);
  const Seconds most = std::max({*expected / weight, as_winner, *fastest_});
  return at_most ? std::min(*at_most, most) : most;
}

std::optional<Seconds> PlanPool::bound_of(const SearchPoint& point, double weight) const {
  if (context_.request.exhaustive) return std::nullopt;
  return just_above(longest(point, weight));
}

/// The probability with which plans of the point that take at least `step` have to fit in order to
/// be listed, to win or to limit the winner; 0 where it does not matter, 1 or more where none does.
/// `now`: that of the plan before.
double PlanPool::least_probability(const SearchPoint& point, Seconds step, double weight,
                                   double now) const {
  const std::optional<Seconds> of_family = most_expected(point);
  const std::optional<Seconds> given_up = most_given_up();
  const bool may_win = !given_up || step <= *given_up;
  const std::optional<Seconds> known = least_expected_within(step);
  if (!of_family || !winner_ || (may_win && !known)) return 0;
  const Seconds expected = may_win ? std::max(*of_family, *known) : *of_family;
  const double risk = risk_factor(context_.request.preference);
  const double least = 1 - (expected / (weight * step) - 1) / risk;
  const bool safe = now < kSafeProbability && step <= limiting(point, weight);
  return safe ? std::min(least, kSafeProbability) : least;
}

std::optional<Bytes> PlanPool::first_limit(const SearchPoint& point, Seconds step,
                                           double weight) const {
  const PlanRequest& request = context_.request;
  const std::optional<Seconds> most = longest(point, weight);
  if (request.exhaustive || !most) return context_.usable;
  if (step > *most) return std::nullopt;
  const bool risky = !request.max_memory && risk_factor(request.preference) > 0;
  if (!risky || !fastest_ || step <= *fastest_) return context_.usable;
  const double least = least_probability(point, step, weight, 0) - kRounding;
  if (least >= 1) return std::nullopt;
  return least <= request.least_probability ? context_.usable : memory_limit(request, least);
}

std::optional<Bytes> PlanPool::next_limit(const SearchPoint& point, Seconds step, double weight,
                                          Bytes reserved) const {
  const PlanRequest& request = context_.request;
  const std::optional<double> now = fit_probability(request, reserved);
  if (!now || risk_factor(request.preference) * (1 - *now) < kRounding) return std::nullopt;
  if (const std::optional<Seconds> most = longest(point, weight); most && step > *most) {
    return std::nullopt;
  }
  const double wanted = std::max(*now, least_probability(point, step, weight, *now));
  if (wanted >= 1) return std::nullopt;
  return std::min(memory_limit(request, wanted), reserved - 1_B);
}

void PlanPool::fill(const PricedPoint& priced, ParallelPlan& plan) const {
  EXPECTS(fill_plan(context_.request, priced.point, plan), "a point that was legal before");
  if (priced.partition) {
    apply_partition(partitions_[static_cast<std::size_t>(*priced.partition)], plan);
  }
}

void PlanPool::settle(const CostsOfShardings& costs) {
  settle_fastest(
      costs, [&](const PricedPoint& plan) { return may_limit_winner(plan); }, fastest_safe_);
  settle_fastest(
      costs, [&](const PricedPoint& plan) { return may_win(plan); }, fastest_);
  settle_winner(costs);
  settle_families(costs);
}

/// Makes `shortest` certain, the step of the fastest plan that `counts`, or that step raised by its
/// features' prices: no plan with a longer one can shorten it.
void PlanPool::settle_fastest(const CostsOfShardings& costs, auto counts,
                              const std::optional<Seconds>& shortest) {
  const auto may_shorten = [&](const PricedPoint& plan) {
    return (!shortest || least_known_step(plan) <= *shortest) && counts(plan);
  };
  for (const std::size_t i : sorted(plans_, may_shorten, least_known_step)) {
    if (shortest && least_known_step(plans_[i]) > *shortest) return;
    look_at(i, costs,
            [&](const PricedPoint& plan) { return !shortest || plan.least <= *shortest; });
  }
}

void PlanPool::settle_winner(const CostsOfShardings& costs) {
  const std::optional<Seconds> most = most_given_up();
  const auto counts = [&](const PricedPoint& plan) {
    return may_win(plan) && (!most || plan.least <= *most);
  };
  for (const std::size_t i : sorted(plans_, counts, order_of)) {
    if (winner_ && plans_[i].least_expected() > *winner_) return;
    look_at(i, costs, [&](const PricedPoint& plan) {
      return counts(plan) && (!winner_ || plan.least_expected() <= *winner_);
    });
  }
}

void PlanPool::settle_families(const CostsOfShardings& costs) {
  const auto may_be_listed = [&](const PricedPoint& plan) {
    const std::optional<Seconds> last = last_listed();
    return !last || plan.least_expected() <= *last;
  };
  for (const std::size_t i : sorted(plans_, may_be_listed, order_of)) {
    if (!may_be_listed(plans_[i])) return;
    look_at(i, costs, [&](const PricedPoint& plan) {
      const std::optional<Seconds> most = most_expected(plan.point);
      return may_win(plan) && (!most || plan.least_expected() <= *most);
    });
  }
}

std::vector<std::size_t> PlanPool::listed(std::size_t most) const {
  std::vector<std::size_t> simulated = sorted(
      plans_, [](const PricedPoint& plan) { return plan.simulated.has_value(); }, order_of);
  const std::optional<Seconds> limit = most_given_up();
  const auto winner = std::find_if(simulated.begin(), simulated.end(), [&](std::size_t i) {
    return !limit || *plans_[i].simulated <= *limit;
  });
  if (winner == simulated.end() || most == 0) return {};
  std::rotate(simulated.begin(), winner, winner + 1);
  std::vector<std::size_t> out;
  std::vector<PlanFamily> families;
  for (const std::size_t i : simulated) {
    const PlanFamily family = family_of(plans_[i].point);
    if (std::find(families.begin(), families.end(), family) != families.end()) continue;
    families.push_back(family);
    out.push_back(i);
    if (out.size() == most) break;
  }
  return out;
}

/// The simulated plan that `counts` whose `seconds` are the least.
std::optional<std::size_t> PlanPool::first_of(auto counts, auto seconds) const {
  std::optional<std::size_t> out;
  const auto key = [&](std::size_t i) {
    return std::tuple(seconds(plans_[i]), plans_[i].score.weight, plans_[i].memory,
                      plans_[i].point);
  };
  for (std::size_t i = 0; i < plans_.size(); ++i) {
    if (!plans_[i].simulated || !counts(plans_[i])) continue;
    if (!out || key(i) < key(*out)) out = i;
  }
  return out;
}

std::optional<std::size_t> PlanPool::fastest() const {
  return first_of([](const PricedPoint&) { return true; },
                  [](const PricedPoint& plan) { return *plan.simulated; });
}

std::optional<std::size_t> PlanPool::fastest_safe() const {
  return first_of(limits_winner, [&](const PricedPoint& plan) {
    return least_weight(context_.request, plan.score.unusual) * *plan.simulated;
  });
}

}  // namespace echelon
