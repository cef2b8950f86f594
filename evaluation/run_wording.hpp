// What the free text of a row says. Tables quote their sources, so one fact has many wordings.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/framework/framework.hpp"
#include "core/plan/job.hpp"
#include "core/plan/parallel_plan.hpp"
#include "core/plan/recompute_modules.hpp"
#include "costmodel/time/host_shares.hpp"
#include "evaluation/measured_runs_csv_io.hpp"

namespace echelon {

/// Whether a text has these characters in it, as they stand.
[[nodiscard]] inline bool says(std::string_view text, std::string_view words) {
  return text.find(words) != std::string_view::npos;
}

/// Words of a text in lower case, what stands between letters and digits left out:
/// "RTX-4090", "moe_a2a_overlap" → {rtx, 4090}, {moe, a2a, overlap}.
[[nodiscard]] std::vector<std::string> words_of(std::string_view text);

/// Whether a clause of the text (clauses end at ';', ',' or '+') contains one of the phrases, given
/// as words in lower case with single blanks, and no "no", "not", "without", "off", "false" or
/// "disabled".
[[nodiscard]] bool states(std::string_view text, std::initializer_list<std::string_view> phrases);
/// The same of a clause that denies it: with one of those words.
[[nodiscard]] bool denies(std::string_view text, std::initializer_list<std::string_view> phrases);

/// Bytes of an element in the reduction of gradients, 2 or 4, where the row's details name its
/// format: the format next to the word ("bf16 grad reduce", "reduce_dtype=fp32",
/// "grad_reduce_in_fp32=False", FSDP1's mixed_precision=PURE).
[[nodiscard]] std::optional<double> reduced_bytes(const MeasuredRun& row);

/// Whether the row says that weights, gradients and moments are all kept in bf16 ("pure bf16").
[[nodiscard]] bool keeps_bf16_alone(const MeasuredRun& row);

/// Whether the exchange of tokens between experts overlaps the compute of another microbatch:
/// Megatron-Core's --overlap-moe-expert-parallel-comm (its "combined 1F1B"), without which
/// --delay-wgrad-compute is refused, and whatever else is called so.
[[nodiscard]] bool overlaps_experts(const MeasuredRun& row);
/// The token dispatcher that the row names; flex without a backend is DeepEP, Megatron-LM's default
/// backend. Rows that name none use alltoall, as the recipes of 2024 do.
[[nodiscard]] Dispatcher dispatcher_of(const MeasuredRun& row);

/// The attention kernels that the row's notes name; nothing where they name none.
[[nodiscard]] std::optional<AttentionKernels> attention_kernels_of(const MeasuredRun& row);

/// Whose code the row's layers are: transformers', where its software's detail names them, its
/// trainer or PEFT, unless the run was compiled; with Liger's kernels where the notes name them.
[[nodiscard]] LayerCode layer_code_of(const MeasuredRun& row);

/// Framework::loss_rows of a row whose notes say "output head in chunks of 2048 tokens"; nothing
/// where they do not.
[[nodiscard]] std::optional<int> loss_rows_of(const MeasuredRun& row);

/// Shares of the host's launches that remain next to CUDA graphs (Framework::host_share), of the
/// column `cuda_graph`, or where it is blank of the notes. A graph of the whole iteration
/// leaves none; graphs of single layers one launch for each. Megatron-Core's scopes count by parts:
/// attention with its norm is half of a layer and the MLP the other half; of what experts add, the
/// router and the preparation of the dispatch are half, dispatch, products and combination the
/// other half.
/// Source: Megatron-LM core_v0.16.1, megatron/core/transformer/cuda_graphs.py, cuda_graph_scope.
[[nodiscard]] HostShares host_shares(const MeasuredRun& row);

/// "selective modules=layernorm+moe_act (recipe)" → these modules; nothing where it names none.
[[nodiscard]] std::optional<RecomputeModules> recomputed_modules(const MeasuredRun& row);

/// Layers per stage of a row with "pp_layout=Et*4|(t*4|)*14tmL", Megatron-Core's layout of chunks;
/// nothing without one, or where it is not one of `layers` layers on `pp` stages.
[[nodiscard]] std::optional<std::vector<int>> layers_per_stage(const MeasuredRun& row, int layers,
                                                               int pp);

/// How a row's fp8 or fp4 products scale what they read; delayed where it does not say.
[[nodiscard]] Fp8Scaling scaling_of(const MeasuredRun& row);
/// PrecisionRecipe::fp8_rate and ::cast of the row's format and scaling; delayed scaling where it
/// names none. With one scale per row products take 1.25 times as long as with one per tensor:
/// torchtitan@7a04053 trains Llama 3 8B on 8 H100 with 5,760 tokens per second and GPU in bf16,
/// 7,186 tensorwise (1.25 times as many) and 6,412 rowwise (1.11 times), a tenth of the bf16 step
/// more, about a quarter of the time of its fp8 products.
void set_quantisation(const MeasuredRun& row, PrecisionRecipe& recipe);

}  // namespace echelon
