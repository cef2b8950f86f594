#include "planner/search/rank.hpp"

#include <algorithm>

#include "core/base/expects.hpp"
#include "planner/search/nearest_infeasible.hpp"
#include "planner/search/simulate_finalists.hpp"

namespace echelon {
namespace {

constexpr std::size_t kShownMisses = 3;

Candidate candidate_of(const SearchContext& context, const Findings& found,
                       const PricedPoint& priced) {
  Candidate out;
  EXPECTS(fill_plan(context.request, priced.point, out.plan), "a point that was legal before");
  if (priced.partition) {
    apply_partition(found.partitions()[static_cast<std::size_t>(*priced.partition)], out.plan);
  }
  out.prediction = context.cost_model.price(out.plan);
  out.fits = out.prediction.memory.peak_reserved <= context.usable;
  return out;
}

/// A list of thousands with many microbatches takes minutes: the winner is always simulated, the
/// others as long as `progress` returns true.
void simulate_listed(const SearchContext& context, const Progress& progress,
                     std::vector<Candidate>& listed) {
  for (std::size_t i = 0; i < listed.size(); ++i) {
    if (i > 0 && progress && !progress(1.0)) return;
    listed[i].simulated_step =
        simulated_step(context.cost_model, listed[i].plan, listed[i].prediction);
  }
}

/// The front over balanced stages and the `listed` best plans: fastest first, a running minimum.
std::vector<Candidate> front_of_points(const SearchContext& context, const Findings& found,
                                       const std::vector<PricedPoint>& ranked, std::size_t listed) {
  std::vector<Candidate> out;
  std::optional<Bytes> smallest;
  for (std::size_t i = 0; i < ranked.size(); ++i) {
    if (ranked[i].partition && i >= listed) continue;
    if (smallest && ranked[i].memory >= *smallest) continue;
    smallest = ranked[i].memory;
    out.push_back(candidate_of(context, found, ranked[i]));
  }
  return out;
}

}  // namespace

SearchOutcome rank(const SearchContext& context, Findings& found, const Progress& progress) {
  SearchOutcome out;
  const std::vector<PricedPoint> ranked = found.take_ranked();
  const auto listed = std::min(ranked.size(), static_cast<std::size_t>(context.request.top));
  for (std::size_t i = 0; i < listed; ++i) {
    out.candidates.push_back(candidate_of(context, found, ranked[i]));
  }
  simulate_listed(context, progress, out.candidates);
  if (!context.request.without_front) {
    out.pareto = front_of_points(context, found, ranked, listed);
  }
  out.rejected = found.rejections();
  out.counts = found.counts();
  if (ranked.empty()) {
    const std::vector<TooLargePoint> misses = found.closest();
    for (std::size_t i = 0; i < std::min(kShownMisses, misses.size()); ++i) {
      out.nearest_infeasible.push_back(nearest_infeasible(context.request, misses[i].point));
    }
  }
  return out;
}

}  // namespace echelon
