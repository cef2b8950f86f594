// nanotron's YAML.
#include <algorithm>
#include <cmath>

#include "interop/configs/import.hpp"
#include "interop/configs/rows.hpp"

namespace echelon {

namespace {

using P = ParallelPlan;
using M = ModelSpec;

constexpr double kMebibyte = 1 << 20;  // DDP's bucket_cap_mb

/// A number that YAML's parser of Python takes for a float: 1.0e-05, 500000.0.
void write_real(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  if (!config.model.constants) return;
  std::string text = text_of(row.field, config);
  if (text.find('.') == std::string::npos) text.insert(std::min(text.find('e'), text.size()), ".0");
  out.set(row.keys[0], scalar(text));
}

ConfigRow real(ConfigField field, std::string_view key, std::string_view usual) {
  ConfigRow row = plain(field, {key}, usual);
  row.write = write_real;
  return row;
}

void write_megabytes(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  if (config.plan.bucket) {
    write_number(out, row.keys[0], std::llround(config.plan.bucket->in(kByte) / kMebibyte));
  }
}

MaybeValue read_megabytes(const ConfigRow& row, const ConfigReading& reading) {
  constexpr int kUsual = 25;
  const Result<std::optional<int>> megabytes = number_at(reading, row.keys[0]);
  if (!megabytes) return megabytes.error();
  const std::string unused = why_bucket_is_unused(reading);
  if (!unused.empty()) return std::optional(derived("", unused));
  if (megabytes->value_or(kUsual) == kUsual) {
    return std::optional(derived("", "25 MiB, the framework's own bucket size"));
  }
  return std::optional(derived(std::llround(**megabytes * kMebibyte), "ddp_bucket_cap_mb x 1 MiB"));
}

/// The interval of layers without rotary positions, which a model here does not state. Source:
/// nanotron 2411b022, src/nanotron/config/models_config.py:150 and models/qwen.py:272.
std::string why_nanotron_loses(const ConfigField& field, const RunConfig& config) {
  const bool other = field == ConfigField{&ModelConstants::other_arithmetic};
  const bool unrotated = text_of(field, config).find("without rotary") != std::string::npos;
  if (!other || !unrotated) return {};
  return "layers without rotary positions: Qwen2Config has them, every so many layers "
         "(no_rope_layer), which the model's description does not state";
}

/// One rank has nothing to scatter: nanotron's own example with experts asks for it with tp 1.
MaybeValue with_several_ranks(const ConfigRow& row, const ConfigReading& reading) {
  if (reading.config.plan.tp == 1) return std::optional(derived("false", "tp 1"));
  return read_choice(row, reading);
}

ConfigRow of_tensor_parallelism(ConfigRow row) {
  row.read = with_several_ranks;
  return row;
}

}  // namespace

ConfigFormat nanotron_format() {
  ConfigFormat format{
      .name = "nanotron",
      .title = "nanotron",
      .version = "2411b022",
      .source = "src/nanotron/config",
      .syntax = ConfigSyntax::yaml,
      .program = "run_train.py --config-file FILE",
      .usage = "torchrun … run_train.py --config-file FILE",
      .rows =
          {
              fixed(&M::normalization, "rms_norm"),
              fixed(&M::gated_mlp, "true"),
              fixed(&M::activation, "silu"),
              fixed(&M::position, "rope"),
              plain(&M::layers, {"model.model_config.num_hidden_layers"}),
              plain(&M::hidden, {"model.model_config.hidden_size"}),
              plain(&M::heads, {"model.model_config.num_attention_heads"}),
              plain(&M::kv_heads, {"model.model_config.num_key_value_heads"}),
              plain(&M::ffn_hidden, {"model.model_config.intermediate_size"}),
              plain(&M::vocab, {"model.model_config.vocab_size"}),
              computed(&M::max_positions, {"model.model_config.max_position_embeddings"},
                       write_context,
                       [](const ConfigRow& row, const ConfigReading& reading) -> MaybeValue {
                         return found_or(reading, row.keys[0], "2048");
                       }),
              real(&ModelConstants::norm_epsilon, "model.model_config.rms_norm_eps", "1e-06"),
              real(&RotaryEmbedding::theta, "model.model_config.rope_theta", "10000"),
              choice(&M::tied_embeddings,
                     {{"true", {{"model.model_config.tie_word_embeddings", "true"}}},
                      {"false", {{"model.model_config.tie_word_embeddings", "false"}}},
                      {"false", {}}}),
              follows(&M::head_dim, head_dim_of_heads),
              choice(&RunConfig::framework,
                     {{"nanotron",
                       {{"optimizer.optimizer_factory.name", "adamW", false, true},
                        {"optimizer.optimizer_factory.torch_adam_is_fused", "true", false, true}}},
                      {"nanotron", {}}}),
              fixed(&RunConfig::flash_attention, "true"),
              fixed(&RunConfig::adapters, "none"),
              fixed(&RunConfig::quantized, "none"),
              choice(&RunConfig::packed_documents,
                     {{"true", {{"model.model_config._use_doc_masking", "true"}}},
                      {"false", {{"model.model_config._use_doc_masking", "false"}}},
                      {"false", {}}}),
              plain(&RunConfig::sequence, {"tokens.sequence_length"}),
              choice(
                  &RunConfig::precision,
                  {{"bf16:nanotron",
                    {{"model.dtype", "bfloat16"}, {"optimizer.accumulate_grad_in_fp32", "true"}}},
                   {"fp32",
                    {{"model.dtype", "float32"},
                     {"optimizer.accumulate_grad_in_fp32", "false", false, true}}}}),
              plain(plan_part<&P::tp>, {"parallelism.tp"}),
              plain(plan_part<&P::cp>, {"parallelism.context_parallel_size"}, "1"),
              plain(plan_part<&P::pp>, {"parallelism.pp"}),
              plain(plan_part<&P::dp>, {"parallelism.dp"}),
              plain(plan_part<&P::ep>, {"parallelism.expert_parallel_size"}, "1"),
              fixed(plan_part<&P::etp>, "1"),
              fixed(plan_part<&P::cp_comm>, "p2p"),
              follows(&RunConfig::gpus,
                      [](const ConfigRow&, const ConfigReading& reading) -> MaybeValue {
                        return std::optional(
                            derived(reading.config.plan.gpus(), "dp x tp x pp x cp"));
                      }),
              plain(plan_part<&P::microbatch>, {"tokens.micro_batch_size"}),
              computed(&RunConfig::global_batch, {"tokens.batch_accumulation_per_replica"},
                       write_accumulation, read_accumulation),
              fixed(plan_part<&P::vpp>, "1"),
              choice(plan_part<&P::schedule>, {{"1f1b", {{"parallelism.pp_engine", "1f1b"}}},
                                               {"gpipe", {{"parallelism.pp_engine", "afab"}}},
                                               {"gpipe", {}}}),
              follows(plan_part<&P::microbatch_group>, group_of_vpp),
              follows(plan_part<&P::layers_per_stage>, dealt_stages),
              plain(plan_part<&P::zero>, {"optimizer.zero_stage"}, "0"),
              follows(plan_part<&P::shard_group>, whole_zero_group),
              of_tensor_parallelism(choice(plan_part<&P::sequence_parallel>,
                                           {{"true", {{"parallelism.tp_mode", "REDUCE_SCATTER"}}},
                                            {"false", {{"parallelism.tp_mode", "ALL_REDUCE"}}},
                                            {"false", {}}})),
              choice(plan_part<&P::recompute>,
                     {{"full", {{"parallelism.recompute_layer", "true"}}}, {"none", {}}}),
              follows(plan_part<&P::recompute_layers>, recompute_all),
              follows(plan_part<&P::selective_layers>, no_layers),
              fixed(plan_part<&P::rank_order>, "tp-cp-ep-dp-pp"),
              fixed(plan_part<&P::offload_optimizer>, "0"),
              fixed(plan_part<&P::overlap_dp>, "true"),
              of_tensor_parallelism(
                  choice(plan_part<&P::overlap_tp>,
                         {{"true", {{"parallelism.tp_linear_async_communication", "true"}}},
                          {"false", {{"parallelism.tp_linear_async_communication", "false"}}},
                          {"false", {}}})),
              follows(plan_part<&P::overlap_pp>, overlap_of_interleaving),
              computed(plan_part<&P::bucket>, {"model.ddp_bucket_cap_mb"}, write_megabytes,
                       read_megabytes),
          },
      .fill_in = {{"tokens.train_steps", "number of steps"},
                  {"tokenizer.tokenizer_name_or_path", "tokenizer"},
                  {"optimizer.learning_rate_scheduler.learning_rate", "learning rate"},
                  {"optimizer.learning_rate_scheduler.lr_warmup_style", "linear or constant"},
                  {"optimizer.weight_decay", "weight decay"},
                  {"optimizer.clip_grad", "largest norm of the gradient"},
                  {"optimizer.optimizer_factory.adam_beta1", "of AdamW, for example 0.9"},
                  {"optimizer.optimizer_factory.adam_beta2", "of AdamW, for example 0.95"},
                  {"optimizer.optimizer_factory.adam_eps", "of AdamW, for example 1.0e-8"},
                  {"model.init_method.std", "spread of initial weights, for example 0.02"},
                  {"checkpoints.checkpoints_path", "folder of the checkpoints"},
                  {"checkpoints.checkpoint_interval", "steps between checkpoints"},
                  {"data_stages", "list of data sets: see nanotron's examples"},
                  {"general.project", "name of the project"}},
      .unread_parts = {{"model.model_config.moe_config", "experts"},
                       {"model.model_config.moe_num_experts", "experts"},
                       {"model.model_config.sliding_window_size", "windowed attention"},
                       {"model.model_config.no_rope_layer", "layers without rotary positions"}},
      .why_lost = why_nanotron_loses,
  };
  add_rows(format, without_expert_rows());
  return format;
}

}  // namespace echelon
