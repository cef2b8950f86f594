#include "interop/logs/arguments.hpp"

#include <algorithm>
#include <array>

namespace echelon {

namespace {

// As printed by argparse (True, False, None), by a command line ("--swiglu": True), or in YAML
// (true, false, null): values are compared in lower case.
constexpr std::array kMegatron = {
    ArgumentRule{"num_layers", "layers"},
    ArgumentRule{"hybrid_layer_pattern", "layer_pattern"},
    ArgumentRule{"hybrid_override_pattern", "layer_pattern"},
    ArgumentRule{"hidden_size", "hidden"},
    ArgumentRule{"ffn_hidden_size", "ffn_hidden"},
    ArgumentRule{"num_attention_heads", "heads"},
    ArgumentRule{"num_query_groups", "kv_heads"},
    ArgumentRule{"group_query_attention", "attention", "false", "mha"},
    ArgumentRule{"group_query_attention", "attention", "true", "gqa"},
    ArgumentRule{"multi_latent_attention", "attention", "true", "mla"},
    ArgumentRule{"kv_channels", "head_dim"},
    ArgumentRule{"padded_vocab_size", "vocab"},
    ArgumentRule{"vocab_size", "vocab"},
    ArgumentRule{"seq_length", "seq"},
    ArgumentRule{"swiglu", "gated_mlp", "true", "1"},
    ArgumentRule{"swiglu", "gated_mlp", "false", "0"},
    ArgumentRule{"untie_embeddings_and_output_weights", "tied_embeddings", "true", "0"},
    ArgumentRule{"untie_embeddings_and_output_weights", "tied_embeddings", "false", "1"},
    ArgumentRule{"num_experts", "experts"},
    ArgumentRule{"moe_router_topk", "experts_per_token"},
    ArgumentRule{"moe_ffn_hidden_size", "expert_ffn_hidden"},
    ArgumentRule{"moe_shared_expert_intermediate_size", "shared_expert_ffn_hidden"},
    ArgumentRule{"world_size", "gpus"},
    ArgumentRule{"tensor_model_parallel_size", "tp"},
    ArgumentRule{"model_parallel_size", "tp"},
    ArgumentRule{"pipeline_model_parallel_size", "pp"},
    ArgumentRule{"context_parallel_size", "cp"},
    ArgumentRule{"expert_model_parallel_size", "ep"},
    ArgumentRule{"expert_tensor_parallel_size", "etp"},
    ArgumentRule{"data_parallel_size", "dp"},
    ArgumentRule{"virtual_pipeline_model_parallel_size", "vpp"},
    ArgumentRule{"num_virtual_stages_per_pipeline_rank", "vpp"},
    ArgumentRule{"num_layers_per_virtual_pipeline_stage", "layers_per_chunk"},
    ArgumentRule{"micro_batch_size", "microbatch"},
    ArgumentRule{"global_batch_size", "global_batch"},
    ArgumentRule{"sequence_parallel", "sequence_parallel", "true", "1"},
    ArgumentRule{"sequence_parallel", "sequence_parallel", "false", "0"},
    ArgumentRule{"use_distributed_optimizer", "zero", "true", "1"},
    ArgumentRule{"use_distributed_optimizer", "zero", "false", "0"},
    ArgumentRule{"zero_stage", "zero"},
    ArgumentRule{"recompute_granularity", "recompute", "full", "full"},
    ArgumentRule{"recompute_granularity", "recompute", "selective", "selective"},
    ArgumentRule{"recompute_granularity", "recompute", "none", "none"},
    ArgumentRule{"recompute_activations", "recompute", "true", "selective"},
    ArgumentRule{"checkpoint_activations", "recompute", "true", "full"},
    ArgumentRule{"checkpoint_activations", "recompute", "false", "none"},
    ArgumentRule{"bf16", "precision", "true", "bf16"},
    ArgumentRule{"fp16", "precision", "true", "fp16"},
    ArgumentRule{"use_flash_attn", "flash_attention", "true", "1"},
    ArgumentRule{"use_flash_attn_v2", "flash_attention", "true", "1"},
    ArgumentRule{"overlap_grad_reduce", "overlap_detail", "true", "overlap grad reduce"},
    ArgumentRule{"overlap_grad_reduce", "overlap_detail", "false", "no overlap grad reduce"},
};

constexpr std::array kNanotron = {
    ArgumentRule{"num_hidden_layers", "layers"},
    ArgumentRule{"hidden_size", "hidden"},
    ArgumentRule{"intermediate_size", "ffn_hidden"},
    ArgumentRule{"num_attention_heads", "heads"},
    ArgumentRule{"num_key_value_heads", "kv_heads"},
    ArgumentRule{"vocab_size", "vocab"},
    ArgumentRule{"hidden_act", "gated_mlp", "*silu", "1"},
    ArgumentRule{"tie_word_embeddings", "tied_embeddings", "true", "1"},
    ArgumentRule{"tie_word_embeddings", "tied_embeddings", "false", "0"},
    ArgumentRule{"sequence_length", "seq"},
    ArgumentRule{"micro_batch_size", "microbatch"},
    ArgumentRule{"batch_accumulation_per_replica", "grad_accumulation"},
    ArgumentRule{"dp", "dp"},
    ArgumentRule{"pp", "pp"},
    ArgumentRule{"tp", "tp"},
    ArgumentRule{"context_parallel_size", "cp"},
    ArgumentRule{"expert_parallel_size", "ep"},
    ArgumentRule{"zero_stage", "zero"},
    ArgumentRule{"tp_mode", "sequence_parallel", "*reduce_scatter", "1"},
    ArgumentRule{"tp_mode", "sequence_parallel", "*all_reduce", "0"},
    ArgumentRule{"pp_engine", "schedule", "*oneforwardonebackward", "1f1b"},
    ArgumentRule{"pp_engine", "schedule", "*allforwardallbackward", "gpipe"},
    ArgumentRule{"recompute_layer", "recompute", "true", "full"},
    ArgumentRule{"recompute_layer", "recompute", "false", "none"},
    ArgumentRule{"dtype", "precision", "*bfloat16", "bf16"},
    ArgumentRule{"dtype", "precision", "*float16", "fp16"},
};

constexpr std::array kTorchtitan = {
    ArgumentRule{"local_batch_size", "local_batch"},
    ArgumentRule{"batch_size", "local_batch"},
    ArgumentRule{"seq_len", "seq"},
    ArgumentRule{"tensor_parallel_degree", "tp"},
    ArgumentRule{"pipeline_parallel_degree", "pp"},
    ArgumentRule{"context_parallel_degree", "cp"},
    ArgumentRule{"expert_parallel_degree", "ep"},
    ArgumentRule{"data_parallel_replicate_degree", "dp_replicate"},
    ArgumentRule{"data_parallel_shard_degree", "dp_shard"},
    ArgumentRule{"pipeline_parallel_microbatch_size", "microbatch"},
    ArgumentRule{"device", "device"},
    ArgumentRule{"model", "model"},
    ArgumentRule{"activation checkpointing", "recompute", "*selective", "selective"},
    ArgumentRule{"activation checkpointing", "recompute", "*full", "full"},
    ArgumentRule{"compiled", "torch_compile", "", "1"},
};

constexpr std::array kFoundry = {
    ArgumentRule{"n_layers", "layers"},
    ArgumentRule{"d_model", "hidden"},
    ArgumentRule{"name", "gated_mlp", "mpt_causal_lm", "0"},
    ArgumentRule{"name", "tied_embeddings", "mpt_causal_lm", "1"},
    ArgumentRule{"n_heads", "heads"},
    ArgumentRule{"vocab_size", "vocab"},
    ArgumentRule{"max_seq_len", "seq"},
    ArgumentRule{"global_train_batch_size", "global_batch"},
    ArgumentRule{"n_gpus", "gpus"},
    ArgumentRule{"sharding_strategy", "zero", "full_shard", "3"},
    ArgumentRule{"sharding_strategy", "zero", "shard_grad_op", "2"},
    ArgumentRule{"sharding_strategy", "zero", "no_shard", "0"},
    ArgumentRule{"activation_checkpointing", "recompute", "true", "full"},
    ArgumentRule{"activation_checkpointing", "recompute", "false", "none"},
    ArgumentRule{"precision", "precision", "amp_bf16", "bf16"},
    ArgumentRule{"precision", "precision", "amp_fp8", "fp8"},
    ArgumentRule{"precision", "precision", "amp_fp16", "fp16"},
    ArgumentRule{"attn_impl", "flash_attention", "*flash", "1"},
};

constexpr std::array kDeepSpeed = {
    ArgumentRule{"world_size", "gpus"},
    ArgumentRule{"train_micro_batch_size_per_gpu", "microbatch"},
    ArgumentRule{"train_batch_size", "global_batch"},
    ArgumentRule{"gradient_accumulation_steps", "grad_accumulation"},
    ArgumentRule{"zero_optimization_stage", "zero"},
    ArgumentRule{"bfloat16_enabled", "precision", "true", "bf16"},
    ArgumentRule{"fp16_enabled", "precision", "true", "fp16"},
};

constexpr std::array kTrainer = {
    ArgumentRule{"per_device_train_batch_size", "microbatch"},
    ArgumentRule{"gradient_accumulation_steps", "grad_accumulation"},
    ArgumentRule{"gradient_checkpointing", "recompute", "true", "full"},
    ArgumentRule{"gradient_checkpointing", "recompute", "false", "none"},
    ArgumentRule{"block_size", "seq"},
    ArgumentRule{"bf16", "precision", "true", "bf16"},
    ArgumentRule{"fp16", "precision", "true", "fp16"},
    ArgumentRule{"fsdp", "zero", "*full_shard", "3"},
    ArgumentRule{"fsdp", "zero", "*shard_grad_op", "2"},
};

constexpr std::array kLlmc = {
    ArgumentRule{"device", "device"},
    ArgumentRule{"precision", "precision", "bf16", "bf16"},
    ArgumentRule{"precision", "precision", "fp16", "fp16"},
    ArgumentRule{"precision", "precision", "fp32", "fp32"},
    ArgumentRule{"micro batch size B", "microbatch"},
    ArgumentRule{"sequence length T", "seq"},
    ArgumentRule{"vocab_size V", "vocab"},
    ArgumentRule{"num_layers L", "layers"},
    ArgumentRule{"num_heads NH", "heads"},
    ArgumentRule{"channels C", "hidden"},
    ArgumentRule{"channels C", "gated_mlp", "", "0"},  // GPT-2 is its only model
    ArgumentRule{"channels C", "tied_embeddings", "", "1"},
    ArgumentRule{"recompute", "recompute", "0", "none"},
    ArgumentRule{"recompute", "recompute", "1", "selective"},
    ArgumentRule{"zero_stage", "zero"},
    ArgumentRule{"num_processes", "gpus"},
    ArgumentRule{"grad_accum_steps", "grad_accumulation"},
    ArgumentRule{"grad_accumulation", "grad_accumulation"},
    ArgumentRule{"batch_size", "microbatch"},
    ArgumentRule{"seq_len", "seq"},
    // Options of llm.q, whose models are gated.
    ArgumentRule{"num_layers", "layers"},
    ArgumentRule{"hidden_size", "hidden"},
    ArgumentRule{"hidden_size", "gated_mlp", "", "1"},
    ArgumentRule{"ffn_hidden_size", "ffn_hidden"},
    ArgumentRule{"num_attention_heads", "heads"},
    ArgumentRule{"num_query_groups", "kv_heads"},
    ArgumentRule{"vocab_size", "vocab"},
};

}  // namespace

std::span<const ArgumentRule> megatron_arguments() { return kMegatron; }
std::span<const ArgumentRule> nanotron_arguments() { return kNanotron; }
std::span<const ArgumentRule> torchtitan_arguments() { return kTorchtitan; }
std::span<const ArgumentRule> foundry_arguments() { return kFoundry; }
std::span<const ArgumentRule> deepspeed_arguments() { return kDeepSpeed; }
std::span<const ArgumentRule> trainer_arguments() { return kTrainer; }
std::span<const ArgumentRule> llmc_arguments() { return kLlmc; }

}  // namespace echelon
