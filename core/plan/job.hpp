// TrainingJob: the work of one optimizer step and its number formats. Independent of the cluster.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"
#include "core/base/units.hpp"
#include "core/plan/adapters.hpp"
#include "core/plan/document_lengths.hpp"
#include "core/plan/layer_code.hpp"
#include "core/plan/quantized_weights.hpp"

namespace echelon {

enum class Dtype { fp64, fp32, bf16, fp16, fp8 };
[[nodiscard]] std::string_view name_of(Dtype dtype);
/// Bytes of one element.
[[nodiscard]] double width_of(Dtype dtype);
/// Bytes of one activation element: fp8 GEMMs read and write 16 bits.
[[nodiscard]] double activation_width(Dtype compute);
/// Bytes of one element of sums and statistics: fp32, or fp64 with fp64 compute.
[[nodiscard]] double statistics_width(Dtype compute);

/// HBM bytes that quantising one element of a GEMM's input takes: read in 16 bits, written in both
/// layouts; read once more for its largest value unless that is known from the step before
/// (delayed); scales of blocks. And GEMMs without it, in units of fp8 with one scale per tensor.
/// Source: TransformerEngine d0067d0d, docs/examples/gemm_profiling: speed-ups over bf16 of the
/// twelve products of a dense layer (hidden 4096, FFN 16384, 15,872 rows), H200 NVL: delayed 1.69,
/// current 1.58, blockwise 1.40 (kernels alone 1.90); B300: delayed 1.64, current 1.39, mxfp8 1.42,
/// nvfp4 1.98 (kernels alone 1.92, 1.83, 3.48). Checked by:
/// tests/costmodel/time/grouped_gemm_test.cpp.
inline constexpr double kDelayedCast = 7;
inline constexpr double kCurrentCast = 10;
inline constexpr double kBlockwiseCast = 20;
inline constexpr double kMxfp8Cast = 11;
inline constexpr double kNvfp4Cast = 15;
inline constexpr double kMxfp8Rate = 1.83 / 1.92;
inline constexpr double kNvfp4Rate = 3.48 / 1.92;

/// How fp8 GEMMs scale what they read, as Megatron-LM's --fp8-recipe names it: by the largest
/// values of earlier steps (delayed), of the tensor itself (tensorwise), or per block of it
/// (blockwise, mxfp8). Source: Megatron-LM core_v0.16.1, megatron/core/enums.py:20, Fp8Recipe.
enum class Fp8Scaling { none, delayed, tensorwise, blockwise, mxfp8, nvfp4 };
[[nodiscard]] std::string_view name_of(Fp8Scaling scaling);

/// Bytes per parameter of all state that persists during training.
///
/// ZeRO stage z shards over the data-parallel (shard) group:
///   z ≥ 1  master + moments;  z ≥ 2  gradients too;  z = 3  weights too.
/// Source: ZeRO paper (arXiv 1910.02054, section 3); frameworks as noted in precision.cpp.
struct PrecisionRecipe {
  std::string name;  ///< "bf16:adam-fp32-master"
  std::string source;
  Dtype compute = Dtype::bf16;            ///< dtype of GEMM inputs and activations
  Fp8Scaling scaling = Fp8Scaling::none;  ///< none: no fp8
  double weight = 2;                      ///< resident copy of the weights
  double layer_weight = 0;      ///< … of a layer in addition: fp8 copies for GEMMs; below 0 where
                                ///< fp8 replaces the 16-bit weights
  double gradient = 0;          ///< gradients as the backward pass produces them
  double main_gradient = 4;     ///< accumulation buffer (fp32 main gradients)
  double master = 4;            ///< master weights (0 when the resident weights are the master)
  double moments = 8;           ///< both Adam moments
  double gathered_weight = 2;   ///< copy that ZeRO-3 gathers for compute
  double reduced_gradient = 4;  ///< bytes per gradient sent in the data-parallel reduction
  double fp8_rate = 1;          ///< of fp8 GEMMs, in units of those with one scale per tensor
  double fp8_input = 1;         ///< an element of a GEMM's input kept in fp8, with its scales
  int expert_rows = 1;          ///< rows of an expert are padded to a multiple of this
  double cast = kDelayedCast;   ///< HBM bytes per element of a GEMM's input that is quantised
  bool muon = false;            ///< Muon updates the matrices; Adam, if not
  bool primary_weights = false;  ///< weights of layers are kept in fp8 alone (--fp8-param-gather)
  double least_capability = 0;   ///< of the GPU, whose tensor cores take the format
  std::optional<double> below_capability{};  ///< from this one on there are no kernels
  /// Moments or weights that only an optimizer that shards its states keeps so narrow. Source:
  /// Megatron-LM d98e8a64, core/optimizer/__init__.py ("--use-precision-aware-optimizer only
  /// supported with distributed optimizer") and training/arguments.py (--fp8-param-gather).
  bool needs_distributed_optimizer = false;

  /// Whether GPUs of this compute capability run it.
  [[nodiscard]] bool runs_on(double capability) const {
    return capability >= least_capability && (!below_capability || capability < *below_capability);
  }
  bool operator==(const PrecisionRecipe&) const = default;
};

/// Names of formats, each of which stands for its recipe with Adam and fp32 master weights.
inline constexpr std::array<std::string_view, 5> kPrecisionFormats = {"bf16", "fp16", "fp8",
                                                                      "mxfp8", "nvfp4"};
/// All recipes, in display order.
[[nodiscard]] const std::vector<PrecisionRecipe>& precision_recipes();
/// Finds a recipe by its full name, or the default recipe of "bf16", "fp8" or "fp16"; otherwise an
/// error with the nearest name.
[[nodiscard]] Result<PrecisionRecipe> find_precision(std::string_view name);

/// One optimizer step as the user requests it, independent of the machine.
struct TrainingJob {
  int sequence = 0;               ///< tokens per sample
  std::int64_t global_batch = 0;  ///< samples per optimizer step, over all ranks
  PrecisionRecipe precision;
  bool flash_attention = true;  ///< no sequence × sequence matrix is stored
  LayerCode layer_code = LayerCode::fused;
  /// Rows of the fullest rank's experts over those of equal loads, ≥ 1. Recipes of benchmarks force
  /// equal ones (Megatron-LM d98e8a64: moe_router_force_load_balancing).
  double expert_imbalance = 1;
  /// Sequences are packed with documents, and attention stays within them; none: each sequence is
  /// one document.
  std::optional<DocumentLengths> documents;
  /// The only parameters that are trained; none: all of the model.
  std::optional<Adapters> adapters;
  /// How the frozen weights of layers are kept; none: in 16 bits or fp8, as the recipe says.
  std::optional<QuantizedWeights> quantized_weights;
  std::optional<double> token_budget;  ///< tokens to train on, for cost and days

  /// Bytes of a frozen parameter: in the format that compute reads, also where the recipe keeps its
  /// weights in fp32 as the optimizer's master. Source: HuggingFace's and Megatron-Bridge's models
  /// are loaded in bf16 for adapters. Quantised ones are counted apart (QuantizedWeights).
  [[nodiscard]] double frozen_weight() const {
    if (quantized_weights && quantized_weights->fp32_rest) return width_of(Dtype::fp32);
    return precision.primary_weights ? precision.weight
                                     : std::min(precision.weight, precision.gathered_weight);
  }
  /// Bytes per parameter of layers in addition, as the recipe's layer_weight. With adapters fp8
  /// weights of one scale per tensor are kept in one layout, and transposed in every backward.
  /// Source: disable_parameter_transpose_cache in NVIDIA's recipes of adapters (NeMo 8cfedd72,
  /// scripts/performance/llm/mlperf_lora_llama2_70b.py; Megatron-Bridge 63b08b39,
  /// scripts/performance/configs/llama/llama3_llm_finetune.py).
  [[nodiscard]] double layer_weight() const {
    if (!transposes_weights()) return precision.layer_weight;
    const bool fp8_alone = precision.primary_weights || precision.layer_weight <= 0;
    return fp8_alone ? 1 - frozen_weight() : std::min(precision.layer_weight, 1.0);
  }
  [[nodiscard]] bool transposes_weights() const {
    return adapters && (precision.scaling == Fp8Scaling::delayed ||
                        precision.scaling == Fp8Scaling::tensorwise);
  }
  /// Bytes of an element of the hidden states between layers.
  [[nodiscard]] double hidden_width() const {
    const bool wide = quantized_weights && quantized_weights->fp32_states();
    return wide ? width_of(Dtype::fp32) : activation_width(precision.compute);
  }
  /// Mean length of the document that a token lies in.
  [[nodiscard]] double document_span() const {
    return documents ? span_of_document(*documents, sequence) : static_cast<double>(sequence);
  }
  [[nodiscard]] double tokens_per_step() const {
    return static_cast<double>(sequence) * static_cast<double>(global_batch);
  }
};

}  // namespace echelon
