#include "interop/logs/derived_facts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace echelon {

namespace {

constexpr auto kDerived = FactOrigin::derived;
constexpr double kWhole = 1e-9;

/// The nearest whole number, if it is that near.
std::optional<double> whole_near(double value, double tolerance) {
  const double nearest = std::round(value);
  if (!(nearest >= 1) || std::abs(value - nearest) > tolerance * nearest) return {};
  return nearest;
}

/// Sets a column to a quotient or product if it is a whole number and not known yet.
void derive(RunFacts& facts, std::string_view column, std::optional<double> value,
            const std::string& from) {
  if (!value || facts.has(column)) return;
  const auto whole = whole_near(*value, kWhole);
  if (whole && *whole < 2e9) facts.set(column, *whole, kDerived, from);
}

/// Product of known columns; nothing if one is not known.
std::optional<double> product(const RunFacts& facts,
                              std::initializer_list<std::string_view> columns) {
  double all = 1;
  for (const std::string_view column : columns) {
    const auto number = facts.number(column);
    if (!number) return {};
    all *= *number;
  }
  return all;
}

std::optional<double> ratio(std::optional<double> above, std::optional<double> below) {
  if (!above || !below || *below <= 0) return {};
  return *above / *below;
}

/// Degrees that can only be 1.
void derive_ones(const TrainingLog& log, RunFacts& facts) {
  const auto gpus = facts.number("gpus");
  const bool only_data = gpus && facts.number("dp") == gpus;
  if (!log.format->data_parallel_only && !only_data) return;
  for (const char* column : {"tp", "pp"}) {
    if (facts.has(column)) continue;
    facts.set(column, 1.0, kDerived,
              only_data ? "dp is the number of GPUs" : "the software splits only data");
  }
}

double cp_of(const RunFacts& facts) { return facts.number("cp").value_or(1); }

}  // namespace

void derive_degrees(const TrainingLog& log, RunFacts& facts) {
  derive_ones(log, facts);
  if (facts.has("attention") && facts.find("attention")->value == "mha" && facts.has("heads")) {
    if (const RunFact* kv = facts.find("kv_heads"); kv == nullptr) {
      facts.set("kv_heads", facts.find("heads")->value, kDerived, "attention without query groups");
    }
  }
  derive(facts, "vpp", ratio(facts.number("layers"), product(facts, {"pp", "layers_per_chunk"})),
         "layers / (pp x layers per virtual stage)");
  if (facts.number("dp_shard").value_or(0) > 0) {
    derive(facts, "dp", product(facts, {"dp_replicate", "dp_shard"}), "dp_replicate x dp_shard");
    if (facts.number("dp_replicate").value_or(1) > 1) {
      derive(facts, "zero_group_size", facts.number("dp_shard"), "dp_shard");
    }
  }
  if (facts.number("pp").value_or(2) == 1) {
    derive(facts, "microbatch", facts.number("local_batch"), "local batch size without pipeline");
  }
  const auto model_ranks = product(facts, {"tp", "pp"});
  if (model_ranks) {
    const double ranks = *model_ranks * cp_of(facts);
    derive(facts, "gpus",
           product(facts, {"dp"}) ? std::optional(*facts.number("dp") * ranks) : std::nullopt,
           "tp x cp x pp x dp");
    derive(facts, "dp", ratio(facts.number("gpus"), ranks), "GPUs / (tp x cp x pp)");
  }
  if (facts.has("seq")) {
    derive(facts, "global_batch", ratio(facts.number("global_batch_tokens"), facts.number("seq")),
           "tokens per step / sequence");
  }
  derive(facts, "global_batch", product(facts, {"microbatch", "dp", "grad_accumulation"}),
         "microbatch x dp x accumulation steps");
  derive(facts, "microbatch",
         ratio(facts.number("global_batch"), product(facts, {"dp", "grad_accumulation"})),
         "global batch / (dp x accumulation steps)");
  derive(facts, "dp",
         ratio(facts.number("global_batch"), product(facts, {"microbatch", "grad_accumulation"})),
         "global batch / (microbatch x accumulation steps)");
  derive(facts, "grad_accumulation",
         ratio(facts.number("global_batch"), product(facts, {"microbatch", "dp"})),
         "global batch / (microbatch x dp)");
  if (model_ranks && facts.has("dp")) {
    derive(facts, "gpus", *facts.number("dp") * *model_ranks * cp_of(facts), "tp x cp x pp x dp");
  }
}

std::optional<PrintedShapes> printed_shapes(const RunFacts& facts, bool with_vocab) {
  PrintedShapes shapes;
  const auto hidden = facts.number("hidden");
  const auto heads = facts.number("heads");
  const auto layers = facts.number("layers");
  if (!hidden || !heads || !layers || *hidden < 1 || *heads < 1 || *layers < 1) return {};
  if (facts.number("experts").value_or(1) > 1) return {};
  const RunFact* attention = facts.find("attention");
  if (attention != nullptr && attention->value != "mha" && attention->value != "gqa") return {};
  shapes.layers = *layers;
  shapes.hidden = *hidden;
  shapes.heads = *heads;
  shapes.kv_heads = facts.number("kv_heads").value_or(*heads);
  shapes.head_dim = facts.number("head_dim").value_or(*hidden / *heads);
  shapes.gated = facts.number("gated_mlp").value_or(0) == 1;
  const auto ffn = facts.number("ffn_hidden");
  if (!ffn && shapes.gated) return {};
  shapes.ffn = ffn.value_or(4 * *hidden);
  const auto vocab = facts.number("vocab");
  if (with_vocab && !vocab) return {};
  shapes.vocab = vocab.value_or(0);
  return shapes;
}

void derive_from_shard(const TrainingLog& log, RunFacts& facts, std::vector<std::string>& remarks) {
  const auto printed = facts.number("shard_parameters");
  const auto shapes = printed_shapes(facts, false);
  const auto tp = facts.number("tp");
  const auto pp = facts.number("pp");
  if (!printed || !shapes || !tp || !pp || *tp < 1 || *pp < 1) return;
  const bool tied = facts.number("tied_embeddings").value_or(1) == 1;
  const LoggedValue* line = log.find("shard_parameters");
  const std::string place = line == nullptr ? "" : fmt::format(" of line {}", line->line);
  if (!facts.has("vocab")) {
    if (const auto vocab = vocabulary_of(*printed, *shapes, *tp, *pp, tied)) {
      facts.set("vocab", *vocab, kDerived,
                fmt::format("{} billion parameters{}, padded to 128 x tp", *printed, place));
    }
  }
  const auto full = printed_shapes(facts, true);
  const auto mib = facts.number("shard_state_mib");
  if (!full || !mib) return;
  // 18 bytes per parameter; with the distributed optimizer 6 on every rank and 12 over dp.
  constexpr double kAll = 18, kKept = 6, kSharded = 12;
  constexpr double kNear = 0.02;
  const double bytes = *mib * 0x1p20 / shard_parameters(*full, *tp, *pp, tied);
  if (std::abs(bytes - kAll) < kNear) {
    if (!facts.has("zero")) {
      facts.set("zero", 0.0, kDerived, "18 bytes of weight and optimizer per parameter");
    }
    return;
  }
  const auto dp = bytes > kKept ? whole_near(kSharded / (bytes - kKept), 0.01) : std::nullopt;
  if (!dp || bytes > kAll) {
    remarks.push_back(fmt::format(
        "{:.4g} bytes of weight and optimizer per parameter are neither 18 nor 6 + 12/dp", bytes));
    return;
  }
  const std::string from = fmt::format("{:.5g} bytes of weight and optimizer per parameter", bytes);
  if (!facts.has("zero")) facts.set("zero", 1.0, kDerived, from + " = 6 + 12/dp");
  if (!facts.has("dp") && cp_of(facts) == 1) facts.set("dp", *dp, kDerived, from + " = 6 + 12/dp");
}

void derive_from_tokens(const TrainingLog& log, RunFacts& facts) {
  const LoggedStep& last = log.steps.back();
  // Cumulative tokens of all steps so far (HuggingFace Trainer).
  const auto batch = facts.number("global_batch");
  if (batch && last.consumed_tokens && last.step > 0 && !log.format->suffixes) {
    derive(facts, "seq", *last.consumed_tokens / static_cast<double>(last.step) / *batch,
           fmt::format("{:.0f} tokens after {} steps of {} samples", *last.consumed_tokens,
                       last.step, *batch));
  }
  const bool three_digits = log.format->suffixes;
  const double near = three_digits ? 0.01 : 0.002;
  if (!facts.has("gpus") && last.tokens_per_second && last.tokens_per_second_per_gpu &&
      *last.tokens_per_second_per_gpu > 0) {
    const auto gpus = whole_near(*last.tokens_per_second / *last.tokens_per_second_per_gpu, near);
    if (gpus) {
      facts.set("gpus", *gpus, kDerived,
                fmt::format("tokens/s over tokens/s per GPU of line {}", last.line));
    }
  }
  if (!facts.has("gpus") && last.samples_per_second && last.tokens_per_second_per_gpu &&
      last.sequence && *last.tokens_per_second_per_gpu > 0) {
    const auto gpus = whole_near(
        *last.samples_per_second * *last.sequence / *last.tokens_per_second_per_gpu, near);
    if (gpus) {
      facts.set("gpus", *gpus, kDerived,
                fmt::format("samples/s x sequence / tokens/s per GPU of line {}", last.line));
    }
  }
}

namespace {

/// The median line's TFLOP/s and its FLOPs per sample and GPU.
struct Printed {
  const LoggedStep* step = nullptr;
  double per_sample_of_all_gpus_over_gpus = 0;  ///< TFLOP/s · seconds / batch: FLOPs / GPUs
  double tolerance = 0.004;
};

std::optional<Printed> printed_flops(const TrainingLog& log, const RunFacts& facts) {
  const LoggedStep* middle = nullptr;
  for (std::size_t i = log.steps.size() / 2; i < log.steps.size() && middle == nullptr; ++i) {
    if (log.steps[i].tflops_per_gpu && *log.steps[i].tflops_per_gpu > 0) middle = &log.steps[i];
  }
  if (middle == nullptr) return {};
  Printed out;
  out.step = middle;
  const double flops = *middle->tflops_per_gpu * 1e12;
  const auto batch = middle->global_batch ? middle->global_batch : facts.number("global_batch");
  if (middle->seconds && batch && *batch > 0) {
    out.per_sample_of_all_gpus_over_gpus = flops * *middle->seconds / *batch;
  } else if (const auto seq = facts.number("seq"), gpus = facts.number("gpus");
             middle->tokens_per_second_per_gpu && seq && gpus && *gpus > 0) {
    // Both rates are of one GPU: their quotient is the FLOPs of a token.
    out.per_sample_of_all_gpus_over_gpus =
        flops / *middle->tokens_per_second_per_gpu * *seq / *gpus;
  } else {
    return {};
  }
  // The last digit of the printed figures: three digits (nanotron), else four.
  if (log.format->suffixes) out.tolerance = 0.01;
  return out;
}

constexpr std::array<double, 20> kUsualSequences = {
    128,  256,   512,   1024,  1536,  2048,  3072,  4096,   6144,   8192,
    9216, 10240, 12288, 16384, 24576, 32768, 65536, 131072, 262144, 524288};

}  // namespace

void derive_from_flops(const TrainingLog& log, RunFacts& facts, std::vector<std::string>& remarks) {
  const auto formulas = flops_formulas(*log.format, log.version_from, log.version_until);
  const auto shapes = printed_shapes(facts, true);
  const auto printed = printed_flops(log, facts);
  if (formulas.empty() || !shapes || !printed) return;
  const double logged = printed->per_sample_of_all_gpus_over_gpus;
  const std::string place = fmt::format("{} TFLOP/s per GPU of line {}",
                                        *printed->step->tflops_per_gpu, printed->step->line);
  const auto seq = facts.number("seq");
  const auto gpus = facts.number("gpus");
  if (!gpus) {
    for (const FlopsFormula& formula : formulas) {
      if (!seq) return;
      const auto count = whole_near(formula.per_sample(*shapes, *seq) / logged, printed->tolerance);
      const auto group = facts.number("dp") ? std::nullopt : product(facts, {"tp", "pp"});
      if (!count || (group && std::fmod(*count, *group) != 0)) continue;
      facts.set("gpus", *count, kDerived, fmt::format("{} ({})", place, formula.what));
      return;
    }
    return;
  }
  struct Fit {
    double sequence;
    const FlopsFormula* formula;
  };
  std::vector<Fit> fits;
  const auto agrees = [&](const FlopsFormula& formula, double sequence) {
    const double computed = formula.per_sample(*shapes, sequence) / *gpus;
    return std::abs(computed / logged - 1) < printed->tolerance;
  };
  if (seq) {
    for (const FlopsFormula& formula : formulas) {
      if (!agrees(formula, *seq)) continue;
      const double figure =
          formula.per_sample(*shapes, *seq) / *gpus / logged * *printed->step->tflops_per_gpu;
      remarks.push_back(
          fmt::format("{} is reproduced: {:.4g} with {}", place, figure, formula.what));
      if (!formula.recompute.empty() && !facts.has("recompute")) {
        facts.set("recompute", std::string(formula.recompute), kDerived,
                  fmt::format("{} counts {}", place, formula.what));
      }
      return;
    }
  }
  for (const double sequence : kUsualSequences) {
    for (const FlopsFormula& formula : formulas) {
      if (agrees(formula, sequence)) fits.push_back({sequence, &formula});
    }
  }
  if (fits.size() != 1) {
    if (seq) {
      remarks.push_back(fmt::format("{} is not reproduced from shapes, batch and GPUs", place));
    }
    return;
  }
  if (seq) {
    facts.contradict(fmt::format("seq is {} ({}) but {} belongs to sequences of {}", *seq,
                                 facts.find("seq")->from, place, fits.front().sequence));
    return;
  }
  facts.set("seq", fits.front().sequence, kDerived,
            fmt::format("{} ({})", place, fits.front().formula->what));
}

void check_facts(const TrainingLog& log, RunFacts& facts) {
  const auto ranks = product(facts, {"tp", "pp", "dp"});
  const auto gpus = facts.number("gpus");
  if (ranks && gpus && *ranks * cp_of(facts) != *gpus) {
    facts.contradict(fmt::format("tp {} x cp {} x pp {} x dp {} is not {} GPUs ({})",
                                 *facts.number("tp"), cp_of(facts), *facts.number("pp"),
                                 *facts.number("dp"), *gpus, facts.find("gpus")->from));
  }
  const auto each = product(facts, {"microbatch", "dp"});
  const auto batch = facts.number("global_batch");
  if (each && batch && *each > 0 && std::fmod(*batch, *each) != 0) {
    facts.contradict(fmt::format(
        "a global batch of {} ({}) is no multiple of microbatch {} x dp {}", *batch,
        facts.find("global_batch")->from, *facts.number("microbatch"), *facts.number("dp")));
  }
  // Samples that the lines count, against the batch they name.
  const LoggedStep* before = nullptr;
  for (const LoggedStep& step : log.steps) {
    if (step.new_run) before = nullptr;
    if (before != nullptr && step.consumed_samples && before->consumed_samples &&
        step.global_batch && step.global_batch == before->global_batch &&
        step.step > before->step) {
      const double counted = (*step.consumed_samples - *before->consumed_samples) /
                             static_cast<double>(step.step - before->step);
      if (std::abs(counted / *step.global_batch - 1) > 0.005) {
        facts.contradict(fmt::format(
            "lines {} and {} count {:.6g} samples per step and name a global batch of {}",
            before->line, step.line, counted, *step.global_batch));
        return;
      }
    }
    before = &step;
  }
}

}  // namespace echelon
