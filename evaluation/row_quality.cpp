#include "evaluation/row_quality.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>

#include "core/base/units.hpp"
#include "evaluation/framework_defaults.hpp"
#include "evaluation/run_cluster.hpp"
#include "evaluation/run_wording.hpp"

namespace echelon {

namespace {

constexpr bool kTime = true;
constexpr bool kMemory = true;
constexpr bool kFits = true;

constexpr RowQualityFlag kSanityOnly{"sanity-only", kTime, kMemory, false,
                                     "grade C: a figure to check the order of magnitude with"};
constexpr RowQualityFlag kNotForTime{"not-for-time", kTime, false, false,
                                     "grade C of nanotron: odd step times, sound memory figures"};
constexpr RowQualityFlag kStalled{"stalled", kTime, false, false,
                                  "over 0.8 s per microbatch and more than 4x the expected time"};
constexpr RowQualityFlag kOverfull{
    "overfull", kTime, false, false,
    "state and activations exceed the GPU, yet it ran: allocator retries"};
constexpr RowQualityFlag kNoMicrobatch{"no-microbatch", kTime, kMemory, false,
                                       "neither microbatch nor accumulation steps are given"};
constexpr RowQualityFlag kMachineFault{"machine-fault", kTime, false, false,
                                       "before the PCIe and NUMA fault of the machine was found"};
constexpr RowQualityFlag kOneIteration{"one-iteration", kTime, false, false,
                                       "one iteration, the first or second, was read"};
constexpr RowQualityFlag kOddHeads{"odd-heads", kTime, false, false,
                                   "head size is no multiple of 8: kernels leave the tensor cores"};
constexpr RowQualityFlag kTwinRan{
    "twin-ran", false, false, kFits,
    "ended out of memory while the same configuration ran, or the reverse"};
constexpr RowQualityFlag kUnevenWork{
    "uneven-work", kTime, false, false,
    "packed samples or natural routing: work per token that the shapes do not determine"};
constexpr RowQualityFlag kUnevenExperts{
    "uneven-experts", false, kMemory, false,
    "natural routing: the rows of the fullest expert, which the shapes do not determine"};
constexpr RowQualityFlag kUntuned{"untuned", kTime, false, false,
                                  "the source calls the configuration not tuned"};
constexpr RowQualityFlag kOtherLoss{
    "other-loss", kTime, false, false,
    "the loss of reinforcement learning, whose passes have no price"};
constexpr RowQualityFlag kOtherBuffers{
    "other-buffers", false, kMemory, false,
    "DeepEP outside Megatron-Core, whose buffers the source does not give"};
constexpr std::array kFlags = {kSanityOnly,   kNotForTime,    kStalled,      kOverfull,
                               kNoMicrobatch, kMachineFault,  kOneIteration, kOddHeads,
                               kUnevenWork,   kUnevenExperts, kUntuned,      kOtherLoss,
                               kOtherBuffers, kTwinRan};

double cell_or(const WholeCell& cell, double otherwise) {
  return cell ? static_cast<double>(*cell) : otherwise;
}

/// Shapes and degrees of a row of a published sweep, as ratios.
struct SweepRun {
  double layers, hidden, ffn, heads, kv_heads, vocab, seq, tp, pp, dp, microbatch;
  double microbatches = 0;

  explicit SweepRun(const MeasuredRun& row)
      : layers(cell_or(row.layers, 0)),
        hidden(cell_or(row.hidden, 0)),
        ffn(cell_or(row.ffn_hidden, 0)),
        heads(cell_or(row.heads, 1)),
        kv_heads(cell_or(row.kv_heads, heads)),
        vocab(cell_or(row.vocab, 0)),
        seq(cell_or(row.seq, 0)),
        tp(cell_or(row.tp, 1)),
        pp(cell_or(row.pp, 1)),
        dp(cell_or(row.dp, 1)),
        microbatch(cell_or(row.microbatch, 0)) {
    if (microbatch > 0) microbatches = cell_or(row.global_batch, 0) / (microbatch * dp);
  }
  [[nodiscard]] bool known() const { return layers > 0 && hidden > 0 && microbatches >= 1; }
  [[nodiscard]] double layer_parameters() const {
    return 2 * hidden * hidden * (1 + kv_heads / heads) + 3 * hidden * ffn;
  }
  [[nodiscard]] double parameters() const { return layers * layer_parameters() + hidden * vocab; }
  [[nodiscard]] double tokens() const { return microbatch * seq; }
};

/// Of the sweep a row belongs to; null: no bounds are known.
const SweepBounds* bounds_of(const MeasuredRun& row) { return software_of(row).defaults->bounds; }

bool stalled(const MeasuredRun& row) {
  if (!row.step_seconds) return false;
  const SweepRun run(row);
  const double due = generous_step(row);
  constexpr double kLong = 0.8;   // seconds per microbatch
  constexpr double kTimes = 4.0;  // of the expected time
  return due > 0 && *row.step_seconds > kLong * (run.microbatches + run.pp - 1) &&
         *row.step_seconds > kTimes * due;
}

/// Static memory as the row measured it, and activations by the software's own count.
bool overfull(const MeasuredRun& row) {
  const SweepBounds* bounds = bounds_of(row);
  if (bounds == nullptr || row.out_of_memory() || !row.static_memory_bytes) return false;
  const SweepRun run(row);
  if (!run.known()) return false;
  const double in_flight = std::min(run.pp, run.microbatches);
  const double layer =
      (bounds->bytes_per_hidden * run.hidden + bounds->bytes_per_ffn * run.ffn) / run.tp;
  const double logits = run.pp == 1 ? bounds->bytes_per_logit * run.vocab / run.tp : 0;
  const double gathered = run.tp > 1 ? bounds->bytes_per_gathered * run.hidden : 0;
  return *row.static_memory_bytes +
             run.tokens() * (layer * run.layers / run.pp * in_flight + logits + gathered) >
         bounds->gpu_memory.in(kByte);
}

bool has_odd_heads(const MeasuredRun& row) {
  if (!row.hidden || !row.heads) return false;
  constexpr std::int64_t kMultiple = 8;  // 16-bit elements per tensor-core operand
  const std::int64_t size = row.head_dim.value_or(*row.hidden / *row.heads);
  return size % kMultiple != 0 || (!row.head_dim && *row.hidden % *row.heads != 0);
}

/// Columns that determine whether a job fits: all except microbatches beyond those in flight.
std::string memory_key(const MeasuredRun& row) {
  std::string key = fmt::format("{}|{}|{}|{}|{}|{}", row.framework, row.task, row.model, row.gpu,
                                row.recompute, row.precision);
  for (const WholeCell& cell : {row.layers, row.gpus, row.tp, row.cp, row.ep, row.pp, row.vpp,
                                row.dp, row.microbatch, row.zero, row.seq}) {
    key += cell ? fmt::format("|{}", *cell) : "|?";
  }
  key += row.torch_compile ? fmt::format("|{}", *row.torch_compile) : "|?";
  return key;
}

struct Outcomes {
  bool ran = false;
  bool ended = false;
};

std::vector<RowQualityFlag> flags_of_row(const MeasuredRun& row, const Outcomes& twins) {
  std::vector<RowQualityFlag> flags;
  const auto add = [&](bool applies, const RowQualityFlag& flag) {
    if (applies) flags.push_back(flag);
  };
  const bool sound_memory = software_of(row).defaults->grade_c_memory_is_sound;
  add(row.grade == "C" && !sound_memory, kSanityOnly);
  add(row.grade == "C" && sound_memory, kNotForTime);
  add(stalled(row), kStalled);
  add(overfull(row), kOverfull);
  add(!row.microbatch && !row.grad_accumulation, kNoMicrobatch);
  add(says(row.notes, "PCIe/NUMA fix"), kMachineFault);
  add(says(row.notes, "single iteration (2nd)") || says(row.notes, "FIRST iteration") ||
          says(row.notes, "iteration 2 log line"),
      kOneIteration);
  add(has_odd_heads(row), kOddHeads);
  const bool uneven_experts =
      states(row.notes, {"natural routing", "unbalanced routing", "imbalanced routing"});
  add(uneven_experts || states(row.notes, {"packed"}), kUnevenWork);
  add(uneven_experts, kUnevenExperts);
  add(states(row.notes, {"untuned"}) || denies(row.notes, {"tuned", "optimized", "optimised"}),
      kUntuned);
  add(states(row.notes, {"loss of reinforcement learning"}), kOtherLoss);
  add(software_of(row).framework->exchanges_local_batch && dispatcher_of(row) == Dispatcher::deepep,
      kOtherBuffers);
  add(twins.ran && twins.ended, kTwinRan);
  return flags;
}

}  // namespace

std::span<const RowQualityFlag> row_quality_flags() { return kFlags; }

double generous_step(const MeasuredRun& row) {
  const SweepBounds* bounds = bounds_of(row);
  const SweepRun run(row);
  if (bounds == nullptr || !run.known()) return 0;
  const double rate = bounds->rate.in(kFlopPerSecond);
  const double alpha = (has_slow_network(row) ? bounds->slow_hop : bounds->hop).in(kSecond);
  const double matmuls =
      6 * run.tokens() * (run.layers / run.pp * run.layer_parameters() + run.hidden * run.vocab);
  const double attention = 6 * run.layers / run.pp * run.hidden * run.seq * run.tokens();  // causal
  const double device = (matmuls + attention) / run.tp / rate;
  const double host = run.layers / run.pp *
                      (bounds->layer.in(kSecond) + bounds->collectives * (run.tp - 1) * alpha);
  const double bandwidth = row.net_allgather_busbw_GBps.value_or(0) * 1e9 / std::min(8.0, run.tp);
  const double reduced =
      run.dp > 1 && bandwidth > 0 ? 6 * run.parameters() / (run.tp * run.pp) / bandwidth : 0;
  return (run.microbatches + run.pp - 1) * std::max(device, host) + reduced;
}

std::vector<std::vector<RowQualityFlag>> quality_flags_of(std::span<const MeasuredRun> rows) {
  std::map<std::string, Outcomes> outcomes;
  for (const MeasuredRun& row : rows) {
    Outcomes& seen = outcomes[memory_key(row)];
    (row.out_of_memory() ? seen.ended : seen.ran) = true;
  }
  std::vector<std::vector<RowQualityFlag>> flags;
  flags.reserve(rows.size());
  for (const MeasuredRun& row : rows)
    flags.push_back(flags_of_row(row, outcomes.at(memory_key(row))));
  return flags;
}

}  // namespace echelon
