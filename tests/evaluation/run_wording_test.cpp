#include "evaluation/run_wording.hpp"

#include "tests/support/catch.hpp"

namespace echelon {
namespace {

TEST_CASE("a statement is found in any spelling, and a denial is not one") {
  CHECK(states("dispatcher=deepep; moe_a2a_overlap", {"a2a overlap"}));
  CHECK(states("TP Comm Overlap + vboost", {"tp comm overlap"}));
  CHECK_FALSE(states("HybridEP; EP comm overlap off", {"ep comm overlap"}));
  CHECK(denies("HybridEP; EP comm overlap off", {"ep comm overlap"}));
  CHECK_FALSE(states("deepeplike", {"deepep"}));
}

TEST_CASE("the format of the reduction is the one next to the word") {
  const auto bytes = [](const char* detail) {
    MeasuredRun row;
    row.precision_detail = detail;
    return reduced_bytes(row);
  };
  for (const char* two :
       {"bf16 grad reduce", "grad reduce bf16", "reduce_dtype=bfloat16",
        "gradients reduced in bf16", "bf16 gradient all-reduce", "all-reduce of fp16 gradients",
        "grad_reduce_in_fp32=False", "communication_data_type: bf16", "FSDP mixed_precision=PURE",
        "fp32 master; bf16 reduce-scatter"}) {
    CAPTURE(two);
    CHECK(bytes(two) == 2);
  }
  for (const char* four : {"bf16 params/compute fp32 reduce", "grad_reduce_in_fp32=True",
                           "bf16, fp32 grad accumulation/reduce, distributed optimizer"}) {
    CAPTURE(four);
    CHECK(bytes(four) == 4);
  }
  for (const char* nothing :
       {"bf16; distributed optimizer (ZeRO-1)", "overlap grad reduce",
        "bf16 reduced-precision optimizer moments", "attention_softmax_in_fp32=False"}) {
    CAPTURE(nothing);
    CHECK_FALSE(bytes(nothing));
  }
}

TEST_CASE("what keeps every state in bf16 is said in the details of the precision or the notes") {
  MeasuredRun row;
  CHECK_FALSE(keeps_bf16_alone(row));
  row.notes = "liger kernel, flash_attn fa2, pure_bf16";
  CHECK(keeps_bf16_alone(row));
  row.notes = "FSDP1 MixedPrecision bf16 (PURE); not pure bf16";
  CHECK_FALSE(keeps_bf16_alone(row));
  row.precision_detail = "pure bf16: weights, gradients and moments; fp8 tensorwise";
  CHECK(keeps_bf16_alone(row));
}

TEST_CASE("overlapped expert communication is recognized in the words of its documents") {
  MeasuredRun row;
  for (const char* said :
       {"moe_a2a_overlap", "EP overlap", "EP comm overlap on", "HybridEP, EP overlap, delay_wgrad",
        "--overlap-moe-expert-parallel-comm", "combined 1F1B", "1F1B overlap with all-to-all"}) {
    CAPTURE(said);
    row.overlap_detail = said;
    CHECK(overlaps_experts(row));
  }
  for (const char* silent : {"", "HybridEP", "EP comm overlap off", "TP comm overlap",
                             "overlap_moe_expert_parallel_comm=False"}) {
    CAPTURE(silent);
    row.overlap_detail = silent;
    CHECK_FALSE(overlaps_experts(row));
  }
}

TEST_CASE("attention kernels are those that a row's notes name") {
  const auto kernels = [](const char* notes) {
    MeasuredRun row;
    row.notes = notes;
    return attention_kernels_of(row);
  };
  CHECK_FALSE(kernels(""));
  CHECK_FALSE(kernels("cuDNN flash attention; padded vocab"));
  CHECK(kernels("HFU 38.13%; Triton flash attention 1 (attn_impl: triton)") ==
        AttentionKernels::flash_1);
  CHECK(kernels("80GB, CUDA 11.8, flash-attn 2; s/iter") == AttentionKernels::flash_2);
  CHECK(kernels("liger kernel, flash_attn fa2, pure_bf16") == AttentionKernels::flash_2);
  CHECK(kernels("flash attention 3; fake data of full length") == AttentionKernels::newest);
  CHECK(kernels("flash attention 4; synthetic data") == AttentionKernels::newest);
  CHECK_FALSE(kernels("without flash attention 3"));
}

TEST_CASE(
    "layers are transformers' where the software's detail names them and nothing fuses them") {
  MeasuredRun run;
  for (const char* detail :
       {"TRL SFTTrainer on transformers 5, PyTorch FSDP2", "HF Trainer + DeepSpeed",
        "fsdp_qlora train.py (PyTorch FSDP1, PEFT)"}) {
    run.framework_detail = detail;
    CHECK(layer_code_of(run) == LayerCode::transformers);
  }
  run.notes = "flash attention 4; Liger kernels; grouped products of experts";
  CHECK(layer_code_of(run) == LayerCode::liger);
  run.torch_compile = true;
  CHECK(layer_code_of(run) == LayerCode::fused);
  run.torch_compile = false;
  run.notes = "";
  for (const char* own : {"torchtitan (FSDP2)", "Halo, PyTorch FSDP2", "DeepSpeed ZeRO-3", ""}) {
    run.framework_detail = own;
    CHECK(layer_code_of(run) == LayerCode::fused);
  }
}

TEST_CASE("a head in chunks says how many rows of logits exist at once") {
  MeasuredRun row;
  row.notes = "loss of reinforcement learning, output head in chunks of 2048 tokens; mean of three";
  CHECK(loss_rows_of(row) == 2048);
  row.notes = "output head in chunks of a few tokens";
  CHECK_FALSE(loss_rows_of(row));
  row.notes = "chunked loss";
  CHECK_FALSE(loss_rows_of(row));
}

TEST_CASE("CUDA graphs take launches from the host by what they cover") {
  MeasuredRun row;
  const auto shares = [&](const char* graph) {
    row.cuda_graph = graph;
    return host_shares(row);
  };
  for (const char* none : {"", "none", "none:full_iteration", "off", "0"}) {
    CHECK(shares(none).layer == 1);
    CHECK(shares(none).experts == 1);
  }
  CHECK(shares("local:full_iteration").layer == 0);
  CHECK(shares("local:full_iteration").experts == 0);
  CHECK(shares("layer CUDA graphs").layer < 0.1);
  CHECK(shares("transformer_engine:['attn', 'moe_router', 'moe_preprocess']").layer == 0.5);
  CHECK(shares("transformer_engine:['attn', 'moe_router', 'moe_preprocess']").experts == 0.5);
  CHECK(shares("transformer_engine:moe_router,moe_preprocess").layer == 1);
  CHECK(shares("local:full_iteration").products == 0);
  CHECK(shares("transformer_engine:moe_router,moe_preprocess").products == 1);
  CHECK(shares("yes").experts == 1);
  row.notes = "tokendrop; token-drop MoE (capacity)";
  CHECK(shares("yes").products < 0.1);  // static shapes: the experts are in the graph, too
  CHECK(shares("transformer_engine:moe_router,moe_preprocess").products == 1);
  row.notes = "matmul dtype bf16; CUDA graphs";
  CHECK(shares("").layer < 0.1);
}

TEST_CASE("fp8 products with one scale per row are slower") {
  MeasuredRun row;
  row.precision_detail = "bf16 + float8 rowwise";
  PrecisionRecipe recipe;
  const auto rate = [&] {
    set_quantisation(row, recipe);
    return recipe.fp8_rate;
  };
  CHECK(rate() < 1);
  for (const char* other : {"fp8 delayed-scaling hybrid", "bf16 + float8 tensorwise", "bf16"}) {
    row.precision_detail = other;
    CHECK(rate() == 1);
  }
}

TEST_CASE("modules are those of a list behind the word, and of no other text") {
  const auto named = [](const char* detail) {
    MeasuredRun row;
    row.recompute_detail = detail;
    const auto modules = recomputed_modules(row);
    return modules ? text_of(*modules) : "-";
  };
  CHECK(named("selective modules=mla_up_proj+mlp (recipe)") == "mla_up_proj,mlp");
  CHECK(named("selective modules=moe+layernorm+core_attn+moe_act") ==
        "core_attn,layernorm,moe_act,moe");
  CHECK(named("selective (norm,ffn)") == "-");
  CHECK(named("selective modules=gdn_norm_out") == "-");
}

TEST_CASE("casts are those of the scaling that a row names, delayed where it names none") {
  const auto cast = [](const char* precision, const char* detail) {
    MeasuredRun row;
    row.precision = precision;
    row.precision_detail = detail;
    PrecisionRecipe recipe;
    set_quantisation(row, recipe);
    return recipe.cast;
  };
  CHECK(cast("fp8", "fp8 delayed-scaling hybrid") == kDelayedCast);
  CHECK(cast("fp8", "fp8 (recipe not named)") == kDelayedCast);
  CHECK(cast("fp8", "fp8 current-scaling (FP8-CS)") == kCurrentCast);
  CHECK(cast("fp8", "fp8 subchannel 128x128/1x128") == kBlockwiseCast);
  CHECK(cast("mxfp8", "mxfp8; ZeRO-1") == kMxfp8Cast);
  CHECK(cast("nvfp4", "nvfp4") == kNvfp4Cast);
}

TEST_CASE("a row's dispatcher is the one it names, alltoall where it names none") {
  const auto of = [](const char* overlap) {
    MeasuredRun row;
    row.overlap_detail = overlap;
    return dispatcher_of(row);
  };
  CHECK(of("dispatcher=hybridep; moe_a2a_overlap") == Dispatcher::hybridep);
  CHECK(of("DeepEP") == Dispatcher::deepep);
  CHECK(of("flex dispatcher") == Dispatcher::deepep);
  CHECK(of("moe_a2a_overlap") == Dispatcher::alltoall);
}

}  // namespace
}  // namespace echelon
