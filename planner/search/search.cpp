// The chain of the five steps of docs/search.md:
//
//   1. enumerate   the degrees that break no rule               enumerate.hpp
//   2. bound       each set of degrees that may be next         node_queue.hpp, bounds.hpp
//   3. price       best bound first, what can be listed or      visit.hpp, visit_point.hpp,
//                  lie on the front, with balanced stages       price_point.hpp
//   4. partition   layers unevenly, where that can be listed    improve_partition.hpp,
//                                                               partition.hpp,
//                                                               exchange_layers.hpp
//   5. rank        what was simulated                           rank.hpp, plan_pool.hpp,
//                                                               simulate_step.hpp
//
// Between the steps, Findings (findings.hpp) holds the plans found and where every point ended.
#include "planner/search/search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>

#include "core/base/on_all_cores.hpp"
#include "planner/search/enumerate.hpp"
#include "planner/search/exchange_layers.hpp"
#include "planner/search/improve_partition.hpp"
#include "planner/search/node_queue.hpp"
#include "planner/search/rank.hpp"
#include "planner/search/visit.hpp"
#include "planner/space/contradictions.hpp"
#include "planner/space/plan_from_constraints.hpp"

namespace echelon {
namespace {

/// So many pieces of a list are worked on at once. Each is judged by what was known before the
/// wave, so the answer does not depend on the number of cores; waves grow with what is known.
std::size_t wave_after(std::size_t done) {
  constexpr std::size_t kLargest = 32;
  constexpr std::size_t kOfDone = 8;
  return std::clamp(done / kOfDone, std::size_t{1}, kLargest);
}

/// work(i, findings, buffers) for every i below `count`, on all cores, on findings of its own that
/// are joined in their order.
template <class Work>
void run_wave(std::size_t count, Findings& found, const Work& work) {
  std::vector<std::optional<Findings>> forks(count);
  on_all_cores(count, [&](std::size_t i) {
    Priced buffers;
    forks[i].emplace(found.fork());
    work(i, *forks[i], buffers);
  });
  for (std::optional<Findings>& fork : forks) found.join(*std::move(fork));
}

/// Step 3. Returns false where it was stopped.
bool visit_all(const SearchContext& context, NodeQueue& nodes, Findings& found,
               const Progress& progress) {
  const auto matters = [&](const DegreeNode* node) {
    return node != nullptr && (context.whole_front || found.pool.matters(node->least));
  };
  while (matters(nodes.front())) {
    std::vector<const DegreeNode*> wave;
    const std::size_t most = wave_after(nodes.taken());
    for (; wave.size() < most && matters(nodes.front()); nodes.pop()) {
      wave.push_back(nodes.front());
    }
    run_wave(wave.size(), found, [&](std::size_t i, Findings& own, Priced& work) {
      visit(context, *wave[i], own, work);
    });
    if (progress &&
        !progress(static_cast<double>(nodes.taken()) / static_cast<double>(nodes.size()))) {
      return false;
    }
  }
  return true;
}

/// Step 4: best bound first, when the K best are known and their bound is tight. Returns the first
/// that was not looked at, where it was stopped; later ones do not matter otherwise.
std::optional<std::size_t> partition_all(const SearchContext& context,
                                         std::vector<PendingPartition>& pending, Findings& found,
                                         const Progress& progress) {
  std::stable_sort(
      pending.begin(), pending.end(),
      [](const PendingPartition& a, const PendingPartition& b) { return a.least < b.least; });
  std::size_t next = 0;
  while (next < pending.size() && found.pool.matters(pending[next].least)) {
    std::vector<const PendingPartition*> wave;
    const std::size_t most = wave_after(next);
    for (; wave.size() < most && next < pending.size(); ++next) {
      const PendingPartition& open = pending[next];
      if (found.pool.matters(open.point, open.least, open.weight)) wave.push_back(&open);
    }
    run_wave(wave.size(), found, [&](std::size_t i, Findings& own, Priced& work) {
      improve_partition(context, *wave[i], own, work);
    });
    if (progress && !progress(1.0)) return next;
  }
  return std::nullopt;
}

/// How much faster an open point could be than the best found: 1 − (best open bound) / (best).
double open_gap(std::optional<Seconds> best, NodeQueue& nodes,
                const std::vector<PendingPartition>& pending, std::size_t next_pending) {
  if (!best) return 1;
  double gap = 0;
  const auto open = [&](Seconds least) { gap = std::max(gap, 1 - least / *best); };
  if (const DegreeNode* node = nodes.front()) open(node->least);
  for (std::size_t i = next_pending; i < pending.size(); ++i) open(pending[i].least);
  return gap;
}

/// The same without the assumption of least_of(), of a search that found a plan.
double proved_gap(const Findings& found, const NodeQueue& nodes) {
  std::optional<Seconds> least = found.proved.least(found.pool);
  if (const std::optional<Seconds> open = nodes.least_proved();
      open && (!least || *open < *least)) {
    least = open;
  }
  const std::optional<Seconds> best = found.pool.best();
  return least && best ? std::max(0.0, 1 - *least / *best) : 0;
}

/// The plan that prediction makes of the constraints is the one that a user has in mind: its error
/// names the flag. Then the most frequent other reasons against the rest; that degrees are not the
/// number of GPUs is no reason but the enumeration.
Error no_legal_configuration(const PlanRequest& request, const Findings& found) {
  constexpr std::size_t kMostReasons = 2;
  std::vector<RejectionCount> counts = found.rejections();
  std::ranges::stable_sort(counts, std::greater{}, &RejectionCount::count);
  const auto mismatch =
      std::ranges::find(counts, RejectionReason::gpus_mismatch, &RejectionCount::reason);
  if (counts.size() > 1 && mismatch != counts.end()) counts.erase(mismatch);
  if (counts.size() > kMostReasons) counts.resize(kMostReasons);
  std::string reasons;
  std::optional<RejectionReason> broken;
  const Result<ParallelPlan> plain = plan_from_constraints(request, &broken);
  if (!plain) reasons = plain.error().message();
  // A flag that contradicts another does so in every plan, whatever else is wrong with some.
  const bool of_flag = !plain && plain.error().where.starts_with("--");
  if (broken == RejectionReason::contradictory && of_flag) counts.clear();
  for (const RejectionCount& entry : counts) {
    const auto said = [&](std::string_view text) {
      return reasons.find(text) != std::string::npos;
    };
    if (said(entry.nearest) || said(describe(entry.reason))) continue;
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
  DegreeSpace space = enumerate_degrees(context, found);
  NodeQueue nodes(context, std::move(space.nodes));
  const bool visited = visit_all(context, nodes, found, progress);
  std::vector<PendingPartition> pending = found.take_pending();
  std::optional<std::size_t> open_from =
      visited ? partition_all(context, pending, found, progress) : std::optional<std::size_t>(0);
  if (!open_from && nodes.front() == nullptr && !found.found_legal()) {
    return no_legal_configuration(request, found);
  }

  if (!open_from) exchange_layers(context, space.costs, found);
  SearchOutcome report = rank(context, found, space.costs);
  report.exhaustive = !open_from;
  if (open_from) {
    report.gap = open_gap(found.pool.best(), nodes, pending, *open_from);
    report.nearest_infeasible.clear();  // what was not looked at may fit
  }
  report.open_splits = found.open_splits();
  for (const OpenSplits& open : report.open_splits) report.gap = std::max(report.gap, open.gap);
  report.proved_gap = std::max(report.gap, proved_gap(found, nodes));
  return report;
}

}  // namespace

Result<SearchOutcome> search(const PlanRequest& request, const Progress& progress) {
  if (const Status possible = check_contradictions(request); !possible) return possible.error();
  Result<SearchOutcome> report = search_within(request, progress);
  if (!report || report->winner() != nullptr || !report->exhaustive || request.max_memory ||
      request.no_worse_than || request.least_probability <= kLastResort) {
    return report;
  }
  PlanRequest tight = request;
  tight.least_probability = kLastResort;
  Result<SearchOutcome> unlikely = search_within(tight, progress);
  const bool any = unlikely && unlikely->winner() != nullptr;
  if (!any || !(unlikely->winner()->score.fits_probability > 0)) return report;
  unlikely->nearest_infeasible = std::move(report->nearest_infeasible);
  return unlikely;
}

}  // namespace echelon
