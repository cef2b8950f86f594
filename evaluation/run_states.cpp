#include "evaluation/run_states.hpp"

#include <fmt/format.h>

#include "core/base/text.hpp"
#include "evaluation/run_wording.hpp"

namespace echelon {
namespace {

/// Bytes of a layer's weights beyond the two of bf16: fp8 copies, or fp8 alone.
double fp8_weights(const MeasuredRun& row, bool tuned, const GpuSpec& gpu) {
  if (row.precision == "nvfp4") return 1 + 2.0 / 16;  // 4 bits in either layout, with scales
  constexpr double kBlackwell = 10;  // compute capability: GEMMs take either layout
  const std::string detail = lower_case(row.precision_detail);
  const bool blockwise = says(detail, "blockwise") || says(detail, "subchannel");
  const bool block_scaled = row.precision == "mxfp8" || blockwise;
  const double copies = block_scaled || gpu.compute_capability < kBlackwell ? 2 : 1;
  return tuned && !blockwise ? copies - 2 : copies;
}

/// Of an input kept in fp8, and of the rows of an expert: as the recipe with those blocks.
void set_block_scales(const MeasuredRun& row, PrecisionRecipe& recipe) {
  const std::string detail = lower_case(row.precision_detail);
  const char* like = row.precision == "mxfp8" ? "mxfp8:bf16-gradients"
                     : says(detail, "blockwise") || says(detail, "subchannel") ? "fp8:blockwise"
                                                                               : "fp8";
  const PrecisionRecipe known = find_precision(like).value();
  recipe.fp8_input = known.fp8_input;
  recipe.expert_rows = known.expert_rows;
}

}  // namespace

PrecisionRecipe with_states(PrecisionRecipe recipe, const MeasuredRun& row,
                            const Software& software, const ModelSpec& model, const GpuSpec& gpu,
                            std::vector<std::string>& inferred) {
  constexpr double kFp32 = 4;
  const bool tuned = software.defaults->tuned_recipes;
  if (tuned && software.framework->gradients_as_reduced && recipe.main_gradient == kFp32 &&
      !reduced_bytes(row) && !says(row.precision_detail, "fp32 grad")) {
    recipe.main_gradient = recipe.reduced_gradient = 2;
    inferred.emplace_back("gradients kept and reduced in bf16");
  }
  if (says(row.precision_detail, "pure bf16")) {  // one copy of the weights, which Adam updates
    recipe.weight = recipe.main_gradient = 2;
    recipe.reduced_gradient = reduced_bytes(row).value_or(2);
    recipe.gradient = recipe.master = 0;
    recipe.moments = 2 * 2;
  }
  if (tuned && model.latent()) {
    recipe.moments = 4;
    inferred.emplace_back("moments of 16 bits");
  }
  if (recipe.compute == Dtype::fp8 && recipe.master > 0) {
    recipe.layer_weight = fp8_weights(row, tuned, gpu);
    set_block_scales(row, recipe);
    inferred.emplace_back(tuned ? "fp8 primary weights" : "fp8 copies of bf16 weights");
  }
  return recipe;
}

void set_loss_memory(const MeasuredRun& row, const FrameworkDefaults& defaults, int tp,
                     Framework& framework, std::vector<std::string>& inferred) {
  const bool compiled = row.torch_compile.value_or(false);
  const std::optional<double> own = compiled && defaults.compiled_logits_bytes
                                        ? defaults.compiled_logits_bytes
                                        : defaults.logits_bytes;
  if (own) {
    framework.logits_bytes = *own;
    inferred.push_back(fmt::format("{} bytes per logit", *own));
  } else if (compiled && framework.compiled_logits_bytes) {
    framework.logits_bytes = *framework.compiled_logits_bytes;
  }
  if (defaults.whole_logits && tp > 1) {
    framework.logits_bytes *= tp;
    framework.loss_traffic *= tp;
    inferred.emplace_back("logits whole on every tensor-parallel rank");
  }
}

}  // namespace echelon
