// Rows of Megatron-LM's and its descendants' recomputed modules, experts and CUDA graphs.
#include <algorithm>
#include <utility>

#include "core/base/text.hpp"
#include "core/framework/rules.hpp"
#include "interop/configs/rows.hpp"

namespace echelon {
namespace {

using P = ParallelPlan;

template <class Module>
ConfigValue list_of(const ModuleSet<Module>& modules) {
  ConfigValue list;
  list.is_list = true;
  for (const Module module : modules_of(Module{})) {
    if (modules.contains(module)) list.items.push_back(scalar(std::string(name_of(module))));
  }
  return list;
}

/// Names with blanks or commas between them; none where the entry is not asked for.
MaybeValue names_of(const ConfigEntry* entry, const ConfigReading& reading) {
  if (entry == nullptr) return std::optional(derived("", "no modules are named"));
  std::string names = entry->value.joined();
  for (char& each : names) {
    if (each == ' ') each = ',';
  }
  return std::optional(ReadValue{std::move(names), Origin::found, reading.place(*entry)});
}

void write_modules(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  if (config.plan.recompute_modules.empty()) return;
  out.set(row.keys[0], list_of(config.plan.recompute_modules));
}

MaybeValue read_modules(const ConfigRow& row, const ConfigReading& reading) {
  const bool selective = reading.config.plan.recompute == Recompute::selective;
  if (selective && row.keys.size() > 1) {
    if (const ConfigEntry* experts = reading.find(row.keys[1])) {
      return std::optional(ReadValue{"moe", Origin::found, reading.place(*experts)});
    }
  }
  return names_of(selective ? reading.find(row.keys[0]) : nullptr, reading);
}

/// Keys: switch; modules; what a graph of a whole step demands. Source: Megatron-LM core_v0.19.0,
/// megatron/core/transformer/transformer_config.py:2634.
void write_offload_modules(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  if (config.plan.offload_modules.empty()) return;
  out.set(row.keys[0], scalar("true"));
  out.set(row.keys[1], list_of(config.plan.offload_modules));
  if (config.plan.cuda_graphs == CudaGraphs::full_iteration) write_number(out, row.keys[2], 1);
}

MaybeValue read_offload_modules(const ConfigRow& row, const ConfigReading& reading) {
  const ConfigEntry* entry = reading.find(row.keys[0]);
  const bool on = entry != nullptr && lower_case(entry->value.first().text) == "true";
  return names_of(on ? reading.find(row.keys[1]) : nullptr, reading);
}

/// Keys: type; backend of type flex; the older switch for DeepEP.
void write_dispatcher(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  const P& plan = config.plan;
  if (plan.ep == 1) return;
  const bool flex =
      plan.dispatcher == Dispatcher::deepep || plan.dispatcher == Dispatcher::hybridep;
  out.set(row.keys[0], scalar(flex ? "flex" : std::string(name_of(plan.dispatcher))));
  if (flex) out.set(row.keys[1], scalar(std::string(name_of(plan.dispatcher))));
}

MaybeValue read_dispatcher(const ConfigRow& row, const ConfigReading& reading) {
  if (reading.config.plan.ep == 1) {
    return std::optional(derived("alltoall", "experts are not split"));
  }
  const ConfigEntry* type = reading.find(row.keys[0]);
  if (type == nullptr) {
    return std::optional(ReadValue{std::string(row.absent), Origin::assumed, "its default"});
  }
  const std::string& text = type->value.first().text;
  if (text == "alltoall_seq") {  // of core 0.6 to 0.11
    return std::optional(ReadValue{"alltoall", Origin::found, reading.place(*type)});
  }
  if (text != "flex") return std::optional(ReadValue{text, Origin::found, reading.place(*type)});
  const ConfigEntry* backend = reading.find(row.keys[1]);
  if (backend == nullptr) {
    return std::optional(derived("deepep", reading.place(*type) + ": the default backend of flex"));
  }
  return std::optional(
      ReadValue{backend->value.first().text, Origin::found, reading.place(*backend)});
}

/// Settings of a choice that a dense model has no use for.
void write_of_experts(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  if (config.model.moe.experts > 0) write_choice(row, config, out);
}

/// Keys: implementation; scope; two older switches; the newer name of the scope. The first case of
/// each value has what is written.
ConfigRow graphs_row(const ExpertKeys& keys) {
  std::vector<ConfigSetting> whole = {{keys.graphs, "local"}, {keys.graph_scope, "full_iteration"}};
  whole.insert(whole.end(), keys.whole_step.begin(), keys.whole_step.end());
  whole.insert(whole.end(), keys.any_graph.begin(), keys.any_graph.end());
  std::vector<ConfigSetting> layers = {{keys.graphs, "transformer_engine"}};
  layers.insert(layers.end(), keys.any_graph.begin(), keys.any_graph.end());
  ConfigRow row =
      choice(plan_part<&P::cuda_graphs>, {{"full_iteration", std::move(whole)},
                                          {"full_iteration", {{keys.graphs, "full_iteration"}}},
                                          {"layers", std::move(layers)},
                                          {"layers", {{keys.graphs, "local"}}},
                                          {"layers", {{"enable-cuda-graph", "true"}}},
                                          {"layers", {{"external-cuda-graph", "true"}}},
                                          {"none", {{keys.graphs, "none"}}},
                                          {"none", {}},
                                          {"none", {{keys.graph_scope, "*"}}}});
  row.keys = {keys.graphs, keys.graph_scope};
  row.write = [](const ConfigRow& self, const RunConfig& config, ConfigDocument& out) {
    if (config.plan.cuda_graphs == CudaGraphs::none) return;
    write_choice(self, config, out);
    if (config.plan.cuda_graphs == CudaGraphs::full_iteration) return;
    ConfigValue scope;
    scope.is_list = true;
    for (const std::string_view part : graphed_parts(config.model, config.plan)) {
      scope.items.push_back(scalar(std::string(part)));
    }
    out.set(self.keys[1], std::move(scope));
  };
  return row;
}

}  // namespace

std::vector<ConfigRow> expert_rows(const ExpertKeys& keys) {
  ConfigRow overlap =
      choice(plan_part<&P::overlap_ep>,
             {{"true", {{keys.overlap, "true"}, {keys.delay_wgrad, "true", false, true}}},
              {"false", {{keys.overlap, "false"}}},
              {"false", {}}});
  ConfigRow shared =
      choice(plan_part<&P::overlap_shared>, {{"true", {{keys.shared_overlap, "true"}}},
                                             {"false", {{keys.shared_overlap, "false"}}},
                                             {"false", {}}});
  overlap.write = shared.write = write_of_experts;
  ConfigRow dispatcher = computed(plan_part<&P::dispatcher>, {keys.dispatcher, keys.backend},
                                  write_dispatcher, read_dispatcher);
  dispatcher.absent = keys.dispatcher_default;
  std::vector<std::string_view> modules = {keys.modules};
  if (!keys.moe_recompute.empty()) modules.push_back(keys.moe_recompute);
  return {
      computed(plan_part<&P::recompute_modules>, std::move(modules), write_modules, read_modules),
      computed(plan_part<&P::offload_modules>,
               {keys.offload, keys.offload_modules, keys.offloads_in_flight}, write_offload_modules,
               read_offload_modules),
      std::move(dispatcher),
      std::move(overlap),
      std::move(shared),
      graphs_row(keys),
  };
}

std::vector<ConfigRow> without_expert_rows() {
  return without_expert_rows(fixed(plan_part<&P::dispatcher>, "alltoall"));
}

std::vector<ConfigRow> without_expert_rows(ConfigRow dispatcher) {
  return {follows(plan_part<&P::recompute_modules>, no_layers),
          follows(plan_part<&P::offload_modules>, no_layers),
          std::move(dispatcher),
          fixed(plan_part<&P::overlap_ep>, "false"),
          fixed(plan_part<&P::overlap_shared>, "false"),
          fixed(plan_part<&P::cuda_graphs>, "none")};
}

}  // namespace echelon
