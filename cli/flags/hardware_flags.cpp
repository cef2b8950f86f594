#include "cli/flags/hardware_flags.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "cli/flags/this_machine.hpp"
#include "cli/flags/values.hpp"
#include "core/base/parse_quantity.hpp"
#include "core/framework/framework.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "planner/search/optimize.hpp"
#include "report/format.hpp"
#include "topologies/description/description.hpp"

namespace echelon::cli {

namespace {

/// The largest legal number of GPUs of the machine that --max-gpus allows, or nothing when it is
/// not set. Error when it is given together with --gpus.
Result<std::optional<std::int64_t>> max_gpus_of(const Settings& settings) {
  const Setting* most = settings.find("max-gpus");
  if (most == nullptr) return std::optional<std::int64_t>{};
  if (const Setting* gpus = settings.find("gpus")) {
    return input_error(most->where, "given together with " + gpus->where, "one of the two");
  }
  const Result<int> limit = parse_int(most->value, most->where);
  if (!limit) return limit.error();
  const Setting* named = settings.find("cluster");
  const std::string name = named != nullptr ? named->value : kDefaultCluster;
  const Result<ClusterTopology> machine = load_cluster(name, 0);
  if (!machine) return named != nullptr ? at(*named, machine.error()) : machine.error();
  std::int64_t largest = 1;
  for (const int gpus : gpu_counts(*machine, *limit)) {
    if (machine->resized(gpus)) largest = gpus;
  }
  return std::optional(largest);
}

Result<Framework> framework_of(const Settings& settings, const ClusterTopology& cluster,
                               std::vector<std::string>& assumed) {
  if (const Setting* setting = settings.find("framework")) {
    const Result<Framework> framework = find_framework(setting->value);
    if (!framework) return at(*setting, framework.error());
    if (framework->name != setting->value) {
      assumed.push_back(fmt::format("{} as {} runs it: with its axes, kernels and defaults",
                                    setting->value, framework->name));
    }
    return framework;
  }
  const bool executes = cluster.node().cores > 0 || cluster.name() == kThisMachineGpus;
  const char* usual = executes ? kExecutingFramework : kDefaultFramework;
  assumed.push_back(fmt::format("training framework {} (--framework)", usual));
  return find_framework(usual);
}

/// The file that `plan calibrate` wrote for this machine, which also stands for the machines of a
/// described cluster of processor cores; "" if there is none. GPU kernels are those of plan-run's
/// own framework.
std::string measured_rates(const ClusterTopology& cluster, const Framework& framework) {
  const bool gpus = cluster.name() == kThisMachineGpus && framework.name == kExecutingFramework;
  if (cluster.node().cores == 0 && !gpus) return {};
  std::string path = gpus ? gpus_calibration_file() : machine_calibration_file();
  std::error_code ignored;
  return !path.empty() && std::filesystem::exists(path, ignored) ? path : "";
}

/// The calibration of --calibration, and what it means for this GPU and framework.
Result<Calibration> calibration_named(const Setting& setting, int cores, HardwareModel& machine,
                                      std::vector<std::string>& assumed) {
  const Status there = check_exists(setting.value, setting.where, "a calibration file");
  if (!there) return there.error();
  Result<Calibration> calibration = load_calibration(setting.value, cores);
  if (!calibration) return at(setting, calibration.error());
  if (!calibration->fitted_to.empty()) {
    assumed.push_back(fmt::format("rates of calibration {}: {} (--calibration)", calibration->name,
                                  calibration->fitted_to));
  }
  const GpuSpec& gpu = machine.cluster.gpu();
  NamedCalibration named = named_calibration(*std::move(calibration), gpu, machine.framework);
  if (!named.foreign.empty()) {
    machine.remarks.push_back(fmt::format(
        "rates of {} on {} under {}: extrapolated, with a band as wide as for GPUs and frameworks "
        "without runs ({})",
        named.foreign, gpu.name, machine.framework.name, setting.where));
  }
  return std::move(named.calibration);
}

/// Sets machine.calibration, its path, and the remarks on it.
Status read_calibration(const Settings& settings, HardwareModel& machine,
                        std::vector<std::string>& assumed) {
  const ClusterTopology& cluster = machine.cluster;
  const int cores = std::max(1, cluster.node().cores / cluster.node().gpus);
  const auto keep = [&](Result<Calibration> found) -> Status {
    if (!found) return found.error();
    machine.calibration = *std::move(found);
    return Done{};
  };
  if (const Setting* setting = settings.find("calibration")) {
    machine.calibration_path = setting->value;
    return keep(calibration_named(*setting, cores, machine, assumed));
  }
  const std::string measured = measured_rates(cluster, machine.framework);
  Result<Calibration> calibration = measured.empty()
                                        ? pick_calibration(cluster.gpu(), machine.framework)
                                        : load_calibration(measured, cores);
  if (calibration && !calibration->stands_in_for.empty()) {
    assumed.push_back(fmt::format(
        "rates of {} GPUs, extrapolated to {}: none of {} is known, so the band is as wide as for "
        "GPUs without runs; calibration {}, {} (--calibration)",
        calibration->gpu_family, cluster.gpu().name, calibration->stands_in_for, calibration->name,
        calibration->fitted_to));
  } else if (calibration) {
    assumed.push_back(fmt::format("rates of calibration {}: {}{}{} (--calibration)",
                                  calibration->name, name_of(calibration->evidence),
                                  calibration->fitted_to.empty() ? "" : ", ",
                                  calibration->fitted_to));
  }
  return keep(std::move(calibration));
}

/// Whether `text` is a path, not a name of the catalog.
bool looks_like_path(std::string_view text) {
  return text.find('/') != std::string_view::npos || text.ends_with(".json");
}

/// How the job lies in NVLink domains of several nodes, where it needs more than one of them.
void note_domains(const ClusterTopology& cluster, bool counts_searched,
                  std::vector<std::string>& assumed) {
  const std::int64_t whole = cluster.machine().domain_gpus();
  const int each = cluster.domain_gpus();
  const int node = cluster.gpus_per_node();
  if (cluster.gpus() <= whole || whole <= node) return;
  if (counts_searched) {
    assumed.push_back(
        fmt::format("jobs of more than {} GPUs use equally many of every NVLink domain where their "
                    "number of nodes allows it, as Slurm places segments (--segment)",
                    whole));
  } else if (cluster.gpus() % each == 0) {
    assumed.push_back(
        fmt::format("{} of {} GPUs of each of {} NVLink domains, as Slurm places segments "
                    "(--segment={})",
                    each, whole, cluster.gpus() / each, each / node));
  } else {
    assumed.push_back(fmt::format(
        "NVLink domains of {} GPUs filled one after the other, {} in the last: {} do not spread "
        "evenly, and groups of ranks straddle domains",
        whole, cluster.gpus() % each, counted(cluster.nodes(), "node")));
  }
}

}  // namespace

Result<std::int64_t> gpus_of(const Settings& settings) {
  const Result<std::optional<std::int64_t>> most = max_gpus_of(settings);
  if (!most) return most.error();
  if (*most) return **most;
  const Setting* setting = settings.find("gpus");
  if (setting == nullptr) return std::int64_t{0};
  return parse_count(setting->value, setting->where);
}

Result<HardwareModel> hardware_model_of(const Settings& settings, std::int64_t gpus,
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
    assumed.push_back(fmt::format("{}, the size of the description of {} (--gpus)",
                                  counted(cluster->gpus(), "GPU"), cluster->name()));
  }
  note_domains(*cluster, settings.has("max-gpus"), assumed);
  const Result<Framework> framework = framework_of(settings, *cluster, assumed);
  if (!framework) return framework.error();
  HardwareModel machine{*std::move(cluster), name, *framework, {}, {}, {}};
  if (const Status read = read_calibration(settings, machine, assumed); !read) return read.error();
  return machine;
}

}  // namespace echelon::cli
