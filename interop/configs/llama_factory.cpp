// LLaMA-Factory's training files and command lines: arguments of HuggingFace's trainer and its own.
// Source of all rows: LLaMA-Factory ff6d4d12e, src/llamafactory/hparams, with the defaults there
// and those of transformers' TrainingArguments.
#include <fmt/format.h>

#include <algorithm>

#include "interop/configs/import.hpp"
#include "interop/configs/trainer_rows.hpp"

namespace echelon {

namespace {

using P = ParallelPlan;

constexpr std::string_view kOfMegatron = "is of Megatron-Core (USE_MCA or USE_MEGATRON_BRIDGE)";
constexpr std::string_view kMegatronsDegrees =
    "its degrees as flags of plan predict --framework megatron-core";
constexpr std::string_view kOfTrainer1 =
    "is of LLaMA-Factory's trainer v1 (USE_V1), whose files are not read";

/// Command lines have - for _. FSDP's settings count where FSDP is asked for alone (transformers
/// 5.24, training_args.py, _process_fsdp_args).
void unspell_factory(ConfigDocument& document) {
  for (ConfigEntry& entry : document.entries) {
    if (entry.key.find('-') == std::string::npos) continue;
    entry.spelled = entry.key;
    std::ranges::replace(entry.key, '-', '_');
  }
  const ConfigEntry* fsdp = document.find("fsdp");
  const bool asked =
      fsdp != nullptr && !fsdp->value.joined().empty() && !same_word(fsdp->value.joined(), "false");
  if (!asked && document.find("distributed_type") == nullptr) {
    std::erase_if(document.entries,
                  [](const ConfigEntry& entry) { return entry.key.starts_with("fsdp_config."); });
  }
  take_fsdp_prefixes(document);
  if (asked) take_fsdp_argument(document);
}

/// Neither bf16 nor fp16: weights and products in fp32 (model/adapter.py, trainable parameters).
/// pure_bf16 leaves weights and moments in bf16; DeepSpeed keeps its own.
MaybeValue read_factory_precision(const ConfigRow&, const ConfigReading& reading) {
  const Result<std::optional<bool>> pure = switch_at(reading, "pure_bf16");
  if (!pure) return pure.error();
  if (pure->value_or(false)) {
    const ConfigEntry& entry = *reading.find("pure_bf16");
    const bool deepspeed = sharder_of(reading) == Sharder::deepspeed;
    return std::optional(ReadValue{deepspeed ? "bf16:deepspeed-zero" : "bf16:pure", Origin::found,
                                   reading.place(entry)});
  }
  for (const char* width : {"bf16", "fp16"}) {
    const std::string in_json = std::string(width) + ".enabled";
    for (const std::string& key : {std::string(width), in_json}) {
      const Result<std::optional<bool>> on = switch_at(reading, key);
      if (!on) return on.error();
      if (!on->value_or(false)) continue;
      return std::optional(ReadValue{precision_of_sharder(reading, width), Origin::found,
                                     reading.place(*reading.find(key))});
    }
    if (says(reading, "mixed_precision", width)) {
      return std::optional(ReadValue{precision_of_sharder(reading, width), Origin::found,
                                     reading.place(*reading.find("mixed_precision"))});
    }
  }
  return std::optional(assumed("fp32", "neither bf16, fp16 nor pure_bf16 is on"));
}

/// On unless it is switched off. Source: ff6d4d12e, model/model_utils/checkpointing.py:180.
MaybeValue read_factory_recompute(const ConfigRow& row, const ConfigReading& reading) {
  for (const std::string_view key : {row.keys[1], row.keys[2]}) {
    const Result<std::optional<bool>> on = switch_at(reading, key);
    if (!on) return on.error();
    if (on->value_or(false)) {
      return std::optional(ReadValue{"full", Origin::found, reading.place(*reading.find(key))});
    }
  }
  const Result<std::optional<bool>> off = switch_at(reading, row.keys[0]);
  if (!off) return off.error();
  if (!*off) return std::optional(assumed("full", "disable_gradient_checkpointing is not stated"));
  return std::optional(
      ReadValue{**off ? "none" : "full", Origin::found, reading.place(*reading.find(row.keys[0]))});
}

void add_factory_unpriced(const ConfigReading& reading, std::vector<std::string>& out) {
  add_unpriced_adapters(reading, out);
  add_other_optimizer(reading, "optim", out);
  const auto on = [&](std::string_view key) {
    const Result<std::optional<bool>> value = switch_at(reading, key);
    return value && value->value_or(false);
  };
  const bool packs = on("packing") || on("neat_packing") || says(reading, "stage", "pt");
  if (!packs) {
    out.push_back(fmt::format(
        "packing is not on: samples are as long as the data's, priced are {} tokens of each",
        reading.config.sequence));
  }
  if (sharder_of(reading) == Sharder::deepspeed && on("pure_bf16")) {
    out.push_back(reading.place(*reading.find("pure_bf16")) +
                  ": priced are DeepSpeed's fp32 states");
  }
}

std::vector<RefusedSetting> refused_by_factory() {
  std::vector<RefusedSetting> refused = {
      {"train_dataset", kOfTrainer1},
      {"model_class", kOfTrainer1},
      {"export_dir", "merges and exports a model: no training"},
      {"infer_backend", "runs a model: no training", {}, "do_train"},
      {"do_predict", "predicts: no training", {}, "do_train"},
      {"stage",
       "trains with a second model, a reward or generated samples, which have no price",
       {"pt", "sft"}},
      {"finetuning_type",
       "trains neither adapters of LoRA nor all parameters, and has no price",
       {"lora", "full"}},
      {"use_llama_pro", "trains a part of the layers, which has no price"},
      {"use_kt", "keeps experts on the host (KTransformers), which has no price"},
      {"use_hyper_parallel", "trains with HyperParallel, whose settings are not read"},
      {"fsdp_config", "names a file, which is not read", {}, "", "its settings under fsdp_config"},
  };
  for (const char* key :
       {"use_mca", "use_megatron_bridge", "tensor_model_parallel_size",
        "pipeline_model_parallel_size", "context_parallel_size", "expert_model_parallel_size",
        "recompute_granularity", "use_distributed_optimizer"}) {
    refused.push_back({key, kOfMegatron, {}, "", kMegatronsDegrees});
  }
  return refused;
}

std::vector<ConfigRow> factory_job_rows() {
  return {
      started_ranks_row(),
      computed(&RunConfig::model_name, {"model_name_or_path"}, nullptr, read_named_model),
      plain(&RunConfig::sequence, {"cutoff_len"}, "2048"),
      choice(&RunConfig::flash_attention, {{"false", {{"flash_attn", "disabled"}}},
                                           {"true", {{"flash_attn", "sdpa"}}},
                                           {"true", {{"flash_attn", "fa2"}}},
                                           {"true", {{"flash_attn", "fa3"}}},
                                           {"true", {}}}),
      // packing alone lets samples see each other
      computed(&RunConfig::packed_documents, {"neat_packing", "packing"}, nullptr, read_switch),
      layer_code_row(),
      computed(&RunConfig::precision,
               {"bf16", "fp16", "pure_bf16", "bf16.enabled", "fp16.enabled", "mixed_precision"},
               nullptr, read_factory_precision),
  };
}

std::vector<ConfigRow> factory_step_rows() {
  return {
      microbatch_row("per_device_train_batch_size", "8"),
      computed(&RunConfig::global_batch, {"gradient_accumulation_steps"}, nullptr,
               read_trainer_batch),
      computed(plan_part<&P::recompute>,
               {"disable_gradient_checkpointing", "gradient_checkpointing",
                "fsdp_config.fsdp_activation_checkpointing"},
               nullptr, read_factory_recompute),
      follows(plan_part<&P::recompute_layers>, recompute_all),
  };
}

}  // namespace

ConfigFormat llama_factory_format() {
  ConfigFormat format{
      .name = "llama-factory",
      .title = "LLaMA-Factory",
      .version = "ff6d4d12e",
      .source = "src/llamafactory/hparams",
      .syntax = ConfigSyntax::yaml,
      .exported = false,
      .usage = "llamafactory-cli train FILE",
      .marks = {"finetuning_type", "cutoff_len", "infer_backend", "export_dir", "model_class"},
      .other_files = format_of(Sharder::deepspeed).other_files,
      .asked = asked_of_adapters(),
      .unpriced = unpriced_of_adapters(),
      .refused = refused_by_factory(),
      .adapters = {.trains_adapters = true, .rank = 8, .all_linear = true, .double_quant = true},
      .also_unpriced = add_factory_unpriced,
      .unspell = unspell_factory,
  };
  for (const char* key : {"fp8",
                          "use_unsloth",
                          "use_unsloth_gc",
                          "shift_attn",
                          "mixture_of_depths",
                          "use_galore",
                          "use_apollo",
                          "use_badam",
                          "use_adam_mini",
                          "use_muon",
                          "use_asft_loss",
                          "use_v1_kernels",
                          "upcast_layernorm",
                          "upcast_lmhead_output",
                          "resize_vocab",
                          "rope_scaling",
                          "moe_aux_loss_coef",
                          "torch_empty_cache_steps",
                          "auto_find_batch_size",
                          "group_by_length"}) {
    format.unpriced.push_back({key});
  }
  add_rows(format, {sharders_framework_row()});
  add_rows(format, factory_job_rows());
  add_rows(format, sharding_rows());
  add_rows(format, factory_step_rows());
  add_rows(format, adapter_rows());
  add_rows(format, without_expert_rows());
  add_sharders_unpriced(format);
  return format;
}

}  // namespace echelon
