#include "interop/configs/rows.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <span>

#include "core/base/parse_quantity.hpp"
#include "core/base/saturated_product.hpp"
#include "core/base/text.hpp"
#include "core/framework/stage_layers.hpp"
#include "interop/configs/import.hpp"
#include "interop/configs/precisions.hpp"
#include "planner/space/legality.hpp"

namespace echelon {

namespace {

using P = ParallelPlan;

std::string list_text(const std::vector<int>& values) {
  return fmt::format("{}", fmt::join(values, ","));
}

std::string all_stages(int pp, int value) {
  return list_text(std::vector<int>(static_cast<std::size_t>(std::clamp(pp, 1, 100'000)), value));
}

/// Source: transformers 5.24, src/transformers/training_args.py (use_liger_kernel, torch_compile);
/// accelerate 16cb6eb8, src/accelerate/utils/dataclasses.py, TorchDynamoPlugin.
constexpr std::array<std::string_view, 4> kCompileKeys = {
    "torch-compile", "torch_compile", "dynamo_backend", "dynamo_config.dynamo_backend"};
constexpr std::array<std::string_view, 4> kLigerKeys = {"use-liger-kernel", "use_liger_kernel",
                                                        "use-liger", "use_liger"};

MaybeValue read_layer_code(const ConfigRow&, const ConfigReading& reading) {
  const auto on = [&](std::span<const std::string_view> keys) -> const ConfigEntry* {
    for (const std::string_view key : keys) {
      const ConfigEntry* entry = reading.find(key);
      if (entry == nullptr) continue;
      const std::string text = entry->value.first().text;
      if (!same_word(text, "false") && !same_word(text, "no")) return entry;
    }
    return nullptr;
  };
  if (const ConfigEntry* compiled = on(kCompileKeys)) {
    return std::optional(ReadValue{"fused", Origin::found, reading.place(*compiled)});
  }
  if (const ConfigEntry* liger = on(kLigerKeys)) {
    return std::optional(ReadValue{"liger", Origin::found, reading.place(*liger)});
  }
  return std::optional(
      assumed("transformers", "neither use_liger_kernel nor torch_compile is stated"));
}

}  // namespace

ConfigRow layer_code_row() {
  std::vector<std::string_view> keys(kLigerKeys.begin(), kLigerKeys.end());
  keys.insert(keys.end(), kCompileKeys.begin(), kCompileKeys.end());
  ConfigRow row = elsewhere(&RunConfig::layer_code,
                            "use_liger_kernel (liger) or torch_compile (fused) of the trainer",
                            std::move(keys));
  row.read = read_layer_code;
  return row;
}

const ConfigEntry* names_other_file(const ConfigReading& reading) {
  for (const std::string_view key : reading.format.other_files) {
    const ConfigEntry* entry = reading.find(key);
    if (entry != nullptr && !same_word(entry->value.first().text, "true")) return entry;
  }
  return nullptr;
}

void add_rows(ConfigFormat& format, std::vector<ConfigRow> rows) {
  for (ConfigRow& row : rows) format.rows.push_back(std::move(row));
}

const ConfigCase* written_case(const ConfigRow& row, const RunConfig& config) {
  const std::string value = text_of(row.field, config);
  const auto at = std::ranges::find(row.cases, value, &ConfigCase::value);
  if (at != row.cases.end()) return &*at;
  const Result<PrecisionRecipe> precision = find_precision(config.precision);
  const bool of_precision = row.field == ConfigField{&RunConfig::precision} && precision.ok();
  return of_precision ? &nearest_precision(row.cases, *precision) : nullptr;
}

void write_choice(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  const ConfigCase* written = written_case(row, config);
  if (written == nullptr) return;
  for (const ConfigSetting& setting : written->settings) {
    const std::string text(setting.value == "*" ? setting.if_any : setting.value);
    out.set(setting.key, setting.quoted ? quoted(text) : scalar(text));
  }
}

ReadValue derived(std::string text, std::string from) {
  return {std::move(text), Origin::derived, std::move(from)};
}
ReadValue derived(std::int64_t number, std::string from) {
  return derived(std::to_string(number), std::move(from));
}

ReadValue assumed(std::string text, std::string from) {
  return {std::move(text), Origin::assumed, std::move(from)};
}

MaybeValue found_or(const ConfigReading& reading, std::string_view key, std::string_view usual) {
  const ConfigEntry* entry = reading.find(key);
  if (entry == nullptr) return std::optional(assumed(std::string(usual)));
  return std::optional(ReadValue{entry->value.first().text, Origin::found, reading.place(*entry)});
}

bool says(const ConfigReading& reading, std::string_view key, std::string_view value) {
  const ConfigEntry* entry = reading.find(key);
  return entry != nullptr && same_word(entry->value.first().text, value);
}

void write_context(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  write_number(out, row.keys[0], std::max(config.model.max_positions, config.sequence));
}

Result<int> number_of(const ConfigReading& reading, const ConfigEntry& entry) {
  return parse_int(entry.value.first().text, reading.place(entry), 0);
}

Result<std::optional<int>> number_at(const ConfigReading& reading, std::string_view key) {
  const ConfigEntry* entry = reading.find(key);
  if (entry == nullptr || !entry->value.first().unresolved.empty()) return std::optional<int>{};
  const Result<int> number = number_of(reading, *entry);
  if (!number) return number.error();
  return std::optional(*number);
}

void write_number(ConfigDocument& out, std::string_view key, std::int64_t number) {
  out.set(key, scalar(std::to_string(number)));
}

MaybeValue dp_of_gpus(const ConfigRow&, const ConfigReading& reading) {
  const RunConfig& config = reading.config;
  const std::int64_t rest = saturated_product({config.plan.tp, config.plan.cp, config.plan.pp});
  if (config.gpus <= 0 || rest <= 0) return std::optional<ReadValue>{};
  if (config.gpus % rest != 0) {
    return input_error(reading.document.name,
                       fmt::format("{} GPUs for tp {} x cp {} x pp {}", config.gpus, config.plan.tp,
                                   config.plan.cp, config.plan.pp),
                       "a multiple of tp x cp x pp", "--gpus sets another number");
  }
  return std::optional(derived(config.gpus / rest, "GPUs / (tp x cp x pp)"));
}

MaybeValue schedule_of_vpp(const ConfigRow&, const ConfigReading& reading) {
  const bool interleaved = reading.config.plan.vpp > 1;
  return std::optional(derived(interleaved ? "interleaved" : "1f1b", "chunks per pipeline rank"));
}

MaybeValue group_of_vpp(const ConfigRow& row, const ConfigReading& reading) {
  const P& plan = reading.config.plan;
  if (plan.vpp > 1 && !row.keys.empty()) {
    if (const ConfigEntry* entry = reading.find(row.keys)) {
      const Result<int> group = number_of(reading, *entry);
      if (!group) return group.error();
      return std::optional(ReadValue{std::to_string(*group), Origin::found, reading.place(*entry)});
    }
  }
  // Both chunks of a rank of DualPipeV take one microbatch at a time.
  const bool grouped = plan.vpp > 1 && plan.schedule != ScheduleKind::dualpipe_v;
  return std::optional(derived(grouped ? plan.pp : 1, "pp, with interleaving"));
}

MaybeValue whole_zero_group(const ConfigRow&, const ConfigReading& reading) {
  return std::optional(
      derived(std::int64_t{reading.config.plan.dp} * reading.config.plan.cp, "dp x cp"));
}

MaybeValue recompute_all(const ConfigRow&, const ConfigReading& reading) {
  const P& plan = reading.config.plan;
  if (plan.recompute == Recompute::full) {
    return std::optional(derived(list_text(plan.layers_per_stage), "every layer"));
  }
  return std::optional(derived(all_stages(plan.pp, 0), "no layer is recomputed fully"));
}

MaybeValue no_layers(const ConfigRow&, const ConfigReading&) {
  return std::optional(derived("", "no policy of its own for each stage"));
}

MaybeValue dealt_stages(const ConfigRow&, const ConfigReading& reading) {
  const RunConfig& config = reading.config;
  if (config.model.layers <= 0) return std::optional<ReadValue>{};
  const Result<Framework> framework = find_framework(config.framework);
  const int pp = std::clamp(config.plan.pp, 1, 100'000);
  if (framework && framework->stage_layers != StageLayers::chosen) {
    const auto dealt = dealt_layers(*framework, config.model, pp);
    if (dealt) return std::optional(derived(list_text(*dealt), "as the framework deals layers"));
  }
  return std::optional(derived(list_text(balanced_layers(config.model.layers, pp)), "layers / pp"));
}

MaybeValue overlap_of_interleaving(const ConfigRow&, const ConfigReading& reading) {
  const P& plan = reading.config.plan;
  return std::optional(derived(plan.vpp > 1 && plan.pp > 1 ? "true" : "false", "the schedule"));
}

MaybeValue head_dim_of_heads(const ConfigRow& row, const ConfigReading& reading) {
  const ModelSpec& model = reading.config.model;
  // Latent attention does not read the option, which Megatron-LM asks for even so where the heads
  // do not divide the hidden size.
  if (model.latent()) {
    return std::optional(
        derived(model.mla.qk_nope_head_dim + model.mla.qk_rope_head_dim, "latent attention"));
  }
  if (const ConfigEntry* entry = reading.find(row.keys)) {
    const Result<int> width = number_of(reading, *entry);
    if (!width) return width.error();
    return std::optional(ReadValue{std::to_string(*width), Origin::found, reading.place(*entry)});
  }
  if (model.heads <= 0) return std::optional<ReadValue>{};
  return std::optional(derived(model.hidden / model.heads, "hidden size / attention heads"));
}

MaybeValue sequence_parallel_of_tp(const ConfigRow&, const ConfigReading& reading) {
  return std::optional(
      derived(reading.config.plan.tp > 1 ? "true" : "false", "always with tp > 1"));
}

MaybeValue etp_is_tp(const ConfigRow& row, const ConfigReading& reading) {
  const RunConfig& config = reading.config;
  if (config.model.moe.experts == 0) return std::optional(derived(1, "a dense model"));
  if (const ConfigEntry* entry = reading.find(row.keys)) {
    const Result<int> etp = number_of(reading, *entry);
    if (!etp) return etp.error();
    return std::optional(ReadValue{std::to_string(*etp), Origin::found, reading.place(*entry)});
  }
  return std::optional(derived(config.plan.tp, "tp, the framework's default"));
}

void write_launcher(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  const int per_node = std::max(1, std::min(config.gpus, config.gpus_per_node));
  write_number(out, row.keys[0], per_node);
  write_number(out, row.keys[1], std::max(1, config.gpus / per_node));
}

MaybeValue read_launcher(const ConfigRow& row, const ConfigReading& reading) {
  // Pairs of keys: ranks on a node, nodes. The first pair with ranks counts.
  for (std::size_t i = 0; i + 1 < row.keys.size(); i += 2) {
    const ConfigEntry* ranks = reading.find(row.keys[i]);
    if (ranks == nullptr || !ranks->value.first().unresolved.empty()) continue;
    std::string text = ranks->value.first().text;
    text = text.substr(text.rfind(':') + 1);  // --gres=gpu:8
    const Result<int> per_node = parse_int(text, reading.place(*ranks));
    if (!per_node) continue;  // "gpu", "auto": it must be asked
    const ConfigEntry* nodes = nullptr;
    for (std::size_t j = 1; nodes == nullptr && j < row.keys.size(); j += 2) {
      nodes = reading.find(row.keys[j]);
      if (nodes != nullptr && !nodes->value.first().unresolved.empty()) nodes = nullptr;
    }
    if (nodes == nullptr && reading.document.find(row.keys[i + 1]) != nullptr) continue;
    const Result<int> count = nodes == nullptr
                                  ? Result<int>(1)
                                  : parse_int(nodes->value.first().text, reading.place(*nodes));
    if (!count) continue;  // elastic: "1:4"
    const std::string from =
        reading.place(*ranks) + (nodes != nullptr ? ", " + reading.place(*nodes) : "");
    return std::optional(
        derived(saturated_product({*per_node, *count}), from + ": ranks on a node x nodes"));
  }
  return std::optional<ReadValue>{};
}

MaybeValue read_global_batch(const ConfigRow& row, const ConfigReading& reading) {
  const ConfigEntry* entry = reading.find(row.keys);
  const P& plan = reading.config.plan;
  const bool stated =
      entry != nullptr && entry->value.first().text != "-1" && entry->value.first().text != "auto";
  if (stated) {
    const Result<std::int64_t> batch =
        parse_count(entry->value.first().text, reading.place(*entry));
    if (!batch) return batch.error();
    return std::optional(ReadValue{std::to_string(*batch), Origin::found, reading.place(*entry)});
  }
  if (!reading.knows(plan_part<&P::dp>) || !reading.knows(plan_part<&P::microbatch>)) {
    return std::optional<ReadValue>{};
  }
  return std::optional(
      derived(std::int64_t{plan.microbatch} * plan.dp, "microbatch x dp, the default"));
}

void write_accumulation(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  write_number(out, row.keys[0],
               config.global_batch / std::max<std::int64_t>(
                                         1, std::int64_t{config.plan.microbatch} * config.plan.dp));
}

MaybeValue read_accumulation(const ConfigRow& row, const ConfigReading& reading) {
  const P& plan = reading.config.plan;
  const ConfigEntry* entry = reading.find(row.keys);
  const Result<std::optional<int>> accumulated =
      entry == nullptr ? std::optional<int>{} : number_at(reading, entry->key);
  if (!accumulated) return accumulated.error();
  if (!reading.knows(plan_part<&P::dp>) || !reading.knows(plan_part<&P::microbatch>)) {
    return std::optional<ReadValue>{};
  }
  return std::optional(
      derived(saturated_product({plan.microbatch, plan.dp, accumulated->value_or(1)}),
              "microbatch x gradient accumulation x dp"));
}

}  // namespace echelon
