// ProcessGrid: the one place that maps a global rank to its groups on the parallel axes.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"
#include "core/plan/parallel_plan.hpp"

namespace echelon {

/// The parallel axes. A rank has a coordinate on tp, cp, dp and pp. The ranks of a stage form a
/// second grid for the experts of its layers: etp innermost, then ep, then the ranks that hold the
/// same experts.
enum class Axis { tp, cp, ep, etp, dp, pp, expert_dp };
inline constexpr std::array<Axis, 7> kAxes = {Axis::tp, Axis::cp, Axis::ep,       Axis::etp,
                                              Axis::dp, Axis::pp, Axis::expert_dp};
/// The first ones: their collectives run inside a layer.
inline constexpr std::size_t kLayerAxes = 4;
[[nodiscard]] std::string_view name_of(Axis axis);

/// A value per axis, or per each of the first `Count` axes.
template <class T, std::size_t Count = kAxes.size()>
struct AxisArray {
  std::array<T, Count> values{};
  [[nodiscard]] constexpr T& operator[](Axis axis) {
    return values[static_cast<std::size_t>(axis)];
  }
  [[nodiscard]] constexpr const T& operator[](Axis axis) const {
    return values[static_cast<std::size_t>(axis)];
  }
  bool operator==(const AxisArray&) const = default;
};

/// How the groups of an axis lie: their size, and the distance between neighbouring members.
struct RankGroup {
  int ranks = 1;
  int stride = 1;
  /// A group cut into parts of `count` consecutive members: one such part, and the group of those
  /// that have the same place in each part.
  [[nodiscard]] RankGroup part(int count) const { return {count, stride}; }
  [[nodiscard]] RankGroup across(int count) const { return {ranks / count, stride * count}; }
  /// As many ranks, all next to each other; or as far apart as `all` ranks allow.
  [[nodiscard]] RankGroup innermost() const { return {ranks, 1}; }
  [[nodiscard]] RankGroup outermost(int all) const { return {ranks, all / ranks}; }
  bool operator==(const RankGroup&) const = default;
};

/// Coordinates of one rank.
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
  [[nodiscard]] int degree(Axis axis) const { return degree_[axis]; }
  /// Size and distance of the groups of an axis. Every group of a legal plan is evenly spaced
  /// (check_rank_order in planner/space/legality.hpp); asking for another one is a programming
  /// error.
  [[nodiscard]] RankGroup group(Axis axis) const;
  /// dp and cp together, over which gradients are reduced and states sharded; cp innermost.
  [[nodiscard]] RankGroup data_group() const;
  /// All ranks.
  [[nodiscard]] RankGroup world() const { return {.ranks = ranks(), .stride = 1}; }
  /// The members of the group that `rank` is in, in the order of the axis, evenly spaced or not.
  /// Source for ep, etp and expert_dp: Megatron-LM core/parallel_state.py, its second generator
  /// (tp = etp) for experts.
  [[nodiscard]] std::vector<int> group(Axis axis, int rank) const;
  [[nodiscard]] std::vector<int> data_group(int rank) const;
  /// Whether neighbours of every group of the axis are equally far apart.
  [[nodiscard]] bool evenly_spaced(Axis axis) const;

  [[nodiscard]] Coordinates coordinates(int rank) const;
  [[nodiscard]] int rank(const Coordinates& at) const;

 private:
  /// Members of an expert group: so many of them, each so many places after the one before among
  /// the ranks of a stage.
  struct Places {
    int count;
    int apart;
  };
  [[nodiscard]] Places expert_places(Axis axis) const;
  [[nodiscard]] bool evenly_spaced(Places places) const;
  AxisArray<int> degree_;
  AxisArray<int> stride_;  ///< of the axes with a coordinate
};

}  // namespace echelon
