#include "report/metrics.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <variant>
#include <vector>

#include "core/base/parse_quantity.hpp"
#include "core/plan/plan_fields.hpp"
#include "report/format.hpp"

namespace echelon {
namespace {

constexpr std::array<MetricInfo, 11> kFigures = {{
    {Metric::step, "step", "step_seconds", "step",
     "time of one optimizer step: compute, recompute, exposed communication, pipeline "
     "fill/drain, stage imbalance, slowest node, optimizer, host and data, means of the stages "
     "(docs/formulas.md)"},
    {Metric::tokens_per_second, "tokens", "tokens_per_second", "tokens/s",
     "global batch · sequence / step", false},
    {Metric::mfu, "mfu", "mfu", "MFU",
     "model FLOPs / (step · GPUs · dense peak): 6·parameters + 12·layers·hidden·sequence per "
     "token, recomputation not counted (PaLM, arXiv 2204.02311, appendix B)",
     false},
    {Metric::memory, "memory", "peak_reserved_bytes", "reserved",
     "weights + gradients + optimizer + activations + workspace + communication + CUDA context of "
     "the fullest stage, and what the allocator reserves beyond (docs/formulas.md)"},
    {Metric::headroom, "headroom", "headroom_bytes", "headroom",
     "memory of a GPU, or --max-memory - reserved", false},
    {Metric::fits, "fits", "fits_probability", "fits",
     "probability that the plan fits, from how far measured peaks of this framework lie from the "
     "predicted ones (docs/search.md); unknown with --max-memory, by which a plan fits or not",
     false},
    {Metric::usd_per_step, "cost", "usd_per_step", "USD/step",
     "GPUs · step · price of a GPU hour of the cluster's description"},
    {Metric::usd_per_million_tokens, "token-cost", "usd_per_million_tokens", "USD/M tokens",
     "cost of a step / tokens of a step · 1,000,000"},
    {Metric::gpu_hours_per_step, "gpu-hours", "gpu_hours_per_step", "GPU h/step",
     "GPUs · step / goodput; goodput: share of the time that failures leave (Daly 2006), 1 where "
     "the failure rate is unknown"},
    {Metric::kwh_per_step, "energy", "kwh_per_step", "kWh/step",
     "board power · GPUs · (0.9 of the time in kernels + 0.6 in exposed communication + 0.35 in "
     "waiting), shares assumed; GPU boards alone (docs/formulas.md)"},
    {Metric::gpus, "gpus", "gpus", "GPUs", "tp · cp · dp · pp"},
}};

/// "10,234", "23.4", "2.10", "0.0123": three digits, or all before the point.
std::string plain_number(double value) {
  const double size = std::abs(value);
  if (size >= 999.5) return grouped(std::llround(value));
  if (size < 0.1) return fmt::format("{:.3g}", value);
  return fmt::format("{:.{}f}", value, size < 9.995 ? 2 : size < 99.95 ? 1 : 0);
}

}  // namespace

std::span<const MetricInfo> metrics() { return kFigures; }
const MetricInfo& info_of(Metric figure) { return kFigures[static_cast<std::size_t>(figure)]; }
std::span<const Degree> degrees() {
  static const std::vector<Degree> kDegrees = [] {
    std::vector<Degree> degrees;
    for (const PlanField& field : plan_fields()) {
      if (field.kind != PlanFieldKind::degree && field.kind != PlanFieldKind::count) continue;
      degrees.push_back(
          {field.key, field.help, std::get<int ParallelPlan::*>(field.member), field.always_shown});
    }
    return degrees;
  }();
  return kDegrees;
}

std::optional<double> value_of(Metric figure, const PlanRequest& request,
                               const Candidate& candidate, const Economics& money) {
  const PlanCosts& p = candidate.prediction;
  switch (figure) {
    case Metric::step: return p.time.step.in(kSecond);
    case Metric::tokens_per_second: return p.tokens_per_second;
    case Metric::mfu: return p.mfu;
    case Metric::memory: return p.memory.peak_reserved.in(kByte);
    case Metric::headroom: return (request.capacity() - p.memory.peak_reserved).in(kByte);
    case Metric::fits: return candidate.score.fits_probability;
    case Metric::usd_per_step:
      return money.per_step ? std::optional(money.per_step->in(kDollar)) : std::nullopt;
    case Metric::usd_per_million_tokens:
      return money.per_token ? std::optional(1e6 * money.per_token->in(kDollar)) : std::nullopt;
    case Metric::gpu_hours_per_step: return money.gpu_time.in(kSecond) / 3600;
    case Metric::kwh_per_step:
      return money.energy ? std::optional(money.energy->per_step.in(kKilowattHour)) : std::nullopt;
    case Metric::gpus: return static_cast<double>(candidate.plan.gpus());
  }
  return std::nullopt;
}

std::string format(Metric figure, double value) {
  switch (figure) {
    case Metric::step: return duration(Seconds{value});
    case Metric::mfu: return percent(value);
    case Metric::fits: return probability(value);
    case Metric::memory:
    case Metric::headroom: return with_gib(Bytes{value});
    case Metric::tokens_per_second:
    case Metric::gpus: return grouped(std::llround(value));
    case Metric::usd_per_step:
    case Metric::usd_per_million_tokens:
    case Metric::gpu_hours_per_step:
    case Metric::kwh_per_step: return plain_number(value);
  }
  return {};
}

MetricScale scale_of(Metric figure, double largest) {
  constexpr double kFew = 0.1;  // of a unit: below it the next smaller one reads better
  switch (figure) {
    case Metric::step:
      if (largest >= kFew) return {1, "s"};
      return largest >= 1e-3 * kFew ? MetricScale{1e-3, "ms"} : MetricScale{1e-6, "us"};
    case Metric::mfu:
    case Metric::fits: return {0.01, "%"};
    case Metric::memory:
    case Metric::headroom:
      return std::abs(largest) >= kFew * 0x1p30 ? MetricScale{0x1p30, "GiB"}
                                                : MetricScale{0x1p20, "MiB"};
    case Metric::tokens_per_second:
      if (largest >= 1e6) return {1e6, "M"};
      return largest >= 1e4 ? MetricScale{1e3, "k"} : MetricScale{1, ""};
    case Metric::usd_per_step:
    case Metric::usd_per_million_tokens: return {1, "USD"};
    case Metric::gpu_hours_per_step: return {1, "h"};
    case Metric::kwh_per_step: return {1, "kWh"};
    case Metric::gpus: return {1, ""};
  }
  return {};
}

}  // namespace echelon
