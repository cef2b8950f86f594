#include "costmodel/time/pipeline.hpp"

#include <algorithm>

namespace echelon {

std::int64_t chunks_in_flight(ScheduleKind schedule, int pp, int vpp, int stage,
                              std::int64_t microbatches, int group) {
  switch (schedule) {
    case ScheduleKind::gpipe: return microbatches * vpp;
    case ScheduleKind::one_f_one_b: return std::min<std::int64_t>(microbatches, pp - stage);
    case ScheduleKind::interleaved:
      return std::min<std::int64_t>(
          microbatches * vpp,
          2 * (std::int64_t{pp} - stage - 1) + (std::int64_t{vpp} - 1) * std::max(pp, group) + 1);
    case ScheduleKind::zero_bubble_h1: return std::min<std::int64_t>(microbatches, pp);
  }
  return microbatches;
}

namespace {

/// The order of a rank's chunks, forwards or backwards, in runs of one chunk.
class ChunkRuns {
 public:
  ChunkRuns(std::int64_t microbatches, std::int64_t group, std::size_t chunks, bool backward)
      : left_(microbatches), group_(group), chunks_(chunks), backward_(backward) {
    begin_group();
  }
  [[nodiscard]] std::size_t chunk() const { return backward_ ? chunks_ - 1 - chunk_ : chunk_; }
  /// Microbatches of this chunk that are still to come.
  [[nodiscard]] std::int64_t run() const { return run_; }
  void advance(std::int64_t steps) {
    run_ -= steps;
    if (run_ > 0) return;
    run_ = size_;
    if (++chunk_ < chunks_) return;
    left_ -= size_;
    begin_group();
  }

 private:
  void begin_group() {
    size_ = run_ = std::min(group_, left_);
    chunk_ = 0;
  }
  std::int64_t left_, group_;
  std::int64_t size_ = 0, run_ = 0;
  std::size_t chunks_, chunk_ = 0;
  bool backward_;
};

}  // namespace

double fullest_in_flight(std::span<const double> weights, int pp, int stage,
                         std::int64_t microbatches, int group) {
  const std::int64_t g = std::min<std::int64_t>(microbatches, std::max(pp, group));
  const auto v = static_cast<std::int64_t>(weights.size());
  // Groups repeat: the head start is less than v + 1 of them, the next one sees every state.
  const std::int64_t m = std::min<std::int64_t>(microbatches / g, 3) * g + microbatches % g;
  ChunkRuns forward(m, g, weights.size(), false);
  ChunkRuns backward(m, g, weights.size(), true);
  double held = 0;
  std::int64_t head =
      chunks_in_flight(ScheduleKind::interleaved, pp, static_cast<int>(v), stage, m, group);
  std::int64_t pairs = m * v - head;
  while (head > 0) {
    const std::int64_t steps = std::min(head, forward.run());
    held += static_cast<double>(steps) * weights[forward.chunk()];
    forward.advance(steps);
    head -= steps;
  }
  // Each backward makes room for the next forward.
  double most = held;
  while (pairs > 0) {
    const std::int64_t steps = std::min({pairs, forward.run(), backward.run()});
    held += static_cast<double>(steps) * (weights[forward.chunk()] - weights[backward.chunk()]);
    most = std::max(most, held);
    forward.advance(steps);
    backward.advance(steps);
    pairs -= steps;
  }
  return most;
}

Seconds exposed_rounds(int pp, int vpp, int group, Seconds hop, Seconds chunk) {
  const Seconds round = pp * hop;
  const double more = std::max(0, group - pp);
  const auto exposed = [&](Seconds pass) { return std::max(Seconds{}, round - more * pass); };
  return (vpp - 1.0) * (exposed(chunk / 3) + exposed(2 * chunk / 3));
}

Seconds pipeline_time(ScheduleKind schedule, Seconds sum, Seconds slowest, int vpp,
                      std::int64_t microbatches) {
  const double m = static_cast<double>(microbatches);
  if (schedule == ScheduleKind::interleaved) return m * slowest + (sum - slowest) / vpp;
  if (schedule == ScheduleKind::zero_bubble_h1) {
    return std::max(m * slowest + (sum - slowest) / 3,
                    (2 * (sum + (m - 1) * slowest) + slowest) / 3);
  }
  return sum + (m - 1) * slowest;
}

Seconds pipeline_time(ScheduleKind schedule, std::span<const Seconds> stages, int vpp,
                      std::int64_t microbatches) {
  Seconds sum;
  Seconds slowest;
  for (const Seconds t : stages) {
    sum += t;
    slowest = std::max(slowest, t);
  }
  return pipeline_time(schedule, sum, slowest, vpp, microbatches);
}

}  // namespace echelon
