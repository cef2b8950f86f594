// Facts that follow from others, and figures that check them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "interop/logs/judgement.hpp"
#include "interop/logs/printed_flops.hpp"
#include "interop/logs/run_facts.hpp"
#include "interop/logs/training_log.hpp"

namespace echelon {

/// Arithmetic on what is known: degrees, batch, accumulation, GPUs.
void derive_degrees(const TrainingLog& log, RunFacts& facts);
/// Vocabulary, ZeRO stage and dp from Megatron-LM's theoretical memory.
void derive_from_shard(const TrainingLog& log, RunFacts& facts, std::vector<std::string>& remarks);
/// Sequence, GPUs and recomputation from the printed TFLOP/s, or a remark on how well they agree. A
/// figure that belongs to another sequence length is a contradiction.
void derive_from_flops(const TrainingLog& log, RunFacts& facts, std::vector<std::string>& remarks);
/// Tokens per sample, GPUs and batch from counted tokens and printed rates.
void derive_from_tokens(const TrainingLog& log, RunFacts& facts);
/// Facts that must fit together; those that do not are contradictions.
void check_facts(const TrainingLog& log, RunFacts& facts);

/// The shapes of the formulas; nothing while one is not known. `vocabulary` 0: not needed.
[[nodiscard]] std::optional<PrintedShapes> printed_shapes(const RunFacts& facts, bool with_vocab);

}  // namespace echelon
