// Timed lowering: run the draft against the costs, take the order of communications from there.
#include <algorithm>
#include <numeric>
#include <span>
#include <tuple>

#include "costmodel/schedule/schedule_draft.hpp"

namespace echelon {
namespace {

/// Edges grouped by where they start.
class Successors {
 public:
  Successors(std::size_t nodes, const std::vector<Edge>& edges)
      : first_(nodes + 2, 0), to_(edges.size()) {
    for (const auto& [from, to] : edges) ++first_[from + 2];
    std::partial_sum(first_.begin(), first_.end(), first_.begin());
    for (const auto& [from, to] : edges) to_[first_[from + 1]++] = to;
  }
  [[nodiscard]] std::span<const std::uint32_t> operator[](std::uint32_t node) const {
    return std::span(to_).subspan(first_[node], first_[node + 1] - first_[node]);
  }

 private:
  std::vector<std::size_t> first_;
  std::vector<std::uint32_t> to_;
};

std::vector<Seconds> durations_of(const ScheduleDraft& draft, const ScheduleCosts& costs) {
  std::vector<Seconds> durations(draft.nodes);
  for (const DraftItem& item : draft.items) {
    durations[item.node] = std::max(durations[item.node],
                                    duration_of(costs, draft.frame, item.rank, item.instruction));
  }
  return durations;
}

/// What the draft itself demands: data and compute order.
std::vector<Edge> demanded(const ScheduleDraft& draft) {
  std::vector<Edge> edges;
  edges.reserve(draft.orders.size() + draft.items.size());
  for (const auto& [first, second] : draft.orders) {
    edges.emplace_back(draft.items[first].node, draft.items[second].node);
  }
  for (const auto& queue : draft.compute) {
    for (std::size_t k = 1; k < queue.size(); ++k) {
      edges.emplace_back(draft.items[queue[k - 1]].node, draft.items[queue[k]].node);
    }
  }
  return edges;
}

/// Items of each rank.
std::vector<std::vector<std::uint32_t>> by_rank(const ScheduleDraft& draft) {
  std::vector<std::vector<std::uint32_t>> lists(draft.compute.size());
  for (std::uint32_t item = 0; item < draft.items.size(); ++item) {
    lists[static_cast<std::size_t>(draft.items[item].rank)].push_back(item);
  }
  return lists;
}

/// The other queues of one rank, each in the order in which its items end when nothing holds up
/// communications but their data.
void chain_queues(const ScheduleDraft& draft, const NodeTimes& free,
                  std::vector<std::uint32_t> items, std::vector<Edge>& edges) {
  std::erase_if(items, [&](std::uint32_t item) {
    return draft.items[item].instruction.queue == Queue::compute;
  });
  const auto key = [&](std::uint32_t item) {
    const std::uint32_t node = draft.items[item].node;
    return std::tuple(draft.items[item].instruction.queue, free.end[node], free.depth[node], node);
  };
  std::sort(items.begin(), items.end(),
            [&](std::uint32_t a, std::uint32_t b) { return key(a) < key(b); });
  for (std::size_t k = 1; k < items.size(); ++k) {
    const DraftItem& before = draft.items[items[k - 1]];
    const DraftItem& after = draft.items[items[k]];
    if (before.instruction.queue == after.instruction.queue) {
      edges.emplace_back(before.node, after.node);
    }
  }
}

/// Nodes of the compute queues.
std::vector<bool> computing(const ScheduleDraft& draft) {
  std::vector<bool> out(draft.nodes, false);
  for (const auto& queue : draft.compute) {
    for (const std::uint32_t item : queue) out[draft.items[item].node] = true;
  }
  return out;
}

std::vector<std::optional<std::int32_t>> number_communications(const ScheduleDraft& draft,
                                                               const auto& earlier) {
  std::vector<std::optional<std::int32_t>> sequence(draft.nodes);
  std::vector<std::uint32_t> nodes;
  for (const DraftItem& item : draft.items) {
    if (!is_communication(item.instruction.op) || sequence[item.node]) continue;
    sequence[item.node] = 0;
    nodes.push_back(item.node);
  }
  std::sort(nodes.begin(), nodes.end(), earlier);
  std::int32_t next = 0;
  for (const std::uint32_t node : nodes) sequence[node] = next++;
  return sequence;
}

}  // namespace

NodeTimes longest_paths(const std::vector<Seconds>& durations, const std::vector<Edge>& edges) {
  const std::size_t n = durations.size();
  NodeTimes times{std::vector<Seconds>(n), std::vector<Seconds>(n),
                  std::vector<std::uint32_t>(n, 0)};
  const Successors successors(n, edges);
  std::vector<std::uint32_t> waits(n, 0);
  for (const auto& [from, to] : edges) ++waits[to];
  std::vector<std::uint32_t> ready;
  for (std::uint32_t node = 0; node < n; ++node) {
    if (waits[node] == 0) ready.push_back(node);
  }
  std::size_t done = 0;
  for (; !ready.empty(); ++done) {
    const std::uint32_t node = ready.back();
    ready.pop_back();
    times.end[node] = times.start[node] + durations[node];
    for (const std::uint32_t next : successors[node]) {
      times.start[next] = std::max(times.start[next], times.end[node]);
      times.depth[next] = std::max(times.depth[next], times.depth[node] + 1);
      if (--waits[next] == 0) ready.push_back(next);
    }
  }
  EXPECTS(done == n, "a compute order that waits for itself");
  return times;
}

Lowering lower(const ScheduleDraft& draft, const ScheduleCosts& costs) {
  const std::vector<Seconds> durations = durations_of(draft, costs);
  Lowering out;
  out.lists = by_rank(draft);
  // Step 1: as if messages were free to pass one another.
  std::vector<Edge> edges = demanded(draft);
  const NodeTimes free = longest_paths(durations, edges);
  // Step 2: queues in that order; now each queue does one thing at a time.
  for (const auto& items : out.lists) chain_queues(draft, free, items, edges);
  out.times = longest_paths(durations, edges);
  // Step 3: the order in which things start there is the order of everything. Depth makes it agree
  // with what waits for what where times are equal. Communications are issued before a pass that
  // starts with them, in which the host may wait (for the counts of experts' rows).
  const std::vector<bool> computes = computing(draft);
  const auto key = [&](std::uint32_t node) {
    return std::tuple(out.times.start[node], out.times.depth[node], bool{computes[node]}, node);
  };
  const auto earlier = [&](std::uint32_t a, std::uint32_t b) { return key(a) < key(b); };
  for (auto& items : out.lists) {
    std::sort(items.begin(), items.end(), [&](std::uint32_t a, std::uint32_t b) {
      return earlier(draft.items[a].node, draft.items[b].node);
    });
  }
  out.sequence = number_communications(draft, earlier);
  return out;
}

Seconds lowered_makespan(const PipelineShape& shape, const ScheduleCosts& costs,
                         Messages messages) {
  ScheduleSpec spec;
  spec.shape = shape;
  const ScheduleCosts passes{.stages = costs.stages, .hops = costs.hops, .ranks = {}};
  const ScheduleDraft draft = draft_schedule(spec);
  const NodeTimes times = messages == Messages::passing
                              ? longest_paths(durations_of(draft, passes), demanded(draft))
                              : lower(draft, passes).times;
  return *std::max_element(times.end.begin(), times.end.end());
}

}  // namespace echelon
