// Arguments as Megatron-LM prints them, and options of its older and newer releases.
#include <string>

#include "interop/configs/export.hpp"
#include "interop/configs/import.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

const std::string kDump = R"(using world size: 16, data-parallel size: 2
------------------------ arguments ------------------------
  add_bias_linear ................................. False
  attention_backend ............................... AttnBackend.auto
  attention_dropout ............................... 0.0
  bf16 ............................................ True
  context_parallel_size ........................... 1
  cp_comm_type .................................... ['p2p']
  cuda_graph_scope ................................ full
  data_parallel_sharding_strategy ................. no_shard
  exp_avg_dtype ................................... torch.float32
  ffn_hidden_size ................................. 14336
  fp8 ............................................. None
  global_batch_size ............................... 64
  group_query_attention ........................... True
  hidden_dropout .................................. 0.0
  hidden_size ..................................... 4096
  kv_channels ..................................... 128
  kv_lora_rank .................................... 32
  micro_batch_size ................................ 2
  microbatch_group_size_per_virtual_pipeline_stage  4
  multi_latent_attention .......................... False
  normalization ................................... RMSNorm
  num_attention_heads ............................. 32
  num_experts ..................................... None
  num_layers ...................................... 32
  num_layers_per_virtual_pipeline_stage ........... None
  num_query_groups ................................ 8
  optimizer ....................................... adam
  overlap_grad_reduce ............................. True
  overlap_p2p_comm ................................ True
  padded_vocab_size ............................... 128256
  pipeline_model_parallel_size .................... 4
  position_embedding_type ......................... rope
  recompute_granularity ........................... None
  recompute_modules ............................... ['core_attn']
  seq_length ...................................... 8192
  sequence_parallel ............................... True
  swiglu .......................................... True
  tensor_model_parallel_size ...................... 2
  untie_embeddings_and_output_weights ............. True
  use_distributed_optimizer ....................... True
  virtual_pipeline_model_parallel_size ............ 2
  world_size ...................................... 16
-------------------- end of arguments ---------------------
> building GPT model ...
)";

Result<ImportedConfig> read_dump(const std::string& text) {
  return import_config({{"train.txt", text}}, GivenRun{});
}

/// A line of the dump with another value.
std::string with(const std::string& key, const std::string& value) {
  std::string text = kDump;
  const std::size_t at = text.find("  " + key + " ");
  REQUIRE(at != std::string::npos);
  const std::size_t end = text.find('\n', at);
  const std::size_t begin = text.rfind(' ', end);
  text.replace(begin + 1, end - begin - 1, value);
  return text;
}

TEST_CASE("arguments that Megatron-LM printed are its configuration") {
  const Result<ImportedConfig> run = read_dump(kDump);
  REQUIRE(run);
  CHECK(run->format->name == "megatron-lm");
  CHECK(run->asks.empty());
  CHECK(run->unpriced.empty());
  const RunConfig& config = run->config;
  CHECK(config.model_name == "llama3-8b");
  CHECK_FALSE(config.model.latent());  // its widths are printed whether it is on or not
  CHECK(config.framework == "megatron-core");
  CHECK(config.precision == "bf16:adam-fp32-master");
  CHECK(config.flash_attention);
  CHECK(config.gpus == 16);
  CHECK(config.plan.tp == 2);
  CHECK(config.plan.pp == 4);
  CHECK(config.plan.vpp == 2);
  CHECK(config.plan.dp == 2);
  CHECK(config.plan.microbatch_group == 4);
  CHECK(config.plan.overlap_pp);
  CHECK(config.plan.overlap_dp);
  CHECK(config.plan.zero == 1);
  CHECK(config.plan.recompute == Recompute::none);
}

TEST_CASE("printed patterns of layers are those of a hybrid model, printed defaults are none") {
  const auto with_lines = [](const std::string& lines) {
    std::string text = kDump;
    return text.insert(text.find("  normalization"), lines);
  };
  const std::string defaults =
      "  hybrid_attention_ratio .......................... 0.0\n"
      "  hybrid_mlp_ratio ................................ 0.0\n"
      "  is_hybrid_model ................................. False\n"
      "  mamba_head_dim .................................. 64\n"
      "  mamba_num_groups ................................ 8\n"
      "  mamba_num_heads ................................. None\n"
      "  mamba_state_dim ................................. 128\n";
  const Result<ImportedConfig> ordinary = read_dump(with_lines(defaults));
  REQUIRE(ordinary.ok());
  CHECK(ordinary->config.model.layers == 32);
  CHECK(ordinary->config.model.ssm == StateSpace{});
  const std::string pattern = "M-M-|M*M-|M-M*|M-M-|M-M-|M-M-|M-M-|M-M-";
  const Result<ImportedConfig> hybrid = read_dump(with_lines(
      "  hybrid_layer_pattern ............................ " + pattern +
      "\n  hybrid_override_pattern ......................... " + pattern + "\n" + defaults));
  INFO((hybrid ? "" : hybrid.error().message()));
  REQUIRE(hybrid.ok());
  const RunConfig& run = hybrid->config;
  CHECK(run.model.layers == 32);
  CHECK(run.model.ssm.layers == 16);
  CHECK(run.model.ssm.heads == 128);
  CHECK(run.model.mlp_only_layers == 14);
  CHECK(run.plan.pp == 4);
  CHECK(run.plan.vpp == 2);
  CHECK(run.plan.layers_per_stage == std::vector{8, 8, 8, 8});
}

TEST_CASE("prefixes of launchers in front of printed arguments do no harm") {
  std::string prefixed;
  for (std::size_t at = 0; at < kDump.size();) {
    const std::size_t end = kDump.find('\n', at);
    prefixed += "[default0]: 3: " + kDump.substr(at, end - at) + "\r\n";
    at = end + 1;
  }
  const Result<ImportedConfig> run = read_dump(prefixed);
  REQUIRE(run);
  CHECK(run->config.plan.pp == 4);
  CHECK(run->config.plan.microbatch_group == 4);
  CHECK(run->config.model_name == "llama3-8b");
}

TEST_CASE("of a run that was restarted the last arguments count") {
  const Result<ImportedConfig> run = read_dump(kDump + with("micro_batch_size", "1"));
  REQUIRE(run);
  CHECK(run->config.plan.microbatch == 1);
  // What only the first start had is gone.
  std::string second = kDump;
  second.erase(second.find("  use_distributed_optimizer"),
               second.find("  virtual") - second.find("  use_distributed_optimizer"));
  const Result<ImportedConfig> later = read_dump(kDump + second);
  REQUIRE(later);
  CHECK(later->config.plan.zero == 0);
}

TEST_CASE("printed types, switches and precisions are read as their options") {
  CHECK(read_dump(with("overlap_p2p_comm", "False"))->config.plan.overlap_pp == false);
  CHECK(read_dump(with("fp8", "hybrid"))->config.precision == "fp8:adam-fp32-master");
  CHECK(read_dump(with("recompute_granularity", "selective"))->config.plan.recompute ==
        Recompute::selective);
  CHECK(read_dump(with("attention_backend", "AttnBackend.unfused"))->config.flash_attention ==
        false);
  CHECK(read_dump(with("use_distributed_optimizer", "False"))->config.plan.zero == 0);
  const Result<ImportedConfig> wrong = read_dump(with("pipeline_model_parallel_size", "four"));
  REQUIRE_FALSE(wrong);
  CHECK(wrong.error().message().find("train.txt line 33") != std::string::npos);
}

TEST_CASE("printed constants of the model are read by the names of their variables") {
  std::string text = kDump;
  text.insert(text.find("  kv_channels"),
              "  layernorm_epsilon ............................... 1e-06\n"
              "  layernorm_zero_centered_gamma ................... True\n"
              "  rotary_base ..................................... 500000\n"
              "  window_attn_skip_freq ........................... [1, 0, 1, 0]\n"
              "  window_size ..................................... (127, 0)\n");
  const Result<ImportedConfig> run = read_dump(text);
  REQUIRE(run);
  const ModelSpec& model = run->config.model;
  REQUIRE(model.constants);
  CHECK(model.constants->norm_epsilon == 1e-6);
  CHECK(model.constants->rope.theta == 500'000);
  CHECK(model.constants->other_arithmetic.size() == 1);
  CHECK(model.sliding_window == 128);
  CHECK(model.windowed_layers == 2);
}

/// A model of 24 layers with the options behind it.
Result<ImportedConfig> old_script(const std::string& options) {
  return import_config(
      {{"train.sh",
        "python -m torch.distributed.launch --nproc_per_node 8 --nnodes 2 pretrain_gpt.py "
        "--num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 "
        "--max-position-embeddings 2048 --vocab-size 51200 --micro-batch-size 1 "
        "--global-batch-size 32 " +
            options + "\n"}},
      GivenRun{});
}

TEST_CASE("Megatron-LM 2.5 and 2.6 are the framework of 2021, with their recomputation") {
  const Result<ImportedConfig> v25 =
      old_script("--fp16 --DDP-impl local --checkpoint-activations --tensor-model-parallel-size 8");
  REQUIRE(v25);
  CHECK(v25->config.framework == "megatron-2021");
  CHECK_FALSE(v25->config.flash_attention);
  CHECK(v25->config.plan.recompute_layers == std::vector{24});
  const Result<ImportedConfig> v26 = old_script(
      "--fp16 --activations-checkpoint-method block --activations-checkpoint-num-layers 2 "
      "--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 3");
  REQUIRE(v26);
  CHECK(v26->config.framework == "megatron-2021");
  CHECK(v26->config.plan.vpp == 2);
  CHECK(v26->config.plan.recompute_layers == std::vector{4, 4, 4, 4});
  const Result<ImportedConfig> uniform =
      old_script("--fp16 --activations-checkpoint-method uniform --pipeline-model-parallel-size 2");
  REQUIRE(uniform);
  CHECK(uniform->config.plan.recompute_layers == std::vector{12, 12});
}

TEST_CASE("switches of core 0.4 to 0.19 that were renamed are read under every name") {
  const Result<ImportedConfig> alone =
      old_script("--bf16 --pipeline-model-parallel-size 4 --standalone-embedding-stage");
  REQUIRE(alone);
  CHECK(alone->config.plan.layers_per_stage == std::vector{0, 8, 8, 8});
  const Result<ImportedConfig> fsdp =
      old_script("--bf16 --use-custom-fsdp --data-parallel-sharding-strategy optim_grads_params");
  REQUIRE(fsdp);
  CHECK(fsdp->config.plan.zero == 3);
  CHECK(old_script("--bf16 --external-cuda-graph")->config.plan.cuda_graphs == CudaGraphs::layers);
  CHECK(old_script("--bf16 --enable-cuda-graph --cuda-graph-scope full_iteration --cuda-graph-impl "
                   "local")
            ->config.plan.cuda_graphs == CudaGraphs::full_iteration);
  CHECK(old_script("--bf16 --cuda-graph-impl full_iteration")->config.plan.cuda_graphs ==
        CudaGraphs::full_iteration);
  const Result<ImportedConfig> experts = old_script(
      "--bf16 --num-experts 8 --expert-model-parallel-size 8 --moe-layer-recompute "
      "--moe-token-dispatcher-type alltoall_seq");
  REQUIRE(experts);
  CHECK(experts->config.plan.recompute == Recompute::selective);
  CHECK(experts->config.plan.recompute_modules.contains(RecomputeModule::moe));
  CHECK(experts->config.plan.dispatcher == Dispatcher::alltoall);
  CHECK(old_script("--optimizer adam")->config.precision == "fp32");
}

TEST_CASE("latent attention is off without its switch, and has the defaults of its widths") {
  CHECK_FALSE(old_script("--bf16 --kv-lora-rank 512")->config.model.latent());
  const Result<ImportedConfig> on =
      old_script("--bf16 --multi-latent-attention --kv-lora-rank 512");
  REQUIRE(on);
  CHECK(on->config.model.mla.kv_lora_rank == 512);
  CHECK(on->config.model.mla.q_lora_rank == 0);
  CHECK(on->config.model.mla.qk_nope_head_dim == 128);
  CHECK(on->config.model.mla.qk_rope_head_dim == 64);
  CHECK(on->config.model.mla.v_head_dim == 128);
}

}  // namespace
}  // namespace echelon
