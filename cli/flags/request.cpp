// Over 400 lines because what a request assumes is said next to where it is assumed.
#include "cli/flags/request.hpp"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <filesystem>
#include <string>
#include <utility>

#include "cli/flags/allowed.hpp"
#include "cli/flags/constraints.hpp"
#include "cli/flags/economics_flags.hpp"
#include "cli/flags/script_note.hpp"
#include "cli/flags/training_flags.hpp"
#include "core/base/parse_quantity.hpp"
#include "core/base/text.hpp"
#include "core/model/model_io.hpp"
#include "core/plan/executable.hpp"
#include "core/version.hpp"
#include "costmodel/time/rates.hpp"
#include "planner/space/constraints_of_plan.hpp"
#include "planner/space/legality.hpp"
#include "planner/space/score.hpp"
#include "report/format.hpp"
#include "report/text/text.hpp"
#include "topologies/import/this_machine.hpp"

namespace echelon::cli {

namespace {

/// The cluster whose GPUs share the default batch: with --max-gpus a power of two of them, so
/// that most of the counts searched divide it.
ClusterTopology sharing_cluster(const Settings& settings, const ClusterTopology& cluster) {
  if (!settings.has("max-gpus")) return cluster;
  const auto gpus = std::bit_floor(static_cast<unsigned>(cluster.gpus()));
  const Result<ClusterTopology> smaller = cluster.resized(gpus);
  return smaller ? *smaller : cluster;
}

Result<ModelReading> model_of(const Settings& settings) {
  const Setting* setting = settings.find("model");
  if (setting == nullptr) {
    return input_error("--model", "no model given", "a name or a file",
                       "for example: plan --model 7b --gpus 64; `plan models` lists the names");
  }
  return read_named_model(*setting);
}

/// "runs of nanotron need 18 % more than predicted, give or take 2 % (logistic, measured)"; of an
/// assumed band the reason instead of the distribution.
std::string words_of_band(const PlanRequest& request) {
  const MemoryBand& band = memory_band_of(request);
  const double more = std::exp(band.bias) - 1;
  constexpr double kNone = 0.005;
  const std::string bias = std::abs(more) < kNone
                               ? std::string("what is predicted")
                               : fmt::format("{:.0f} % {} than predicted", 100 * std::abs(more),
                                             more > 0 ? "more" : "less");
  const std::string from = band.kind == MemoryBandKind::assumed
                               ? band.source
                               : fmt::format("{}, {}", band.distribution(), name_of(band.kind));
  return fmt::format("runs of {} need {}, give or take {:.0f} % ({})", request.framework.name, bias,
                     100 * band.spread, from);
}

Status read_limits(const Settings& settings, PlanRequest& request) {
  if (const Setting* setting = settings.find("max-memory")) {
    const Result<Bytes> most = parse_bytes(setting->value, setting->where);
    if (!most) return most.error();
    const Bytes memory = request.cluster.gpu().memory;
    if (*most > Bytes{} && *most < 1_MiB) {
      const double number = most->in(kByte);  // typed without a unit, most often
      return input_error(
          setting->where, in_quotes(setting->value) + " is less than 1 MiB", "a size with its unit",
          number <= memory.in(1_GiB) ? fmt::format("nearest valid: --max-memory {:.0f}GiB", number)
                                     : fmt::format("at most the {:.2f} GiB of one {}",
                                                   memory.in(1_GiB), request.cluster.gpu().name));
    }
    if (*most <= Bytes{} || *most > memory) {
      return input_error(setting->where, in_quotes(setting->value),
                         fmt::format("more than 0 and at most the {:.2f} GiB of one {}",
                                     memory.in(1_GiB), request.cluster.gpu().name));
    }
    request.max_memory = *most;
  } else {
    request.assumptions.push_back("probability of fitting: " + words_of_band(request) +
                                  "; --max-memory sets a limit instead");
  }
  return Done{};
}

/// How much of the search is wanted.
Status read_search(const Settings& settings, PlanRequest& request) {
  if (const Setting* setting = settings.find("top")) {
    constexpr int kMostListed = 10'000;  // of which each is simulated
    const Result<int> top = parse_int(setting->value, setting->where);
    if (!top) return top.error();
    if (*top > kMostListed) {
      return input_error(setting->where, setting->value.substr(0, 40),
                         fmt::format("at most {} plans", grouped(kMostListed)));
    }
    request.top = *top;
  }
  if (const Setting* setting = settings.find("prefer")) {
    const Result<Preference> preference = parse_preference(setting->value, setting->where);
    if (!preference) return preference.error();
    request.preference = *preference;
  }
  request.module_sets = !forbids_module_sets(settings);
  const auto read_switch = [&](const char* flag, bool& value) -> Status {
    const Setting* setting = settings.find(flag);
    if (setting == nullptr) return Done{};
    const Result<bool> on = parse_switch(*setting);
    if (!on) return on.error();
    value = *on;
    return Done{};
  };
  if (const Status read = read_switch("front", request.whole_front); !read) return read;
  return read_switch("exhaustive", request.exhaustive);
}

Result<std::optional<Seconds>> time_limit_of(const Settings& settings) {
  const Setting* setting = settings.find("time-limit");
  if (setting == nullptr) return std::optional<Seconds>{};
  const Result<double> seconds = parse_ratio(setting->value, setting->where, 1e-6, 1e6);
  if (!seconds) return at(*setting, seconds.error());
  return std::optional(Seconds{*seconds});
}

/// Refuses a plan whose machine is described differently today: it would be priced for another
/// machine than the one it was requested for.
Status check_fresh(const PlanFile& file, const std::string& path, const ClusterTopology& cluster) {
  const std::string today = hash_of(cluster);
  if (today == file.cluster_hash) return Done{};
  const std::string name = shell_quoted(path);
  return input_error(
      path + " at /hashes/cluster",
      fmt::format(
          "the description of cluster {} changed since the plan was written: its hash is now {}",
          file.cluster, today),
      fmt::format("hash {}, the cluster of the plan", file.cluster_hash),
      fmt::format("write the plan again: plan predict {} --cluster {} -o {}", name,
                  shell_quoted(file.cluster), name));
}

std::string rates_changed(const PlanFile& file, const Calibration& now) {
  if (now.name != file.calibration) {
    return fmt::format("rates of calibration {}; the file was written with {} by version {}",
                       now.name, file.calibration, file.version);
  }
  return fmt::format(
      "rates of calibration {}, which changed since version {} wrote the file: this prediction "
      "differs from the file's",
      now.name, file.version);
}

/// Some frameworks train without dropout even if the model has it.
void leave_out_dropout(PlanRequest& request) {
  ModelSpec& model = request.model;
  if (request.framework.dropout || (model.hidden_dropout <= 0 && model.attention_dropout <= 0))
    return;
  request.assumptions.push_back(
      fmt::format("no dropout: {} trains without the model's {:g}", request.framework.name,
                  std::max(model.hidden_dropout, model.attention_dropout)));
  model.hidden_dropout = model.attention_dropout = 0;
}

/// Some frameworks train experts without the loss that balances their loads.
void note_unbalanced_experts(PlanRequest& request) {
  if (request.model.moe.experts == 0 || request.framework.balances_experts) return;
  request.assumptions.push_back(
      fmt::format("no load-balancing loss: {} trains the router by the loss of the tokens alone",
                  request.framework.name));
  const MixtureOfExperts& moe = request.model.moe;
  if (moe.router_bias && moe.router_score == RouterScore::sigmoid) {
    request.assumptions.push_back(fmt::format(
        "the correction of the router's scores stays as it is, initially 0: {} has no rule that "
        "updates it",
        request.framework.name));
  }
}

/// Some frameworks train without the modules that predict further tokens even if the model has
/// them.
void leave_out_prediction_modules(PlanRequest& request) {
  int& modules = request.model.prediction_modules;
  if (modules == 0 || request.framework.prediction_modules) return;
  request.assumptions.push_back(
      fmt::format("no multi-token prediction: {} trains without the model's {} for it",
                  request.framework.name, counted(modules, "module")));
  modules = 0;
}

/// States that the modules for multi-token prediction are trained, which no count of parameters
/// shows.
void note_prediction_modules(PlanRequest& request) {
  const int modules = request.model.prediction_modules;
  if (modules == 0) return;
  request.assumptions.push_back(fmt::format(
      "multi-token prediction: the model's {} for it {} trained too, and not counted in its "
      "parameters; a model file that states none leaves {} out",
      counted(modules, "module"), modules == 1 ? "is" : "are", modules == 1 ? "it" : "them"));
}

/// States that the NICs are taken for ones by which DeepEP and HybridEP exchange, where the
/// description does not say their kind and a plan could use either between NVLink domains.
void note_unknown_nics(PlanRequest& request) {
  const ClusterTopology& cluster = request.cluster;
  if (request.model.moe.experts == 0 || cluster.node().nic_kind) return;
  if (cluster.gpus() <= cluster.domain_gpus()) return;
  const auto offered = [&](Dispatcher dispatcher) {
    return offers_dispatcher(request.framework, cluster, dispatcher);
  };
  if (!offered(Dispatcher::deepep) && !offered(Dispatcher::hybridep)) return;
  request.assumptions.push_back(fmt::format(
      "network of {}: InfiniBand or RoCE by mlx5 NICs, which the dispatchers deepep and hybridep "
      "need between NVLink domains (\"kind\" of \"nics\" in its description)",
      cluster.name()));
}

/// States that collectives between the GPUs of a node pass through host memory.
void note_peer_access(PlanRequest& request) {
  const ClusterTopology& cluster = request.cluster;
  const std::string_view wiring = cluster.node().interconnect;
  const bool over_pcie = wiring == "pcie" || (wiring == "nvlink-bridge" && cluster.gpus() > 2);
  if (cluster.machine().pcie.peer_access || cluster.gpus() == 1 || !over_pcie) return;
  request.assumptions.push_back(fmt::format(
      "no direct access between the GPUs of a node over PCIe{}: NCCL copies through host "
      "memory, at half the rate of their slots (\"peer_access\" of \"pcie\" in its description)",
      cluster.gpu().peer_access
          ? std::string()
          : fmt::format(", which the stock driver of {} does not give", cluster.gpu().name)));
}

/// States that no plan offloads the optimizer, where the description leaves out what it needs to
/// know.
void note_unknown_memory(PlanRequest& request) {
  const NodeSpec& node = request.cluster.node();
  if (!request.framework.offload_optimizer || node.cpu_memory > Bytes{} || node.cores > 0) return;
  request.assumptions.push_back(fmt::format(
      "no offload of the optimizer: the description of {} does not say the nodes' \"cpu_memory\"",
      request.cluster.name()));
}

/// States that the framework has faster attention kernels now than the runs that its rates were
/// fitted to.
void note_attention_kernels(PlanRequest& request) {
  const double faster = attention_speed(request.cluster.gpu(), request.framework).forward;
  if (faster == 1 || !request.job.flash_attention) return;
  request.assumptions.push_back(fmt::format(
      "attention at {:.1f} times the rate of the runs behind the calibration, whose kernels were "
      "FlashAttention-2: {} takes cuDNN's on {} now",
      faster, request.framework.name, request.cluster.gpu().name));
}

/// States that `plan run` refuses the model, if the plan is for the framework or the machine that
/// `plan run` executes on. Called after leave_out_dropout().
void note_not_executed(PlanRequest& request) {
  const bool this_machine =
      request.cluster.node().cores > 0 || request.cluster.name() == kThisMachineGpus;
  if (request.framework.name != kExecutingFramework && !this_machine) return;
  if (const auto why = not_executed(request.model, request.job.sequence)) {
    request.assumptions.push_back(
        fmt::format("plan run refuses this plan: {}; it executes {}", why->found, why->expected));
  }
}

/// Settings of the environment and of configuration files, which a reader of the answer cannot see
/// in the command.
void note_origins(const Settings& settings, std::vector<std::string>& assumed) {
  for (const auto& [flag, setting] : settings.all()) {
    const bool elsewhere = !setting.where.starts_with("--");
    const Flag* known = find_flag(flag);
    if (elsewhere && known != nullptr && (known->groups & (kJob | kLayout)) != 0) {
      assumed.push_back(fmt::format("{} = {}, from {}", flag, setting.value, setting.where));
    }
  }
}

/// What a plan file names, as settings that flags may hide.
Settings settings_named_by(const PlanFile& file) {
  Settings named;
  const auto name = [&](const char* flag, std::string value) {
    named.set(flag, {std::move(value), "the plan file"});
  };
  name("cluster", file.cluster);
  name("gpus", std::to_string(file.gpus));
  name("framework", file.framework);
  name("seq", std::to_string(file.job.sequence));
  name("global-batch", std::to_string(file.job.global_batch));
  name("precision", file.job.precision.name);
  name("flash-attention", file.job.flash_attention ? "true" : "false");
  if (file.job.layer_code != LayerCode::fused) {
    name("layer-code", std::string(name_of(file.job.layer_code)));
  }
  if (file.job.expert_imbalance > 1) {
    name("expert-imbalance", fmt::format("{}", file.job.expert_imbalance));
  }
  if (file.job.documents) name("document-lengths", file.job.documents->text);
  if (file.job.adapters) name("lora", file.job.adapters->text());
  if (file.job.quantized_weights) name("quantized-weights", file.job.quantized_weights->text());
  if (!file.calibration_path.empty()) name("calibration", file.calibration_path);
  return named;
}

/// The file's plan as constraints, without what no longer holds after `changes`.
PlanConstraints constraints_after(const PlanFile& file, const Settings& changes,
                                  const PlanConstraints& pinned) {
  PlanConstraints base = pinned_to(file.plan);
  if (changes.has("model")) base = without_layers(std::move(base));
  if (changes.has("gpus") && !changes.has("dp")) {
    base.release<&ParallelPlan::dp, &ParallelPlan::shard_group>();
  }
  return changed_by(std::move(base), pinned);
}

}  // namespace

Result<ModelReading> read_named_model(const Setting& named) {
  Result<ModelReading> reading = read_model(named.value);
  if (reading) return reading;
  if (reading.error().kind == Error::Kind::environment) {
    const Status there = check_exists(named.value, named.where, "a model file, or a name");
    if (!there) return there.error();
  }
  return at(named, reading.error());
}

Result<ResolvedRequest> resolve(const Settings& settings, const ModelSpec* given) {
  const Result<PlanConstraints> constraints = search_constraints_of(settings);
  if (!constraints) return constraints.error();
  const Result<ModelReading> reading =
      given != nullptr ? Result(ModelReading{*given, {}}) : model_of(settings);
  if (!reading) return reading.error();
  const ModelSpec& model = reading->model;
  const Result<std::int64_t> gpus = gpus_of(settings);
  if (!gpus) return gpus.error();
  std::vector<std::string> assumed;
  const Result<HardwareModel> machine = hardware_model_of(settings, *gpus, assumed);
  if (!machine) return machine.error();
  const Result<TrainingJob> job = job_of(settings, model, machine->framework,
                                         sharing_cluster(settings, machine->cluster), assumed);
  if (!job) return job.error();
  note_origins(settings, assumed);
  assumed.insert(assumed.end(), machine->remarks.begin(), machine->remarks.end());
  assumed.insert(assumed.end(), reading->remarks.begin(), reading->remarks.end());
  PlanRequest request{.model = model,
                      .job = *job,
                      .cluster = machine->cluster,
                      .framework = machine->framework,
                      .calibration = machine->calibration,
                      .constraints = *constraints,
                      .max_memory = {},
                      .assumptions = std::move(assumed)};
  // Memory is allocated before the first step, and nothing else shares a rank's part.
  if (request.cluster.node().cores > 0) request.keep_free = 64_MiB;
  leave_out_dropout(request);
  note_unbalanced_experts(request);
  leave_out_prediction_modules(request);
  note_prediction_modules(request);
  note_unknown_nics(request);
  note_unknown_memory(request);
  if (std::string note = script_note(request.framework, request.model); !note.empty()) {
    request.assumptions.push_back(std::move(note));
  }
  note_peer_access(request);
  note_attention_kernels(request);
  note_not_executed(request);
  if (const Status limits = read_limits(settings, request); !limits) return limits.error();
  if (const Status search = read_search(settings, request); !search) return search.error();
  if (const Status economics = read_economics(settings, request); !economics) {
    return economics.error();
  }
  const Result<std::optional<Seconds>> limit = time_limit_of(settings);
  if (!limit) return limit.error();
  return ResolvedRequest{std::move(request),
                         {std::string(version()), machine->cluster_name, machine->calibration_path},
                         *limit};
}

Result<ResolvedRequest> resolve_search(const Settings& settings) {
  const std::optional<std::string> format = format_of_any(settings);
  if (!format) return resolve(settings);
  const Setting asked = *settings.find("precision");
  Settings one = settings;
  one.set("precision", {*format, asked.where});
  Result<ResolvedRequest> resolved = resolve(one);
  if (!resolved) return resolved;
  PlanRequest& request = resolved->request;
  Result<std::vector<PrecisionRecipe>> recipes =
      state_recipes_of(asked, *format, request.framework, request.cluster.gpu());
  if (!recipes) return recipes.error();
  request.recipes = *std::move(recipes);
  return resolved;
}

Result<ResolvedRequest> resolve(const PlanFile& file, const std::string& path,
                                const Settings& changes) {
  Settings settings = changes;
  settings.add_below(settings_named_by(file));
  const Result<PlanConstraints> pinned = search_constraints_of(changes);
  if (!pinned) return pinned.error();
  // The same path as a request by flags, with the file's own model.
  const Result<ModelReading> reading =
      changes.has("model") ? model_of(changes) : Result(ModelReading{file.model, {}});
  if (!reading) return reading.error();
  const ModelSpec& model = reading->model;
  const Result<std::int64_t> gpus = gpus_of(settings);
  if (!gpus) return gpus.error();
  std::vector<std::string> in_the_file;  // defaults, which the file already holds
  const Result<HardwareModel> machine = hardware_model_of(settings, *gpus, in_the_file);
  if (!machine) return machine.error();
  if (!changes.has("cluster")) {
    if (Status fresh = check_fresh(file, path, machine->cluster); !fresh) return fresh.error();
  }
  Result<TrainingJob> job =
      job_of(settings, model, machine->framework, machine->cluster, in_the_file);
  if (!job) return job.error();
  if (!job->token_budget) job->token_budget = file.job.token_budget;
  PlanRequest request{.model = model,
                      .job = *job,
                      .cluster = machine->cluster,
                      .framework = machine->framework,
                      .calibration = machine->calibration,
                      .constraints = constraints_after(file, changes, *pinned),
                      .keep_free = file.keep_free,
                      .max_memory = file.max_memory,
                      .assumptions = machine->remarks};
  request.assumptions.insert(request.assumptions.end(), reading->remarks.begin(),
                             reading->remarks.end());
  leave_out_dropout(request);
  note_unbalanced_experts(request);
  leave_out_prediction_modules(request);
  note_unknown_nics(request);
  note_unknown_memory(request);
  note_peer_access(request);
  note_attention_kernels(request);
  note_not_executed(request);
  if (changes.has("max-memory")) {
    if (const Status limits = read_limits(settings, request); !limits) return limits.error();
  }
  if (const Status search = read_search(changes, request); !search) return search.error();
  const Result<std::optional<Seconds>> limit = time_limit_of(changes);
  if (!limit) return limit.error();
  if (const Status economics = read_economics(changes, request); !economics) {
    return economics.error();
  }
  if (!changes.has("calibration") && !changes.has("framework") && !changes.has("cluster") &&
      hash_of(machine->calibration) != file.calibration_hash) {
    request.assumptions.push_back(rates_changed(file, machine->calibration));
  }
  return ResolvedRequest{std::move(request),
                         {std::string(version()), machine->cluster_name, machine->calibration_path},
                         *limit};
}

}  // namespace echelon::cli
