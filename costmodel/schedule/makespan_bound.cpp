#include "costmodel/schedule/makespan_bound.hpp"

#include <algorithm>
#include <vector>

#include "costmodel/schedule/schedule_draft.hpp"

namespace echelon {
namespace {

std::size_t nth_of(int i) { return static_cast<std::size_t>(i); }

/// Chains through one pipeline; names as in makespan_bound.hpp.
class Chains {
 public:
  Chains(const PipelineShape& shape, const ScheduleCosts& costs) : s_(shape), c_(costs) {
    group_ = s_.kind == ScheduleKind::interleaved ? s_.in_turn() : 1;
    passes_ = s_.microbatches * s_.chunks;
    Seconds up, down;
    for (int stage = 0; stage < s_.stages(); ++stage) {
      const Seconds message = stage > 0 ? hop(stage - 1) : Seconds{};
      up_.push_back(up += forward(stage) + message);
      down_.push_back(down += backward(stage) + message);
    }
  }

  [[nodiscard]] Seconds longest() const {
    if (s_.ranks == 1) return s_.microbatches * c_.stages[0].total();
    if (s_.kind == ScheduleKind::gpipe) return gpipe();
    Seconds longest;
    Seconds into, out;  // H, E
    for (int rank = 0; rank < s_.ranks; ++rank) {
      const Seconds to_last = last_chunk(rank);
      longest = std::max(longest, split() ? of_split_rank(rank, into, out, to_last)
                                          : of_rank(rank, into, out, to_last));
      if (s_.chunks == 1) longest = std::max(longest, in_flight(rank, into, out, to_last));
      into += forward(rank) + hop(rank);
      out += backward(rank) + hop(rank);
    }
    return longest;
  }

 private:
  [[nodiscard]] bool split() const { return s_.kind == ScheduleKind::zero_bubble_h1; }
  [[nodiscard]] Seconds forward(int stage) const { return c_.stages[nth_of(stage)].forward; }
  [[nodiscard]] Seconds backward(int stage) const {
    const ChunkTimes& t = c_.stages[nth_of(stage)];
    return split() ? t.recompute + t.backward_input : t.backward();
  }
  [[nodiscard]] Seconds hop(int stage) const { return c_.hops[nth_of(stage % s_.ranks)]; }
  /// Forwards before the first backward.
  [[nodiscard]] int ahead(int rank) const {
    const int after = s_.ranks - 1 - rank;
    const int more = s_.kind == ScheduleKind::interleaved ? after + (s_.chunks - 1) * group_ : 0;
    return std::min(passes_, after + more + 1);
  }
  /// From the last chunk's `rank` to the last stage and back, without its own passes.
  [[nodiscard]] Seconds last_chunk(int rank) const {
    const int stage = s_.stages() - s_.ranks + rank;
    return up_.back() - up_[nth_of(stage)] + down_.back() - down_[nth_of(stage)];
  }
  /// The first k forwards (backwards) of a rank.
  [[nodiscard]] Seconds first(int rank, int k, bool backwards) const {
    const int round = group_ * s_.chunks;
    Seconds time;
    for (int i = 0; i < s_.chunks; ++i) {
      const int stage = s_.stage(rank, backwards ? s_.chunks - 1 - i : i);
      const int begun = std::clamp(k % round - i * group_, 0, group_);
      time += (k / round * group_ + begun) * (backwards ? backward(stage) : forward(stage));
    }
    return time;
  }
  [[nodiscard]] Seconds forwards(int rank, int k) const { return first(rank, k, false); }
  [[nodiscard]] Seconds backwards(int rank, int k) const { return first(rank, k, true); }

  /// A: all chunks but the last in full, into the last one's `rank`, there and back.
  [[nodiscard]] Seconds first_back(int rank, Seconds to_last) const {
    return up_[nth_of(s_.stages() - s_.ranks + rank)] + to_last;
  }
  /// Z: from the last chunk's `rank`, there and back, and down to the first chunk's.
  [[nodiscard]] Seconds last_home(int rank, Seconds to_last) const {
    return to_last + down_[nth_of(s_.stages() - s_.ranks + rank)] - down_[nth_of(rank)] +
           backward(rank);
  }

  [[nodiscard]] Seconds of_rank(int rank, Seconds into, Seconds out, Seconds to_last) const {
    const int n = passes_;
    const int w = ahead(rank);
    const Seconds a = first_back(rank, to_last);
    const Seconds z = last_home(rank, to_last);
    const Seconds all_f = forwards(rank, n);
    const Seconds all_b = backwards(rank, n);
    if (w == n) return std::max({into + all_f + all_b, a + all_b, into + all_f + z}) + out;
    const Seconds head = forwards(rank, w);
    const Seconds begun = backwards(rank, n - w);
    return std::max(into + head, a) + all_f - head + begun + std::max(all_b - begun, z) + out;
  }

  [[nodiscard]] Seconds in_flight(int rank, Seconds into, Seconds out, Seconds to_last) const {
    const int w = ahead(rank);
    const int trips = (passes_ - 1) / w;
    const Seconds trip = forward(rank) + to_last + backward(rank);
    return into + (trips + 1) * trip +
           (passes_ - 1 - trips * w) * std::max(forward(rank), backward(rank)) + out;
  }

  /// ZB-H1: rank r's weight gradients follow its input gradients from row r on, and all of them in
  /// the drain.
  [[nodiscard]] Seconds of_split_rank(int rank, Seconds into, Seconds out, Seconds to_last) const {
    const int m = s_.microbatches;
    const int w = ahead(rank);
    const int before = std::min(m, s_.ranks - 1 - rank);  // forwards before the row of the first
    const Seconds f = forward(rank);
    const Seconds i = backward(rank);
    const Seconds weight = c_.stages[nth_of(rank)].backward_weight;
    const Seconds start = std::max(into + w * f, first_back(rank, to_last));
    const Seconds own = start + (m - w) * f + m * (i + weight);
    // Weight gradients after the last input gradient: that of its row, and what is put off.
    const int rest = (m - 1 >= rank || before > 0 ? 1 : 0) + std::min(rank, m - before);
    const Seconds after =
        std::max(rest * weight, out + (rank > 0 ? c_.stages[0].backward_weight : Seconds{}));
    const Seconds last = last_home(rank, to_last);
    if (w == m) return std::max({own, start + m * i + after, into + m * f + last + after});
    const int done = std::max(0, m - w - rank);  // weight gradients before the last forward
    const Seconds last_forward = start + (m - w) * (f + i) + done * weight;
    const Seconds left = w * i + (m - rest - done) * weight;
    return std::max(own, last_forward + std::max(left, last) + after);
  }

  [[nodiscard]] Seconds gpipe() const {
    Seconds f, b;
    for (int rank = 0; rank < s_.ranks; ++rank) {
      f = std::max(f, forward(rank));
      b = std::max(b, backward(rank));
    }
    return up_.back() + down_.back() + (s_.microbatches - 1) * (f + b);
  }

  const PipelineShape& s_;
  const ScheduleCosts& c_;
  int group_ = 1;
  int passes_ = 0;  // of each kind on a rank
  // One microbatch's forwards (backwards) of stages up to this one, and the messages between them.
  std::vector<Seconds> up_, down_;
};

}  // namespace

Seconds least_makespan(const PipelineShape& shape, const ScheduleCosts& costs) {
  EXPECTS(costs.stages.size() == static_cast<std::size_t>(shape.stages()) &&
              costs.hops.size() == static_cast<std::size_t>(shape.ranks),
          "times of every stage and every hop");
  if (runs_both_ways(shape.kind)) {
    return lowered_makespan(shape, costs, Messages::passing);
  }
  return Chains(shape, costs).longest();
}

}  // namespace echelon
