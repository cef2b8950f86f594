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
