#include "cli/operations.hpp"

#include <fmt/format.h>

#include <array>
#include <optional>
#include <string>

#include "cli/request.hpp"
#include "cli/this_machine.hpp"
#include "core/base/parse_quantity.hpp"
#include "planner/economics.hpp"
#include "planner/search/optimize.hpp"
#include "report/format.hpp"

namespace echelon::cli {

namespace {

/// Reads `flag` with `parse` into `out` where it is set.
template <class T, class Parser>
Status read(const Settings& settings, const char* flag, std::optional<T>& out, Parser parse) {
  const Setting* setting = settings.find(flag);
  if (setting == nullptr) return Done{};
  const Result<T> value = parse(*setting);
  if (!value) return at(*setting, value.error());
  out = *value;
  return Done{};
}

Result<BytesPerSecond> bandwidth_of(const Setting& setting) {
  const Result<BytesPerSecond> rate = parse_bandwidth(setting.value, setting.where);
  if (rate && *rate <= BytesPerSecond{}) {
    return input_error(setting.where, "'" + setting.value.substr(0, 40) + "'", "more than 0");
  }
  return rate;
}

Result<double> tokens_of(const Setting& setting) {
  const Result<std::int64_t> count = parse_count(setting.value, setting.where);
  if (!count) return count.error();
  return static_cast<double>(*count);
}

/// Failures matter where days or goodput are shown.
void tell_failures(PlanRequest& request) {
  if (!request.job.token_budget && request.objective != Objective::goodput) return;
  const TrainingEconomics& o = request.economics;
  const std::optional<Seconds> node =
      o.mtbf_per_node ? o.mtbf_per_node : request.cluster.mtbf_per_node();
  if (!node) {
    request.assumptions.emplace_back(
        "no failures: how often a node of this machine fails is unknown (--mtbf)");
    return;
  }
  if (!o.mtbf_per_node) {
    request.assumptions.push_back(fmt::format(
        "a node fails every {}, as the machine's description says (--mtbf)", duration(*node)));
  }
  if (!o.checkpoint_bandwidth) {
    request.assumptions.push_back(fmt::format(
        "checkpoints stop the job and are written at {:.0f} MB/s per GPU, as Llama 3's storage "
        "was (--checkpoint-bandwidth)",
        kCheckpointBandwidthPerGpu.in(BytesPerSecond{1e6})));
  }
  if (!o.restart) {
    request.assumptions.push_back(
        fmt::format("a restart takes {} (--restart-time)", duration(kRestart)));
  }
}

}  // namespace

Result<Seconds> parse_duration(const Setting& setting) {
  struct Unit {
    std::string_view name;
    double seconds;
  };
  static constexpr std::array<Unit, 5> kUnits = {
      {{"min", 60}, {"ms", 1e-3}, {"s", 1}, {"h", 3600}, {"d", 86400}}};
  const std::string expected = "a time such as 90s, 10min, 6338h or 264d";
  const std::string& text = setting.value;
  for (const Unit& unit : kUnits) {
    if (!text.ends_with(unit.name)) continue;
    constexpr double kLongest = 1e12;
    const Result<double> number =
        parse_ratio(std::string_view(text).substr(0, text.size() - unit.name.size()), setting.where,
                    0, kLongest);
    if (!number || *number <= 0) break;
    return Seconds{*number * unit.seconds};
  }
  return input_error(setting.where, "'" + text.substr(0, 40) + "'", expected);
}

Result<std::optional<std::int64_t>> gpus_at_most(const Settings& settings) {
  const Setting* most = settings.find("gpus-at-most");
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

Status read_operations(const Settings& settings, PlanRequest& request) {
  TrainingEconomics& o = request.economics;
  if (const Setting* setting = settings.find("objective")) {
    const Result<Objective> objective = parse_objective(setting->value, setting->where);
    if (!objective) return objective.error();
    request.objective = *objective;
  }
  if (const Status ok = read(settings, "mtbf", o.mtbf_per_node, parse_duration); !ok) return ok;
  if (const Status ok = read(settings, "restart-time", o.restart, parse_duration); !ok) return ok;
  if (const Status ok =
          read(settings, "checkpoint-bandwidth", o.checkpoint_bandwidth, bandwidth_of);
      !ok) {
    return ok;
  }
  if (const Status ok = read(settings, "critical-batch", o.critical_batch, tokens_of); !ok) {
    return ok;
  }
  if (settings.has("gpus-at-most")) request.gpus_at_most = request.cluster.gpus();
  tell_failures(request);
  return Done{};
}

}  // namespace echelon::cli
