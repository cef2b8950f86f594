// torchtitan's last release with TOML files.
#include <fmt/format.h>

#include "core/framework/model_features.hpp"
#include "interop/configs/import.hpp"
#include "interop/configs/rows.hpp"

namespace echelon {

namespace {

using P = ParallelPlan;

/// Source: torchtitan v0.2.2, torchtitan/config/job_config.py, expert_parallel_comm_backend.
void write_backend(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  if (config.plan.dispatcher == Dispatcher::deepep) out.set(row.keys[0], quoted("deepep"));
}

/// Keys and values go around by alltoall; allgather, the default, gathers them all before
/// attention. Source: torchtitan v0.2.2, torchtitan/config/job_config.py:446.
void write_rotation(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  if (config.plan.cp > 1) out.set(row.keys[0], quoted("alltoall"));
}

MaybeValue read_rotation(const ConfigRow& row, const ConfigReading& reading) {
  const ConfigEntry* method = reading.find(row.keys[0]);
  const bool rotates = method != nullptr && method->value.text == "alltoall";
  if (rotates || reading.config.plan.cp == 1) return std::optional(derived("p2p", "torchtitan"));
  return std::optional(derived("p2p", "allgather of keys and values, priced as alltoall"));
}

/// What this release lacks of a degree above 1 of such a model, and later ones have. Source:
/// torchtitan v0.2.2, torchtitan/models/__init__.py; pipelining_fn in models/qwen3/__init__.py:199
/// and models/gpt_oss/__init__.py:85; models/gpt_oss/model/args.py:89;
/// models/deepseek_v3/model/args.py:104.
std::string_view lacking(const ConfigField& degree, const ModelSpec& m) {
  if (has_delta_nets(m)) return "gated delta nets";
  if (has_gated_shared_experts(m)) return "shared experts with a gate";
  if (degree == plan_part<&P::pp> && (m.attention_sinks || m.qk_norm)) {
    return "a pipeline of GPT-OSS or Qwen3";
  }
  if (degree != plan_part<&P::cp>) return "";
  if (has_windows(m)) return "context parallelism of windows";
  return m.latent() ? "context parallelism of DeepSeek-V3" : "";
}

void write_runnable(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  const bool runs = lacking(row.field, config.model).empty();
  out.set(row.keys[0], scalar(runs ? text_of(row.field, config) : "1"));
}

/// Of its own models; those of transformers are another backend's.
MaybeValue read_runnable(const ConfigRow& row, const ConfigReading& reading) {
  const Result<std::optional<int>> degree = number_at(reading, row.keys[0]);
  if (!degree) return degree.error();
  if (!*degree) return std::optional(assumed("1", "default of torchtitan"));
  const ConfigEntry& entry = *reading.find(row.keys[0]);
  const bool own = says(reading, "model.name", "qwen3") || says(reading, "model.name", "gpt_oss") ||
                   says(reading, "model.name", "deepseek_v3");
  const std::string_view lacks = own ? lacking(row.field, reading.config.model) : "";
  if (**degree > 1 && !lacks.empty()) {
    return input_error(reading.place(entry),
                       fmt::format("{} of {}", **degree, reading.find("model.name")->value.text),
                       fmt::format("1: torchtitan v0.2.2 has no {}",
                                   lacks.substr(lacks.starts_with("a ") ? 2 : 0)));
  }
  return std::optional(ReadValue{entry.value.text, Origin::found, reading.place(entry)});
}

/// For a degree that the release cannot run, and for what follows from it.
std::string why_release_loses(const ConfigField& field, const RunConfig& config) {
  const P& plan = config.plan;
  const auto lacks = [&](const ConfigField& degree, int value) {
    return value > 1 ? lacking(degree, config.model) : std::string_view();
  };
  std::string_view what = lacks(plan_part<&P::pp>, plan.pp);
  if (what.empty()) what = lacks(plan_part<&P::cp>, plan.cp);
  if (what.empty()) what = lacks(plan_part<&P::tp>, plan.tp);
  if (what.empty()) what = lacks(plan_part<&P::ep>, plan.ep);
  const bool follows_from_it =
      field == plan_part<&P::tp> || field == plan_part<&P::cp> || field == plan_part<&P::pp> ||
      field == plan_part<&P::ep> || field == plan_part<&P::dp> || field == plan_part<&P::vpp> ||
      field == plan_part<&P::schedule> || field == plan_part<&P::layers_per_stage> ||
      field == plan_part<&P::shard_group> || field == plan_part<&P::recompute_layers> ||
      field == plan_part<&P::microbatch_group> || field == plan_part<&P::microbatch> ||
      field == plan_part<&P::overlap_pp> || field == plan_part<&P::etp> ||
      field == plan_part<&P::sequence_parallel> || field == ConfigField{&RunConfig::global_batch};
  if (field == plan_part<&P::cuda_graphs>) {
    what = "CUDA graphs";
  } else if (what.empty() || !follows_from_it) {
    return {};
  }
  return fmt::format(
      "{}, which releases with TOML files do not have; later ones (format "
      "torchtitan) do",
      what);
}

std::vector<ConfigRow> runnable_degree_rows() {
  std::vector<ConfigRow> rows = titan_degree_rows();
  for (ConfigRow& row : rows) {
    row.write = write_runnable;
    row.read = read_runnable;
  }
  return rows;
}

/// Attention of its DeepSeek-V3 stays within documents; that of its other models does not. Source:
/// torchtitan v0.2.2, torchtitan/models/deepseek_v3/__init__.py:154, attn_mask_type.
MaybeValue read_documents(const ConfigRow&, const ConfigReading& reading) {
  const bool masks = says(reading, "model.name", "deepseek_v3");
  return std::optional(masks ? derived("true", "attn_mask_type block_causal of deepseek_v3")
                             : derived("false", "attn_mask_type causal"));
}

MaybeValue read_titan_recompute(const ConfigRow& row, const ConfigReading& reading) {
  if (reading.find("activation_checkpoint.mode") != nullptr) return read_choice(row, reading);
  return std::optional(assumed("selective", "default of torchtitan"));
}

/// Selective recomputation is of every 2nd layer unless the file says "op". Source: torchtitan
/// v0.2.2, torchtitan/config/job_config.py:652-655.
void add_every_second(const ConfigReading& reading, std::vector<std::string>& out) {
  constexpr std::string_view kMode = "activation_checkpoint.mode";
  const ConfigEntry* option = reading.find("activation_checkpoint.selective_ac_option");
  const bool selective = reading.find(kMode) == nullptr || says(reading, kMode, "selective");
  if (!selective || (option != nullptr && option->value.text == "op")) return;
  const std::string every = option == nullptr ? "2" : option->value.text;
  out.push_back(fmt::format(
      "{}, which recomputes one of every {} layers fully: priced is recomputation per operator "
      "(\"op\")",
      option == nullptr ? "activation_checkpoint.selective_ac_option is \"2\" by default"
                        : reading.place(*option) + " = " + every,
      every));
}

}  // namespace

ConfigFormat torchtitan_toml_format() {
  ConfigFormat format{
      .name = "torchtitan-toml",
      .title = "torchtitan (TOML)",
      .version = "v0.2.2 (2026-02-20), the last release with TOML files",
      .source = "torchtitan/config/job_config.py",
      .syntax = ConfigSyntax::toml,
      .program = "-m torchtitan.train --job.config_file FILE",
      .usage = "torchrun … -m torchtitan.train --job.config_file FILE",
      .rows =
          {
              // Priced are compiled models; overlapped tensor parallelism needs the compiler.
              choice(
                  &RunConfig::framework,
                  {{"torchtitan", {{"compile.enable", "true", false, true}}}, {"torchtitan", {}}}),
              choice(&RunConfig::model_name,
                     {{"llama3-8b", {{"model.name", "llama3"}, {"model.flavor", "8B"}}},
                      {"llama3-70b", {{"model.name", "llama3"}, {"model.flavor", "70B"}}},
                      {"llama3.1-8b", {{"model.name", "llama3"}, {"model.flavor", "8B"}}},
                      {"llama3.1-70b", {{"model.name", "llama3"}, {"model.flavor", "70B"}}},
                      {"llama3.1-405b", {{"model.name", "llama3"}, {"model.flavor", "405B"}}},
                      {"gpt-oss-20b", {{"model.name", "gpt_oss"}, {"model.flavor", "20b"}}},
                      {"gpt-oss-120b", {{"model.name", "gpt_oss"}, {"model.flavor", "120b"}}},
                      {"deepseek-v3", {{"model.name", "deepseek_v3"}, {"model.flavor", "671B"}}},
                      {"qwen3-0.6b", {{"model.name", "qwen3"}, {"model.flavor", "0.6B"}}},
                      {"qwen3-1.7b", {{"model.name", "qwen3"}, {"model.flavor", "1.7B"}}},
                      {"qwen3-4b", {{"model.name", "qwen3"}, {"model.flavor", "4B"}}},
                      {"qwen3-30b-a3b", {{"model.name", "qwen3"}, {"model.flavor", "30B-A3B"}}},
                      {"qwen3-235b-a22b", {{"model.name", "qwen3"}, {"model.flavor", "235B-A22B"}}},
                      {"qwen3-8b", {{"model.name", "qwen3"}, {"model.flavor", "8B"}}},
                      {"qwen3-14b", {{"model.name", "qwen3"}, {"model.flavor", "14B"}}},
                      {"qwen3-32b", {{"model.name", "qwen3"}, {"model.flavor", "32B"}}}}),
              elsewhere(&RunConfig::gpus, "torchrun --nproc_per_node and --nnodes"),
              plain(&RunConfig::sequence, {"training.seq_len"}, "2048"),
              choice(&RunConfig::precision,
                     {{"bf16:fsdp-fp32-shards",
                       {{"training.mixed_precision_param", "bfloat16", true}}},
                      {"bf16:fsdp-fp32-shards", {}},
                      {"fp32", {{"training.mixed_precision_param", "float32", true}}}}),
              fixed(&RunConfig::flash_attention, "true"),
              follows(&RunConfig::packed_documents, read_documents),
              fixed(&RunConfig::adapters, "none"),
              fixed(&RunConfig::quantized, "none"),
          },
      .fill_in = {{"model.hf_assets_path", "path of the tokenizer"},
                  {"training.dataset", "data set"},
                  {"training.steps", "number of steps"},
                  {"optimizer.lr", "learning rate"}},
      .unpriced = {{"training.enable_cpu_offload", "", "", "the offload of parameters"},
                   {"training.dtype", "float32", "", "weights of 16 bits alone"},
                   {"model.converters"},
                   {"compile.enable", "", "compiled models"}},
      .also_unpriced = add_every_second,
      .useless_remarks = "torchtitan v0.3.0 ",
      .why_lost = why_release_loses,
  };
  add_rows(format, runnable_degree_rows());
  add_rows(format,
           {
               plain(plan_part<&P::etp>, {"parallelism.expert_tensor_parallel_degree"}, "1"),
               computed(plan_part<&P::cp_comm>, {"parallelism.context_parallel_rotate_method"},
                        write_rotation, read_rotation),
               follows(plan_part<&P::dp>, dp_of_gpus),
           });
  add_rows(format, titan_batch_rows());
  add_rows(format, titan_layout_rows(write_titan_modules));
  ConfigRow recompute = choice(plan_part<&P::recompute>,
                               {{"none", {{"activation_checkpoint.mode", "none", true}}},
                                {"full", {{"activation_checkpoint.mode", "full", true}}},
                                {"selective",
                                 {{"activation_checkpoint.mode", "selective", true},
                                  {"activation_checkpoint.selective_ac_option", "op", true}}},
                                {"selective", {{"activation_checkpoint.mode", "selective"}}}});
  recompute.read = read_titan_recompute;
  format.rows.push_back(std::move(recompute));
  add_rows(format, titan_end_rows("parallelism.enable_async_tensor_parallel"));
  add_rows(format, without_expert_rows(computed(plan_part<&P::dispatcher>,
                                                {"parallelism.expert_parallel_comm_backend"},
                                                write_backend, read_titan_dispatcher)));
  return format;
}

}  // namespace echelon
