// Bytes per parameter in common training frameworks. Each recipe names the source of its numbers.
// Over 400 lines because the recipes are one table.
#include <algorithm>
#include <string>

#include "core/base/did_you_mean.hpp"
#include "core/base/text.hpp"
#include "core/plan/job.hpp"

namespace echelon {

std::string_view name_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::fp64: return "fp64";
    case Dtype::fp32: return "fp32";
    case Dtype::bf16: return "bf16";
    case Dtype::fp16: return "fp16";
    case Dtype::fp8: return "fp8";
  }
  return "?";
}

std::string_view name_of(Fp8Scaling scaling) {
  switch (scaling) {
    case Fp8Scaling::none: return "none";
    case Fp8Scaling::delayed: return "delayed";
    case Fp8Scaling::tensorwise: return "tensorwise";
    case Fp8Scaling::blockwise: return "blockwise";
    case Fp8Scaling::mxfp8: return "mxfp8";
    case Fp8Scaling::nvfp4: return "nvfp4";
  }
  return "?";
}

double width_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::fp64: return 8;
    case Dtype::fp32: return 4;
    case Dtype::bf16:
    case Dtype::fp16: return 2;
    case Dtype::fp8: return 1;
  }
  return 0;
}

double activation_width(Dtype compute) { return std::max(2.0, width_of(compute)); }

double statistics_width(Dtype compute) { return std::max(4.0, width_of(compute)); }

namespace {

/// Two 1-byte moments and, for each, one fp32 scale per block of 256 values.
constexpr double kAdam8bitMoments = 2 * (1 + 4.0 / 256);

/// Bytes of an element kept in fp8 with the scales of its block: fp32 per 128 values, and 8 bits
/// per
/// 32. Source: TransformerEngine d0067d0d, common/recipe: Float8BlockScaling, MXFP8BlockScaling.
constexpr double kBlockwiseInput = 1 + 4.0 / 128;
constexpr double kMxInput = 1 + 1.0 / 32;
/// HBM bytes that quantising an element takes DeepSeek's kernels: 16 bits read and fp8 written
/// forward; backward the kept fp8 read, transposed, and written with scales along the other
/// dimension: 2 + 3 · (1 + 4/128) = 5.09. What the GEMMs read is their own traffic. Source:
/// DeepSeek-V3, arXiv 2412.19437, section 3.5.2. Assumes the same of the gradients of results.
/// Checked by: tests/costmodel/time/grouped_gemm_test.cpp.
constexpr double kTileCast = 2 + 3 * kBlockwiseInput;

/// Compute capabilities: scales per block of 128 need Hopper's, of 32 Blackwell's tensor cores; on
/// cards of Blackwell (12.0) products of MXFP8 are not supported in all layouts. Source:
/// TransformerEngine d0067d0d, pytorch/quantization.py:162-187.
constexpr double kHopper = 9;
constexpr double kBlackwell = 10;
constexpr double kBlackwellCards = 12;

std::vector<PrecisionRecipe> all_recipes() {
  return {
      {.name = "bf16:adam-fp32-master",
       .source = "Megatron Core user guide, Distributed Optimizer: bf16 parameters with fp32 "
                 "gradients are 18 bytes, 6 + 12/d when sharded; backward accumulates straight "
                 "into the fp32 main gradients, which are also what is reduced",
       .compute = Dtype::bf16,
       .weight = 2,
       .gradient = 0,
       .main_gradient = 4,
       .master = 4,
       .moments = 8,
       .gathered_weight = 2,
       .reduced_gradient = 4},
      {.name = "bf16:deepspeed-zero",
       .source = "ZeRO (arXiv 1910.02054, section 3.1): 2 + 2 + 12 bytes per parameter; 16-bit "
                 "gradients are reduced, the fp32 copy of the weights is part of the 12",
       .compute = Dtype::bf16,
       .weight = 2,
       .gradient = 2,
       .main_gradient = 0,
       .master = 4,
       .moments = 8,
       .gathered_weight = 2,
       .reduced_gradient = 2},
      {.name = "bf16:fsdp-fp32-shards",
       .source = "PyTorch FSDP with MixedPrecisionPolicy(param_dtype=bf16, reduce_dtype=fp32): "
                 "shards stay fp32 and serve as the master; gathered copies are bf16. Without a "
                 "reduce_dtype PyTorch reduces in param_dtype (2 bytes)",
       .compute = Dtype::bf16,
       .weight = 4,
       .gradient = 0,
       .main_gradient = 4,
       .master = 0,
       .moments = 8,
       .gathered_weight = 2,
       .reduced_gradient = 4},
      {.name = "bf16:nanotron",
       .source =
           "Nanotron with fp32 gradient accumulation, as counted in the Ultra-Scale Playbook: "
           "bf16 weights 2, bf16 gradients 2, fp32 gradients 4, fp32 weights 4, moments 8",
       .compute = Dtype::bf16,
       .weight = 2,
       .gradient = 2,
       .main_gradient = 4,
       .master = 4,
       .moments = 8,
       .gathered_weight = 2,
       .reduced_gradient = 4},
      {.name = "bf16:adam-8bit",
       .source =
           "bf16:adam-fp32-master with bitsandbytes block-wise 8-bit Adam (arXiv 2110.02861): "
           "1 byte per moment and one fp32 scale per block of 256 values (2,048 in older releases)",
       .compute = Dtype::bf16,
       .weight = 2,
       .gradient = 0,
       .main_gradient = 4,
       .master = 4,
       .moments = kAdam8bitMoments,
       .gathered_weight = 2,
       .reduced_gradient = 4},
      {.name = "bf16:adam-bf16-states",
       .source = "bf16:adam-fp32-master with both moments kept in bf16 (Megatron Core: "
                 "--exp-avg-dtype bf16 --exp-avg-sq-dtype bf16 of its precision-aware optimizer)",
       .compute = Dtype::bf16,
       .weight = 2,
       .gradient = 0,
       .main_gradient = 4,
       .master = 4,
       .moments = 4,
       .gathered_weight = 2,
       .reduced_gradient = 4,
       .needs_distributed_optimizer = true},
      {.name = "bf16:adam-bf16-gradients",
       .source = "bf16:adam-fp32-master with gradients kept and reduced in bf16 (Megatron Core: "
                 "without --accumulate-allreduce-grads-in-fp32; Megatron-Bridge 067f987d, "
                 "perf_recipes/_common.py: grad_reduce_in_fp32=False)",
       .compute = Dtype::bf16,
       .weight = 2,
       .gradient = 0,
       .main_gradient = 2,
       .master = 4,
       .moments = 8,
       .gathered_weight = 2,
       .reduced_gradient = 2},
      {.name = "bf16:precision-aware",
       .source = "bf16:adam-bf16-gradients with both moments kept in bf16 (Megatron Core d98e8a64, "
                 "optimizer_config.py; Megatron-Bridge's recipes of DeepSeek-V3 and Moonlight)",
       .compute = Dtype::bf16,
       .weight = 2,
       .gradient = 0,
       .main_gradient = 2,
       .master = 4,
       .moments = 4,
       .gathered_weight = 2,
       .reduced_gradient = 2,
       .needs_distributed_optimizer = true},
      {.name = "bf16:muon",
       .source = "Muon keeps one fp32 momentum next to the fp32 weights; fp32 gradients "
                 "(Megatron-Bridge 067f987d, recipes/kimi/h100/kimi_k2.py). The matrices' updates "
                 "are divided among ranks layer by layer, priced as an equal split",
       .compute = Dtype::bf16,
       .weight = 2,
       .gradient = 0,
       .main_gradient = 4,
       .master = 4,
       .moments = 4,
       .gathered_weight = 2,
       .reduced_gradient = 4,
       .muon = true},
      {.name = "bf16:pure",
       .source = "model and AdamW in bf16 without master weights: FSDP2 without a reduce_dtype "
                 "shards, gathers and reduces in the format of the weights (PyTorch, "
                 "torch/distributed/fsdp/_fully_shard/_fsdp_param.py, init_dtype_attrs), and "
                 "AdamW's moments are made like them (torch/optim/adam.py, zeros_like); LLaMA-"
                 "Factory's pure_bf16, torchtune's dtype bf16",
       .compute = Dtype::bf16,
       .weight = 2,
       .gradient = 0,
       .main_gradient = 2,
       .master = 0,
       .moments = 4,
       .gathered_weight = 2,
       .reduced_gradient = 2},
      {.name = "bf16:textbook",
       .source = "the smallest count in lecture notes: bf16 weights and gradients, fp32 moments, "
                 "no master copy (2 + 2 + 8)",
       .compute = Dtype::bf16,
       .weight = 2,
       .gradient = 2,
       .main_gradient = 0,
       .master = 0,
       .moments = 8,
       .gathered_weight = 2,
       .reduced_gradient = 2},
      {.name = "fp16:adam-fp32-master",
       .source = "Megatron Core user guide, Distributed Optimizer: 16-bit parameters with fp32 "
                 "gradients are 18 bytes (--accumulate-allreduce-grads-in-fp32; without it 20)",
       .compute = Dtype::fp16,
       .weight = 2,
       .gradient = 0,
       .main_gradient = 4,
       .master = 4,
       .moments = 8,
       .gathered_weight = 2,
       .reduced_gradient = 4},
      {.name = "fp8:adam-fp32-master",
       .source =
           "Transformer Engine under Megatron: GEMMs in fp8 with delayed scaling, the default of "
           "--fp8-recipe (Megatron-LM core_v0.16.1, transformer_config.py:436), weights kept "
           "and gathered in bf16 (--fp8-param-gather is off) next to their fp8 copies, one per "
           "layout, which all microbatches use (TransformerEngine d0067d0d, module/base.py, "
           "quantize_weight), the rest as bf16:adam-fp32-master",
       .compute = Dtype::fp8,
       .scaling = Fp8Scaling::delayed,
       .weight = 2,
       .layer_weight = 2,
       .gradient = 0,
       .main_gradient = 4,
       .master = 4,
       .moments = 8,
       .gathered_weight = 2,
       .reduced_gradient = 4,
       .expert_rows = 16},
      {.name = "mxfp8:adam-fp32-master",
       .source = "fp8:adam-fp32-master with a scale per 32 values, for either layout "
                 "(TransformerEngine d0067d0d; Megatron-LM --fp8-recipe mxfp8); rate and casts: "
                 "docs/examples/gemm_profiling there, B300",
       .compute = Dtype::fp8,
       .scaling = Fp8Scaling::mxfp8,
       .weight = 2,
       .layer_weight = 2 + 2.0 / 32,
       .gradient = 0,
       .main_gradient = 4,
       .master = 4,
       .moments = 8,
       .gathered_weight = 2,
       .reduced_gradient = 4,
       .fp8_rate = kMxfp8Rate,
       .fp8_input = kMxInput,
       .expert_rows = 32,
       .cast = kMxfp8Cast,
       .least_capability = kBlackwell,
       .below_capability = kBlackwellCards},
      {.name = "nvfp4:adam-fp32-master",
       .source = "mxfp8:adam-fp32-master with 4-bit values and a scale per 16 of them; all layers, "
                 "MFU of the fp8 peak (TransformerEngine d0067d0d; Megatron-LM --fp4-format e2m1); "
                 "rate and casts: docs/examples/gemm_profiling there, B300",
       .compute = Dtype::fp8,
       .scaling = Fp8Scaling::nvfp4,
       .weight = 2,
       .layer_weight = 1 + 2.0 / 16,
       .gradient = 0,
       .main_gradient = 4,
       .master = 4,
       .moments = 8,
       .gathered_weight = 2,
       .reduced_gradient = 4,
       .fp8_rate = kNvfp4Rate,
       .fp8_input = 0.5 + 1.0 / 16,
       .expert_rows = 32,
       .cast = kNvfp4Cast,
       .least_capability = kBlackwell},
      {.name = "fp8:primary-weights",
       .source = "fp8:adam-fp32-master with --fp8-param-gather: a layer's weights are kept in fp8 "
                 "alone, once per layout (TransformerEngine d0067d0d, quantizer.cpp, "
                 "is_non_tn_fp8_gemm_supported), and gathered in fp8",
       .compute = Dtype::fp8,
       .scaling = Fp8Scaling::delayed,
       .weight = 2,
       .gradient = 0,
       .main_gradient = 4,
       .master = 4,
       .moments = 8,
       .gathered_weight = 1,
       .reduced_gradient = 4,
       .expert_rows = 16,
       .primary_weights = true,
       .needs_distributed_optimizer = true},
      {.name = "fp8:bf16-gradients",
       .source =
           "fp8:primary-weights with gradients kept and reduced in bf16, one scale per tensor "
           "(Megatron-Bridge 067f987d, perf_recipes/_common.py, and "
           "training/mixed_precision.py: fp8_param of current scaling)",
       .compute = Dtype::fp8,
       .scaling = Fp8Scaling::tensorwise,
       .weight = 2,
       .gradient = 0,
       .main_gradient = 2,
       .master = 4,
       .moments = 8,
       .gathered_weight = 1,
       .reduced_gradient = 2,
       .expert_rows = 16,
       .cast = kCurrentCast,
       .primary_weights = true,
       .needs_distributed_optimizer = true},
      {.name = "fp8:precision-aware",
       .source = "fp8:bf16-gradients with both moments kept in bf16 (Megatron-Bridge 067f987d, "
                 "recipes of DeepSeek-V3: precision-aware optimizer)",
       .compute = Dtype::fp8,
       .scaling = Fp8Scaling::tensorwise,
       .weight = 2,
       .gradient = 0,
       .main_gradient = 2,
       .master = 4,
       .moments = 4,
       .gathered_weight = 1,
       .reduced_gradient = 2,
       .expert_rows = 16,
       .cast = kCurrentCast,
       .primary_weights = true,
       .needs_distributed_optimizer = true},
      {.name = "fp8:deepseek-v3",
       .source =
           "fp32 master weights, fp32 gradients and both moments in bf16; weights taken to be "
           "kept and gathered in fp8 alone, once per layout; casts as its kernels make them "
           "(DeepSeek-V3, arXiv 2412.19437, sections 3.3.1, 3.3.3 and 3.5.2)",
       .compute = Dtype::fp8,
       .scaling = Fp8Scaling::blockwise,
       .weight = 2,
       .gradient = 0,
       .main_gradient = 4,
       .master = 4,
       .moments = 4,
       .gathered_weight = 1,
       .reduced_gradient = 4,
       .fp8_input = kBlockwiseInput,
       .expert_rows = 16,
       .cast = kTileCast,
       .primary_weights = true,
       .least_capability = kHopper,
       .needs_distributed_optimizer = true},
      {.name = "fp8:blockwise",
       .source = "fp8 with one fp32 scale per 128 values of an input: bf16 weights next to two fp8 "
                 "copies, bf16 gradients (Megatron-Bridge 067f987d, training/mixed_precision.py: "
                 "no fp8_param, perf_recipes/_common.py)",
       .compute = Dtype::fp8,
       .scaling = Fp8Scaling::blockwise,
       .weight = 2,
       .layer_weight = 2,
       .gradient = 0,
       .main_gradient = 2,
       .master = 4,
       .moments = 8,
       .gathered_weight = 2,
       .reduced_gradient = 2,
       .fp8_input = kBlockwiseInput,
       .expert_rows = 16,
       .cast = kBlockwiseCast,
       .least_capability = kHopper},
      {.name = "mxfp8:bf16-gradients",
       .source = "mxfp8, one 8-bit scale per 32 values, rows and columns apart: primary weights "
                 "1 + 1 with their scales, gathered in bf16, bf16 gradients (Megatron-LM d98e8a64, "
                 "arguments.py, reuse_grad_buf_for_mxfp8_param_ag; Megatron-Bridge 067f987d, "
                 "training/mixed_precision.py, perf_recipes/_common.py)",
       .compute = Dtype::fp8,
       .scaling = Fp8Scaling::mxfp8,
       .weight = 2,
       .layer_weight = 2 * (kMxInput - 1),
       .gradient = 0,
       .main_gradient = 2,
       .master = 4,
       .moments = 8,
       .gathered_weight = 2,
       .reduced_gradient = 2,
       .fp8_rate = kMxfp8Rate,
       .fp8_input = kMxInput,
       .expert_rows = 32,
       .cast = kMxfp8Cast,
       .primary_weights = true,
       .least_capability = kBlackwell,
       .below_capability = kBlackwellCards,
       .needs_distributed_optimizer = true},
      {.name = "nvfp4:bf16-gradients",
       .source = "nvfp4 with primary weights, two layouts of 4-bit values with their scales, "
                 "gathered in bf16, bf16 gradients (Megatron-Bridge 067f987d, "
                 "training/mixed_precision.py, bf16_with_nvfp4_mixed; perf_recipes/_common.py)",
       .compute = Dtype::fp8,
       .scaling = Fp8Scaling::nvfp4,
       .weight = 2,
       .layer_weight = 1 + 2.0 / 16 - 2,
       .gradient = 0,
       .main_gradient = 2,
       .master = 4,
       .moments = 8,
       .gathered_weight = 2,
       .reduced_gradient = 2,
       .fp8_rate = kNvfp4Rate,
       .fp8_input = 0.5 + 1.0 / 16,
       .expert_rows = 32,
       .cast = kNvfp4Cast,
       .primary_weights = true,
       .least_capability = kBlackwell,
       .needs_distributed_optimizer = true},
      {.name = "mxfp8:muon",
       .source = "mxfp8 with Muon: bf16 weights next to two mxfp8 copies, bf16 gradients, one fp32 "
                 "momentum (Megatron-Bridge 067f987d, recipes/kimi/h100/kimi_k2.py and "
                 "perf_recipes/_common.py; v0.4, kimi_llm_pretrain.py: fp8_param_gather off)",
       .compute = Dtype::fp8,
       .scaling = Fp8Scaling::mxfp8,
       .weight = 2,
       .layer_weight = 2 * kMxInput,
       .gradient = 0,
       .main_gradient = 2,
       .master = 4,
       .moments = 4,
       .gathered_weight = 2,
       .reduced_gradient = 2,
       .fp8_rate = kMxfp8Rate,
       .fp8_input = kMxInput,
       .expert_rows = 32,
       .cast = kMxfp8Cast,
       .muon = true,
       .least_capability = kBlackwell,
       .below_capability = kBlackwellCards},
      {.name = "fp32",
       .source = "Megatron Core user guide, Distributed Optimizer: fp32 parameters and gradients "
                 "are 16 bytes, 8 + 8/d when sharded",
       .compute = Dtype::fp32,
       .weight = 4,
       .gradient = 0,
       .main_gradient = 4,
       .master = 0,
       .moments = 8,
       .gathered_weight = 4,
       .reduced_gradient = 4},
      {.name = "fp64",
       .source = "fp32 with every number twice as wide; framework echelon executes it on CPU "
                 "cores, to measure the effect of rounding (docs/run.md)",
       .compute = Dtype::fp64,
       .weight = 8,
       .gradient = 0,
       .main_gradient = 8,
       .master = 0,
       .moments = 16,
       .gathered_weight = 8,
       .reduced_gradient = 8},
  };
}

std::string default_recipe(std::string_view dtype) {
  const bool known = std::ranges::find(kPrecisionFormats, dtype) != kPrecisionFormats.end();
  return std::string(dtype) + (known ? ":adam-fp32-master" : "");
}

/// Spellings of earlier releases.
std::string_view current_name(std::string_view name) {
  if (name == "fp8:mxfp8") return "mxfp8:bf16-gradients";
  if (name == "fp8:mxfp8-muon") return "mxfp8:muon";
  return name;
}

}  // namespace

const std::vector<PrecisionRecipe>& precision_recipes() {
  static const std::vector<PrecisionRecipe> recipes = all_recipes();
  return recipes;
}

Result<PrecisionRecipe> find_precision(std::string_view name) {
  const std::string full = default_recipe(current_name(name));
  std::vector<std::string> known(kPrecisionFormats.begin(), kPrecisionFormats.end());
  for (const PrecisionRecipe& recipe : precision_recipes()) {
    if (recipe.name == full) return recipe;
    known.push_back(recipe.name);
  }
  std::string expected = "one of ";
  for (std::size_t i = 0; i < known.size(); ++i) expected += (i > 0 ? ", " : "") + known[i];
  return input_error("--precision", "unknown precision " + in_quotes(name), std::move(expected),
                     did_you_mean(name, known));
}

}  // namespace echelon
