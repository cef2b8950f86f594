// Step 2 of a search: the degrees in the order of their bound, which is computed late.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "planner/search/least_times.hpp"

namespace echelon {

/// Work of all layers, embedding and head of one microbatch, nothing recomputed, nothing exposed by
/// data parallelism: the least time of all stages together, of DualPipe's with both copies.
[[nodiscard]] Seconds least_work(const SearchContext& context, const SearchPoint& point,
                                 const ShardingCosts& costs);

/// A bound from the node's work alone, below its own two:
///
///   T ≥ (m·W/p + fixed)     the slowest of p stages does its share of m microbatches' work W
///
/// Zero where stages lie on more than one rank.
[[nodiscard]] Seconds quick_bound(const SearchContext& context, const DegreeNode& node);

/// Fills the node's slowest stage and its bounds over all schedules that break no rule. Returns
/// whether there is one.
[[nodiscard]] bool bound_node(const SearchContext& context, DegreeNode& node);

/// The rule of the framework about schedules that the degrees and the schedule of a point break.
[[nodiscard]] const FrameworkRule* broken_schedule_rule(const SearchContext& context,
                                                        const SearchPoint& point);

/// Nodes by their bound, smallest first; of equal ones those enumerated first. A node is bounded
/// only when its quick bound does not keep it behind another: of DeepSeek-V3 on 2,048 GPUs one in
/// forty is.
class NodeQueue {
 public:
  /// Nodes with their work, and `least` of quick_bound().
  NodeQueue(const SearchContext& context, std::vector<DegreeNode> nodes);

  /// The node with the smallest bound, or null.
  [[nodiscard]] const DegreeNode* front();
  /// Takes the front.
  void pop();
  [[nodiscard]] std::size_t size() const { return nodes_.size(); }
  [[nodiscard]] std::size_t taken() const { return taken_; }
  /// What plans of several stages need at least, of nodes that were not taken, by the bound without
  /// assumptions. Nothing where there are none.
  [[nodiscard]] std::optional<Seconds> least_proved() const;

 private:
  struct Later {
    const std::vector<DegreeNode>& nodes;
    bool operator()(std::size_t a, std::size_t b) const {
      return nodes[b].least < nodes[a].least || (nodes[a].least == nodes[b].least && b < a);
    }
  };
  void bound_more();

  const SearchContext& context_;
  std::vector<DegreeNode> nodes_;      ///< in the order of enumeration
  std::vector<std::size_t> by_quick_;  ///< smallest quick bound first
  std::size_t bounded_ = 0;            ///< of by_quick_
  std::vector<std::size_t> heap_;      ///< bounded, not taken
  std::size_t taken_ = 0;
};

}  // namespace echelon
