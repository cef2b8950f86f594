// ProcessGrid: the one place that maps a global rank to its coordinates on the parallel axes.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"
#include "core/plan/parallel_plan.hpp"

namespace echelon {

/// The first four have a coordinate. The ranks of a stage form a second grid for the experts of
/// its layers: etp innermost, then ep, then the ranks that hold the same experts.
enum class Axis { tp, cp, dp, pp, ep, etp, expert_dp };
inline constexpr int kAxes = 4;  ///< with a coordinate
[[nodiscard]] std::string_view name_of(Axis axis);

/// How the groups of an axis lie: so many ranks, each so far from the one before it.
struct RankGroup {
  int ranks = 1;
  int stride = 1;
  /// A group cut into parts of `count` consecutive members: one such part, and the group of those
  /// that have the same place in each part.
  [[nodiscard]] RankGroup part(int count) const { return {count, stride}; }
  [[nodiscard]] RankGroup across(int count) const { return {ranks / count, stride * count}; }
  bool operator==(const RankGroup&) const = default;
};

/// Coordinates of one rank, one entry per axis.
struct Coordinates {
  int tp = 0;
  int cp = 0;
  int dp = 0;
  int pp = 0;
  bool operator==(const Coordinates&) const = default;
};

/// Ranks of a plan laid out with the innermost axis first: "tp-cp-ep-dp-pp" gives neighbouring
/// ranks to tensor parallelism. `ep` lies inside dp·cp·tp and has no coordinate of its own.
/// Source: Megatron-LM core/parallel_state.py, RankGenerator and its default order.
class ProcessGrid {
 public:
  explicit ProcessGrid(const ParallelPlan& plan);  ///< in the plan's own rank order
  static Result<ProcessGrid> with_order(const ParallelPlan& plan, std::string_view rank_order);

  [[nodiscard]] int ranks() const;
  [[nodiscard]] int degree(Axis axis) const { return degree_[index(axis)]; }
  /// The groups of any axis. Plans whose order spaces a group unevenly are no plans
  /// (check_rank_order in planner/space/legality.hpp).
  [[nodiscard]] RankGroup group(Axis axis) const;
  /// dp and cp together, over which gradients are reduced and states sharded.
  [[nodiscard]] RankGroup data_group() const;
  /// Distance between neighbours of one group along `axis`, one with a coordinate.
  [[nodiscard]] int stride(Axis axis) const { return stride_[index(axis)]; }
  [[nodiscard]] Coordinates coordinates(int rank) const;
  [[nodiscard]] int rank(const Coordinates& at) const;
  /// The ranks that differ from `rank` only along `axis`, in order of their coordinate.
  [[nodiscard]] std::vector<int> group(Axis axis, int rank) const;
  /// The ranks that hold other experts of the same layers and trade tokens with `rank`: every
  /// etp-th of a block of ep·etp neighbours among the ranks of a stage.
  /// Source: Megatron-LM core/parallel_state.py, its second generator (tp = etp) for experts.
  [[nodiscard]] std::vector<int> expert_group(int rank) const;

 private:
  static constexpr std::size_t index(Axis axis) { return static_cast<std::size_t>(axis); }
  [[nodiscard]] RankGroup expert_grid(int ranks, int places) const;
  std::array<int, kAxes> degree_{};
  std::array<int, kAxes> stride_{};
  int ep_ = 1;
  int etp_ = 1;
};

}  // namespace echelon
