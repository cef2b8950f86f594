// Which kinds of layers the chunks of each pipeline rank hold, as ranks are filled one by one.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "costmodel/cost_model.hpp"

namespace echelon {

/// Positions between the ranks of a plan: what of the layers on the ranks before decides how many,
/// and which kinds of layers the ranks after can hold.
///
/// Without interleaving, and for layers of one kind, that is their number. Else chunk c of a rank
/// begins where chunk c of the rank before ends, and chunk 0 of the first rank where the model
/// begins, but chunk c > 0 of the first rank where chunk c − 1 of the last rank ends. So a position
/// is the number of layers, where each chunk begins, and where each chunk of the first rank began;
/// for the latter starts() has every choice that the sizes of chunks allow, and complete() says
/// whether it came true. Where a chunk begins matters only up to the period of the kinds behind
/// their lead (dense layers first, then a repeated pattern), which leaves few positions: two
/// positions that are equal have equal kinds so far and later.
/// Checked by: tests/planner/search/partition_test.cpp (against all compositions).
class ChunkPositions {
 public:
  ChunkPositions(const CostModel& cost_model, const ParallelPlan& plan);

  /// Whether a position is more than a number of layers.
  [[nodiscard]] bool interleaves_kinds() const { return interleaves_kinds_; }
  /// Whether kinds of layers go on alternating: then a position is more than one of DeepSeek's.
  [[nodiscard]] bool kinds_alternate() const { return period_ > 1; }
  /// Positions met so far; each is an index below this.
  [[nodiscard]] std::size_t size() const {
    return interleaves_kinds_ ? keys_.size() : index(all_layers_) + 1;
  }
  /// Where the first rank can begin.
  [[nodiscard]] const std::vector<int>& starts();
  [[nodiscard]] int layers(int position) const {
    return interleaves_kinds_ ? keys_[index(position)].front() : position;
  }
  /// Layers with experts on the ranks before.
  [[nodiscard]] int moe(int position) const {
    return interleaves_kinds_ ? moe_[index(position)] : cost_model_.moe_before(position);
  }
  /// The position behind `rank` where it begins at `position` and holds `count` layers.
  [[nodiscard]] int after(int position, int rank, int count);
  /// Whether all layers are held and every chunk of the first rank began where it had to.
  [[nodiscard]] bool complete(int position) const;
  /// Layers with whose kinds the chunks of a rank at `position` begin.
  [[nodiscard]] std::vector<int> begins(int position) const;
  /// The first `first` of the `count` layers of `rank`, chunk after chunk.
  [[nodiscard]] LayerCounts first_layers(int position, int rank, int count, int first);
  /// MoE layers among the first i of those of `rank`, chunk after chunk, for i = 0 .. `count`.
  [[nodiscard]] std::span<const int> moe_before(int position, int rank, int count);
  /// Fewest and most MoE layers among some.
  struct Range {
    int least = 0, most = 0;
  };
  /// Among `count` of `rank`, wherever its chunks begin.
  [[nodiscard]] Range moe_range(int rank, int count);
  /// … where it begins at `position`; the number itself where a position is one of layers.
  [[nodiscard]] Range moe_range(int position, int rank, int count);

 private:
  using Key = std::vector<int>;  ///< layers; phase of each chunk; phases it began with

  /// What `count` layers of a rank at a position lead to, once it was asked for.
  struct Step {
    std::optional<int> after, moe;
  };

  static std::size_t index(int i) { return static_cast<std::size_t>(i); }
  [[nodiscard]] int phase_of(int layer) const {
    return layer < lead_ ? layer : lead_ + (layer - lead_) % period_;
  }
  [[nodiscard]] int chunk_size(int rank, int count, int chunk) const {
    return layers_in_chunk(count, vpp_, rank + 1 == pp_, chunk);
  }
  void find_period();
  void add_starts(int chunk, int larger, int layers, int smaller, Key& key, std::vector<int>& out);
  int position(const Key& key, int moe);
  Step& step(int position, int rank, int count);

  const CostModel& cost_model_;
  int pp_, vpp_;
  bool interleaves_kinds_ = false;
  int all_layers_;
  int lead_ = 0, period_ = 1;
  std::vector<Key> keys_;
  std::vector<int> moe_;
  std::map<Key, int> known_;
  Key key_;  ///< of after(), kept for its memory
  /// [other ranks, the last][position][count]
  std::array<std::vector<std::vector<Step>>, 2> steps_;
  std::vector<int> starts_;
  std::vector<int> moe_before_;
  std::vector<Range> windows_;  ///< MoE layers among as many consecutive ones
  std::array<std::vector<std::optional<Range>>, 2> ranges_;  ///< moe_range of other ranks, the last
};

}  // namespace echelon
