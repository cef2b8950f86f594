// Over 400 lines because a question asked by flags and one that a plan file holds are resolved by
// the same steps.
#include "cli/request.hpp"

#include <fmt/format.h>

#include <bit>
#include <filesystem>
#include <string>
#include <utility>

#include "cli/constraints.hpp"
#include "cli/job.hpp"
#include "cli/operations.hpp"
#include "cli/this_machine.hpp"
#include "core/base/parse_quantity.hpp"
#include "core/model/model_io.hpp"
#include "core/plan/executable.hpp"
#include "core/version.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "planner/space/constraints_of_plan.hpp"
#include "report/format.hpp"
#include "report/text/text.hpp"

namespace echelon::cli {

namespace {

bool looks_like_path(std::string_view text) {
  return text.find('/') != std::string_view::npos || text.ends_with(".json");
}

/// The GPU count, or 0 where it was not set.
Result<std::int64_t> gpus_of(const Settings& settings) {
  const Result<std::optional<std::int64_t>> most = gpus_at_most(settings);
  if (!most) return most.error();
  if (*most) return **most;
  const Setting* setting = settings.find("gpus");
  if (setting == nullptr) return std::int64_t{0};
  return parse_count(setting->value, setting->where);
}

/// The cluster whose GPUs share the default batch: with --gpus-at-most a power of two of them, so
/// that most of the counts searched divide it.
ClusterTopology sharing_cluster(const Settings& settings, const ClusterTopology& cluster) {
  if (!settings.has("gpus-at-most")) return cluster;
  const auto gpus = std::bit_floor(static_cast<unsigned>(cluster.gpus()));
  const Result<ClusterTopology> smaller = cluster.resized(gpus);
  return smaller ? *smaller : cluster;
}

Result<ModelSpec> model_of(const Settings& settings) {
  const Setting* setting = settings.find("model");
  if (setting == nullptr) {
    return input_error("--model", "no model given", "a name or a file",
                       "for example: plan --model 7b --gpus 64; `plan models` lists the names");
  }
  if (looks_like_path(setting->value)) {
    const Status there = check_exists(setting->value, setting->where, "a model file, or a name");
    if (!there) return there.error();
  }
  const Result<ModelSpec> model = load_model(setting->value);
  if (!model) return at(*setting, model.error());
  return model;
}

Result<Framework> stack_of(const Settings& settings, const ClusterTopology& cluster,
                           std::vector<std::string>& assumed) {
  if (const Setting* setting = settings.find("stack")) {
    const Result<Framework> stack = find_framework(setting->value);
    if (!stack) return at(*setting, stack.error());
    return stack;
  }
  const bool executes = cluster.node().cores > 0 || cluster.name() == kThisMachineGpus;
  const char* usual = executes ? kExecutingFramework : kDefaultFramework;
  assumed.push_back(fmt::format("training software {} (--stack)", usual));
  return find_framework(usual);
}

/// What `plan calibrate` left for this machine; "" where it did not. Kernels of GPUs are those of
/// the stack that plan-run is.
std::string measured_rates(const ClusterTopology& cluster, const Framework& stack) {
  const bool gpus = cluster.name() == kThisMachineGpus && stack.name == kExecutingFramework;
  if (cluster.name() != kThisMachine && !gpus) return {};
  std::string path = gpus ? gpus_calibration_file() : machine_calibration_file();
  std::error_code ignored;
  return !path.empty() && std::filesystem::exists(path, ignored) ? path : "";
}

Result<Calibration> calibration_of(const Settings& settings, const ClusterTopology& cluster,
                                   const Framework& stack, std::vector<std::string>& assumed,
                                   std::string& path) {
  const int cores = std::max(1, cluster.node().cores / cluster.node().gpus);
  if (const Setting* setting = settings.find("calibration")) {
    path = setting->value;
    if (const Status there = check_exists(path, setting->where, "a calibration file"); !there) {
      return there.error();
    }
    const Result<Calibration> calibration = load_calibration(setting->value, cores);
    if (!calibration) return at(*setting, calibration.error());
    return calibration;
  }
  const std::string measured = measured_rates(cluster, stack);
  Result<Calibration> calibration =
      measured.empty() ? pick_calibration(cluster.gpu(), stack) : load_calibration(measured, cores);
  if (calibration) {
    assumed.push_back(fmt::format("rates of the calibration {}: {}{}{} (--calibration)",
                                  calibration->name, name_of(calibration->evidence),
                                  calibration->fitted_to.empty() ? "" : ", ",
                                  calibration->fitted_to));
  }
  return calibration;
}

Status read_limits(const Settings& settings, PlanRequest& request) {
  if (const Setting* setting = settings.find("max-memory")) {
    const Result<Bytes> most = parse_bytes(setting->value, setting->where);
    if (!most) return most.error();
    const Bytes memory = request.cluster.gpu().memory;
    if (*most <= Bytes{} || *most > memory) {
      return input_error(setting->where, fmt::format("'{}'", setting->value.substr(0, 40)),
                         fmt::format("more than 0 and at most the {:.2f} GiB of one {}",
                                     memory.in(1_GiB), request.cluster.gpu().name));
    }
    request.max_memory = *most;
  } else {
    request.assumptions.push_back(fmt::format("{} of each GPU's memory kept free (--max-memory)",
                                              with_gib(request.kept_free())));
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
  if (const Setting* setting = settings.find("exhaustive")) {
    const Result<bool> all = parse_switch(*setting);
    if (!all) return all.error();
    request.exhaustive = *all;
  }
  return Done{};
}

Result<std::optional<Seconds>> budget_of(const Settings& settings) {
  const Setting* setting = settings.find("budget");
  if (setting == nullptr) return std::optional<Seconds>{};
  const Result<double> seconds = parse_ratio(setting->value, setting->where, 1e-6, 1e6);
  if (!seconds) return at(*setting, seconds.error());
  return std::optional(Seconds{*seconds});
}

/// A plan for a machine that is described differently today would be priced as something that was
/// never asked for.
Status check_fresh(const PlanFile& file, const std::string& path, const ClusterTopology& cluster) {
  const std::string today = hash_of(cluster);
  if (today == file.cluster_hash) return Done{};
  const std::string name = shell_quoted(path);
  return input_error(
      path + " at /hashes/cluster",
      fmt::format("the description of cluster {} changed since the plan was written: its hash is "
                  "{}",
                  file.cluster, today),
      fmt::format("hash {}, of the cluster the plan is for", file.cluster_hash),
      fmt::format("write the plan again: plan predict {} --cluster {} -o {}", name,
                  shell_quoted(file.cluster), name));
}

std::string rates_changed(const PlanFile& file, const Calibration& now) {
  if (now.name != file.calibration) {
    return fmt::format("rates of the calibration {}; the file was made with {}, by version {}",
                       now.name, file.calibration, file.version);
  }
  return fmt::format(
      "rates of the calibration {}, which changed since version {} wrote the file: this prediction "
      "is not the file's",
      now.name, file.version);
}

}  // namespace

Error at(const Setting& setting, Error error) {
  // An error inside a file names the file, which says more than the flag that named it.
  if (error.where.empty() || error.where.starts_with("--")) {
    error.where = setting.where;
  } else if (error.where != setting.where) {
    error.where = setting.where + ": " + error.where;
  }
  return error;
}

Status check_exists(const std::string& path, std::string_view where, std::string_view what) {
  std::error_code error;
  if (std::filesystem::exists(path, error) || error) return Done{};
  return input_error(std::string(where), fmt::format("no file '{}'", path.substr(0, 200)),
                     std::string(what));
}

Result<std::vector<int>> parse_list(const Setting& setting, int least) {
  constexpr std::size_t kMostEntries = 4096;
  std::vector<int> values;
  std::string_view rest = setting.value;
  while (true) {
    const std::string_view item = rest.substr(0, rest.find(','));
    const Result<int> value = parse_int(item, setting.where, least);
    if (!value) return value.error();
    values.push_back(*value);
    if (item.size() == rest.size()) return values;
    if (values.size() == kMostEntries) {
      return input_error(setting.where, "a very long list", "at most 4096 numbers");
    }
    rest.remove_prefix(item.size() + 1);
  }
}

Result<bool> parse_switch(const Setting& setting) {
  for (const char* word : {"true", "yes", "1"}) {
    if (setting.value == word) return true;
  }
  for (const char* word : {"false", "no", "0"}) {
    if (setting.value == word) return false;
  }
  return input_error(setting.where, fmt::format("'{}'", setting.value.substr(0, 40)),
                     "true or false");
}

Result<Machine> machine_of(const Settings& settings, std::int64_t gpus,
                           std::vector<std::string>& assumed) {
  const Setting* named = settings.find("cluster");
  const std::string name = named != nullptr ? named->value : kDefaultCluster;
  const Setting* count = settings.find("gpus");
  if (looks_like_path(name)) {
    const Status there =
        check_exists(name, named->where, "a description file, or a name of the catalog");
    if (!there) return there.error();
  }
  Result<ClusterTopology> cluster = load_cluster(name, gpus);
  if (!cluster) {
    const bool about_gpus = cluster.error().where.find("--gpus") != std::string::npos;
    const Setting* culprit = about_gpus && count != nullptr ? count : named;
    return culprit != nullptr ? at(*culprit, cluster.error()) : cluster.error();
  }
  if (named == nullptr) {
    assumed.push_back(fmt::format("machine {}: nodes of {} {} (--cluster)", kDefaultCluster,
                                  cluster->node().gpus, cluster->gpu().name));
  }
  if (gpus <= 0) {
    assumed.push_back(fmt::format("{}, the size {} is described with (--gpus)",
                                  counted(cluster->gpus(), "GPU"), cluster->name()));
  }
  const Result<Framework> stack = stack_of(settings, *cluster, assumed);
  if (!stack) return stack.error();
  std::string path;
  const Result<Calibration> calibration = calibration_of(settings, *cluster, *stack, assumed, path);
  if (!calibration) return calibration.error();
  return Machine{*std::move(cluster), name, *stack, *calibration, path};
}

namespace {

/// Some software trains without dropout, whatever the model says.
void leave_out_dropout(PlanRequest& request) {
  ModelSpec& model = request.model;
  if (request.stack.dropout || (model.hidden_dropout <= 0 && model.attention_dropout <= 0)) return;
  request.assumptions.push_back(
      fmt::format("no dropout: {} trains without the model's {:g}", request.stack.name,
                  std::max(model.hidden_dropout, model.attention_dropout)));
  model.hidden_dropout = model.attention_dropout = 0;
}

/// A plan for the software or the machine that `plan run` executes on, of a model that it refuses.
/// After the dropout is left out.
void note_not_executed(PlanRequest& request) {
  const bool this_machine =
      request.cluster.node().cores > 0 || request.cluster.name() == kThisMachineGpus;
  if (request.stack.name != kExecutingFramework && !this_machine) return;
  if (const auto why = not_executed(request.model, request.job.sequence)) {
    request.assumptions.push_back(
        fmt::format("plan run refuses this plan: {}; it executes {}", why->found, why->expected));
  }
}

}  // namespace

Result<Asked> understand(const Settings& settings) {
  if (const Status supported = check_supported(settings); !supported) return supported.error();
  const Result<PlanConstraints> constraints = constraints_of(settings);
  if (!constraints) return constraints.error();
  const Result<ModelSpec> model = model_of(settings);
  if (!model) return model.error();
  const Result<std::int64_t> gpus = gpus_of(settings);
  if (!gpus) return gpus.error();
  std::vector<std::string> assumed;
  const Result<Machine> machine = machine_of(settings, *gpus, assumed);
  if (!machine) return machine.error();
  const Result<TrainingJob> job = job_of(settings, *model, machine->stack,
                                         sharing_cluster(settings, machine->cluster), assumed);
  if (!job) return job.error();
  for (const auto& [flag, setting] : settings.all()) {
    const bool elsewhere = !setting.where.starts_with("--");
    const Flag* known = find_flag(flag);
    if (elsewhere && known != nullptr && (known->groups & (kJob | kLayout)) != 0) {
      assumed.push_back(fmt::format("{} = {}, from {}", flag, setting.value, setting.where));
    }
  }
  PlanRequest request{.model = *model,
                      .job = *job,
                      .cluster = machine->cluster,
                      .stack = machine->stack,
                      .calibration = machine->calibration,
                      .constraints = *constraints,
                      .max_memory = {},
                      .assumptions = std::move(assumed)};
  // Memory is allocated before the first step, and nothing else shares a rank's part.
  if (request.cluster.node().cores > 0) request.keep_free = 64_MiB;
  leave_out_dropout(request);
  note_not_executed(request);
  if (const Status limits = read_limits(settings, request); !limits) return limits.error();
  if (const Status search = read_search(settings, request); !search) return search.error();
  if (const Status operations = read_operations(settings, request); !operations) {
    return operations.error();
  }
  const Result<std::optional<Seconds>> budget = budget_of(settings);
  if (!budget) return budget.error();
  return Asked{std::move(request),
               {std::string(version()), machine->cluster_name, machine->calibration_path},
               *budget};
}

Result<Asked> understand(const PlanFile& file, const std::string& path, const Settings& changes) {
  // Step 1: what the file names, as settings that the flags may hide.
  Settings settings = changes;
  Settings named;
  const auto name = [&](const char* flag, std::string value) {
    named.set(flag, {std::move(value), "the plan file"});
  };
  name("cluster", file.cluster);
  name("gpus", std::to_string(file.gpus));
  name("stack", file.stack);
  name("seq", std::to_string(file.job.sequence));
  name("global-batch", std::to_string(file.job.global_batch));
  name("precision", file.job.precision.name);
  name("flash-attention", file.job.flash_attention ? "true" : "false");
  if (!file.calibration_path.empty()) name("calibration", file.calibration_path);
  settings.add_below(named);
  if (const Status supported = check_supported(settings); !supported) return supported.error();
  const Result<PlanConstraints> pinned = constraints_of(changes);
  if (!pinned) return pinned.error();
  // Step 2: the same path as a request by flags, with the file's own model.
  ModelSpec model = file.model;
  if (changes.has("model")) {
    const Result<ModelSpec> other = model_of(changes);
    if (!other) return other.error();
    model = *other;
  }
  const Result<std::int64_t> gpus = gpus_of(settings);
  if (!gpus) return gpus.error();
  std::vector<std::string> assumed;
  const Result<Machine> machine = machine_of(settings, *gpus, assumed);
  if (!machine) return machine.error();
  if (!changes.has("cluster")) {
    if (Status fresh = check_fresh(file, path, machine->cluster); !fresh) return fresh.error();
  }
  Result<TrainingJob> job = job_of(settings, model, machine->stack, machine->cluster, assumed);
  if (!job) return job.error();
  if (!job->token_budget) job->token_budget = file.job.token_budget;
  assumed.clear();  // everything was written in the file
  PlanConstraints base = pinned_to(file.plan);
  if (changes.has("model")) base = without_layers(std::move(base));
  if (changes.has("gpus") && !changes.has("dp")) {
    base.dp.reset();
    base.shard_group.reset();
  }
  PlanRequest request{.model = std::move(model),
                      .job = *job,
                      .cluster = machine->cluster,
                      .stack = machine->stack,
                      .calibration = machine->calibration,
                      .constraints = changed_by(std::move(base), *pinned),
                      .keep_free = file.keep_free,
                      .max_memory = file.max_memory,
                      .assumptions = std::move(assumed)};
  leave_out_dropout(request);
  note_not_executed(request);
  if (changes.has("max-memory")) {
    if (const Status limits = read_limits(settings, request); !limits) return limits.error();
  }
  if (const Status search = read_search(changes, request); !search) return search.error();
  const Result<std::optional<Seconds>> budget = budget_of(changes);
  if (!budget) return budget.error();
  if (const Status operations = read_operations(changes, request); !operations) {
    return operations.error();
  }
  if (!changes.has("calibration") && !changes.has("stack") && !changes.has("cluster") &&
      hash_of(machine->calibration) != file.calibration_hash) {
    request.assumptions.push_back(rates_changed(file, machine->calibration));
  }
  return Asked{std::move(request),
               {std::string(version()), machine->cluster_name, machine->calibration_path},
               *budget};
}

}  // namespace echelon::cli
