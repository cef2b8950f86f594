// torchtitan's last release with TOML files.
#include "core/base/saturated_product.hpp"
#include "interop/configs/rows.hpp"

namespace echelon {

namespace {

using P = ParallelPlan;

/// With a pipeline the local batch holds all microbatches of a step.
void write_batch(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  const P& plan = config.plan;
  const std::int64_t local =
      plan.pp == 1 ? plan.microbatch : config.global_batch / std::max(1, plan.dp);
  write_number(out, row.keys[0], local);
  if (plan.pp > 1) write_number(out, row.keys[1], plan.microbatch);
}

MaybeValue read_microbatch(const ConfigRow& row, const ConfigReading& reading) {
  const bool pipeline = reading.config.plan.pp > 1;
  const ConfigEntry* entry = reading.find(row.keys[pipeline ? 1 : 0]);
  if (entry != nullptr) {
    return std::optional(ReadValue{entry->value.text, Origin::found, reading.place(*entry)});
  }
  return std::optional(ReadValue{pipeline ? "1" : "8", Origin::assumed, "default of torchtitan"});
}

MaybeValue read_titan_batch(const ConfigRow& row, const ConfigReading& reading) {
  const Result<std::optional<int>> local = number_at(reading, row.keys[1]);
  if (!local) return local.error();
  const ConfigEntry* stated = reading.find(row.keys[0]);
  if ((stated == nullptr || stated->value.text == "-1") && reading.config.plan.pp > 1 &&
      reading.knows(plan_part<&P::dp>)) {
    return std::optional(derived(saturated_product({local->value_or(8), reading.config.plan.dp}),
                                 "local batch x dp"));
  }
  ConfigRow batch = row;
  batch.keys = {row.keys[0]};
  return read_global_batch(batch, reading);
}

/// Source: torchtitan v0.2.2, torchtitan/config/job_config.py, expert_parallel_comm_backend.
void write_backend(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  if (config.plan.dispatcher == Dispatcher::deepep) out.set(row.keys[0], quoted("deepep"));
}

MaybeValue read_backend(const ConfigRow& row, const ConfigReading& reading) {
  const ConfigEntry* backend = reading.find(row.keys[0]);
  if (backend == nullptr) return std::optional(derived("alltoall", "torchtitan's default"));
  const std::string& text = backend->value.first().text;
  return std::optional(
      ReadValue{text == "standard" ? "alltoall" : text, Origin::found, reading.place(*backend)});
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

}  // namespace

ConfigFormat torchtitan_format() {
  ConfigFormat format{
      .name = "torchtitan",
      .title = "torchtitan",
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
              fixed(&RunConfig::packed_documents, "false"),
              fixed(&RunConfig::adapters, "none"),
          },
      .fill_in = {{"model.hf_assets_path", "path of the tokenizer"},
                  {"training.dataset", "data set"},
                  {"training.steps", "number of steps"},
                  {"optimizer.lr", "learning rate"}},
      .unpriced = {{"training.enable_cpu_offload"},
                   {"training.dtype", "float32"},
                   {"model.converters"},
                   {"compile.enable", "", "compiled models"}},
  };
  add_rows(format, titan_degree_rows());
  add_rows(
      format,
      {
          plain(plan_part<&P::etp>, {"parallelism.expert_tensor_parallel_degree"}, "1"),
          computed(plan_part<&P::cp_comm>, {"parallelism.context_parallel_rotate_method"},
                   write_rotation, read_rotation),
          follows(plan_part<&P::dp>, dp_of_gpus),
          computed(plan_part<&P::microbatch>,
                   {"training.local_batch_size", "parallelism.pipeline_parallel_microbatch_size"},
                   write_batch, read_microbatch),
          computed(
              &RunConfig::global_batch, {"training.global_batch_size", "training.local_batch_size"},
              [](const ConfigRow& row, const RunConfig& c, ConfigDocument& out) {
                write_number(out, row.keys[0], c.global_batch);
              },
              read_titan_batch),
      });
  add_rows(format, titan_layout_rows(write_titan_modules));
  add_rows(format, {
                       choice(plan_part<&P::recompute>,
                              {{"none", {{"activation_checkpoint.mode", "none", true}}},
                               {"full", {{"activation_checkpoint.mode", "full", true}}},
                               {"selective",
                                {{"activation_checkpoint.mode", "selective", true},
                                 {"activation_checkpoint.selective_ac_option", "op", true}}},
                               {"selective", {{"activation_checkpoint.mode", "selective"}}},
                               {"selective", {}}}),
                   });
  add_rows(format, titan_end_rows("parallelism.enable_async_tensor_parallel"));
  add_rows(format, without_expert_rows(computed(plan_part<&P::dispatcher>,
                                                {"parallelism.expert_parallel_comm_backend"},
                                                write_backend, read_backend)));
  return format;
}

}  // namespace echelon
