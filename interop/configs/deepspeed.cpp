// DeepSpeed's JSON, with the arguments of HuggingFace's trainer that it is used with.
#include "interop/configs/rows.hpp"

namespace echelon {

namespace {

using P = ParallelPlan;

/// train_batch_size = microbatch x accumulation x dp: any two of the three are enough.
MaybeValue read_batch(const ConfigRow& row, const ConfigReading& reading) {
  const ConfigEntry* all = reading.find(row.keys[0]);
  if (all != nullptr && all->value.text != "auto") return read_global_batch(row, reading);
  ConfigRow accumulation = row;
  for (const std::string_view key : {row.keys[1], row.keys[2]}) {
    const ConfigEntry* entry = reading.find(key);
    if (entry == nullptr || entry->value.first().text == "auto") continue;
    accumulation.keys = {key};
    return read_accumulation(accumulation, reading);
  }
  return std::optional<ReadValue>{};
}

void write_batch(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  write_number(out, row.keys[0], config.global_batch);
  ConfigRow accumulation = row;
  accumulation.keys = {row.keys[1]};
  write_accumulation(accumulation, config, out);
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
  out.set(row.keys[1], scalar(text_of(row.field, config)));
}

MaybeValue read_offload(const ConfigRow& row, const ConfigReading& reading) {
  const ConfigEntry* device = reading.find(row.keys[0]);
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
  return std::optional(derived(reading.config.plan.zero == 3 ? "true" : "false",
                               "overlap_comm: its default at this stage"));
}

MaybeValue read_recompute(const ConfigRow& row, const ConfigReading& reading) {
  const ConfigEntry* entry = reading.find(row.keys);
  if (entry == nullptr) {
    return std::optional(
        ReadValue{"none", Origin::assumed, "recomputation is in the user's code (--recompute)"});
  }
  return std::optional(ReadValue{entry->value.first().text == "true" ? "full" : "none",
                                 Origin::found, reading.place(*entry)});
}

}  // namespace

ConfigFormat deepspeed_format() {
  ConfigRow recompute =
      elsewhere(plan_part<&P::recompute>, "gradient_checkpointing of the model or the trainer",
                {"gradient-checkpointing"});
  recompute.read = read_recompute;
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
              elsewhere(&RunConfig::gpus, "launcher: --num_gpus and --num_nodes"),
              elsewhere(&RunConfig::sequence, "the data's packing (TRL: --max_length)",
                        {"max-length", "max-seq-length", "block-size"}),
              fixed(&RunConfig::flash_attention, "true"),
              fixed(&RunConfig::packed_documents, "false"),
              choice(&RunConfig::precision, {{"bf16:deepspeed-zero", {{"bf16.enabled", "true"}}},
                                             {"fp16:adam-fp32-master", {{"fp16.enabled", "true"}}},
                                             {"bf16:deepspeed-zero", {{"bf16", "true"}}},
                                             {"fp16:adam-fp32-master", {{"fp16", "true"}}},
                                             {"fp32", {}}}),
              plain(plan_part<&P::tp>, {"tensor_parallel.autotp_size"}, "1"),
              plain(plan_part<&P::cp>, {"sequence_parallel_size"}, "1"),
              fixed(plan_part<&P::cp_comm>, "a2a"),
              fixed(plan_part<&P::pp>, "1"),
              plain(plan_part<&P::ep>, {"expert_parallel.autoep_size"}, "1"),
              fixed(plan_part<&P::etp>, "1"),
              follows(plan_part<&P::dp>, dp_of_gpus),
              plain(plan_part<&P::microbatch>,
                    {"train_micro_batch_size_per_gpu", "per-device-train-batch-size"}),
              computed(&RunConfig::global_batch,
                       {"train_batch_size", "gradient_accumulation_steps",
                        "gradient-accumulation-steps"},
                       write_batch, read_batch),
              fixed(plan_part<&P::vpp>, "1"),
              follows(plan_part<&P::schedule>, schedule_of_vpp),
              follows(plan_part<&P::microbatch_group>, group_of_vpp),
              follows(plan_part<&P::layers_per_stage>, dealt_stages),
              plain(plan_part<&P::zero>, {"zero_optimization.stage"}, "0"),
              computed(plan_part<&P::shard_group>, {"zero_optimization.mics_shard_size"},
                       write_group, read_group),
              fixed(plan_part<&P::sequence_parallel>, "false"),
              std::move(recompute),
              follows(plan_part<&P::recompute_layers>, recompute_all),
              follows(plan_part<&P::selective_layers>, no_layers),
              fixed(plan_part<&P::rank_order>, "tp-cp-ep-dp-pp"),
              computed(plan_part<&P::offload_optimizer>,
                       {"zero_optimization.offload_optimizer.device",
                        "zero_optimization.offload_optimizer.ratio"},
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
      .unpriced = {{"zero_optimization.offload_param.device", "none"},
                   {"zero_optimization.zero_hpz_partition_size", "1"},
                   {"zero_optimization.zero_quantized_weights"},
                   {"zero_optimization.zero_quantized_gradients"}},
  };
  add_rows(format, without_expert_rows());
  return format;
}

}  // namespace echelon
