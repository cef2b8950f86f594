#include "costmodel/schedule/compute_order.hpp"

#include <array>
#include <utility>

namespace echelon {
namespace {

std::vector<ComputeStep> gpipe(int m) {
  std::vector<ComputeStep> order;
  for (int i = 0; i < m; ++i) order.push_back({Op::forward, 0, i});
  for (int i = 0; i < m; ++i) order.push_back({Op::backward, 0, i});
  return order;
}

/// The k-th forward or backward of a rank: groups of microbatches, all chunks of a group in turn;
/// the last group may be smaller.
ComputeStep nth(const PipelineShape& s, Op op, int k) {
  const int first = k / (s.in_turn() * s.chunks) * s.in_turn();
  const int size = std::min(s.in_turn(), s.microbatches - first);
  const int within = k - first * s.chunks;
  const int chunk = within / size;
  return {op, op == Op::forward ? chunk : s.chunks - 1 - chunk, first + within % size};
}

std::vector<ComputeStep> one_f_one_b(const PipelineShape& s, int head_start) {
  const int all = s.microbatches * s.chunks;
  const auto forward = [&](int k) {
    return s.chunks > 1 ? nth(s, Op::forward, k) : ComputeStep{Op::forward, 0, k};
  };
  const auto backward = [&](int k) {
    return s.chunks > 1 ? nth(s, Op::backward, k) : ComputeStep{Op::backward, 0, k};
  };
  std::vector<ComputeStep> order;
  order.reserve(2 * static_cast<std::size_t>(all));
  for (int k = 0; k < head_start; ++k) order.push_back(forward(k));
  for (int k = head_start; k < all; ++k) {
    order.push_back(forward(k));
    order.push_back(backward(k - head_start));
  }
  for (int k = all - head_start; k < all; ++k) order.push_back(backward(k));
  return order;
}

std::vector<ComputeStep> zero_bubble_h1(const PipelineShape& s, int rank) {
  const int m = s.microbatches;
  const int head_start = std::min(s.ranks - rank - 1, m);
  std::vector<ComputeStep> order;
  int weights = 0;
  const auto add = [&](Op op, int i) { order.push_back({op, 0, i}); };
  for (int i = 0; i < head_start; ++i) add(Op::forward, i);
  for (int i = 0; i < m; ++i) {
    const bool draining = i + head_start >= m;
    if (!draining) add(Op::forward, i + head_start);
    add(Op::backward_input, i);
    if (draining || i >= rank) add(Op::backward_weight, weights++);
  }
  while (weights < m) add(Op::backward_weight, weights++);
  return order;
}

/// The passes of one rank of a DualPipe: each chunk's microbatches in order, weight gradients in
/// the order in which they are put off.
class DualPipeOrder {
 public:
  void forward(int chunk, bool paired = false) {
    order_.push_back({Op::forward, chunk, next(forwards_, chunk), paired});
  }
  void backward(int chunk) { order_.push_back({Op::backward, chunk, next(backwards_, chunk)}); }
  void input(int chunk) {
    order_.push_back({Op::backward_input, chunk, next(backwards_, chunk)});
    put_off_.push_back(order_.back());
  }
  void pair(int forwards, int backwards) {
    forward(forwards, true);
    backward(backwards);
  }
  void weight() {
    ComputeStep step = put_off_[weights_++];
    step.op = Op::backward_weight;
    order_.push_back(step);
  }
  [[nodiscard]] std::vector<ComputeStep> release() { return std::move(order_); }

 private:
  static std::int32_t next(std::array<std::int32_t, 2>& counts, int chunk) {
    return counts[static_cast<std::size_t>(chunk)]++;
  }
  std::array<std::int32_t, 2> forwards_{}, backwards_{};
  std::vector<ComputeStep> order_, put_off_;
  std::size_t weights_ = 0;
};

/// Rank `s` of the `p` of one V, m microbatches.
std::vector<ComputeStep> dualpipe_v(int p, int m, int s) {
  const int below = p - s - 1;
  DualPipeOrder order;
  for (int i = 0; i < 2 * below; ++i) order.forward(0);
  for (int i = 0; i <= s; ++i) {
    order.forward(0);
    order.forward(1);
  }
  for (int i = 0; i < below; ++i) {
    order.input(1);
    order.weight();
    order.forward(1);
  }
  for (int i = 0; i < m - 2 * p + s + 1; ++i) {
    if (i > 0 || below > 0) {
      order.pair(0, 1);
    } else {
      order.forward(0);
      order.backward(1);
    }
    order.pair(1, 0);
  }
  for (int i = 0; i < below; ++i) {
    order.backward(1);
    order.pair(1, 0);
  }
  // Of 2(s + 1) backwards, the last half put their weight gradients off.
  for (int i = 0; i < 2 * (s + 1); ++i) {
    const int chunk = 1 - i % 2;
    i <= s ? order.backward(chunk) : order.input(chunk);
  }
  for (int i = 0; i < below; ++i) {
    order.weight();
    order.input(0);
  }
  for (int i = 0; i <= s; ++i) order.weight();
  return order.release();
}

/// Of DualPipe's p ranks, the one of a DualPipeV of p/2 ranks that computes alike.
int half_rank(const PipelineShape& s, int rank) { return std::min(rank, s.ranks - 1 - rank); }

std::vector<ComputeStep> dualpipe(const PipelineShape& s, int rank) {
  std::vector<ComputeStep> order = dualpipe_v(s.ranks / 2, s.microbatches, half_rank(s, rank));
  if (2 * rank < s.ranks) return order;
  for (ComputeStep& step : order) step.chunk = 1 - step.chunk;
  return order;
}

}  // namespace

std::vector<ComputeStep> compute_order(const PipelineShape& s, int rank) {
  EXPECTS(s.ranks >= 1 && s.chunks >= 1 && s.microbatches >= 1, "an empty pipeline");
  EXPECTS(0 <= rank && rank < s.ranks, "no such rank");
  const bool interleaved = s.kind == ScheduleKind::interleaved;
  const bool v = s.kind == ScheduleKind::dualpipe_v;
  const bool both_ways = s.kind == ScheduleKind::dualpipe;
  EXPECTS(
      interleaved || s.chunks == (v || both_ways ? 2 : 1),
      "interleaved schedules have any number of chunks, DualPipeV and DualPipe two, others one");
  EXPECTS(!both_ways || (s.ranks % 2 == 0 && s.microbatches >= s.ranks),
          "DualPipe needs an even number of ranks and a microbatch for each in both directions");
  EXPECTS(!v || (s.ranks > 1 && s.microbatches >= 2 * s.ranks),
          "DualPipeV needs several ranks and two microbatches for each");
  EXPECTS(!interleaved || s.ranks > 1, "interleaving needs several ranks");
  EXPECTS(!interleaved || s.in_turn() <= s.microbatches, "interleaving needs a whole group");
  const int last = s.microbatches % s.in_turn();
  EXPECTS(!interleaved || last == 0 || last >= s.ranks, "the last group has p microbatches");
  const int ahead = s.ranks - rank - 1;
  switch (s.kind) {
    case ScheduleKind::gpipe: return gpipe(s.microbatches);
    case ScheduleKind::one_f_one_b: return one_f_one_b(s, std::min(ahead, s.microbatches));
    case ScheduleKind::interleaved:
      return one_f_one_b(
          s, std::min(2 * ahead + (s.chunks - 1) * s.in_turn(), s.microbatches * s.chunks));
    case ScheduleKind::zero_bubble_h1: return zero_bubble_h1(s, rank);
    case ScheduleKind::dualpipe_v: return dualpipe_v(s.ranks, s.microbatches, rank);
    case ScheduleKind::dualpipe: return dualpipe(s, rank);
  }
  return {};
}

}  // namespace echelon
