// torchtitan's rows: its last release with TOML files, and its Python recipes.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/base/saturated_product.hpp"
#include "interop/configs/import.hpp"
#include "interop/configs/rows.hpp"

namespace echelon {

using P = ParallelPlan;

namespace {

// Shards over dp_shard x cp; replicas over the rest of dp.
void write_titan_group(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  const P& plan = config.plan;
  const int group = plan.zero == 0 ? 1 : plan.shard_group / std::max(1, plan.cp);
  write_number(out, row.keys[0], std::max(1, plan.dp / std::max(1, group)));
  write_number(out, row.keys[1], std::max(1, group));
}

MaybeValue read_titan_group(const ConfigRow& row, const ConfigReading& reading) {
  const P& plan = reading.config.plan;
  const Result<std::optional<int>> replicas = number_at(reading, row.keys[0]);
  if (!replicas) return replicas.error();
  if (plan.zero == 0 || replicas->value_or(1) == 1) return whole_zero_group(row, reading);
  if (**replicas <= 0 || plan.dp % **replicas != 0) {
    return input_error(reading.document.name, fmt::format("{} replicas", **replicas),
                       fmt::format("a divisor of dp {}", plan.dp));
  }
  return std::optional(derived(std::int64_t{plan.dp} / **replicas * plan.cp, "dp_shard x cp"));
}

/// ZeRO-3 reshards after the forward, ZeRO-2 does not; DDP shards nothing.
MaybeValue read_titan_zero(const ConfigRow& row, const ConfigReading& reading) {
  const P& plan = reading.config.plan;
  const ConfigEntry* shards = reading.find(row.keys[1]);
  const ConfigEntry* reshard = reading.find(row.keys[0]);
  const Result<std::optional<int>> replicas = number_at(reading, row.keys[2]);
  if (!replicas) return replicas.error();
  const bool all_replicas = replicas->value_or(1) == plan.dp;
  const bool unsharded =
      shards != nullptr ? shards->value.text == "1" || (shards->value.text == "-1" && all_replicas)
                        : all_replicas;
  if (unsharded && plan.cp == 1) {
    return std::optional(derived(0, "data_parallel_shard_degree 1: DDP"));
  }
  const std::string policy = reshard != nullptr ? reshard->value.text : "default";
  if (policy == "always")
    return std::optional(ReadValue{"3", Origin::found, reading.place(*reshard)});
  if (policy == "never")
    return std::optional(ReadValue{"2", Origin::found, reading.place(*reshard)});
  if (policy != "default") {
    return input_error(reading.place(*reshard), policy, "default, always or never");
  }
  return std::optional(derived(plan.pp == 1 ? 3 : 2, "fsdp_reshard_after_forward: default"));
}

void write_titan_zero(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  if (config.plan.zero >= 2) {
    out.set(row.keys[0], quoted(config.plan.zero == 3 ? "always" : "never"));
  }
}

/// The rank that holds a stage: DualPipeV's second chunks run back. Source: torchtitan v0.2.2,
/// torchtitan/distributed/pipeline_parallel.py:440 (style "v").
int rank_of_stage(const P& plan, int stage) {
  const bool back = plan.schedule == ScheduleKind::dualpipe_v && stage >= plan.pp;
  return back ? 2 * plan.pp - 1 - stage : stage % plan.pp;
}

/// Modules of each stage, in the order of the model.
void write_modules_of_chunks(const ConfigRow& row, const RunConfig& config, std::string_view head,
                             ConfigDocument& out) {
  const P& plan = config.plan;
  if (plan.pp == 1) return;
  ConfigValue parts;
  parts.is_list = true;
  int layer = 0;
  const int stages = plan.pp * plan.vpp;
  for (int stage = 0; stage < stages; ++stage) {
    ConfigValue part;
    part.is_list = true;
    if (stage == 0) part.items.push_back(quoted("tok_embeddings"));
    const int layers = layers_in_chunk(plan, rank_of_stage(plan, stage), stage / plan.pp);
    for (int i = 0; i < layers; ++i) {
      part.items.push_back(quoted(fmt::format("layers.{}", layer++)));
    }
    if (stage == stages - 1) {
      part.items.push_back(quoted("norm"));
      part.items.push_back(quoted(std::string(head)));
    }
    parts.items.push_back(std::move(part));
  }
  out.set(row.keys[0], std::move(parts));
}

/// Source: torchtitan v0.2.2, torchtitan/distributed/pipeline_parallel.py,
/// generate_llm_fqn_per_model_part: layers, embedding and head are dealt one by one.
std::vector<int> dealt_chunks(int layers, int first_less, int last_less, int chunks) {
  std::vector<int> out;
  const int items = layers + first_less + last_less;
  for (int i = 0; i < chunks; ++i) {
    int each = items / chunks + (i < items % chunks ? 1 : 0);
    if (i == 0) each -= first_less;
    if (i == chunks - 1) each -= last_less;
    out.push_back(std::max(0, each));
  }
  return out;
}

MaybeValue read_titan_modules(const ConfigRow& row, const ConfigReading& reading) {
  const RunConfig& config = reading.config;
  const int pp = config.plan.pp;
  if (config.model.layers <= 0 || pp < 1 || pp > 10'000) return std::optional<ReadValue>{};
  std::vector<int> chunks;
  const ConfigEntry* modules = reading.find(row.keys[0]);
  if (modules != nullptr && modules->value.is_list && !modules->value.items.empty()) {
    for (const ConfigValue& part : modules->value.items) {
      chunks.push_back(static_cast<int>(std::ranges::count_if(
          part.items, [](const ConfigValue& item) { return item.text.starts_with("layers."); })));
    }
  } else {
    const Result<std::optional<int>> first = number_at(reading, row.keys[1]);
    const Result<std::optional<int>> last = number_at(reading, row.keys[2]);
    if (!first) return first.error();
    if (!last) return last.error();
    const int vpp = std::clamp(config.plan.vpp, 1, 1000);
    chunks = pp == 1 ? std::vector<int>{config.model.layers}
                     : dealt_chunks(config.model.layers, first->value_or(1), last->value_or(1),
                                    pp * vpp);
  }
  std::vector<int> stages(static_cast<std::size_t>(pp), 0);
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    const int rank = rank_of_stage(config.plan, static_cast<int>(i));
    if (rank >= 0) stages[static_cast<std::size_t>(rank)] += chunks[i];
  }
  return std::optional(
      derived(fmt::format("{}", fmt::join(stages, ",")),
              modules != nullptr ? reading.place(*modules) : "torchtitan's split"));
}

MaybeValue read_titan_vpp(const ConfigRow& row, const ConfigReading& reading) {
  const P& plan = reading.config.plan;
  const ConfigEntry* modules = reading.find(row.keys[0]);
  if (modules != nullptr && !modules->value.items.empty()) {
    return std::optional(
        derived(static_cast<std::int64_t>(modules->value.items.size()) / std::max(1, plan.pp),
                reading.place(*modules)));
  }
  const Result<std::optional<int>> layers = number_at(reading, row.keys[1]);
  if (!layers) return layers.error();
  const bool interleaved = plan.schedule == ScheduleKind::interleaved;
  if (*layers && **layers > 0 && interleaved && plan.pp > 0) {
    const int items = reading.config.model.layers + 2;
    const int stages = (items + **layers - 1) / **layers;
    return std::optional(derived(std::max(1, stages / plan.pp), "layers of a stage"));
  }
  return std::optional(derived(interleaved && plan.pp > 1 ? 2 : 1, "the schedule"));
}

/// A pipeline of one stage has none, whatever the file names: torchtitan's own for DeepSeek-V3 do.
MaybeValue read_titan_schedule(const ConfigRow& row, const ConfigReading& reading) {
  if (reading.config.plan.pp == 1) return std::optional(derived("1f1b", "one stage"));
  return read_choice(row, reading);
}

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

}  // namespace

void write_titan_modules(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  write_modules_of_chunks(row, config, "output", out);
}

void write_titan_recipe_modules(const ConfigRow& row, const RunConfig& config,
                                ConfigDocument& out) {
  write_modules_of_chunks(row, config, "lm_head", out);
}

MaybeValue read_titan_dispatcher(const ConfigRow& row, const ConfigReading& reading) {
  const ConfigEntry* backend = reading.find(row.keys[0]);
  if (backend == nullptr) return std::optional(derived("alltoall", "torchtitan's default"));
  const std::string& text = backend->value.first().text;
  return std::optional(
      ReadValue{text == "standard" ? "alltoall" : text, Origin::found, reading.place(*backend)});
}

std::vector<ConfigRow> titan_degree_rows() {
  return {
      plain(plan_part<&P::tp>, {"parallelism.tensor_parallel_degree"}, "1"),
      plain(plan_part<&P::cp>, {"parallelism.context_parallel_degree"}, "1"),
      plain(plan_part<&P::pp>, {"parallelism.pipeline_parallel_degree"}, "1"),
      plain(plan_part<&P::ep>, {"parallelism.expert_parallel_degree"}, "1"),
  };
}

std::vector<ConfigRow> titan_layout_rows(void (*write_modules)(const ConfigRow&, const RunConfig&,
                                                               ConfigDocument&)) {
  ConfigRow schedule = choice(
      plan_part<&P::schedule>,
      {{"1f1b", {{"parallelism.pipeline_parallel_schedule", "1F1B", true}}},
       {"interleaved", {{"parallelism.pipeline_parallel_schedule", "Interleaved1F1B", true}}},
       {"gpipe", {{"parallelism.pipeline_parallel_schedule", "GPipe", true}}},
       {"dualpipev", {{"parallelism.pipeline_parallel_schedule", "DualPipeV", true}}},
       {"1f1b", {}}});
  schedule.read = read_titan_schedule;
  return {
      std::move(schedule),
      computed(
          plan_part<&P::vpp>,
          {"parallelism.module_fqns_per_model_part",
           "parallelism.pipeline_parallel_layers_per_stage"},
          [](const ConfigRow&, const RunConfig&, ConfigDocument&) {}, read_titan_vpp),
      follows(plan_part<&P::microbatch_group>, group_of_vpp),
      computed(plan_part<&P::layers_per_stage>,
               {"parallelism.module_fqns_per_model_part",
                "parallelism.pipeline_parallel_first_stage_less_layers",
                "parallelism.pipeline_parallel_last_stage_less_layers"},
               write_modules, read_titan_modules),
      computed(plan_part<&P::zero>,
               {"parallelism.fsdp_reshard_after_forward", "parallelism.data_parallel_shard_degree",
                "parallelism.data_parallel_replicate_degree"},
               write_titan_zero, read_titan_zero),
      computed(
          plan_part<&P::shard_group>,
          {"parallelism.data_parallel_replicate_degree", "parallelism.data_parallel_shard_degree"},
          write_titan_group, read_titan_group),
      follows(plan_part<&P::sequence_parallel>, sequence_parallel_of_tp),
  };
}

std::vector<ConfigRow> titan_batch_rows() {
  return {
      computed(plan_part<&P::microbatch>,
               {"training.local_batch_size", "parallelism.pipeline_parallel_microbatch_size"},
               write_batch, read_microbatch),
      computed(
          &RunConfig::global_batch, {"training.global_batch_size", "training.local_batch_size"},
          [](const ConfigRow& row, const RunConfig& c, ConfigDocument& out) {
            write_number(out, row.keys[0], c.global_batch);
          },
          read_titan_batch),
  };
}

std::vector<ConfigRow> titan_end_rows(std::string_view async_tp) {
  return {
      follows(plan_part<&P::recompute_layers>, recompute_all),
      follows(plan_part<&P::selective_layers>, no_layers),
      fixed(plan_part<&P::rank_order>, "tp-cp-ep-dp-pp"),
      fixed(plan_part<&P::offload_optimizer>, "0"),
      fixed(plan_part<&P::overlap_dp>, "true"),
      choice(plan_part<&P::overlap_tp>, {{"true", {{async_tp, "true"}}}, {"false", {}}}),
      follows(plan_part<&P::overlap_pp>, overlap_of_interleaving),
      follows(plan_part<&P::bucket>, no_layers),
  };
}

}  // namespace echelon
