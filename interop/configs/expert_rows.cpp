// Rows of Megatron-LM's and its descendants' recomputed modules, experts and CUDA graphs.
#include "core/base/text.hpp"
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
  return names_of(selective ? reading.find(row.keys) : nullptr, reading);
}

/// Keys: switch; modules.
void write_offload_modules(const ConfigRow& row, const RunConfig& config, ConfigDocument& out) {
  if (config.plan.offload_modules.empty()) return;
  out.set(row.keys[0], scalar("true"));
  out.set(row.keys[1], list_of(config.plan.offload_modules));
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
  if (text != "flex") return std::optional(ReadValue{text, Origin::found, reading.place(*type)});
  const ConfigEntry* backend = reading.find(row.keys[1]);
  if (backend == nullptr) {
    return std::optional(derived("deepep", reading.place(*type) + ": the default backend of flex"));
  }
  return std::optional(
      ReadValue{backend->value.first().text, Origin::found, reading.place(*backend)});
}

}  // namespace

std::vector<ConfigRow> expert_rows(const ExpertKeys& keys) {
  ConfigRow dispatcher = computed(plan_part<&P::dispatcher>, {keys.dispatcher, keys.backend},
                                  write_dispatcher, read_dispatcher);
  dispatcher.absent = keys.dispatcher_default;
  return {
      computed(plan_part<&P::recompute_modules>, {keys.modules}, write_modules, read_modules),
      computed(plan_part<&P::offload_modules>, {keys.offload, keys.offload_modules},
               write_offload_modules, read_offload_modules),
      std::move(dispatcher),
      choice(plan_part<&P::overlap_ep>, {{"true", {{keys.overlap, "true"}}},
                                         {"false", {{keys.overlap, "false"}}},
                                         {"false", {}}}),
      choice(plan_part<&P::cuda_graphs>,
             {{"full_iteration", {{keys.graphs, "local"}, {keys.graph_scope, "full_iteration"}}},
              {"layers", {{keys.graphs, "transformer_engine"}}},
              {"none", {{keys.graphs, "none"}}},
              {"none", {}}}),
  };
}

std::vector<ConfigRow> without_expert_rows() {
  return {follows(plan_part<&P::recompute_modules>, no_layers),
          follows(plan_part<&P::offload_modules>, no_layers),
          fixed(plan_part<&P::dispatcher>, "alltoall"), fixed(plan_part<&P::overlap_ep>, "false"),
          fixed(plan_part<&P::cuda_graphs>, "none")};
}

}  // namespace echelon
