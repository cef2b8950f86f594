// The pipeline in closed form: in-flight activations and time, per schedule.
#pragma once

#include <cstdint>
#include <span>

#include "core/base/units.hpp"
#include "core/plan/parallel_plan.hpp"

namespace echelon {

/// Microbatches whose activations one stage holds at its peak, in units of one chunk
/// (= layers/(pp·vpp) layers): 1F1B min(m, pp − s); GPipe m; interleaved in groups of g
/// microbatches min(m·v, 2(pp − s − 1) + (v − 1)·g + 1), the head start and the forward after it;
/// ZB-H1 min(m, pp) on every stage, because stage s puts its weight gradients off by s
/// microbatches; DualPipeV min(2m, 2·pp + 1) chunks of half a stage; DualPipe min(2m, pp + 1)
/// chunks of layers/pp layers, m of each direction. A `group` of fewer than pp counts as pp.
/// Source: Megatron-LM schedules.py (warm-up counts); Korthikanti et al. (arXiv
/// 2205.05198) sec. 4; Qi et al. (arXiv 2401.10241) section 2.1 (ZB-H1); DeepSeek-V3 (arXiv
/// 2412.19437) table 2 (DualPipe; DualPipeV with 2·pp stages). Checked by:
/// tests/costmodel/schedule/closed_forms_test.cpp and dualpipe_both_ways_test.cpp, against the
/// schedules instruction by instruction.
[[nodiscard]] std::int64_t chunks_in_flight(ScheduleKind schedule, int pp, int vpp, int stage,
                                            std::int64_t microbatches, int group = 1);

/// The share of a rank's forwards that are paired with a backward, so that the communication of
/// one can hide behind the computation of the other: DualPipeV
///
///   (2(m − 2p + s + 1) + (p − s − 1) − [s = p − 1]) / 2m
///
/// DualPipe the same of p/2 ranks, with min(s, p − 1 − s) for s and m microbatches in each
/// direction; and none of the other schedules. As many backwards are paired.
/// Source: compute_order (costmodel/schedule/compute_order.hpp). Checked by:
/// tests/costmodel/schedule/dualpipe_test.cpp, dualpipe_both_ways_test.cpp.
[[nodiscard]] double paired_share(ScheduleKind schedule, int pp, std::int64_t microbatches,
                                  int rank);

/// Share of a rank's forwards, and of its backwards, that run beside no other pass, where the
/// steady state pairs a forward with a backward; mean over the ranks:
///
///   W / (m·v),   W = chunks_in_flight: the head start of forwards, one more so that the first
///                backward meets a forward, and as many backwards at the end
///
/// and of DualPipeV and DualPipe, whose order says which passes are paired, 1 − paired_share.
/// Source: Megatron-LM d98e8a64, core/pipeline_parallel/schedules.py, get_pp_rank_microbatches
/// (overlap_moe_expert_parallel_comm) and combined_1f1b.py. Checked by:
/// tests/costmodel/time/pipeline_test.cpp.
[[nodiscard]] double unpaired_share(ScheduleKind schedule, int pp, int vpp,
                                    std::int64_t microbatches, int group = 1);

/// The most that the chunks in flight on a stage of an interleaved pipeline keep at a time, when
/// all chunks keep `all` of a microbatch, the stage's first one `first` and its last one `last`.
/// That is when the head start ends: max(g, d) microbatches of the first chunk, min(g, d) of the
/// last and g of each other one are in flight, in groups of g and with d = 2(p − s) − 1:
///
///   g·all + max(0, d − g)·first − max(0, g − d)·last,   at most m·all
///
/// On the last stage (d = 1) the next group begins while none of the last chunk is left:
///
///   g·(all − last) + max(first, last)                      more than one group
///
/// With whole groups exact where no chunk keeps less than the one before it; on the last stage also
/// where its last chunk keeps least. With a smaller last group the true value may be a few per cent
/// larger. Source: as above. Checked by: tests/costmodel/schedule/microbatch_groups_test.cpp,
/// stage_memory_test.cpp.
[[nodiscard]] Bytes fullest_in_flight(Bytes all, Bytes first, Bytes last, int pp, int vpp,
                                      int stage, std::int64_t microbatches, int group);

/// Hops exposed in a step of an interleaved pipeline because a chunk of the first rank waits for
/// the last rank's previous chunk, in the head start and, backwards, in the drain:
///
///   (v − 1)·[max(0, p·h − (g − p)·f) + max(0, p·h − (g − p)·b)],  f = T/3, b = 2T/3
///
/// h: one hop; T: forward and backward of one chunk on the slowest stage; g ≥ p microbatches per
/// group. With g = p, p hops each time; with g − p more microbatches their compute hides them.
/// Source: the order of Megatron-LM's get_schedule_table. Assumes sends that overlap compute and
/// hops shorter than a chunk's forward.
/// Checked by: tests/costmodel/schedule/microbatch_groups_test.cpp, against the simulation.
[[nodiscard]] Seconds exposed_rounds(int pp, int vpp, int group, Seconds hop, Seconds chunk);

/// Time from the first forward to the last backward, when the stages' times per microbatch (all
/// chunks, forward + backward) sum to `sum` and the slowest takes `slowest`:
///
///   1F1B, GPipe   Σt + (m − 1)·max t           exact for equal stages: (m + p − 1)·t
///   interleaved   m·max t + (Σt − max t)/v     exact for equal stages when p divides m:
///                                              m·t + (p − 1)·t/v
///   ZB-H1         max(m·max t + (Σt − max t)/3, (2(Σt + (m − 1)·max t) + max t)/3)
///                                              exact for equal stages whose forward, input
///                                              gradient and weight gradient each take t/3: a
///                                              bubble of (p − 1)·t/3; the second form holds for m
///                                              < p
///   DualPipeV     m·max t + (Σt − max t)/3     exact for equal stages in such thirds, m ≥ 2p: with
///                                              two chunks of F = B/2 = W = t/6 each, (p − 1)
///                                              (F&B + B − 3W) is (p − 1)·t/3
///   DualPipe      m·max t + (Σt/2 − max t)/3   the same of p/2 ranks, each of which there are two;
///                                              t is a rank's two chunks, one microbatch of each
///                                              direction: (p/2 − 1)(F&B + B − 3W) is
///                                              (p/2 − 1)·t/3
///
/// Source: Narayanan et al. (arXiv 2104.04473) section 2.2; Alpa (arXiv 2201.12023), the
/// stage-latency objective; Qi et al. (arXiv 2401.10241) section 2.1; DeepSeek-V3 (arXiv
/// 2412.19437) table 2, for DualPipeV of 2p stages. An upper bound for unequal stages under 1F1B.
/// Checked by: tests/costmodel/time/pipeline_test.cpp, schedule_closed_forms_test.cpp.
[[nodiscard]] Seconds pipeline_time(ScheduleKind schedule, Seconds sum, Seconds slowest, int vpp,
                                    std::int64_t microbatches);

/// The same from the stages themselves.
[[nodiscard]] Seconds pipeline_time(ScheduleKind schedule, std::span<const Seconds> stages, int vpp,
                                    std::int64_t microbatches);

/// What is known of a pipeline before its layers are divided among its stages.
struct PipelineOutline {
  ScheduleKind schedule = ScheduleKind::one_f_one_b;
  int pp = 1;
  int vpp = 1;
  std::int64_t microbatches = 1;
  Seconds sum;          ///< of all stages' times per microbatch (forward + backward), or less
  Seconds slowest;      ///< of the slowest stage, or less; at least sum / pp holds anyway
  Seconds hop;          ///< one message, or less
  Seconds least_chunk;  ///< of the chunk that takes the least, or less; interleaved alone
};

/// A lower bound on the simulated time (costmodel/schedule/makespan.hpp) of every pipeline that has
/// this outline, whatever its partition and however a stage's time is divided into forward and
/// backward. It does not decrease in any of the four times. With W = sum, M = max(slowest, W/p),
/// c = hop:
///
///   GPipe        W + (m − 1)·M + 2(p − 1)c
///   1F1B         the largest of
///     m > p      2W + (m − p − 1)·M + 2(p − 1)c            (M = W/p: W + (m − 1)·W/p)
///     m ≤ p      (1 + (m − 1)/(2p − m + 1))·W + 2(p − 1)c
///     any m      W + (m − (min(m, p) + 1)/2)·M + 2(p − 1)c
///     any m      ⌈m/p⌉·(W + 2(p − 1)c)
///   interleaved  the largest of m·M, m·W/p + (p − 1)·(least chunk/2 + c) and
///                W + 2(pv − 1)c + (p − 1)·least chunk/2
///   ZB-H1, DualPipeV, DualPipe   m·M
///
/// The first two of 1F1B follow from the chains of makespan_bound.hpp, written with x = Σ_{i<s} t,
/// R = Σ_{i>s} t of stage s: x + m·t_s + [R − (p−1−s)·f_s]⁺ + [R − (p−1−s)·b_s]⁺ and the messages
/// 2s·c, R + 2(p−1−s)c. For the slowest stage [a]⁺ + [b]⁺ ≥ [a + b]⁺ and x ≤ s·M give the first.
/// For m ≤ p stages s ≤ p − m have W + (m − 1)/2·t_s, the mean of the two chains that follow the
/// first microbatch and then rank s's backwards, or rank s's forwards and then the last microbatch;
/// their mean with weights 2e/(m − 1) for s ≤ p − m and e for s = p − m + 1, together one, has the
/// same factor 1 + e for all stages. The third is the mean of the same two chains of the slowest
/// stage for any m; the fourth: rank 0 has at most p microbatches in flight. Interleaved, the
/// second is the mean over the ranks r of their own passes, the first chunks of the ranks before r
/// there and back, and 2r messages; the third follows the first microbatch from its first forward
/// to its last backward, before or after which the first rank runs the group's other passes of that
/// chunk.
///
/// pipeline_time(sum, slowest) is a lower bound only for GPipe and, for 1F1B and m > p, where
/// slowest = sum/p; for other 1F1B it is an upper bound, for interleaved and ZB-H1 neither.
/// Source: our derivation. Checked by: tests/costmodel/schedule/makespan_bound_test.cpp,
/// tests/planner/search/pipeline_bound_test.cpp.
[[nodiscard]] Seconds least_pipeline_time(const PipelineOutline& outline);

}  // namespace echelon
