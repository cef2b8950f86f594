// accelerate's and LLM Foundry's configurations of PyTorch's FSDP.
#include <algorithm>

#include "interop/configs/import.hpp"
#include "interop/configs/rows.hpp"

namespace echelon {

namespace {

using P = ParallelPlan;

/// FSDP's fields that neither of the two states.
std::vector<ConfigRow> without_model_parallelism() {
  return {
      fixed(plan_part<&P::pp>, "1"),
      fixed(plan_part<&P::vpp>, "1"),
      fixed(plan_part<&P::ep>, "1"),
      fixed(plan_part<&P::etp>, "1"),
      fixed(plan_part<&P::cp_comm>, "p2p"),
      follows(plan_part<&P::dp>, dp_of_gpus),
      follows(plan_part<&P::schedule>, schedule_of_vpp),
      follows(plan_part<&P::microbatch_group>, group_of_vpp),
      follows(plan_part<&P::layers_per_stage>, dealt_stages),
      follows(plan_part<&P::selective_layers>, no_layers),
      fixed(plan_part<&P::rank_order>, "tp-cp-ep-dp-pp"),
      fixed(plan_part<&P::offload_optimizer>, "0"),
      fixed(plan_part<&P::overlap_dp>, "true"),
      fixed(plan_part<&P::overlap_tp>, "false"),
      follows(plan_part<&P::overlap_pp>, overlap_of_interleaving),
      follows(plan_part<&P::bucket>, no_layers),
  };
}

/// Source: accelerate 16cb6eb8, src/accelerate/utils/dataclasses.py and commands/launch.py: FSDP of
/// version 1 unless the file says 2; several GPUs without FSDP train by DDP.
MaybeValue read_launched(const ConfigRow& row, const ConfigReading& reading) {
  const ConfigEntry* type = reading.find("distributed_type");
  const std::string launched = type == nullptr ? "FSDP" : type->value.first().text;
  if (same_word(launched, "MULTI_GPU") || same_word(launched, "NO")) {
    return std::optional(ReadValue{std::string(framework_of_ddp(false)), Origin::derived,
                                   reading.place(*type) + ": DDP"});
  }
  if (same_word(launched, "DEEPSPEED")) {
    return input_error(reading.place(*type), "'DEEPSPEED'", "FSDP, MULTI_GPU or NO",
                       "the JSON that deepspeed_config_file names is read, alone or together with "
                       "this file");
  }
  return read_choice(row, reading);
}

/// Without FSDP nothing is sharded; FSDP shards all unless the file says how much. Source:
/// accelerate 16cb6eb8, src/accelerate/utils/dataclasses.py:1836-1856.
MaybeValue read_sharding(const ConfigRow& row, const ConfigReading& reading) {
  const ConfigEntry* type = reading.find("distributed_type");
  const std::string launched = type == nullptr ? "" : type->value.first().text;
  if (!same_word(launched, "MULTI_GPU") && !same_word(launched, "NO")) {
    const bool stated = reading.find("fsdp_config.fsdp_sharding_strategy") != nullptr ||
                        reading.find("fsdp_config.fsdp_reshard_after_forward") != nullptr;
    if (stated) return read_choice(row, reading);
    return std::optional(assumed("3", says(reading, "fsdp_config.fsdp_version", "2")
                                          ? "default of accelerate: fsdp_reshard_after_forward true"
                                          : "default of accelerate: FULL_SHARD"));
  }
  return std::optional(ReadValue{"0", Origin::found, reading.place(*type)});
}

/// Sizes of all groups, whose product accelerate compares with the number of ranks; none where
/// FSDP alone shards over all of them. Source: accelerate 16cb6eb8, parallelism_config.py:372.
void write_group_sizes(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  const ParallelPlan& plan = config.plan;
  const std::int64_t replicas = plan.zero == 0 ? 1 : std::max<std::int64_t>(1, plan.instances());
  if (plan.tp == 1 && plan.cp == 1 && replicas == 1) return;
  write_number(out, row.keys[0], replicas);
  write_number(out, row.keys[1], std::max<std::int64_t>(1, plan.dp / replicas));
}

MaybeValue read_replicas(const ConfigRow& row, const ConfigReading& reading) {
  const Result<std::optional<int>> replicas = number_at(reading, row.keys[0]);
  if (!replicas) return replicas.error();
  const std::int64_t ranks = std::int64_t{reading.config.plan.dp} * reading.config.plan.cp;
  if (!*replicas || **replicas <= 1) return whole_zero_group(row, reading);
  if (ranks % **replicas != 0) {
    return input_error(reading.document.name, "replicas that do not divide dp x cp",
                       "a divisor of dp x cp");
  }
  return std::optional(derived(ranks / **replicas, "ranks / replicas"));
}

void write_gpus(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  const int per_node = std::max(1, std::min(config.gpus, config.gpus_per_node));
  write_number(out, row.keys[0], config.gpus);
  write_number(out, row.keys[1], std::max(1, config.gpus / per_node));
}

MaybeValue read_gpus(const ConfigRow& row, const ConfigReading& reading) {
  const Result<std::optional<int>> gpus = number_at(reading, row.keys[0]);
  if (!gpus) return gpus.error();
  if (!*gpus) return std::optional<ReadValue>{};
  return std::optional(
      ReadValue{std::to_string(**gpus), Origin::found, reading.place(*reading.find(row.keys[0]))});
}

/// The first so many blocks; without a number all. Source: LLM Foundry 8c8dd48f,
/// llmfoundry/models/mpt/modeling_mpt.py:1306, activation_checkpointing_fn.
void write_recomputed_blocks(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  const ParallelPlan& plan = config.plan;
  if (plan.recompute != Recompute::full || plan.recompute_layers == plan.layers_per_stage) return;
  write_number(out, row.keys[0], plan.recompute_layers.front());
}

MaybeValue read_recomputed_blocks(const ConfigRow& row, const ConfigReading& reading) {
  const Result<std::optional<int>> blocks = number_at(reading, row.keys[0]);
  if (!blocks) return blocks.error();
  if (!*blocks || reading.config.plan.recompute != Recompute::full) {
    return recompute_all(row, reading);
  }
  return std::optional(ReadValue{std::to_string(**blocks), Origin::found,
                                 reading.place(*reading.find(row.keys[0]))});
}

/// Both sizes make FULL_SHARD and SHARD_GRAD_OP hybrid. Source: Composer v0.32,
/// composer/utils/parallelism.py, FSDPConfig, and composer/distributed/dist_strategy.py:338.
void write_shard_degrees(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  const ParallelPlan& plan = config.plan;
  if (plan.zero < 2 || plan.instances() <= 1) return;
  write_number(out, row.keys[0], plan.instances());
  write_number(out, row.keys[1], plan.shard_group);
}

ConfigRow with_reader(ConfigRow row, RowReader read) {
  row.read = read;
  return row;
}

/// A degree, where there is a parallelism_config: other axes split the model, or replicas do.
void write_split(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  if (text_of(row.field, config) != "1") out.set(row.keys[0], scalar(text_of(row.field, config)));
}

MaybeValue read_split(const ConfigRow& row, const ConfigReading& reading) {
  return found_or(reading, row.keys[0], "1");
}

}  // namespace

std::string_view framework_of_ddp(bool scales_loss) {
  return scales_loss ? "llm-foundry" : "torchtitan";
}

ConfigFormat accelerate_format() {
  ConfigFormat format{
      .name = "accelerate",
      .title = "accelerate (FSDP)",
      .version = "16cb6eb8 (v1.14)",
      .source = "src/accelerate/utils/dataclasses.py, FullyShardedDataParallelPlugin",
      .syntax = ConfigSyntax::yaml,
      .usage = "accelerate launch --config_file FILE",
      .rows =
          {
              with_reader(choice(&RunConfig::framework,
                                 {{"torchtitan",
                                   {{"fsdp_config.fsdp_version", "2"},
                                    {"distributed_type", "FSDP", false, true},
                                    {"fsdp_config.fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP",
                                     false, true}}},
                                  {"llm-foundry", {{"fsdp_config.fsdp_version", "1"}}},
                                  {"llm-foundry", {}}}),
                          read_launched),
              computed(&RunConfig::gpus, {"num_processes", "num_machines"}, write_gpus, read_gpus),
              choice(&RunConfig::precision,
                     {{"bf16:fsdp-fp32-shards", {{"mixed_precision", "bf16"}}},
                      {"fp32", {{"mixed_precision", "no"}}},
                      {"fp32", {}}}),
              elsewhere(&RunConfig::sequence, "the data's packing (TRL: --max_length)",
                        {"max-length", "max-seq-length", "block-size"}),
              computed(plan_part<&P::tp>, {"parallelism_config.parallelism_config_tp_size"},
                       write_split, read_split),
              computed(plan_part<&P::cp>, {"parallelism_config.parallelism_config_cp_size"},
                       write_split, read_split),
              elsewhere(plan_part<&P::microbatch>, "--per_device_train_batch_size",
                        {"per-device-train-batch-size", "per_device_train_batch_size"}),
              with_reader(
                  choice(plan_part<&P::zero>,
                         {{"3", {{"fsdp_config.fsdp_reshard_after_forward", "true"}}},
                          {"2", {{"fsdp_config.fsdp_reshard_after_forward", "false"}}},
                          {"0", {{"distributed_type", "MULTI_GPU"}}},
                          {"3", {{"fsdp_config.fsdp_reshard_after_forward", "FULL_SHARD"}}},
                          {"2", {{"fsdp_config.fsdp_reshard_after_forward", "SHARD_GRAD_OP"}}},
                          {"0", {{"fsdp_config.fsdp_reshard_after_forward", "NO_SHARD"}}},
                          {"3", {{"fsdp_config.fsdp_sharding_strategy", "FULL_SHARD"}}},
                          {"2", {{"fsdp_config.fsdp_sharding_strategy", "SHARD_GRAD_OP"}}},
                          {"0", {{"fsdp_config.fsdp_sharding_strategy", "NO_SHARD"}}},
                          // The numbers of torch's ShardingStrategy, which older files have.
                          {"3", {{"fsdp_config.fsdp_sharding_strategy", "1"}}},
                          {"2", {{"fsdp_config.fsdp_sharding_strategy", "2"}}},
                          {"0", {{"fsdp_config.fsdp_sharding_strategy", "3"}}},
                          {"3", {}}}),
                  read_sharding),
              choice(plan_part<&P::recompute>,
                     {{"full", {{"fsdp_config.fsdp_activation_checkpointing", "true"}}},
                      {"full", {{"gradient-checkpointing", "true"}}},
                      {"full", {{"gradient_checkpointing", "true"}}},
                      {"none", {}}}),
          },
      .asked = asked_of_adapters(),
      .unpriced = unpriced_of_adapters(),
      .also_unpriced = add_unpriced_adapters,
  };
  format.unpriced.push_back(
      {"fsdp_config.fsdp_offload_params", "", "", "the offload of parameters"});
  add_rows(format, {fixed(&RunConfig::flash_attention, "true"),
                    fixed(&RunConfig::packed_documents, "false"), layer_code_row()});
  add_rows(format, adapter_rows());
  add_rows(format, without_model_parallelism());
  add_rows(format, without_expert_rows());
  format.rows.push_back(follows(plan_part<&P::recompute_layers>, recompute_all));
  format.rows.push_back(follows(plan_part<&P::sequence_parallel>, sequence_parallel_of_tp));
  format.rows.push_back(computed(plan_part<&P::shard_group>,
                                 {"parallelism_config.parallelism_config_dp_replicate_size",
                                  "parallelism_config.parallelism_config_dp_shard_size"},
                                 write_group_sizes, read_replicas));
  ConfigRow batch = elsewhere(&RunConfig::global_batch,
                              "--gradient_accumulation_steps = global batch / (microbatch x dp)",
                              {"gradient-accumulation-steps", "gradient_accumulation_steps"});
  batch.read = read_accumulation;
  format.rows.push_back(std::move(batch));
  return format;
}

ConfigFormat llm_foundry_format() {
  ConfigFormat format{
      .name = "llm-foundry",
      .title = "LLM Foundry",
      .version = "8c8dd48f",
      .source = "llmfoundry/command_utils/train.py, composer v0.32",
      .syntax = ConfigSyntax::yaml,
      .usage = "composer … scripts/train/train.py FILE",
      .rows =
          {
              choice(&RunConfig::framework, {{"llm-foundry",
                                              {{"model.name", "mpt_causal_lm", false, true},
                                               {"train_loader.name", "text", false, true}}},
                                             {"llm-foundry", {}}}),
              elsewhere(&RunConfig::gpus, "composer --world_size"),
              plain(&RunConfig::sequence, {"max_seq_len"}),
              choice(&RunConfig::precision, {{"bf16:fsdp-fp32-shards", {{"precision", "amp_bf16"}}},
                                             {"fp32", {{"precision", "fp32"}}}}),
              fixed(plan_part<&P::tp>, "1"),
              fixed(plan_part<&P::cp>, "1"),
              plain(plan_part<&P::microbatch>, {"device_train_microbatch_size"}),
              plain(&RunConfig::global_batch, {"global_train_batch_size"}),
              choice(plan_part<&P::zero>,
                     {{"3", {{"fsdp_config.sharding_strategy", "FULL_SHARD"}}},
                      {"2", {{"fsdp_config.sharding_strategy", "SHARD_GRAD_OP"}}},
                      {"0", {{"fsdp_config.sharding_strategy", "NO_SHARD"}}},
                      {"3", {}}}),
              choice(plan_part<&P::recompute>,
                     {{"full", {{"fsdp_config.activation_checkpointing", "true"}}}, {"none", {}}}),
          },
      .fill_in = {{"max_duration", "length of the training, for example 63900ba"},
                  {"tokenizer.name", "tokenizer"},
                  {"train_loader.dataset.local", "path of the data"},
                  {"device_eval_batch_size", "samples of an evaluation on a rank"},
                  {"optimizer.name", "optimizer, for example decoupled_adamw"},
                  {"optimizer.lr", "learning rate"},
                  {"scheduler.name", "schedule, for example cosine_with_warmup"},
                  {"scheduler.t_warmup", "length of the warm-up, for example 100ba"}},
      .unpriced = {{"fsdp_config.activation_cpu_offload", "", "", "the offload of activations"},
                   {"fsdp_config.mixed_precision", "default"},
                   {"model.activation_checkpointing_target"},
                   {"model.fc_type", "torch"},
                   {"model.fc_type.name", "torch"},
                   {"model.attn_config.kv_dim"},
                   {"model.attn_config.rope_hf_config.type", "no_scaling"},
                   {"model.attn_config.clip_qkv"},
                   {"model.attn_config.attn_logit_softcapping"},
                   {"model.final_logit_softcapping"},
                   {"model.logit_scale"}},
      .key_notes = {{"model.attn_config.attn_uses_sequence_id",
                     "requires train_loader.dataset.eos_token_id, which ends documents"}},
      .unread_parts = {{"model.ffn_config.moe_num_experts", "experts"},
                       {"model.block_overrides", "layers of several kinds"}},
  };
  add_rows(format, llm_foundry_model_rows());
  add_rows(
      format,
      {choice(&RunConfig::flash_attention, {{"false", {{"model.attn_config.attn_impl", "torch"}}},
                                            {"true", {}},
                                            {"true", {{"model.attn_config.attn_impl", "*"}}}}),
       choice(&RunConfig::packed_documents,
              {{"true", {{"model.attn_config.attn_uses_sequence_id", "true"}}}, {"false", {}}})});
  add_rows(format, {elsewhere(&RunConfig::adapters,
                              "get_peft_model of PEFT, whose r and target_modules these are"),
                    elsewhere(&RunConfig::quantized, kQuantizedElsewhere)});
  add_rows(format, without_model_parallelism());
  add_rows(format, without_expert_rows());
  format.rows.push_back(fixed(plan_part<&P::sequence_parallel>, "false"));
  format.rows.push_back(computed(plan_part<&P::recompute_layers>,
                                 {"model.activation_checkpointing_target.mptblock"},
                                 write_recomputed_blocks, read_recomputed_blocks));
  format.rows.push_back(computed(
      plan_part<&P::shard_group>,
      {"fsdp_config.data_parallel_replicate_degree", "fsdp_config.data_parallel_shard_degree"},
      write_shard_degrees, read_replicas));
  return format;
}

}  // namespace echelon
