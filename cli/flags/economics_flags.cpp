#include "cli/flags/economics_flags.hpp"

#include <fmt/format.h>

#include <optional>
#include <string>

#include "cli/flags/values.hpp"
#include "core/base/parse_quantity.hpp"
#include "core/base/text.hpp"
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
    return input_error(setting.where, in_quotes(setting.value), "more than 0");
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
        "no failures: the failure rate of this cluster's nodes is unknown (--mtbf)");
    return;
  }
  if (!o.mtbf_per_node) {
    request.assumptions.push_back(fmt::format(
        "a node fails every {}, from the cluster's description (--mtbf)", duration(*node)));
  }
  if (!o.checkpoint_bandwidth) {
    const BytesPerSecond per_gpu = request.cluster.storage_bandwidth() / request.cluster.gpus();
    request.assumptions.push_back(
        fmt::format("checkpoints stop the job and are written at {:.0f} MB/s per GPU, the rate of "
                    "{} storage (--checkpoint-bandwidth)",
                    per_gpu.in(BytesPerSecond{1e6}),
                    request.cluster.node().storage ? "the cluster's" : "Llama 3's"));
  }
  if (!o.restart) {
    request.assumptions.push_back(
        fmt::format("a restart takes {} (--restart-time)", duration(kRestart)));
  }
}

}  // namespace

Status read_economics(const Settings& settings, PlanRequest& request) {
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
  if (settings.has("max-gpus")) request.max_gpus = request.cluster.gpus();
  tell_failures(request);
  return Done{};
}

}  // namespace echelon::cli
