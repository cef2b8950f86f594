// The FLOPs that frameworks count for the TFLOP/s in their logs. A log is never learned from these;
// they are a checksum: with the right formula they reproduce the printed figure to four digits, so
// they reveal what the log does not say.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "interop/logs/formats.hpp"

namespace echelon {

/// Shapes that the formulas need.
struct PrintedShapes {
  double layers = 0, hidden = 0, ffn = 0, heads = 0, kv_heads = 0, head_dim = 0, vocab = 0;
  bool gated = true;
};

/// A formula of a framework, or of some of its releases.
struct FlopsFormula {
  std::string_view what;       ///< "without the causal half (core 0.6 to 0.11)"
  std::string_view recompute;  ///< that it reveals: "none", "full"; "" nothing
  int from = 0, until = 0;     ///< minors of Megatron-Core 0.x; 0: open
  /// FLOPs of one sample of `sequence` tokens.
  double (*per_sample)(const PrintedShapes&, double sequence) = nullptr;
};

/// Formulas of a format that agree with the releases a log may be from; empty: none is known.
///
/// Megatron-LM, core 0.5 to 0.11   12·L·s·h²·[(1 + g/a + s/h)·q + m·f/h + V/2Lh]
///              from core 0.12     the same with s/2h (causal half)
/// Megatron-DeepSpeed              24·c·L·s·h²·(1 + s/6h + V/16Lh), c = 4 with full recomputation,
///                                 else 3; assumes an MLP of 4h and as many key-value heads
/// torchtitan, nanotron            6·P·s + 12·L·a·d·s², P the parameters in matrix products (with
///                                 the head, without the embedding)
///
///   L layers  h hidden  s tokens of a sample  f MLP width  m 1.5 if gated, else 1  a heads
///   g key-value heads  d head width  q = a·d/h  V padded vocabulary
///
/// Sources: Megatron-LM megatron/training/training.py, num_floating_point_operations, core_v0.6.0
/// and core_v0.12.0; Megatron-DeepSpeed megatron/utils.py, throughput_calculator; torchtitan
/// torchtitan/models/llama3/model/args.py, get_nparams_and_flops; nanotron
/// src/nanotron/models/llama.py, get_flops.
/// Assumes: dense layers, no latent attention, no multi-token prediction.
/// Checked by: tests/interop/printed_flops_test.cpp (published logs reproduced to four digits).
[[nodiscard]] std::vector<FlopsFormula> flops_formulas(const LogFormat& format, int version_from,
                                                       int version_until);

/// Parameters of the most loaded shard as Megatron-LM's theoretical_memory_usage.py counts them:
///
///   (W/pp + hV)/t, and hV/t more if the head is untied and pp = 1
///   W = 2·L·h²·[(1 + g/a)·q + m·f/h + 2/h + 1/(L·h)]
///
/// Source: Megatron-LM core_v0.6.0, compute_weight_and_optimizer_memory.
[[nodiscard]] double shard_parameters(const PrintedShapes& shapes, double tp, double pp, bool tied);

/// The padded vocabulary of which the printed parameters (billions, four decimals) are the count:
/// the one multiple of 128·tp within the rounding. Nothing if there is none, or several.
[[nodiscard]] std::optional<double> vocabulary_of(double printed_billions, PrintedShapes shapes,
                                                  double tp, double pp, bool tied);

}  // namespace echelon
