// torchtitan since its configurations are Python: a function that changes one of its registry's.
// The release counts a batch in sequences, main in tokens.
#include <fmt/format.h>

#include "core/base/parse_quantity.hpp"
#include "core/base/saturated_product.hpp"
#include "interop/configs/rows.hpp"

namespace echelon {

namespace {

using P = ParallelPlan;

/// A number of tokens behind an entry; nothing for -1.
Result<std::optional<std::int64_t>> tokens_at(const ConfigReading& reading, std::string_view key) {
  const ConfigEntry* entry = reading.find(key);
  if (entry == nullptr || entry->value.text == "-1") return std::optional<std::int64_t>{};
  const Result<std::int64_t> tokens = parse_count(entry->value.text, reading.place(*entry), 0);
  if (!tokens) return tokens.error();
  return std::optional(*tokens);
}

/// Tokens as sequences.
Result<std::int64_t> sequences_of(std::int64_t tokens, const ConfigReading& reading,
                                  std::string_view key) {
  const int length = reading.config.sequence;
  if (length > 0 && tokens % length == 0) return tokens / length;
  return input_error(reading.place(*reading.find(key)), std::to_string(tokens) + " tokens",
                     "a multiple of the " + std::to_string(length) + " tokens of a sequence");
}

MaybeValue read_recipe_microbatch(const ConfigRow& row, const ConfigReading& reading) {
  const auto tokens = tokens_at(reading, row.keys[0]);
  if (!tokens) return tokens.error();
  if (!*tokens || !reading.knows(&RunConfig::sequence)) return std::optional<ReadValue>{};
  const Result<std::int64_t> samples = sequences_of(**tokens, reading, row.keys[0]);
  if (!samples) return samples.error();
  return std::optional(derived(*samples, "tokens of a microbatch / sequence length"));
}

/// Keys: tokens of a step; microbatches of the pipeline.
MaybeValue read_recipe_batch(const ConfigRow& row, const ConfigReading& reading) {
  if (!reading.knows(&RunConfig::sequence)) return std::optional<ReadValue>{};
  const auto tokens = tokens_at(reading, row.keys[0]);
  if (!tokens) return tokens.error();
  if (*tokens) {
    const Result<std::int64_t> samples = sequences_of(**tokens, reading, row.keys[0]);
    if (!samples) return samples.error();
    return std::optional(derived(*samples, "tokens of a step / sequence length"));
  }
  const P& plan = reading.config.plan;
  if (!reading.knows(plan_part<&P::dp>) || !reading.knows(plan_part<&P::microbatch>)) {
    return std::optional<ReadValue>{};
  }
  const Result<std::optional<int>> microbatches = number_at(reading, row.keys[1]);
  if (!microbatches) return microbatches.error();
  return std::optional(derived(
      saturated_product({plan.microbatch, plan.dp, plan.pp > 1 ? microbatches->value_or(1) : 1}),
      "microbatch x dp x microbatches of the pipeline"));
}

void write_recipe_batch(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  const P& plan = config.plan;
  write_number(out, row.keys[0], config.global_batch * config.sequence);
  const std::int64_t each = std::int64_t{plan.microbatch} * plan.dp;
  if (plan.pp > 1 && each > 0) write_number(out, row.keys[1], config.global_batch / each);
}

/// Split experts borrow the ranks of tensor parallelism; others are split by it.
/// Source: torchtitan b5bcd76c, torchtitan/config/configs.py, expert_parallel_degree.
MaybeValue etp_of_ep(const ConfigRow&, const ConfigReading& reading) {
  const bool whole = reading.config.model.moe.experts == 0 || reading.config.plan.ep > 1;
  return std::optional(derived(whole ? 1 : reading.config.plan.tp, "the expert degree"));
}

/// CUDA graphs are on unless they are switched off, and then pipelines are refused, and experts on
/// several ranks but for two dispatchers. Source: torchtitan v0.3.0, torchtitan/trainer.py:179,
/// _validate_cuda_graphs.
ConfigRow cuda_graphs_row() {
  return choice(plan_part<&P::cuda_graphs>,
                {{"none", {{"training.disable_cuda_graphs", "true"}}},
                 {"full_iteration", {{"training.disable_cuda_graphs", "false"}}},
                 {"full_iteration", {}}});
}

/// Source: torchtitan b5bcd76c, torchtitan/models/common/decoder.py:342, get_attention_masks.
MaybeValue read_recipe_documents(const ConfigRow&, const ConfigReading&) {
  return std::optional(derived("true", "FlexAttention and varlen attention mask by documents"));
}

/// An argument of model_registry (write_registry_model). Source: torchtitan v0.3.0,
/// torchtitan/models/common/config_utils.py:361, make_token_dispatcher_config.
ConfigRow registry_dispatcher() {
  return computed(
      plan_part<&P::dispatcher>, {"moe_comm_backend"},
      [](const ConfigRow& row, const RunConfig& c, ConfigDocument& out) {
        const bool other = c.plan.ep > 1 && c.plan.dispatcher != Dispatcher::alltoall;
        if (other) out.set(row.keys[0], quoted(std::string(name_of(c.plan.dispatcher))));
      },
      read_titan_dispatcher);
}

/// The components that torch.compile compiles; their order means nothing.
void add_uncompiled(const ConfigReading& reading, std::vector<std::string>& out) {
  const ConfigEntry* components = reading.find("compile.components");
  if (components == nullptr || !says(reading, "compile.enable", "true")) return;
  const std::string names = components->value.joined();
  if (names.find("model") != std::string::npos && names.find("loss") != std::string::npos) return;
  out.push_back(fmt::format("{} = {}: priced are a compiled model and a compiled loss",
                            reading.place(*components), names));
}

/// A function of a registry, or a model that is written into another function's
/// (write_registry_model). Source: torchtitan v0.3.0, torchtitan/models/*/config_registry.py.
ConfigCase registered(std::string_view model, std::string_view function) {
  return {model, {{"import", function}}};
}

std::vector<ConfigRow> recipe_job_rows(std::string_view sequence) {
  return {
      choice(&RunConfig::framework,
             {{"torchtitan",
               {{"compile.enable", "true", false, true},
                {"compile.components", "[\"model\", \"loss\"]", false, true}}},
              {"torchtitan", {}}}),
      choice(&RunConfig::model_name,
             {registered("llama3-8b", "torchtitan.models.llama3.config_registry.llama3_8b"),
              registered("llama3.1-8b", "torchtitan.models.llama3.config_registry.llama3_8b"),
              registered("llama3-70b", "torchtitan.models.llama3.config_registry.llama3_70b"),
              registered("llama3.1-70b", "torchtitan.models.llama3.config_registry.llama3_70b"),
              registered("llama3.1-405b", "torchtitan.models.llama3.config_registry.llama3_405b"),
              registered("gpt-oss-20b", "torchtitan.models.gpt_oss.config_registry.gpt_oss_20b"),
              registered("gpt-oss-120b", "torchtitan.models.gpt_oss.config_registry.gpt_oss_120b"),
              registered("deepseek-v3",
                         "torchtitan.models.deepseek_v3.config_registry.deepseek_v3_671b"),
              registered("qwen3-0.6b", "torchtitan.models.qwen3.config_registry.qwen3_0_6b"),
              registered("qwen3-1.7b", "torchtitan.models.qwen3.config_registry.qwen3_1_7b"),
              registered("qwen3-4b", "torchtitan.models.qwen3.config_registry.qwen3_4b"),
              registered("qwen3-8b", "torchtitan.models.qwen3.config_registry.qwen3_8b"),
              registered("qwen3-14b", "torchtitan.models.qwen3.config_registry.qwen3_14b"),
              registered("qwen3-30b-a3b", "torchtitan.models.qwen3.config_registry.qwen3_30b_a3b"),
              registered("qwen3-32b", "torchtitan.models.qwen3.config_registry.qwen3_32b"),
              registered("qwen3-235b-a22b",
                         "torchtitan.models.qwen3.config_registry.qwen3_235b_a22b")}),
      elsewhere(&RunConfig::gpus, "NGPU of run_train.sh, or torchrun"),
      plain(&RunConfig::sequence, {sequence}),
      choice(&RunConfig::precision,
             {{"bf16:fsdp-fp32-shards", {{"training.mixed_precision_param", "bfloat16", true}}},
              {"bf16:fsdp-fp32-shards", {}},
              {"fp32", {{"training.mixed_precision_param", "float32", true}}}}),
      fixed(&RunConfig::flash_attention, "true"),
      follows(&RunConfig::packed_documents, read_recipe_documents),
      fixed(&RunConfig::adapters, "none"),
      fixed(&RunConfig::quantized, "none"),
  };
}

std::vector<ConfigRow> main_batch_rows() {
  return {
      computed(
          plan_part<&P::microbatch>, {"training.num_tokens_per_microbatch_per_dp_rank"},
          [](const ConfigRow& row, const RunConfig& c, ConfigDocument& out) {
            write_number(out, row.keys[0], std::int64_t{c.plan.microbatch} * c.sequence);
          },
          read_recipe_microbatch),
      computed(&RunConfig::global_batch,
               {"training.num_tokens_per_train_step", "parallelism.num_pp_microbatches"},
               write_recipe_batch, read_recipe_batch),
  };
}

struct RecipeVersion {
  std::string_view name;
  std::string_view title;
  std::string_view version;
  std::string_view sequence;  ///< key of its length
  void (*unspell)(ConfigDocument& document);
};

ConfigFormat recipe_format(const RecipeVersion& recipe, std::vector<ConfigRow> batch_rows) {
  ConfigFormat format{
      .name = recipe.name,
      .title = recipe.title,
      .version = recipe.version,
      .source = "torchtitan/config/configs.py, torchtitan/models/*/config_registry.py",
      .syntax = ConfigSyntax::python,
      .program = "-m torchtitan.train --module plans --config plan",
      .usage =
          "as plans.py: torchrun … -m torchtitan.train --module plans --config plan; data, "
          "learning rate and optimizer are those of the imported function",
      .fill_in = {{"hf_assets_path", "path of the tokenizer"},
                  {"training.steps", "number of steps"}},
      .unpriced = {{"training.enable_cpu_offload", "", "", "the offload of parameters"},
                   {"training.dtype", "float32", "", "weights of 16 bits alone"},
                   {"model_converters"},
                   {"unknown_function"},
                   {"compile.enable", "", "compiled models"}},
      .resets = {{"compile.enable_async_tensor_parallel", "false"}},
      .unread_parts = {{"model_spec", "models of its own"}},
      .also_unpriced = add_uncompiled,
      .useless_remarks = "torchtitan v0.3.0 ",
      .spell = write_registry_model,
      .unspell = recipe.unspell,
  };
  add_rows(format, recipe_job_rows(recipe.sequence));
  add_rows(format, titan_degree_rows());
  add_rows(format, {
                       follows(plan_part<&P::etp>, etp_of_ep),
                       fixed(plan_part<&P::cp_comm>, "p2p"),
                       follows(plan_part<&P::dp>, dp_of_gpus),
                   });
  add_rows(format, std::move(batch_rows));
  add_rows(format, titan_layout_rows(write_titan_recipe_modules));
  add_rows(format, {
                       choice(plan_part<&P::recompute>,
                              {{"none", {{"activation_checkpoint", "none"}}},
                               {"full", {{"activation_checkpoint", "FullAC.Config()"}}},
                               {"selective", {{"activation_checkpoint", "SelectiveAC.Config()"}}},
                               {"selective", {}}}),
                   });
  add_rows(format, titan_end_rows("compile.enable_async_tensor_parallel"));
  std::vector<ConfigRow> experts = without_expert_rows(registry_dispatcher());
  std::erase_if(experts, [](const ConfigRow& row) {
    return row.field == ConfigField{plan_part<&P::cuda_graphs>};
  });
  add_rows(format, std::move(experts));
  format.rows.push_back(cuda_graphs_row());
  return format;
}

}  // namespace

ConfigFormat torchtitan_format() {
  return recipe_format(
      {"torchtitan", "torchtitan", "v0.3.0 (2026-09-03)", "training.seq_len", add_release_settings},
      titan_batch_rows());
}

ConfigFormat torchtitan_main_format() {
  return recipe_format({"torchtitan-main", "torchtitan (main)", "b5bcd76c (2026-08-21)",
                        "training.max_context_length", add_main_settings},
                       main_batch_rows());
}

}  // namespace echelon
