// What the recipe behind a measured run keeps per parameter and per logit, where its table does not
// say.
#pragma once

#include <string>
#include <vector>

#include "core/framework/framework.hpp"
#include "core/model/model.hpp"
#include "core/plan/job.hpp"
#include "evaluation/framework_defaults.hpp"
#include "evaluation/measured_runs_csv_io.hpp"
#include "topologies/topology.hpp"

namespace echelon {

/// `recipe` with the widths that the row's software sets in its own recipes; what changed is added
/// to `inferred`:
///   gradients     2 bytes in recipes tuned for speed (FrameworkDefaults::tuned_recipes), unless
///                 the row says fp32; kept as they are where no buffer holds them as reduced
///   moments       2 + 2 bytes in tuned recipes of models with latent attention
///   fp8 weights   tuned: fp8 alone, Hopper 1 + 1 (row and column), Blackwell 1, mxfp8 1 + 1,
///                 except blockwise scaling; else next to the bf16 weights
/// Source: Megatron-Bridge 067f987d, perf_recipes/_common.py, training/mixed_precision.py;
/// Megatron-LM 157006d6, examples/llama/train_llama3_8b_h100_fp8.sh; TransformerEngine d0067d0d,
/// quantizer.cpp.
/// Checked by: tests/evaluation/run_states_test.cpp.
[[nodiscard]] PrecisionRecipe with_states(PrecisionRecipe recipe, const MeasuredRun& row,
                                          const Software& software, const ModelSpec& model,
                                          const GpuSpec& gpu, std::vector<std::string>& inferred);

/// Sets the bytes per logit of one of `tp` ranks, of which each holds 1/tp unless all are whole:
/// those of the row's release, else fewer where it was compiled. Checked by:
/// tests/evaluation/run_states_test.cpp.
void set_loss_memory(const MeasuredRun& row, const FrameworkDefaults& defaults, int tp,
                     Framework& framework, std::vector<std::string>& inferred);

}  // namespace echelon
