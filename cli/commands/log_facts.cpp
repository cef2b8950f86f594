#include "cli/commands/log_facts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "cli/flags/hardware_flags.hpp"
#include "cli/flags/request.hpp"
#include "cli/flags/this_machine.hpp"
#include "core/base/parse_quantity.hpp"
#include "core/model/model_io.hpp"
#include "core/plan/parallel_plan.hpp"
#include "evaluation/run_machines.hpp"
#include "interop/logs/training_log.hpp"
#include "topologies/description/catalog.hpp"

namespace echelon::cli {

namespace {

/// A flag whose whole number is a column.
struct CountFlag {
  std::string_view flag, column;
  int least = 1;
};
constexpr std::array kCounts = {
    CountFlag{"gpus", "gpus"},
    CountFlag{"seq", "seq"},
    CountFlag{"global-batch", "global_batch"},
    CountFlag{"tp", "tp"},
    CountFlag{"cp", "cp"},
    CountFlag{"ep", "ep"},
    CountFlag{"etp", "etp"},
    CountFlag{"dp", "dp"},
    CountFlag{"pp", "pp"},
    CountFlag{"vpp", "vpp"},
    CountFlag{"microbatch", "microbatch"},
    CountFlag{"zero", "zero", 0},
    CountFlag{"zero-group-size", "zero_group_size"},
};

/// A flag whose text is a column.
struct TextFlag {
  std::string_view flag, column;
};
constexpr std::array kTexts = {TextFlag{"framework", "framework"},
                               TextFlag{"precision", "precision"},
                               TextFlag{"recompute", "recompute"},
                               TextFlag{"schedule", "schedule"},
                               TextFlag{"sequence-parallel", "sequence_parallel"},
                               TextFlag{"flash-attention", "flash_attention"}};

constexpr std::array<std::string_view, 9> kOfTheCommand = {
    "output", "json", "quiet", "color", "no-config", "model", "cluster", "help", "calibration"};

/// The GPU as tables of runs name it, or null.
const RunMachine* machine_with(const std::string& catalog_gpu) {
  const auto& machines = run_machines();
  const auto found = std::ranges::find(machines, catalog_gpu, &RunMachine::catalog_gpu);
  return found == machines.end() ? nullptr : &*found;
}

/// The GPU as tables of runs name it, and the size of a node.
Status add_cluster(const Setting& setting, RunFacts& facts) {
  const Result<ClusterTopology> cluster = load_cluster(setting.value, 0);
  if (!cluster) return at(setting, cluster.error());
  const RunMachine* machine = machine_with(cluster->gpu().name);
  if (machine == nullptr) {
    return input_error(setting.where, "GPU " + cluster->gpu().name,
                       "a GPU that tables of measured runs name");
  }
  facts.set("gpu", machine->name, FactOrigin::given, setting.where);
  facts.set("gpu_memory_gb", cluster->gpu().memory.in(1_GB), FactOrigin::given, setting.where);
  facts.set("gpus_per_node", cluster->gpus_per_node(), FactOrigin::given, setting.where);
  const NodeSpec& node = cluster->node();
  if (node.nics > 0) {
    facts.set("nic_gbps_per_node", (node.nic * node.nics).in(1_Gbps), FactOrigin::given,
              setting.where);
  }
  return Done{};
}

Status add_text(const TextFlag& flag, const Setting& setting, RunFacts& facts) {
  std::string value = setting.value;
  if (flag.flag == "sequence-parallel" || flag.flag == "flash-attention") {
    const Result<bool> on = parse_switch(setting);
    if (!on) return on.error();
    value = *on ? "1" : "0";
  } else if (flag.flag == "precision") {
    value = value.substr(0, value.find(':'));
  } else if (flag.flag == "recompute") {
    const Result<Recompute> known = parse_recompute(value, setting.where);
    if (!known) return known.error();
  } else if (flag.flag == "schedule") {
    const Result<ScheduleKind> known = parse_schedule(value, setting.where);
    if (!known) return known.error();
  }
  facts.set(flag.column, value, FactOrigin::given, setting.where);
  return Done{};
}

}  // namespace

bool is_training_log(const std::string& path) {
  // Tables and configurations may quote the lines of a log.
  constexpr std::array<std::string_view, 7> kOthers = {".csv", ".json", ".toml",  ".yaml",
                                                       ".yml", ".sh",   ".sbatch"};
  const auto ends = [&](std::string_view end) { return path.ends_with(end); };
  if (path == "-") return false;
  const LogFormat* format = training_log_format(path);
  if (format != nullptr && format->name == "llm.q-json") return true;  // a log that is JSON
  return format != nullptr && std::ranges::none_of(kOthers, ends);
}

Result<RunFacts> facts_of_flags(const CommandContext& context) {
  RunFacts facts;
  const Settings settings = settings_of_flags(context.arguments);
  for (const auto& [name, setting] : settings.all()) {
    const auto count = std::ranges::find(kCounts, name, &CountFlag::flag);
    const auto text = std::ranges::find(kTexts, name, &TextFlag::flag);
    if (count != kCounts.end()) {
      const Result<int> value = parse_int(setting.value, setting.where, count->least);
      if (!value) return value.error();
      facts.set(count->column, *value, FactOrigin::given, setting.where);
    } else if (text != kTexts.end()) {
      if (const Status set = add_text(*text, setting, facts); !set) return set.error();
    } else if (name == "cluster") {
      if (const Status set = add_cluster(setting, facts); !set) return set.error();
    } else if (name == "model") {
      const Result<ModelSpec> model = load_model(setting.value);
      if (!model) return at(setting, model.error());
      facts.set_model(*model, FactOrigin::given, setting.where);
    } else if (std::ranges::find(kOfTheCommand, name) == kOfTheCommand.end()) {
      return input_error(setting.where, "not a fact of a measured run",
                         "--model, --cluster, --gpus, --seq, --global-batch, --microbatch, --tp, "
                         "--pp or another of the degrees, --recompute, --precision");
    }
  }
  return facts;
}

Result<ImportedLog> import_log_file(const std::string& path, const RunFacts& given) {
  const Result<TrainingLog> log = read_training_log(path);
  if (!log) return log.error();
  RunFacts facts = given;
  const LoggedValue* device = log->find("device");
  if (device != nullptr && !facts.has("gpu")) {
    const Result<GpuDescription> gpu = load_gpu(device->value, "device");
    const RunMachine* machine = gpu ? machine_with(gpu->spec.name) : nullptr;
    if (machine != nullptr) {
      facts.set("gpu", machine->name, FactOrigin::derived,
                fmt::format("line {}: {} {}", device->line, device->key, device->value));
    }
  }
  return import_log(*log, facts);
}

}  // namespace echelon::cli
