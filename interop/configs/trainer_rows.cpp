// What trainers around transformers' models leave to DeepSpeed, FSDP or DDP: fields that
// LLaMA-Factory and axolotl read as the formats of DeepSpeed and accelerate do.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "core/base/text.hpp"
#include "core/model/model_io.hpp"
#include "interop/configs/import.hpp"
#include "interop/configs/trainer_rows.hpp"

namespace echelon {

namespace {

using P = ParallelPlan;

constexpr std::string_view kDdp = "neither deepspeed nor fsdp is stated: DDP";

bool has_section(const ConfigReading& reading, std::string_view prefix) {
  return std::ranges::any_of(reading.document.entries, [&](const ConfigEntry& entry) {
    return entry.key.starts_with(prefix) && reading.find(entry.key) != nullptr;
  });
}

MaybeValue read_as_sharder(const ConfigRow& row, const ConfigReading& reading) {
  return read_row(*row_of(format_of(sharder_of(reading)), row.field), reading);
}

void add_keys_of(const ConfigRow& from, std::vector<std::string_view>& keys) {
  keys.insert(keys.end(), from.keys.begin(), from.keys.end());
  for (const ConfigCase& each : from.cases) {
    for (const ConfigSetting& setting : each.settings) keys.push_back(setting.key);
  }
}

/// Source: LLaMA-Factory ff6d4d12e, src/llamafactory/launcher.py (torchrun, DDP unless DeepSpeed or
/// FSDP is asked for); axolotl 067b021c, src/axolotl/utils/trainer.py, prepare_optim_env. FSDP is
/// of version 1 unless 2 is stated: transformers up to 5.8, training_args.py; axolotl 067b021c,
/// src/axolotl/utils/schemas/validation.py:1118.
MaybeValue read_framework(const ConfigRow&, const ConfigReading& reading) {
  const Sharder sharder = sharder_of(reading);
  if (sharder == Sharder::fsdp) {
    return read_row(*row_of(format_of(sharder), &RunConfig::framework), reading);
  }
  if (sharder == Sharder::deepspeed) {
    const ConfigEntry* named = names_other_file(reading);
    return std::optional(derived(std::string(framework_of(format_of(sharder))),
                                 named != nullptr ? reading.place(*named) : "its settings"));
  }
  const bool scales_loss = says(reading, "fp16", "true") || says(reading, "float16", "true");
  return std::optional(assumed(std::string(framework_of_ddp(scales_loss)), std::string(kDdp)));
}

MaybeValue read_stage_of_sharder(const ConfigRow& row, const ConfigReading& reading) {
  if (sharder_of(reading) != Sharder::ddp) return read_as_sharder(row, reading);
  return std::optional(assumed("0", std::string(kDdp)));
}

ConfigRow sharded(ConfigField field) {
  ConfigRow row = follows(field, read_as_sharder);
  for (const Sharder sharder : {Sharder::deepspeed, Sharder::fsdp}) {
    if (const ConfigRow* same = row_of(format_of(sharder), field)) add_keys_of(*same, row.keys);
  }
  return row;
}

/// Keys: the trainer's, DeepSpeed's.
MaybeValue read_number_of_both(const ConfigRow& row, const ConfigReading& reading) {
  const Result<std::optional<int>> own = number_at(reading, row.keys[0]);
  if (!own) return own.error();
  const Result<std::optional<int>> other = number_at(reading, row.keys[1]);
  if (!other) return other.error();
  if (*own && *other && **own != **other) {
    return input_error(reading.place(*reading.find(row.keys[1])), std::to_string(**other),
                       fmt::format("{}, as {}", **own, reading.place(*reading.find(row.keys[0]))),
                       "\"auto\" takes the trainer's own");
  }
  const ConfigEntry* entry = reading.find({row.keys[0], row.keys[1]});
  if (entry == nullptr) return std::optional(assumed(std::string(row.absent)));
  return std::optional(
      ReadValue{std::to_string(*own ? **own : **other), Origin::found, reading.place(*entry)});
}

}  // namespace

const ConfigFormat& format_of(Sharder sharder) {
  static const ConfigFormat deepspeed = deepspeed_format();
  static const ConfigFormat accelerate = accelerate_format();
  return sharder == Sharder::deepspeed ? deepspeed : accelerate;
}

Sharder sharder_of(const ConfigReading& reading) {
  if (names_other_file(reading) != nullptr || has_section(reading, "zero_optimization.") ||
      has_section(reading, "deepspeed_config.")) {
    return Sharder::deepspeed;
  }
  const bool fsdp = says(reading, "distributed_type", "FSDP") || says(reading, "fsdp", "true") ||
                    has_section(reading, "fsdp_config.");
  return fsdp ? Sharder::fsdp : Sharder::ddp;
}

Result<std::optional<bool>> switch_at(const ConfigReading& reading, std::string_view key) {
  const ConfigEntry* entry = reading.find(key);
  if (entry == nullptr) return std::optional<bool>{};
  const Result<bool> on =
      parse_bool(printable(lower_case(entry->value.first().text)), reading.place(*entry));
  if (!on) return on.error();
  return std::optional(*on);
}

MaybeValue read_named_model(const ConfigRow& row, const ConfigReading& reading) {
  const ConfigEntry* entry = reading.find(row.keys);
  if (entry == nullptr) return std::optional<ReadValue>{};
  const std::string& name = entry->value.first().text;
  const std::string& file = entry->file.empty() ? reading.document.name : entry->file;
  const std::string next_to_it = (std::filesystem::path(file).parent_path() / name).string();
  for (const std::string& each : {name, next_to_it}) {
    if (load_model(each)) {
      return std::optional(ReadValue{each, Origin::found, reading.place(*entry)});
    }
  }
  // Sizes alone, as "7b", are names of the catalog too.
  const std::string last = name.substr(name.rfind('/') + 1);
  if (last.find('-') == std::string::npos || !load_model(last)) return std::optional<ReadValue>{};
  return std::optional(derived(last, reading.place(*entry) + ", the last part of its name"));
}

MaybeValue read_switch(const ConfigRow& row, const ConfigReading& reading) {
  const std::string_view key = row.keys[0];
  const Result<std::optional<bool>> on = switch_at(reading, key);
  if (!on) return on.error();
  if (!*on) return std::optional(assumed("false", std::string(key) + " is not stated"));
  return std::optional(
      ReadValue{**on ? "true" : "false", Origin::found, reading.place(*reading.find(key))});
}

ConfigRow microbatch_row(std::string_view key, std::string_view absent) {
  ConfigRow row = computed(plan_part<&P::microbatch>, {key, "train_micro_batch_size_per_gpu"},
                           nullptr, read_number_of_both);
  row.absent = absent;
  return row;
}

ConfigRow started_ranks_row() {
  return computed(
      &RunConfig::gpus,
      {"num_processes", "ray_num_workers", "num_gpus", "num_nodes", "nproc_per_node", "nnodes"},
      nullptr, read_started_ranks);
}

MaybeValue read_trainer_batch(const ConfigRow& row, const ConfigReading& reading) {
  const ConfigEntry* last = reading.find(row.keys);
  for (const ConfigEntry& entry : reading.document.entries) {
    if (last == nullptr || entry.key != last->key || reading.find(entry.key) == nullptr) continue;
    if (entry.value.first().text == last->value.first().text) continue;
    return input_error(reading.place(*last), last->value.first().text,
                       entry.value.first().text + ", as " + reading.place(entry),
                       "\"auto\" takes the trainer's own");
  }
  return read_accumulation(row, reading);
}

ConfigRow sharders_framework_row() {
  ConfigRow row = follows(&RunConfig::framework, read_framework);
  row.keys = format_of(Sharder::deepspeed).other_files;
  row.keys.insert(row.keys.end(), {"distributed_type", "fsdp", "fsdp_config.fsdp_version"});
  return row;
}

std::vector<ConfigRow> sharding_rows() {
  ConfigRow zero = sharded(plan_part<&P::zero>);
  zero.read = read_stage_of_sharder;
  return {sharded(plan_part<&P::tp>),
          sharded(plan_part<&P::cp>),
          sharded(plan_part<&P::cp_comm>),
          fixed(plan_part<&P::pp>, "1"),
          fixed(plan_part<&P::vpp>, "1"),
          fixed(plan_part<&P::ep>, "1"),
          fixed(plan_part<&P::etp>, "1"),
          follows(plan_part<&P::dp>, dp_of_gpus),
          follows(plan_part<&P::schedule>, schedule_of_vpp),
          follows(plan_part<&P::microbatch_group>, group_of_vpp),
          follows(plan_part<&P::layers_per_stage>, dealt_stages),
          std::move(zero),
          sharded(plan_part<&P::shard_group>),
          sharded(plan_part<&P::sequence_parallel>),
          follows(plan_part<&P::selective_layers>, no_layers),
          fixed(plan_part<&P::rank_order>, "tp-cp-ep-dp-pp"),
          sharded(plan_part<&P::offload_optimizer>),
          sharded(plan_part<&P::overlap_dp>),
          fixed(plan_part<&P::overlap_tp>, "false"),
          follows(plan_part<&P::overlap_pp>, overlap_of_interleaving),
          sharded(plan_part<&P::bucket>)};
}

void add_sharders_unpriced(ConfigFormat& format) {
  for (const Sharder sharder : {Sharder::deepspeed, Sharder::fsdp}) {
    for (const UnpricedSetting& each : format_of(sharder).unpriced) {
      const bool there = std::ranges::any_of(
          format.unpriced, [&](const UnpricedSetting& own) { return own.key == each.key; });
      if (!there) format.unpriced.push_back(each);
    }
  }
}

void take_fsdp_argument(ConfigDocument& document) {
  const ConfigEntry* stated = document.find("fsdp");
  if (stated == nullptr) return;
  const ConfigEntry fsdp = *stated;
  std::string words = lower_case(fsdp.value.joined());
  std::ranges::replace(words, ',', ' ');
  const auto add = [&](const char* key, const char* value) {
    if (document.find(key) != nullptr) return;
    document.entries.push_back({key, scalar(value), fsdp.line, fsdp.file, fsdp.key});
  };
  constexpr std::array<std::array<const char*, 2>, 3> kStrategies = {
      {{"full_shard", "FULL_SHARD"}, {"shard_grad_op", "SHARD_GRAD_OP"}, {"no_shard", "NO_SHARD"}}};
  const bool version2 = document.find("fsdp_config.fsdp_reshard_after_forward") != nullptr;
  for (const auto& [word, strategy] : kStrategies) {
    if (words.find(word) != std::string::npos && !version2) {
      add("fsdp_config.fsdp_sharding_strategy", strategy);
    }
  }
  if (words.find("hybrid_shard") != std::string::npos) {
    add("fsdp_config.fsdp_sharding_strategy", "HYBRID_SHARD");
  }
  if (words.find("offload") != std::string::npos) add("fsdp_config.fsdp_offload_params", "true");
}

void take_fsdp_prefixes(ConfigDocument& document) {
  constexpr std::string_view kSection = "fsdp_config.";
  for (ConfigEntry& entry : document.entries) {
    const bool bare =
        entry.key.starts_with(kSection) && !entry.key.substr(kSection.size()).starts_with("fsdp_");
    if (!bare) continue;
    entry.spelled = entry.key;
    entry.key.insert(kSection.size(), "fsdp_");
  }
}

std::string precision_of_sharder(const ConfigReading& reading, std::string_view width) {
  if (width == "fp32") return "fp32";
  if (width == "fp16") return "fp16:adam-fp32-master";
  return sharder_of(reading) == Sharder::deepspeed ? "bf16:deepspeed-zero"
                                                   : "bf16:fsdp-fp32-shards";
}

void add_other_optimizer(const ConfigReading& reading, std::string_view key,
                         std::vector<std::string>& out) {
  constexpr std::array<std::string_view, 6> kAdam = {"adamw_torch",     "adamw_torch_fused",
                                                     "adamw_hf",        "adamw_apex_fused",
                                                     "adamw_torch_xla", "optimi_adamw"};
  const ConfigEntry* entry = reading.find(key);
  if (entry == nullptr) return;
  const std::string name = lower_case(entry->value.first().text);
  if (std::ranges::find(kAdam, name) != kAdam.end()) return;
  out.push_back(fmt::format("{} = {}: priced is AdamW with moments as of {}", reading.place(*entry),
                            printable(name), reading.config.precision));
}

}  // namespace echelon
