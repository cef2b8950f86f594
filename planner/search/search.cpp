// The chain of the five steps of docs/search.md:
//
//   1. enumerate   the degrees that break no rule               enumerate.hpp
//   2. bound       each set of degrees                          enumerate.hpp, bounds.hpp
//   3. price       best bound first, what can be listed or      visit.hpp, visit_point.hpp,
//                  lie on the front, with balanced stages       price_point.hpp
//   4. partition   layers unevenly, where that can be listed    improve_partition.hpp,
//                                                               partition.hpp
//   5. rank        what was simulated                           rank.hpp, plan_pool.hpp,
//                                                               simulate_step.hpp
//
// Between the steps, Findings (findings.hpp) holds the plans found and where every point ended.
#include "planner/search/search.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "planner/search/enumerate.hpp"
#include "planner/search/improve_partition.hpp"
#include "planner/search/rank.hpp"
#include "planner/search/visit.hpp"
#include "planner/space/contradictions.hpp"

namespace echelon {
namespace {

constexpr std::size_t kPointsPerCall = 64;  ///< between two calls of Progress

/// How far a step came before it was stopped, or before nothing later could matter.
struct Walked {
  std::size_t next = 0;  ///< the first that was not visited
  bool stopped = false;
};

/// Step 3.
Walked visit_all(const SearchContext& context, const std::vector<DegreeNode>& nodes,
                 Findings& found, const Progress& progress) {
  Priced work;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (!context.whole_front && !found.pool.matters(nodes[i].least)) return {i};  // nor the rest
    visit(context, nodes[i], found, work);
    if (progress && i % kPointsPerCall == kPointsPerCall - 1 &&
        !progress(static_cast<double>(i) / static_cast<double>(nodes.size()))) {
      return {i + 1, true};
    }
  }
  return {nodes.size()};
}

/// Step 4: best bound first, when the K best are known and their bound is tight.
Walked partition_all(const SearchContext& context, std::vector<PendingPartition>& pending,
                     Findings& found, const Progress& progress) {
  Priced work;
  std::stable_sort(
      pending.begin(), pending.end(),
      [](const PendingPartition& a, const PendingPartition& b) { return a.least < b.least; });
  for (std::size_t i = 0; i < pending.size(); ++i) {
    if (!found.pool.matters(pending[i].least)) return {i};
    if (!found.pool.matters(pending[i].point, pending[i].least, pending[i].weight)) continue;
    improve_partition(context, pending[i], found, work);
    if (progress && i % kPointsPerCall == kPointsPerCall - 1 && !progress(1.0)) return {i, true};
  }
  return {pending.size()};
}

/// How much faster an open point could be than the best found: 1 − (best open bound) / (best).
double open_gap(std::optional<Seconds> best, const std::vector<DegreeNode>& nodes,
                std::size_t next_node, const std::vector<PendingPartition>& pending,
                std::size_t next_pending) {
  if (!best) return 1;
  double gap = 0;
  const auto open = [&](Seconds least) { gap = std::max(gap, 1 - least / *best); };
  if (next_node < nodes.size()) open(nodes[next_node].least);
  for (std::size_t i = next_pending; i < pending.size(); ++i) open(pending[i].least);
  return gap;
}

/// The same without the assumption of least_of(), of a search that found a plan.
double proved_gap(const Findings& found, const std::vector<DegreeNode>& nodes,
                  std::size_t next_node) {
  std::optional<Seconds> least = found.proved.least(found.pool);
  for (std::size_t i = next_node; i < nodes.size(); ++i) {
    if (nodes[i].point.pp > 1 && (!least || nodes[i].proved < *least)) least = nodes[i].proved;
  }
  const std::optional<Seconds> best = found.pool.best();
  return least && best ? std::max(0.0, 1 - *least / *best) : 0;
}

Error no_legal_configuration(const Findings& found) {
  std::string reasons;
  for (const RejectionCount& entry : found.rejections()) {
    reasons += fmt::format("{}{} ({}; {} combination{})", reasons.empty() ? "" : "; ",
                           describe(entry.reason), entry.nearest, entry.count,
                           entry.count == 1 ? "" : "s");
  }
  return input_error("the constraints", "no legal configuration",
                     "degrees that divide the model, the batch and the GPUs", reasons);
}

/// One search, by the memory limit of `request`.
Result<SearchOutcome> search_within(const PlanRequest& request, const Progress& progress) {
  const SearchContext context(request);
  Findings found(context);
  const DegreeSpace space = enumerate_degrees(context, found);
  const Walked visited = visit_all(context, space.nodes, found, progress);
  std::vector<PendingPartition> pending = found.take_pending();
  Walked partitioned;
  if (!visited.stopped) partitioned = partition_all(context, pending, found, progress);
  const bool finished = !visited.stopped && !partitioned.stopped;
  const bool all_visited = visited.next == space.nodes.size();
  if (finished && all_visited && !found.found_legal()) return no_legal_configuration(found);

  SearchOutcome report = rank(context, found, space.costs);
  report.exhaustive = finished;
  if (!finished) {
    report.gap = open_gap(found.pool.best(), space.nodes, visited.next, pending, partitioned.next);
  }
  report.open_splits = found.open_splits();
  for (const OpenSplits& open : report.open_splits) report.gap = std::max(report.gap, open.gap);
  report.proved_gap = std::max(report.gap, proved_gap(found, space.nodes, visited.next));
  return report;
}

}  // namespace

Result<SearchOutcome> search(const PlanRequest& request, const Progress& progress) {
  if (const Status possible = check_contradictions(request); !possible) return possible.error();
  Result<SearchOutcome> report = search_within(request, progress);
  if (!report || report->winner() != nullptr || !report->exhaustive || request.max_memory ||
      request.least_probability <= kLastResort) {
    return report;
  }
  PlanRequest tight = request;
  tight.least_probability = kLastResort;
  Result<SearchOutcome> unlikely = search_within(tight, progress);
  return unlikely && unlikely->winner() != nullptr ? unlikely : report;
}

}  // namespace echelon
