// DeepSpeed's JSON, with the arguments of HuggingFace's trainer that it is used with.
#include <fmt/format.h>

#include "core/base/text.hpp"
#include "interop/configs/trainer_rows.hpp"

namespace echelon {

namespace {

using P = ParallelPlan;

/// train_batch_size = microbatch x accumulation x dp: any two of the three are enough.
MaybeValue read_batch(const ConfigRow& row, const ConfigReading& reading) {
  const ConfigEntry* all = reading.find(row.keys[0]);
  if (all != nullptr && all->value.text != "auto") return read_global_batch(row, reading);
  ConfigRow accumulation = row;
  for (const std::string_view key : {row.keys[1], row.keys[2], row.keys[3]}) {
    const ConfigEntry* entry = reading.find(key);
    if (entry == nullptr || entry->value.first().text == "auto") continue;
    accumulation.keys = {key};
    return read_accumulation(accumulation, reading);
  }
  return std::optional<ReadValue>{};
}

/// With AutoTP DeepSpeed checks the batch as if all ranks were data-parallel ones, before it makes
/// the groups; without train_batch_size it checks nothing. Source: DeepSpeed edaa7221,
/// deepspeed/__init__.py:213, runtime/config.py:937.
void write_batch(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  if (config.plan.tp == 1) write_number(out, row.keys[0], config.global_batch);
  ConfigRow accumulation = row;
  accumulation.keys = {row.keys[1]};
  write_accumulation(accumulation, config, out);
}

/// AutoTP is on from size 1 on, and makes its groups of all ranks, whatever their stages.
/// Source: DeepSpeed edaa7221, deepspeed/__init__.py:211, runtime/engine.py,
/// _configure_tensor_parallel_states.
void write_autotp(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  if (config.plan.tp > 1 && config.plan.pp == 1) write_number(out, row.keys[0], config.plan.tp);
}

/// Nothing reads the names "stages" and "partition" of the section "pipeline". Source: DeepSpeed
/// edaa7221, runtime/config.py, get_pipeline_config, and runtime/pipe/engine.py.
MaybeValue read_stages(const ConfigRow& row, const ConfigReading&) {
  return std::optional(
      assumed(std::string(row.absent), "a PipelineModule is in the user's code (--pp)"));
}

ConfigRow stages_row() {
  ConfigRow row = elsewhere(plan_part<&P::pp>, "num_stages of PipelineModule, in the user's code");
  row.absent = "1";
  row.read = read_stages;
  return row;
}

std::string why_not_written(const ConfigField& field, const RunConfig& config) {
  if (field == plan_part<&P::etp>) {
    return "deepspeed.moe.layer.MoE with enable_expert_tensor_parallelism, in the model's own code";
  }
  if (config.plan.tp == 1 || config.plan.pp == 1) return {};
  return "AutoTP does not split the layers of a PipelineModule";
}

/// Sequence parallelism takes effect with the sizes of both groups. Source: DeepSpeed edaa7221,
/// deepspeed/__init__.py:203.
void write_ulysses(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  if (config.plan.cp == 1) return;
  write_number(out, row.keys[0], config.plan.cp);
  write_number(out, row.keys[1], config.plan.dp);
}

/// 0 is the default of AutoTP: off.
MaybeValue read_degree(const ConfigRow& row, const ConfigReading& reading) {
  const ConfigEntry* entry = reading.find(row.keys[0]);
  if (entry == nullptr) entry = reading.find(row.keys.back());
  if (entry == nullptr) return std::optional(assumed("1", "default of DeepSpeed"));
  const std::string& text = entry->value.first().text;
  return std::optional(ReadValue{text == "0" ? "1" : text, Origin::found, reading.place(*entry)});
}

/// AutoEP is off unless it is enabled. Source: DeepSpeed edaa7221,
/// deepspeed/module_inject/auto_ep_config.py:47.
void write_auto_ep(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  if (config.plan.ep == 1) return;
  out.set(row.keys[1], scalar("true"));
  write_number(out, row.keys[0], config.plan.ep);
}

MaybeValue read_auto_ep(const ConfigRow& row, const ConfigReading& reading) {
  const ConfigEntry* entry = reading.find(row.keys[0]);
  if (entry == nullptr) return std::optional(assumed("1", "default of DeepSpeed"));
  if (!says(reading, row.keys[1], "true")) {
    return std::optional(
        derived("1", std::string(row.keys[1]) + " is not true, which leaves experts whole"));
  }
  return std::optional(ReadValue{entry->value.first().text, Origin::found, reading.place(*entry)});
}

void write_group(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  if (config.plan.zero == 3 && config.plan.instances() > 1) {
    write_number(out, row.keys[0], config.plan.shard_group);
  }
}

MaybeValue read_group(const ConfigRow& row, const ConfigReading& reading) {
  const ConfigEntry* entry = reading.find(row.keys);
  if (entry == nullptr || entry->value.text == "-1" || reading.config.plan.zero < 3) {
    return whole_zero_group(row, reading);
  }
  return std::optional(ReadValue{entry->value.text, Origin::found, reading.place(*entry)});
}

void write_offload(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  if (config.plan.offload_optimizer <= 0) return;
  out.set(row.keys[0], quoted("cpu"));
  // A part alone is refused below ZeRO-3. Source: DeepSpeed edaa7221, runtime/zero/config.py:391.
  if (config.plan.zero == 3) out.set(row.keys[1], scalar(text_of(row.field, config)));
}

MaybeValue read_offload(const ConfigRow& row, const ConfigReading& reading) {
  const ConfigEntry* device = reading.find({row.keys[0], row.keys[2]});
  if (device == nullptr || device->value.text == "none") {
    return std::optional(ReadValue{"0", Origin::assumed, "default of DeepSpeed"});
  }
  if (device->value.text != "cpu") {
    return input_error(reading.place(*device), device->value.text, "cpu or none",
                       "offload to NVMe is not priced");
  }
  const ConfigEntry* share = reading.find(row.keys[1]);
  return std::optional(
      ReadValue{share == nullptr ? "1" : share->value.text, Origin::found, reading.place(*device)});
}

/// none: true at stage 3, false else. Source: DeepSpeed edaa7221, runtime/zero/config.py.
MaybeValue read_overlap(const ConfigRow& row, const ConfigReading& reading) {
  if (const ConfigEntry* entry = reading.find(row.keys)) {
    return std::optional(ReadValue{entry->value.text, Origin::found, reading.place(*entry)});
  }
  if (!reading.knows(plan_part<&P::zero>)) return std::optional<ReadValue>{};
  return std::optional(derived(reading.config.plan.zero == 3 ? "true" : "false",
                               "overlap_comm: its default at this stage"));
}

MaybeValue read_stage(const ConfigRow& row, const ConfigReading& reading) {
  constexpr int kHighest = 3;
  const ConfigEntry* entry = reading.find(row.keys);
  if (entry == nullptr) {
    if (names_other_file(reading) != nullptr) return std::optional<ReadValue>{};
    return std::optional(assumed("0", "default of DeepSpeed"));
  }
  const Result<int> stage = number_of(reading, *entry);
  if (!stage) return stage.error();
  if (*stage > kHighest) {
    return input_error(reading.place(*entry), fmt::format("stage {}", *stage),
                       "a stage from 0 to 3");
  }
  return std::optional(ReadValue{std::to_string(*stage), Origin::found, reading.place(*entry)});
}

/// As HuggingFace's parser of arguments reads switches. Source: transformers 5.24, hf_argparser.py,
/// string_to_bool.
bool is_on(const ConfigEntry& entry) {
  const std::string text = lower_case(entry.value.first().text);
  return text == "true" || text == "t" || text == "yes" || text == "y" || text == "1";
}

void write_nothing(const ConfigRow&, const RunConfig&, ConfigDocument&) {}

MaybeValue read_recompute(const ConfigRow& row, const ConfigReading& reading) {
  const ConfigEntry* entry = reading.find(row.keys);
  if (entry == nullptr) {
    return std::optional(
        ReadValue{"none", Origin::assumed, "recomputation is in the user's code (--recompute)"});
  }
  return std::optional(
      ReadValue{is_on(*entry) ? "full" : "none", Origin::found, reading.place(*entry)});
}

}  // namespace

// Ranks on a node x nodes, by the launchers of PyTorch and DeepSpeed; or all, by accelerate's.
// Source: DeepSpeed edaa7221, deepspeed/launcher/runner.py.
MaybeValue read_started_ranks(const ConfigRow& row, const ConfigReading& reading) {
  constexpr std::ptrdiff_t kOfAllRanks = 2;  // keys; then pairs: ranks on a node, nodes
  for (const std::string_view key : {row.keys[0], row.keys[1]}) {
    const Result<std::optional<int>> all = number_at(reading, key);
    if (!all) return all.error();
    if (!*all) continue;
    const std::string place = reading.place(*reading.find(key));
    return std::optional(ReadValue{std::to_string(**all), Origin::found, place});
  }
  ConfigRow launcher = row;
  launcher.keys.erase(launcher.keys.begin(), launcher.keys.begin() + kOfAllRanks);
  return read_launcher(launcher, reading);
}

ConfigFormat deepspeed_format() {
  ConfigRow recompute =
      elsewhere(plan_part<&P::recompute>, "gradient_checkpointing of the model or the trainer",
                {"gradient-checkpointing", "gradient_checkpointing"});
  recompute.read = read_recompute;
  ConfigRow gpus = elsewhere(
      &RunConfig::gpus, "launcher: --num_gpus and --num_nodes",
      {"num_processes", "num-processes", "num-gpus", "num-nodes", "nproc-per-node", "nnodes"});
  gpus.read = read_started_ranks;
  ConfigFormat format{
      .name = "deepspeed",
      .title = "DeepSpeed",
      .version = "edaa7221 (v0.19)",
      .source = "deepspeed/runtime/config.py, deepspeed/runtime/zero/config.py",
      .syntax = ConfigSyntax::json,
      .program = "FILL_IN.py --deepspeed FILE",
      .usage = "deepspeed … --deepspeed FILE",
      .rows =
          {
              fixed(&RunConfig::framework, "deepspeed"),
              std::move(gpus),
              computed(&RunConfig::model_name, {"model-name-or-path", "model_name_or_path"},
                       write_nothing, read_named_model),
              elsewhere(&RunConfig::sequence, "the data's packing (TRL: --max_length)",
                        {"max-length", "max-seq-length", "block-size", "max_length",
                         "max_seq_length", "block_size"}),
              fixed(&RunConfig::flash_attention, "true"),
              fixed(&RunConfig::packed_documents, "false"),
              layer_code_row(),
              choice(&RunConfig::precision,
                     {{"bf16:deepspeed-zero", {{"bf16.enabled", "true"}}},
                      {"fp16:adam-fp32-master", {{"fp16.enabled", "true"}}},
                      {"bf16:deepspeed-zero", {{"bf16", "true"}}},
                      {"fp16:adam-fp32-master", {{"fp16", "true"}}},
                      {"bf16:deepspeed-zero", {{"mixed_precision", "bf16"}}},
                      {"fp16:adam-fp32-master", {{"mixed_precision", "fp16"}}},
                      {"fp32", {}}}),
              computed(plan_part<&P::tp>, {"tensor_parallel.autotp_size"}, write_autotp,
                       read_degree),
              computed(plan_part<&P::cp>,
                       {"sequence_parallel_size", "data_parallel_size",
                        "parallelism_config.parallelism_config_sp_size"},
                       write_ulysses, read_degree),
              fixed(plan_part<&P::cp_comm>, "a2a"),
              stages_row(),
              computed(plan_part<&P::ep>,
                       {"expert_parallel.autoep_size", "expert_parallel.enabled"}, write_auto_ep,
                       read_auto_ep),
              fixed(plan_part<&P::etp>, "1"),
              follows(plan_part<&P::dp>, dp_of_gpus),
              plain(plan_part<&P::microbatch>,
                    {"train_micro_batch_size_per_gpu", "per-device-train-batch-size",
                     "per_device_train_batch_size"}),
              computed(
                  &RunConfig::global_batch,
                  {"train_batch_size", "gradient_accumulation_steps", "gradient-accumulation-steps",
                   "deepspeed_config.gradient_accumulation_steps"},
                  write_batch, read_batch),
              fixed(plan_part<&P::vpp>, "1"),
              follows(plan_part<&P::schedule>, schedule_of_vpp),
              follows(plan_part<&P::microbatch_group>, group_of_vpp),
              follows(plan_part<&P::layers_per_stage>, dealt_stages),
              computed(
                  plan_part<&P::zero>, {"zero_optimization.stage", "deepspeed_config.zero_stage"},
                  [](const ConfigRow& row, const RunConfig& c, ConfigDocument& out) {
                    write_number(out, row.keys[0], c.plan.zero);
                  },
                  read_stage),
              computed(plan_part<&P::shard_group>, {"zero_optimization.mics_shard_size"},
                       write_group, read_group),
              fixed(plan_part<&P::sequence_parallel>, "false"),
              std::move(recompute),
              follows(plan_part<&P::recompute_layers>, recompute_all),
              follows(plan_part<&P::selective_layers>, no_layers),
              fixed(plan_part<&P::rank_order>, "tp-cp-ep-dp-pp"),
              computed(plan_part<&P::offload_optimizer>,
                       {"zero_optimization.offload_optimizer.device",
                        "zero_optimization.offload_optimizer.ratio",
                        "deepspeed_config.offload_optimizer_device"},
                       write_offload, read_offload),
              computed(
                  plan_part<&P::overlap_dp>, {"zero_optimization.overlap_comm"},
                  [](const ConfigRow& row, const RunConfig& c, ConfigDocument& out) {
                    out.set(row.keys[0], scalar(c.plan.overlap_dp ? "true" : "false"));
                  },
                  read_overlap),
              fixed(plan_part<&P::overlap_tp>, "false"),
              follows(plan_part<&P::overlap_pp>, overlap_of_interleaving),
              computed(plan_part<&P::bucket>, {"zero_optimization.reduce_bucket_size"},
                       write_bucket, read_bucket),
          },
      .other_files = {"deepspeed", "deepspeed-config", "deepspeed_config.deepspeed_config_file"},
      .asked = asked_of_adapters(),
      .unpriced = {{"zero_optimization.offload_param.device", "none", "",
                    "the offload of parameters"},
                   {"deepspeed_config.offload_param_device", "none", "",
                    "the offload of parameters"},
                   {"bf16.bf16_master_weights_and_grads", "", "", "master weights of 16 bits"},
                   {"fp16.fp16_master_weights_and_grads", "", "", "master weights of 16 bits"},
                   {"zero_optimization.zero_hpz_partition_size", "1"},
                   {"zero_optimization.zero_quantized_weights"},
                   {"zero_optimization.zero_quantized_gradients"}},
      .also_unpriced = add_unpriced_adapters,
      .why_lost = why_not_written,
  };
  for (const UnpricedSetting& each : unpriced_of_adapters()) format.unpriced.push_back(each);
  add_rows(format, adapter_rows());
  add_rows(format, without_expert_rows());
  return format;
}

}  // namespace echelon
