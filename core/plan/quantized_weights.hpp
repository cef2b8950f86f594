// Frozen weights kept in 4 bits, under adapters that are trained (QLoRA).
#pragma once

#include <string>
#include <string_view>

#include "core/base/result.hpp"

namespace echelon {

/// Weights of a layer's matrices in nf4 with a constant per block of 64, as bitsandbytes keeps them
/// (QLoRA, arXiv 2305.14314). Embedding, head, norms and biases are not quantised: transformers
/// replaces every nn.Linear but the head.
///
///   payload    0.5 bytes per parameter, which FSDP and ZeRO-3 shard and gather as 16-bit numbers
///   constants  4/64, the blocks' largest values in fp32; double_quant keeps these in 8 bits, with
///              an fp32 constant per 256 of them: 1/64 + 4/(64·256). Attributes of the module, not
///              parameters: every rank has those of all its layers
///
/// Each product first writes its weight in 16 bits, forward and for the gradient of its input:
///
///   unpacking  0.5 + 4/64 bytes read and 2 written per parameter; double_quant makes the constants
///              first, (1 + 4)/64, and adds their mean, (4 + 4)/64
///
/// Source: bitsandbytes 95f9af30, bitsandbytes/functional.py (quantize_4bit, dequantize_4bit),
/// autograd/_functions.py (MatMul4Bit), nn/modules.py (fix_4bit_weight_quant_state_from_module);
/// transformers, quantizers/base.py (get_keys_to_not_convert). Its fused kernel for few rows is not
/// priced: from 513 rows on (_gemm_4bit_use_custom_cuda) weights of layers are unpacked.
/// Checked by: tests/core/plan/quantized_weights_test.cpp, against bytes counted of its modules.
struct QuantizedWeights {
  bool double_quant = false;  ///< bnb_4bit_use_double_quant
  /// Norms are in fp32, and so are the hidden states that they make, as TRL's
  /// peft_module_casting_to_bf16 leaves them; else in 16 bits. Source: trl f2cd577,
  /// trl/experimental/utils.py.
  bool fp32_norms = false;
  /// So is all else that is not quantised, as PEFT's prepare_model_for_kbit_training alone leaves
  /// it. Source: peft 5d602fdb, src/peft/utils/other.py:205.
  bool fp32_rest = false;

  static constexpr double kPayload = 0.5;
  [[nodiscard]] constexpr bool fp32_states() const { return fp32_norms || fp32_rest; }
  [[nodiscard]] constexpr double constants() const {
    return double_quant ? 1.0 / 64 + 4.0 / (64 * 256) : 4.0 / 64;
  }
  [[nodiscard]] constexpr double unpacking() const {
    constexpr double kOnce = kPayload + 4.0 / 64 + 2;
    return kOnce + (double_quant ? (1.0 + 4 + 4 + 4) / 64 : 0);
  }
  [[nodiscard]] constexpr int unpacking_kernels() const { return double_quant ? 3 : 1; }
  /// As --quantized-weights takes it: "nf4:double-quant".
  [[nodiscard]] std::string text() const;
  bool operator==(const QuantizedWeights&) const = default;
};

/// "nf4" or "nf4:OPTION,...". An error names `where`, the part that is wrong and what is allowed.
[[nodiscard]] Result<QuantizedWeights> parse_quantized_weights(std::string_view text,
                                                               const std::string& where);

}  // namespace echelon
