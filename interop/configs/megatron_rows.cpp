// Rows of Megatron-LM and its descendants: layouts, chunks, recomputed layers, buckets.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/expects.hpp"
#include "core/base/text.hpp"
#include "core/framework/framework.hpp"
#include "core/framework/stage_layers.hpp"
#include "core/plan/job.hpp"
#include "interop/configs/rows.hpp"
#include "planner/space/legality.hpp"

namespace echelon {

namespace {

using P = ParallelPlan;

std::string numbers_text(const std::vector<int>& values) {
  return fmt::format("{}", fmt::join(values, ","));
}

/// Chunks of equal layers, in the order of the model.
bool equal_chunks(const P& plan) {
  for (int chunk = 0; chunk < plan.vpp; ++chunk) {
    for (int rank = 0; rank < plan.pp; ++rank) {
      if (layers_in_chunk(plan, rank, chunk) != layers_in_chunk(plan, 0, 0)) return false;
    }
  }
  return true;
}

/// Without interleaving, the stages between the first and the last are equal.
bool equal_middle(const P& plan) {
  if (plan.vpp > 1 || plan.pp < 3) return false;
  const auto& stages = plan.layers_per_stage;
  return std::ranges::all_of(stages.begin() + 1, stages.end() - 1,
                             [&](int layers) { return layers == stages[1]; });
}

/// A plan says how many layers a rank has, and balances its chunks.
std::string chunks_remark(P plan, const std::vector<int>& stages, const std::vector<int>& chunks) {
  plan.layers_per_stage = stages;
  if (chunks.size() != stages.size() * static_cast<std::size_t>(std::max(1, plan.vpp))) return {};
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    const int rank = static_cast<int>(i % stages.size());
    const int chunk = static_cast<int>(i / stages.size());
    if (layers_in_chunk(plan, rank, chunk) != chunks[i]) {
      return ": chunks priced as balanced, unlike those of the layout";
    }
  }
  return {};
}

Result<std::vector<int>> chunks_at(const ConfigReading& reading, const ConfigEntry& entry) {
  const std::string place = reading.place(entry);
  Result<std::vector<int>> chunks = parse_megatron_layout(entry.value.joined(), place);
  if (!chunks) return chunks;
  const int pp = std::max(1, reading.config.plan.pp);
  if (chunks->size() % static_cast<std::size_t>(pp) != 0) {
    return input_error(place, fmt::format("a layout of {} stages", chunks->size()),
                       fmt::format("a multiple of pp {}", pp));
  }
  return chunks;
}

}  // namespace

void write_vpp(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  // A layout states the chunks itself, and excludes this setting.
  if (config.plan.vpp > 1 && equal_chunks(config.plan)) {
    write_number(out, row.keys[0], config.plan.vpp);
  }
}

MaybeValue read_vpp(const ConfigRow& row, const ConfigReading& reading) {
  const int pp = std::max(1, reading.config.plan.pp);
  if (const ConfigEntry* chunks = reading.find(row.keys[0])) {
    const Result<int> vpp = number_of(reading, *chunks);
    if (!vpp) return vpp.error();
    return std::optional(
        ReadValue{std::to_string(std::max(1, *vpp)), Origin::found, reading.place(*chunks)});
  }
  const ConfigEntry* layers = row.keys[1].empty() ? nullptr : reading.find(row.keys[1]);
  if (layers != nullptr) {
    const Result<int> count = number_of(reading, *layers);
    if (!count) return count.error();
    const int model_layers = reading.config.model.layers;
    if (model_layers <= 0) return std::optional<ReadValue>{};
    const std::int64_t unit = std::int64_t{*count} * pp;
    if (unit <= 0 || model_layers % unit != 0) {
      return input_error(
          reading.place(*layers),
          fmt::format("{} layers per chunk of {} layers on pp {}", *count, model_layers, pp),
          "a divisor of the layers per stage");
    }
    return std::optional(derived(model_layers / unit, reading.place(*layers)));
  }
  const ConfigEntry* layout = reading.find(row.keys[2]);
  if (layout == nullptr) return std::optional(ReadValue{"1", Origin::assumed, "the default"});
  const Result<std::vector<int>> chunks = chunks_at(reading, *layout);
  if (!chunks) return chunks.error();
  return std::optional(
      derived(static_cast<std::int64_t>(chunks->size()) / pp, reading.place(*layout)));
}

void write_stage_layers(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  const P& plan = config.plan;
  if (plan.pp == 1 || equal_chunks(plan)) return;
  if (equal_middle(plan)) {
    const int usual = plan.layers_per_stage[1];
    if (plan.layers_per_stage.front() != usual) {
      write_number(out, row.keys[1], plan.layers_per_stage.front());
    }
    if (plan.layers_per_stage.back() != usual) {
      write_number(out, row.keys[2], plan.layers_per_stage.back());
    }
    if (plan.layers_per_stage.front() > 0 && plan.layers_per_stage.back() > 0) return;
    out.entries.pop_back();  // an empty end needs a layout
    if (!out.entries.empty() && out.entries.back().key == row.keys[1]) out.entries.pop_back();
  }
  out.set(row.keys[0], quoted(megatron_layout(plan)));
}

/// Layers per rank from those of the first and the last stage, the rest equally.
static MaybeValue stages_between_ends(const ConfigRow& row, const ConfigReading& reading) {
  const RunConfig& config = reading.config;
  const int pp = config.plan.pp;
  const Result<std::optional<int>> first = number_at(reading, row.keys[1]);
  const Result<std::optional<int>> last = number_at(reading, row.keys[2]);
  if (!first) return first.error();
  if (!last) return last.error();
  const auto counted = [&](std::string_view key) {
    const ConfigEntry* entry = reading.find(key);
    return entry != nullptr && entry->value.first().text == "true" ? 1 : 0;
  };
  const int embedding = counted(row.keys[3]);
  const int loss = counted(row.keys[4]);
  const int others = pp - (*first ? 1 : 0) - (*last ? 1 : 0);
  const int rest = config.model.layers + embedding + loss - first->value_or(0) - last->value_or(0);
  if (rest < 0 || (others > 0 && rest % others != 0) || (others == 0 && rest != 0)) {
    return input_error(reading.document.name,
                       fmt::format("{} layers for {} equal stages", rest, others),
                       "a number that divides", "the stages' layers do not add up to the model's");
  }
  std::vector<int> stages(static_cast<std::size_t>(pp), others > 0 ? rest / others : 0);
  stages.front() = first->value_or(stages.front()) - embedding;
  if (pp > 1) stages.back() = last->value_or(stages.back()) - loss;
  return std::optional(derived(numbers_text(stages), "layers of the first and the last stage"));
}

MaybeValue stages_of_chunks(const ConfigReading& reading, const std::string& place,
                            const std::vector<int>& chunks) {
  const RunConfig& config = reading.config;
  std::vector<int> stages(static_cast<std::size_t>(std::max(1, config.plan.pp)), 0);
  for (std::size_t i = 0; i < chunks.size(); ++i) stages[i % stages.size()] += chunks[i];
  const int total = std::accumulate(stages.begin(), stages.end(), 0);
  if (total != config.model.layers) {
    return input_error(place, fmt::format("a layout of {} layers", total),
                       fmt::format("the model's {} layers", config.model.layers));
  }
  return std::optional(
      derived(numbers_text(stages), place + chunks_remark(config.plan, stages, chunks)));
}

MaybeValue read_stage_layers(const ConfigRow& row, const ConfigReading& reading) {
  const RunConfig& config = reading.config;
  const int pp = config.plan.pp;
  if (config.model.layers <= 0) return std::optional<ReadValue>{};
  if (pp < 1 || pp > config.model.layers + 2) {
    return input_error(reading.document.name, fmt::format("pp {}", pp),
                       fmt::format("at most the model's {} layers", config.model.layers));
  }
  if (const ConfigEntry* layout = reading.find(row.keys[0])) {
    const Result<std::vector<int>> chunks = chunks_at(reading, *layout);
    if (!chunks) return chunks.error();
    return stages_of_chunks(reading, reading.place(*layout), *chunks);
  }
  const bool embedding_apart =
      row.keys.size() > 5 && pp > 1 && reading.find(row.keys[5]) != nullptr;
  if (embedding_apart && config.model.layers % (pp - 1) == 0) {
    std::vector<int> stages(static_cast<std::size_t>(pp), config.model.layers / (pp - 1));
    stages.front() = 0;
    return std::optional(derived(numbers_text(stages), reading.place(*reading.find(row.keys[5]))));
  }
  const bool uneven = std::any_of(row.keys.begin() + 1, row.keys.end(), [&](std::string_view key) {
    const ConfigEntry* entry = reading.find(key);
    return entry != nullptr && entry->value.first().text != "false";
  });
  if (uneven) return stages_between_ends(row, reading);
  if (config.model.layers % pp != 0) {
    return input_error(reading.document.name,
                       fmt::format("{} layers on pp {}", config.model.layers, pp),
                       "layers that pp divides, or a setting for unequal stages");
  }
  return std::optional(
      derived(numbers_text(balanced_layers(config.model.layers, pp)), "layers / pp"));
}

void write_group_of_microbatches(const ConfigRow& row, const RunConfig& config,
                                 ConfigDocument& out) {
  const P& plan = config.plan;
  if (plan.vpp > 1 && plan.microbatch_group > plan.pp) {
    write_number(out, row.keys[0], plan.microbatch_group);
  }
}

void write_recompute_layers(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  const P& plan = config.plan;
  if (plan.recompute != Recompute::full || plan.recompute_layers.empty()) return;
  const int most = *std::ranges::max_element(plan.recompute_layers);
  write_number(out, row.keys[0], std::max(1, (most + plan.vpp - 1) / plan.vpp));
}

MaybeValue read_recompute_layers(const ConfigRow& row, const ConfigReading& reading) {
  const P& plan = reading.config.plan;
  if (plan.recompute != Recompute::full || plan.layers_per_stage.empty()) {
    return recompute_all(row, reading);
  }
  // Megatron-LM before 2022 called them differently.
  const bool old = row.keys.size() > 3 && reading.find(row.keys[3]) != nullptr;
  const ConfigEntry* method = reading.find(row.keys[old ? 3 : 1]);
  if (method != nullptr && method->value.first().text == "uniform") {
    return std::optional(derived(numbers_text(plan.layers_per_stage),
                                 reading.place(*method) + ": every layer is recomputed"));
  }
  const ConfigEntry* layers = reading.find(row.keys[old ? 2 : 0]);
  if (layers == nullptr) return recompute_all(row, reading);
  const Result<int> each = number_of(reading, *layers);
  if (!each) return each.error();
  std::vector<int> stages;
  for (const int most : plan.layers_per_stage) {
    stages.push_back(
        static_cast<int>(std::min<std::int64_t>(most, std::int64_t{*each} * plan.vpp)));
  }
  return std::optional(derived(numbers_text(stages), reading.place(*layers) + ": of each chunk"));
}

void write_instances(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  if (config.plan.zero > 0 && config.plan.instances() > 1) {
    write_number(out, row.keys[0], config.plan.instances());
  }
}

MaybeValue read_instances(const ConfigRow& row, const ConfigReading& reading) {
  const ConfigEntry* entry = reading.find(row.keys);
  if (entry == nullptr || reading.config.plan.zero == 0) return whole_zero_group(row, reading);
  const Result<int> instances = number_of(reading, *entry);
  if (!instances) return instances.error();
  const std::int64_t ranks = std::int64_t{reading.config.plan.dp} * reading.config.plan.cp;
  if (*instances <= 0 || ranks % *instances != 0) {
    return input_error(reading.place(*entry), fmt::format("{} instances", *instances),
                       fmt::format("a divisor of dp x cp = {}", ranks));
  }
  return std::optional(derived(ranks / *instances, reading.place(*entry)));
}

void write_bucket(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  const Result<PrecisionRecipe> recipe = find_precision(config.precision);
  if (!config.plan.bucket || !recipe) return;
  write_number(out, row.keys[0],
               std::llround(config.plan.bucket->in(kByte) / recipe->reduced_gradient));
}

std::string why_bucket_is_unused(const ConfigReading& reading) {
  const Result<Framework> framework = find_framework(reading.config.framework);
  return framework ? why_no_buckets(*framework, reading.config.plan) : "";
}

void add_unused_bucket(const ConfigReading& reading, std::vector<std::string>& out) {
  const ConfigRow* row = row_of(reading.format, plan_part<&P::bucket>);
  const ConfigEntry* entry = row == nullptr ? nullptr : reading.find(row->keys);
  const bool reduced = std::int64_t{reading.config.plan.dp} * reading.config.plan.cp > 1;
  const std::string unused = why_bucket_is_unused(reading);
  if (entry == nullptr || !reduced || unused.empty()) return;
  out.push_back(fmt::format("{} = {}: a plan has no bucket size with {}", reading.place(*entry),
                            printable(entry->value.joined()), unused));
}

MaybeValue read_bucket(const ConfigRow& row, const ConfigReading& reading) {
  const ConfigEntry* entry = reading.find(row.keys);
  const Result<PrecisionRecipe> recipe = find_precision(reading.config.precision);
  const std::string unused = why_bucket_is_unused(reading);
  if (!unused.empty()) return std::optional(derived("", unused));
  if (entry == nullptr || !recipe || entry->value.first().text == "auto") {
    return std::optional(ReadValue{"", Origin::assumed, "the framework's own bucket size"});
  }
  const Result<int> elements = number_of(reading, *entry);
  if (!elements) return elements.error();
  if (*elements == 0) return std::optional(ReadValue{"", Origin::found, reading.place(*entry)});
  return std::optional(derived(std::llround(*elements * recipe->reduced_gradient),
                               reading.place(*entry) + ", in gradients"));
}

}  // namespace echelon
