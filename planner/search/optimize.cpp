#include "planner/search/optimize.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include "core/base/expects.hpp"
#include "planner/economics.hpp"
#include "planner/space/score.hpp"

namespace echelon {
namespace {

constexpr int kMostMultiple = 8;  ///< m of m·2^j GPUs of a node, or nodes

/// The front from its small end for memory-headroom; search() has the right order otherwise.
void order_by_objective(const PlanRequest& request, SearchOutcome& report) {
  if (request.objective != Objective::memory_headroom) return;
  report.candidates.assign(report.pareto.rbegin(), report.pareto.rend());
  report.siblings.clear();
  report.fastest.reset();
  report.fastest_likely.reset();
  if (report.candidates.size() > static_cast<std::size_t>(request.top)) {
    report.candidates.resize(static_cast<std::size_t>(request.top));
  }
}

Result<SearchOutcome> search_by_objective(const PlanRequest& request, const Progress& progress) {
  Result<SearchOutcome> report = search(request, progress);
  if (report) order_by_objective(request, *report);
  return report;
}

/// What a search that failed or found `winner` says in a table of several.
BestPlan best_plan_of(const PlanRequest& request, const Candidate* winner, const Error* error,
                      bool stopped) {
  BestPlan out;
  if (error != nullptr) {
    out.why_none = error->hint.empty() ? error->found : error->hint;
  } else if (winner != nullptr) {
    out.best = *winner;
    out.key = objective_key(request, *winner);
  } else {
    out.why_none = stopped ? "stopped before a plan was found" : "nothing is likely to fit";
  }
  return out;
}

/// One GPU count as an entry of the table.
GpuCountResult outcome_of(const PlanRequest& request, const Result<SearchOutcome>& report) {
  return {best_plan_of(request, report ? report->fitting_winner() : nullptr,
                       report ? nullptr : &report.error(), report && !report->exhaustive),
          request.cluster.gpus()};
}

/// One search per number of GPUs; the best plan of all by the objective.
Result<SearchResult> choose_among(const std::vector<int>& counts, const PlanRequest& request,
                                  const Progress& progress) {
  std::optional<SearchResult> best;
  std::optional<ObjectiveKey> best_key;
  std::optional<Error> last_error;
  std::vector<GpuCountResult> outcomes;
  std::vector<ParetoPoint> fronts;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const Result<ClusterTopology> cluster = request.cluster.resized(counts[i]);
    if (!cluster) {  // the description ends here
      if (!last_error) last_error = cluster.error();
      break;
    }
    PlanRequest sized = request;
    sized.cluster = *cluster;
    const auto share = [&](double part) {
      return (static_cast<double>(i) + part) / static_cast<double>(counts.size());
    };
    Result<SearchOutcome> report =
        search_by_objective(sized, [&](double part) { return !progress || progress(share(part)); });
    outcomes.push_back(outcome_of(sized, report));
    if (!report) {
      last_error = report.error();
      continue;
    }
    const GpuCountResult& outcome = outcomes.back();
    if (outcome.best) {
      for (ParetoPoint& plan : front_of(sized, *report)) fronts.push_back(std::move(plan));
    }
    // Where nothing fits yet, the largest count shows what is missing.
    const bool better = outcome.best ? !best_key || outcome.key < *best_key : !best_key;
    if (!better) continue;
    if (outcome.best) best_key = outcome.key;
    best = SearchResult{std::move(sized), *std::move(report), {}, {}, {}};
  }
  EXPECTS(best || last_error, "at least one number of GPUs");
  if (!best) return *last_error;
  best->counts = std::move(outcomes);
  best->front = undominated(std::move(fronts));
  return *std::move(best);
}

/// With the job's own recipe.
Result<SearchResult> optimize_alone(const PlanRequest& request, const Progress& progress) {
  if (request.max_gpus) {
    return choose_among(gpu_counts(request.cluster, *request.max_gpus), request, progress);
  }
  Result<SearchOutcome> report = search_by_objective(request, progress);
  if (!report) return report.error();
  std::vector<ParetoPoint> front = front_of(request, *report);
  return SearchResult{request, *std::move(report), {}, {}, std::move(front)};
}

/// One search per recipe; the best plan of all by the objective and the price of its states.
/// Where nothing fits, the narrowest states miss by least: the last ones.
Result<SearchResult> choose_recipe(const PlanRequest& request, const Progress& progress) {
  std::optional<SearchResult> best;
  std::optional<ObjectiveKey> best_key;
  std::optional<Error> last_error;
  std::vector<RecipeResult> outcomes;
  for (std::size_t i = 0; i < request.recipes.size(); ++i) {
    PlanRequest one = request;
    one.job.precision = request.recipes[i];
    one.recipes.clear();
    const auto share = [&](double part) {
      return (static_cast<double>(i) + part) / static_cast<double>(request.recipes.size());
    };
    Result<SearchResult> found =
        optimize_alone(one, [&](double part) { return !progress || progress(share(part)); });
    const PlanRequest& asked = found ? found->request : one;
    outcomes.push_back(
        {best_plan_of(asked, found ? found->report.fitting_winner() : nullptr,
                      found ? nullptr : &found.error(), found && !found->report.exhaustive),
         one.job.precision.name});
    if (!found) {
      last_error = found.error();
      continue;
    }
    const RecipeResult& outcome = outcomes.back();
    ObjectiveKey key = outcome.key;
    key.value *= 1 + price_of_states(one.preference, one.job.precision);
    const bool better = outcome.best ? !best_key || key < *best_key : !best_key;
    if (!better) continue;
    if (outcome.best) best_key = key;
    best = *std::move(found);
  }
  EXPECTS(best || last_error, "at least one recipe");
  if (!best) return *last_error;
  best->recipes = std::move(outcomes);
  return *std::move(best);
}

}  // namespace

ObjectiveKey objective_key(const PlanRequest& request, const Candidate& candidate) {
  const double step = candidate.expected().in(kSecond);
  const double memory = candidate.prediction.memory.peak_reserved.in(kByte);
  const std::optional<Goodput> failures = goodput_of(request);
  const double useful = failures ? failures->fraction : 1;
  switch (request.objective) {
    case Objective::step_time: return {step, memory};
    case Objective::cost: return {paid_per_step(request, candidate.expected()).in(kSecond), step};
    case Objective::memory_headroom: return {memory, step};
    case Objective::goodput: return {step / useful, static_cast<double>(request.cluster.gpus())};
  }
  return {};
}

std::vector<int> gpu_counts(const ClusterTopology& cluster, int most) {
  std::set<int> counts;
  const int node = cluster.node().gpus;
  const int nodes = most / node;
  for (int multiple = 1; multiple <= kMostMultiple; ++multiple) {
    for (int gpus = multiple; gpus < node && gpus <= most; gpus *= 2) counts.insert(gpus);
    for (std::int64_t n = multiple; n <= nodes; n *= 2) counts.insert(static_cast<int>(n) * node);
  }
  if (nodes > 0) counts.insert(nodes * node);
  return {counts.begin(), counts.end()};
}

Result<SearchResult> optimize(const PlanRequest& request, const Progress& progress) {
  return request.recipes.empty() ? optimize_alone(request, progress)
                                 : choose_recipe(request, progress);
}

bool tied(const TimePrediction& a, const TimePrediction& b, double band) {
  const CostBreakdown& x = a.parts;
  const CostBreakdown& y = b.parts;
  double differing = 0;  // seconds squared
  for (const StepPart& part : kStepParts) {
    if (part.member == &CostBreakdown::imbalance) continue;  // with fill_drain: the bubble
    const bool bubble = part.member == &CostBreakdown::fill_drain;
    const Seconds more = bubble ? x.bubble() - y.bubble() : part.of(x) - part.of(y);
    differing += more.in(kSecond)*more.in(kSecond);
  }
  const double own = kOwnError * std::hypot(a.step.in(kSecond), b.step.in(kSecond));
  const double width = band * std::sqrt(differing + own * own);
  return std::abs((a.step - b.step).in(kSecond)) <= width;
}

}  // namespace echelon
