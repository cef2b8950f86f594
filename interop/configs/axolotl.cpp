// axolotl's training files.
// Source of all rows: axolotl 067b021c, src/axolotl/utils/schemas, with the defaults there, and
// what src/axolotl/loaders/model.py and core/builders/base.py make of them.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/base/text.hpp"
#include "interop/configs/import.hpp"
#include "interop/configs/trainer_rows.hpp"

namespace echelon {

namespace {

using P = ParallelPlan;

constexpr std::string_view kTpSize = "parallelism_config.parallelism_config_tp_size";
constexpr std::string_view kCpSize = "parallelism_config.parallelism_config_cp_size";
constexpr std::string_view kReplicateSize =
    "parallelism_config.parallelism_config_dp_replicate_size";

/// Degrees as accelerate spells them, to which axolotl gives them (utils/trainer.py,
/// setup_parallelism_envs); a section deepspeed is DeepSpeed's JSON; switches of attention as one
/// setting (schemas/enums.py, LEGACY_ATTN_FLAG_TO_IMPL).
void unspell_axolotl(ConfigDocument& document) {
  constexpr std::array<std::array<std::string_view, 2>, 6> kNames = {
      {{"tensor_parallel_size", kTpSize},
       {"context_parallel_size", kCpSize},
       {"sequence_parallel_degree", kCpSize},
       {"dp_replicate_size", kReplicateSize},
       {"fsdp_version", "fsdp_config.fsdp_version"},
       {"fsdp_final_state_dict_type", "fsdp_config.fsdp_final_state_dict_type"}}};
  constexpr std::array<std::array<std::string_view, 2>, 6> kAttention = {
      {{"xformers_attention", "xformers"},
       {"sage_attention", "sage"},
       {"flex_attention", "flex_attention"},
       {"flash_attention", "flash_attention_2"},
       {"sdp_attention", "sdpa"},
       {"eager_attention", "eager"}}};
  constexpr std::string_view kInline = "deepspeed.";
  take_fsdp_prefixes(document);
  for (ConfigEntry& entry : document.entries) {
    std::string key = entry.key;
    for (const auto& [own, accelerates] : kNames) {
      if (entry.key == own) key = accelerates;
    }
    if (entry.key.starts_with(kInline)) key = entry.key.substr(kInline.size());
    if (key == entry.key) continue;
    entry.spelled = std::exchange(entry.key, key);
  }
  take_fsdp_argument(document);
  for (const auto& [flag, implementation] : kAttention) {
    const ConfigEntry* entry = document.find(flag);
    const bool on = entry != nullptr && same_word(entry->value.first().text, "true");
    if (!on || document.find("attn_implementation") != nullptr) continue;
    document.entries.push_back({"attn_implementation", scalar(std::string(implementation)),
                                entry->line, entry->file, std::string(flag)});
  }
}

/// "auto", the default, is bf16 on all GPUs that have it (utils/config/__init__.py, resolve_dtype).
/// All parameters are loaded in bf16 and their moments are made like them: accelerate's FSDP and
/// DeepSpeed alone keep fp32 copies. Adapters are in fp32 (PEFT's autocast_adapter_dtype).
MaybeValue read_axolotl_precision(const ConfigRow&, const ConfigReading& reading) {
  const auto on = [&](std::initializer_list<std::string_view> keys)
      -> Result<std::optional<const ConfigEntry*>> {
    for (const std::string_view key : keys) {
      const ConfigEntry* entry = reading.find(key);
      if (entry == nullptr) continue;
      if (same_word(entry->value.first().text, "full")) return std::optional(entry);
      const Result<std::optional<bool>> value = switch_at(reading, key);
      if (!value) return value.error();
      if (value->value_or(false)) return std::optional(entry);
    }
    return std::optional<const ConfigEntry*>{};
  };
  const auto bf16 = on({"bf16", "bfloat16"});
  if (!bf16) return bf16.error();
  const auto fp16 = on({"fp16", "float16"});
  if (!fp16) return fp16.error();
  const ConfigEntry* stated = reading.document.find("bf16");
  const bool automatic = stated == nullptr || same_word(stated->value.first().text, "auto");
  if (!*bf16 && *fp16) {
    return std::optional(
        ReadValue{precision_of_sharder(reading, "fp16"), Origin::found, reading.place(***fp16)});
  }
  if (!*bf16 && !automatic) {
    return std::optional(assumed("fp32", "neither bf16 nor fp16 is on"));
  }
  const bool all = reading.find("adapter") == nullptr;
  const bool pure = all && sharder_of(reading) == Sharder::ddp;
  std::string name = pure ? "bf16:pure" : precision_of_sharder(reading, "bf16");
  if (*bf16)
    return std::optional(ReadValue{std::move(name), Origin::found, reading.place(***bf16)});
  return std::optional(assumed(std::move(name), "bf16 auto: GPUs that have bf16"));
}

/// With offloaded activations too, which keeps the inputs of recomputed layers on the host.
MaybeValue read_axolotl_recompute(const ConfigRow& row, const ConfigReading& reading) {
  for (const std::string_view key : row.keys) {
    const ConfigEntry* entry = reading.find(key);
    if (entry == nullptr) continue;
    const std::string text = lower_case(entry->value.first().text);
    const bool offloads = text == "offload" || text == "offload_disk";
    const Result<std::optional<bool>> on =
        offloads ? Result<std::optional<bool>>(std::optional(true)) : switch_at(reading, key);
    if (!on) return on.error();
    if (**on) return std::optional(ReadValue{"full", Origin::found, reading.place(*entry)});
  }
  const ConfigEntry* stated = reading.find(row.keys[0]);
  if (stated == nullptr) {
    return std::optional(assumed("none", "gradient_checkpointing is not stated"));
  }
  return std::optional(ReadValue{"none", Origin::found, reading.place(*stated)});
}

MaybeValue read_axolotl_attention(const ConfigRow& row, const ConfigReading& reading) {
  const ConfigEntry* entry = reading.find(row.keys);
  if (entry == nullptr) return std::optional(assumed("true", "SDPA, transformers' default"));
  const std::string text = lower_case(entry->value.first().text);
  constexpr std::array<std::string_view, 8> kKnown = {
      "eager", "sdpa", "flash_attention_2", "flash_attention_3", "flex_attention", "xformers",
      "sage",  "fp8"};
  const bool hub = text.find('/') != std::string::npos;
  if (!hub && std::ranges::find(kKnown, text) == kKnown.end()) {
    return input_error(reading.place(*entry), in_quotes(printable(text)),
                       fmt::format("one of {}, or a kernel of the Hub", fmt::join(kKnown, ", ")));
  }
  return std::optional(
      ReadValue{text == "eager" ? "false" : "true", Origin::found, reading.place(*entry)});
}

/// batch_size is microbatch x accumulation (utils/config/__init__.py, normalize_config).
MaybeValue read_axolotl_batch(const ConfigRow& row, const ConfigReading& reading) {
  const Result<std::optional<int>> steps = number_at(reading, row.keys[0]);
  if (!steps) return steps.error();
  const Result<std::optional<int>> batch = number_at(reading, row.keys[1]);
  if (!batch) return batch.error();
  ConfigRow accumulation = row;
  accumulation.keys = {row.keys[0]};
  if (*steps || !*batch) return read_trainer_batch(accumulation, reading);
  const P& plan = reading.config.plan;
  if (!reading.knows(plan_part<&P::dp>) || !reading.knows(plan_part<&P::microbatch>)) {
    return std::optional<ReadValue>{};
  }
  const ConfigEntry& entry = *reading.find(row.keys[1]);
  if (plan.microbatch <= 0 || **batch % plan.microbatch != 0) {
    return input_error(reading.place(entry), std::to_string(**batch),
                       fmt::format("a multiple of micro_batch_size, {}", plan.microbatch));
  }
  return std::optional(derived(std::int64_t{**batch} * plan.dp, reading.place(entry) + " x dp"));
}

/// Copies of the sharded state: stated, or what groups of dp_shard_size leave of dp. Source:
/// 067b021c, src/axolotl/utils/distributed.py:320.
MaybeValue read_axolotl_group(const ConfigRow& row, const ConfigReading& reading) {
  const ConfigRow& accelerates = *row_of(format_of(Sharder::fsdp), row.field);
  const Result<std::optional<int>> shards = number_at(reading, "dp_shard_size");
  if (!shards) return shards.error();
  const P& plan = reading.config.plan;
  const bool whole = !*shards || **shards <= 1 || plan.zero == 0;
  if (sharder_of(reading) == Sharder::deepspeed) return whole_zero_group(row, reading);
  if (whole || reading.find(kReplicateSize) != nullptr) return read_row(accelerates, reading);
  const ConfigEntry& entry = *reading.find("dp_shard_size");
  if (plan.dp % **shards != 0) {
    return input_error(reading.place(entry), std::to_string(**shards),
                       fmt::format("a divisor of dp, {}", plan.dp));
  }
  return std::optional(derived(std::int64_t{**shards} * plan.cp, reading.place(entry) + " x cp"));
}

/// Degrees of the model's copies without FSDP have no rules and no price.
Status check_split(const ConfigReading& reading, std::string_view key, std::string_view expected) {
  const Result<std::optional<int>> size = number_at(reading, key);
  if (!size) return size.error();
  if (size->value_or(1) <= 1 || sharder_of(reading) != Sharder::ddp) return Done{};
  return input_error(reading.place(*reading.find(key)), std::to_string(**size) + " under DDP",
                     std::string(expected));
}

/// AutoTP has its size from tensor_parallel_size where the JSON does not state it
/// (schemas/validation.py:1155).
MaybeValue read_axolotl_tp(const ConfigRow& row, const ConfigReading& reading) {
  if (Status split = check_split(reading, kTpSize, "tensor_parallel_size with FSDP or DeepSpeed");
      !split) {
    return split.error();
  }
  const bool json = reading.find("tensor_parallel.autotp_size") != nullptr;
  const Sharder states_it = json ? Sharder::deepspeed : Sharder::fsdp;
  return read_row(*row_of(format_of(states_it), row.field), reading);
}

MaybeValue read_axolotl_cp(const ConfigRow& row, const ConfigReading& reading) {
  if (Status split = check_split(reading, kCpSize, "context_parallel_size with FSDP"); !split) {
    return split.error();
  }
  const Result<std::optional<int>> cp = number_at(reading, kCpSize);
  if (cp->value_or(1) > 1 && sharder_of(reading) == Sharder::deepspeed) {
    return input_error(reading.place(*reading.find(kCpSize)), "ring attention under DeepSpeed",
                       "context_parallel_size with FSDP",
                       "what is priced under DeepSpeed is Ulysses: plan predict --framework "
                       "deepspeed --cp N --cp-comm a2a");
  }
  return read_row(*row_of(format_of(Sharder::fsdp), row.field), reading);
}

void add_axolotl_unpriced(const ConfigReading& reading, std::vector<std::string>& out) {
  add_unpriced_adapters(reading, out);
  add_other_optimizer(reading, "optimizer", out);
  const auto on = [&](std::string_view key) { return says(reading, key, "true"); };
  const std::string attention =
      reading.find("attn_implementation") == nullptr
          ? ""
          : lower_case(reading.find("attn_implementation")->value.first().text);
  if (attention == "sage" || attention == "fp8") {
    out.push_back(fmt::format("{} = {}: priced is attention in 16 bits",
                              reading.place(*reading.find("attn_implementation")), attention));
  }
  if (!on("sample_packing") && !on("pad_to_sequence_len")) {
    out.push_back(fmt::format(
        "sample_packing is not on: samples are as long as the data's, priced are {} tokens of each",
        reading.config.sequence));
  }
  const ConfigEntry* plugins = reading.find("plugins");
  if (plugins != nullptr && plugins->value.joined().find("CutCrossEntropy") != std::string::npos) {
    out.push_back(reading.place(*plugins) + ": CutCrossEntropyPlugin, which keeps no logits");
  }
  if (reading.config.layer_code == "liger" && reading.config.plan.tp == 1) {
    for (const char* key : {"liger_rope", "liger_rms_norm", "liger_glu_activation"}) {
      if (!on(key)) out.push_back(std::string(key) + " is not on: priced are all of Liger's");
    }
  }
  if (reading.config.plan.tp > 1 && sharder_of(reading) != Sharder::deepspeed) {
    out.push_back(reading.place(*reading.find(kTpSize)) +
                  ": priced with sequence parallelism, which transformers' plans have not");
  }
  if (reading.config.plan.cp > 1 && on("sample_packing")) {
    out.push_back(reading.place(*reading.find(kCpSize)) +
                  ": keys and values of packed samples are gathered; priced is their ring");
  }
}

std::vector<RefusedSetting> refused_by_axolotl() {
  return {
      {"rl", "trains with a second model, a reward or generated samples, which have no price"},
      {"reward_model", "trains a reward model, which has no price"},
      {"process_reward_model", "trains a reward model, which has no price"},
      {"unfrozen_parameters", "trains a part of the parameters, which has no price"},
      {"diffusion.noise_schedule", "trains by diffusion, which has no price"},
      {"expert_parallel_size",
       "spreads experts by DeepEP over groups of their own, which are not read",
       {"1"},
       "",
       "plan predict --framework torchtitan --ep N --dispatcher deepep"},
      {"adapter", "is no adapter that has a price", {"lora", "qlora"}},
  };
}

std::vector<ConfigRow> axolotl_job_rows() {
  return {
      started_ranks_row(),
      computed(&RunConfig::model_name, {"base_model"}, nullptr, read_named_model),
      plain(&RunConfig::sequence, {"sequence_len"}, "512"),
      computed(&RunConfig::flash_attention, {"attn_implementation"}, nullptr,
               read_axolotl_attention),
      // Packed samples see themselves alone, by every implementation of attention
      // (schemas/config.py, attn_decontaminates_packing).
      computed(&RunConfig::packed_documents, {"sample_packing"}, nullptr, read_switch),
      layer_code_row(),
      computed(&RunConfig::precision, {"bf16", "bfloat16", "fp16", "float16"}, nullptr,
               read_axolotl_precision),
  };
}

std::vector<ConfigRow> axolotl_step_rows() {
  return {
      microbatch_row("micro_batch_size", "1"),
      computed(&RunConfig::global_batch, {"gradient_accumulation_steps", "batch_size"}, nullptr,
               read_axolotl_batch),
      computed(plan_part<&P::recompute>,
               {"gradient_checkpointing", "fsdp_config.fsdp_activation_checkpointing"}, nullptr,
               read_axolotl_recompute),
      follows(plan_part<&P::recompute_layers>, recompute_all),
  };
}

}  // namespace

ConfigFormat axolotl_format() {
  ConfigFormat format{
      .name = "axolotl",
      .title = "axolotl",
      .version = "067b021c",
      .source = "src/axolotl/utils/schemas",
      .syntax = ConfigSyntax::yaml,
      .exported = false,
      .usage = "axolotl train FILE",
      .marks = {"base_model"},
      .other_files = format_of(Sharder::deepspeed).other_files,
      .asked = asked_of_adapters(),
      .unpriced = unpriced_of_adapters(),
      .refused = refused_by_axolotl(),
      .adapters = {.trains_all = true, .double_quant = true, .quantizes = "qlora"},
      .also_unpriced = add_axolotl_unpriced,
      .unspell = unspell_axolotl,
  };
  format.unpriced.push_back({"activation_offloading", "", "", "the offload of activations"});
  format.unpriced.push_back({"layer_offloading", "", "", "the offload of layers"});
  for (const char* key : {"fp8",
                          "selective_checkpointing",
                          "gptq",
                          "quantize_moe_experts",
                          "lora_target_parameters",
                          "peft_use_dora",
                          "peft_layers_to_transform",
                          "peft_trainable_token_indices",
                          "lora_rank_pattern",
                          "relora",
                          "lisa_n_layers",
                          "tiled_mlp",
                          "chunked_cross_entropy",
                          "cut_cross_entropy",
                          "flash_attn_cross_entropy",
                          "flash_attn_fuse_mlp",
                          "lora_mlp_kernel",
                          "lora_qkv_kernel",
                          "lora_o_kernel",
                          "lora_embedding_kernel",
                          "use_kernels",
                          "experts_implementation",
                          "use_scattermoe",
                          "use_sonicmoe",
                          "qat",
                          "deepcompile",
                          "fp32_norms",
                          "embeddings_skip_upcast",
                          "fused_attn_kernel",
                          "batch_flattening",
                          "group_by_length",
                          "auto_find_batch_size",
                          "use_onebitllms",
                          "reinit_weights"}) {
    format.unpriced.push_back({key});
  }
  add_rows(format, {sharders_framework_row()});
  add_rows(format, axolotl_job_rows());
  for (ConfigRow& row : sharding_rows()) {
    const auto take = [&](const ConfigField& field, RowReader read,
                          std::initializer_list<std::string_view> keys) {
      if (row.field != field) return;
      row.read = read;
      row.keys.insert(row.keys.end(), keys);  // the spelling of its files, for misspelt ones
    };
    take(plan_part<&P::tp>, read_axolotl_tp, {"tensor_parallel_size"});
    take(plan_part<&P::cp>, read_axolotl_cp, {"context_parallel_size", "sequence_parallel_degree"});
    take(plan_part<&P::shard_group>, read_axolotl_group, {"dp_shard_size", "dp_replicate_size"});
    format.rows.push_back(std::move(row));
  }
  add_rows(format, axolotl_step_rows());
  add_rows(format, adapter_rows());
  add_rows(format, without_expert_rows());
  add_sharders_unpriced(format);
  return format;
}

}  // namespace echelon
