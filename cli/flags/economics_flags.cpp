#include "cli/flags/economics_flags.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "cli/flags/this_machine.hpp"
#include "cli/flags/values.hpp"
#include "core/base/parse_quantity.hpp"
#include "core/base/text.hpp"
#include "core/run/run_report.hpp"
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

Result<Dollars> price_of(const Setting& setting) {
  const Result<double> price = parse_ratio(setting.value, setting.where, 1e-6, 1e6);
  if (!price) return price.error();
  return *price * kDollar;
}

/// The measurements of the run behind a report.
Result<PastRun> past_run_of(const Setting& setting) {
  const Result<RunReport> report = read_run_report(setting.value);
  if (!report) return report.error();
  if (report->goodput.starts == 0) {
    return input_error(setting.value, "no checkpoints and starts",
                       "the report of a run with --checkpoint-dir");
  }
  const Result<ClusterTopology> cluster = load_cluster(report->plan.cluster, report->plan.gpus);
  if (!cluster) return cluster.error();
  return PastRun{report->goodput, cluster->nodes()};
}

/// What was taken from a run, in words: "3 failures in 41 s of 4 starts, ...".
std::string told(const MeasuredGoodput& run) {
  std::string text = fmt::format("{} in {} of {}", counted(run.failures, "failure"),
                                 duration(run.running), counted(run.starts, "start"));
  if (run.restarts > 0) text += fmt::format(", {} until the next step", duration(run.restart));
  if (run.checkpoints > 0) {
    text += fmt::format(", {} of {} written in {} each", counted(run.checkpoints, "checkpoint"),
                        with_gib(run.checkpoint), duration(run.write));
  }
  return text;
}

/// Where a price is from, which money is shown with: of the GPUs of a catalog it is the market's,
/// and a provider's own may be several times as high.
void assume_price(PlanRequest& request) {
  const std::optional<Dollars> price = request.cluster.price_per_gpu_hour();
  const bool shown = request.job.token_budget || request.max_gpus;
  if (!shown || !price || request.economics.gpu_hour) return;
  const std::vector<Fact>& facts = request.cluster.machine().facts;
  const auto fact_of = [&](std::string_view name) {
    const auto at = std::ranges::find(facts, name, &Fact::name);
    return at != facts.end() ? &*at : nullptr;
  };
  const Fact* own = fact_of("price_per_gpu_hour");
  const Fact* market = fact_of("gpu.price");
  const Fact* fact = own != nullptr ? own : market;
  const std::string source = fact != nullptr && !fact->source.empty() ? fact->source : "no source";
  request.assumptions.push_back(fmt::format(
      "a GPU hour costs {:.2f} USD{} ({}): --gpu-price", price->in(kDollar),
      own != nullptr ? ", as the cluster's description says"
                     : fmt::format(", what {} costs on the market, not at this provider",
                                   request.cluster.gpu().name),
      source));
}

/// Failures matter where days or goodput are shown.
void tell_failures(PlanRequest& request) {
  if (!shows_goodput(request)) return;
  const TrainingEconomics& o = request.economics;
  const MeasuredGoodput run = o.measured ? o.measured->goodput : MeasuredGoodput();
  if (o.measured) {
    request.assumptions.push_back(
        fmt::format("failures, restarts and checkpoints are as measured, where no flag says "
                    "otherwise: {} (--goodput-from)",
                    told(run)));
  }
  const std::optional<Goodput> goodput = goodput_of(request);
  if (!goodput) {
    request.assumptions.emplace_back(
        "no failures: the failure rate of this cluster's nodes is unknown (--mtbf)");
    return;
  }
  if (!o.mtbf_per_node && !run.time_between_failures()) {
    request.assumptions.push_back(
        fmt::format("a node fails every {}, from the cluster's description (--mtbf)",
                    duration(*request.cluster.mtbf_per_node())));
  }
  if (!o.checkpoint_bandwidth && run.checkpoints == 0) {
    const BytesPerSecond per_gpu = request.cluster.storage_bandwidth() / request.cluster.gpus();
    request.assumptions.push_back(
        fmt::format("checkpoints stop the job and are written at {:.0f} MB/s per GPU, the rate of "
                    "{} storage (--checkpoint-bandwidth)",
                    per_gpu.in(BytesPerSecond{1e6}),
                    request.cluster.node().storage ? "the cluster's" : "Llama 3's"));
  }
  if (!o.restart && run.restarts == 0) {
    request.assumptions.push_back(
        fmt::format("a restart takes {} (--restart-time)", duration(kRestart)));
  }
}

/// A job that fails before it has restarted and saved does not train; its days would be any number.
Status check_progress(const Settings& settings, const PlanRequest& request) {
  constexpr double kLeast = 0.001;
  const std::optional<Goodput> goodput = goodput_of(request);
  if (!goodput || !shows_goodput(request) || goodput->fraction >= kLeast) return Done{};
  const Setting* restart = settings.find("restart-time");
  const Setting* mtbf = settings.find("mtbf");
  const Setting* named = mtbf != nullptr ? mtbf : restart;
  return input_error(
      named != nullptr ? named->where : "--mtbf",
      fmt::format("a failure every {} of the whole job, {} of {} each, which restarts in {} and "
                  "stops {} for a checkpoint: less than {:.1f} % of the time is training",
                  duration(goodput->mtbf), counted(request.cluster.nodes(), "node"),
                  duration(request.cluster.nodes() * goodput->mtbf), duration(goodput->restart),
                  duration(goodput->stall), 100 * kLeast),
      "a mean time between failures of one node, not of the job, that is longer: --mtbf 6338h");
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
  if (const Status ok = read(settings, "gpu-price", o.gpu_hour, price_of); !ok) return ok;
  if (const Status ok = read(settings, "goodput-from", o.measured, past_run_of); !ok) return ok;
  if (settings.has("max-gpus")) request.max_gpus = request.cluster.gpus();
  if (const Status progress = check_progress(settings, request); !progress) return progress.error();
  tell_failures(request);
  assume_price(request);
  return Done{};
}

}  // namespace echelon::cli
