// TrainingJob: the work of one optimizer step and its number formats. Independent of the cluster.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"
#include "core/base/units.hpp"

namespace echelon {

enum class Dtype { fp64, fp32, bf16, fp16, fp8 };
[[nodiscard]] std::string_view name_of(Dtype dtype);
/// Bytes of one element.
[[nodiscard]] double width_of(Dtype dtype);
/// Bytes of one activation element: fp8 GEMMs read and write 16 bits.
[[nodiscard]] double activation_width(Dtype compute);
/// Bytes of one element of sums and statistics: fp32, or fp64 with fp64 compute.
[[nodiscard]] double statistics_width(Dtype compute);

/// Bytes per parameter of all state that persists during training.
///
/// ZeRO stage z shards over the data-parallel (shard) group:
///   z ≥ 1  master + moments;  z ≥ 2  gradients too;  z = 3  weights too.
/// Source: ZeRO paper (arXiv 1910.02054, section 3); frameworks as noted in precision.cpp.
struct PrecisionRecipe {
  std::string name;  ///< "bf16:adam-fp32-master"
  std::string source;
  Dtype compute = Dtype::bf16;  ///< dtype of GEMM inputs and activations
  double weight = 2;            ///< resident copy of the weights
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

  bool operator==(const PrecisionRecipe&) const = default;
};

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
  /// Rows of the fullest rank's experts over those of equal loads, ≥ 1. Recipes of benchmarks force
  /// equal ones (Megatron-LM d98e8a64: moe_router_force_load_balancing).
  double expert_imbalance = 1;
  std::optional<double> token_budget;  ///< tokens to train on, for cost and days

  [[nodiscard]] double tokens_per_step() const {
    return static_cast<double>(sequence) * static_cast<double>(global_batch);
  }
};

}  // namespace echelon
