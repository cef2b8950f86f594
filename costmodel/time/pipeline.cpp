#include "costmodel/time/pipeline.hpp"

#include <algorithm>
#include <cmath>

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
    case ScheduleKind::dualpipe_v: return std::min(microbatches * 2, 2 * std::int64_t{pp} + 1);
    case ScheduleKind::dualpipe: return std::min(microbatches * 2, std::int64_t{pp} + 1);
  }
  return microbatches;
}

double paired_share(ScheduleKind schedule, int pp, std::int64_t microbatches, int rank) {
  if (!runs_both_ways(schedule)) return 0;
  const bool copied = schedule == ScheduleKind::dualpipe;
  const int p = copied ? pp / 2 : pp;
  const int s = copied ? std::min(rank, pp - 1 - rank) : rank;
  const double m = static_cast<double>(microbatches);
  const double pairs = 2 * (m - 2 * p + s + 1) + (p - s - 1) - (s == p - 1 ? 1 : 0);
  return pairs / (2 * m);
}

double unpaired_share(ScheduleKind schedule, int pp, int vpp, std::int64_t microbatches,
                      int group) {
  double sum = 0;
  if (runs_both_ways(schedule)) {
    for (int rank = 0; rank < pp; ++rank) {
      sum += 1 - paired_share(schedule, pp, microbatches, rank);
    }
    return std::clamp(sum / pp, 0.0, 1.0);
  }
  for (int stage = 0; stage < pp; ++stage) {
    sum += static_cast<double>(chunks_in_flight(schedule, pp, vpp, stage, microbatches, group));
  }
  return sum / (static_cast<double>(microbatches) * vpp * pp);
}

Bytes fullest_in_flight(Bytes all, Bytes first, Bytes last, int pp, int vpp, int stage,
                        std::int64_t microbatches, int group) {
  const int g = std::max(pp, group);
  const int d = 2 * (pp - stage) - 1;
  if (microbatches * vpp <= std::int64_t{vpp - 1} * g + d) {
    return static_cast<double>(microbatches) * all;
  }
  // On the last stage the next group begins while none of the last chunk is left.
  if (d == 1 && microbatches > g) return g * (all - last) + std::max(first, last);
  return g * all + std::max(0, d - g) * first - std::max(0, g - d) * last;
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
  if (schedule == ScheduleKind::dualpipe_v) return m * slowest + (sum - slowest) / 3;
  if (schedule == ScheduleKind::dualpipe) return m * slowest + (sum / 2 - slowest) / 3;
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

namespace {

Seconds least_one_f_one_b(double p, double m, Seconds sum, Seconds slowest, Seconds hop) {
  const Seconds messages = 2 * (p - 1) * hop;
  const Seconds chains =
      m > p ? 2 * sum + (m - p - 1) * slowest : (1 + (m - 1) / (2 * p - m + 1)) * sum;
  const Seconds one_rank = sum + (m - (std::min(m, p) + 1) / 2) * slowest;
  return std::max(std::max(chains, one_rank) + messages, std::ceil(m / p) * (sum + messages));
}

}  // namespace

Seconds least_pipeline_time(const PipelineOutline& o) {
  const double p = o.pp;
  const double m = static_cast<double>(o.microbatches);
  const Seconds slowest = std::max(o.slowest, o.sum / p);
  if (o.pp == 1) return m * slowest;
  switch (o.schedule) {
    case ScheduleKind::gpipe: return o.sum + (m - 1) * slowest + 2 * (p - 1) * o.hop;
    case ScheduleKind::one_f_one_b: return least_one_f_one_b(p, m, o.sum, slowest, o.hop);
    case ScheduleKind::interleaved:
      return std::max({m * slowest, m / p * o.sum + (p - 1) * (o.least_chunk / 2 + o.hop),
                       o.sum + 2 * (p * o.vpp - 1) * o.hop + (p - 1) * o.least_chunk / 2});
    case ScheduleKind::zero_bubble_h1:
    case ScheduleKind::dualpipe_v:
    case ScheduleKind::dualpipe: return m * slowest;
  }
  return m * slowest;
}

}  // namespace echelon
