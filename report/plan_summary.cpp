#include "report/plan_summary.hpp"

#include <fmt/format.h>

#include <utility>

#include "core/base/parse_quantity.hpp"
#include "planner/economics.hpp"
#include "planner/search/optimize.hpp"
#include "report/explain.hpp"
#include "report/format.hpp"
#include "report/trade_offs.hpp"

namespace echelon {

namespace {

/// Processor cores do fractions of one.
std::string in_teraflops(FlopsPerSecond rate) {
  const double value = rate.in(1_TFLOPS);
  return value < 10 ? fmt::format("{:.2g}", value) : fmt::format("{:.0f}", value);
}

StatTile training_of(const PlanRequest& request, Seconds step) {
  const Economics money = economics_of(request, step);
  StatTile f{
      "Training", "", "",
      "Token budget / tokens per second, times 1 + batch / critical batch where that is known "
      "(McCandlish et al., arXiv 1812.06162); with failures divided by the useful fraction of "
      "Daly (2006). Money: GPU hours x price of the machine's description.",
      Paint::plain};
  if (!money.time_for_budget) {
    f.value = "-";
    f.detail = money.per_step ? fmt::format("{:.2f} USD a step", money.per_step->in(kDollar))
                              : "no token budget";
    return f;
  }
  f.value = duration(money.expected_time.value_or(*money.time_for_budget));
  if (money.for_budget) {
    f.detail = fmt::format(
        "{} USD{}", human_count(money.expected_dollars.value_or(*money.for_budget).in(kDollar)),
        money.expected_dollars ? "" : " at best");
  } else {
    f.detail = fmt::format("{} tokens", human_count(*request.job.token_budget));
  }
  return f;
}

/// "14.2 GiB to spare", "1.3 GiB short".
std::string spare_text(Bytes spare) {
  return spare >= Bytes{} ? with_gib(spare) + " to spare" : with_gib(-spare) + " short";
}

StatTile memory_of(const PlanRequest& request, const Candidate& candidate) {
  const MemoryPrediction& memory = candidate.prediction.memory;
  const Bytes spare = request.capacity() - memory.peak_reserved;
  StatTile f{
      "Reserved", with_gib(memory.peak_reserved), "",
      fmt::format("Memory reserved on the fullest stage: the sum of weights, gradients, optimizer, "
                  "activations, workspace, communication buffers and context, {} at the peak, with "
                  "the allocator's reserve, of {}: {}{}. The limit: {}.",
                  with_gib(memory.peak), with_gib(memory.capacity), spare_text(spare),
                  chance_of(candidate), limit_text(request)),
      candidate.fits ? Paint::good : Paint::bad};
  const std::optional<double> likely = candidate.score.fits_probability;
  f.detail = likely ? likely_to_fit(*likely) : spare_text(spare);
  return f;
}

struct NamedShare {
  const char* name;
  double share;
};

/// Both in a line; a narrow tile shows its beginning.
std::string larger_first(NamedShare a, NamedShare b) {
  if (a.share < b.share) std::swap(a, b);
  return fmt::format("{} {}, {} {}", percent(a.share), a.name, percent(b.share), b.name);
}

}  // namespace

std::vector<StatTile> stat_tiles_of(const PlanRequest& request, const Candidate& candidate,
                                    const Candidate* best) {
  const PlanCosts& p = candidate.prediction;
  const GpuSpec& gpu = request.cluster.gpu();
  const FlopsPerSecond peak = gpu.peak(request.job.precision.compute);
  std::vector<StatTile> out;
  StatTile step{
      "Step", duration(p.time.step),
      fmt::format("{} to {}", duration(p.time.low), duration(p.time.high)),
      "Sum of the parts of one optimizer step, means of the pipeline's stages; below it the "
      "80 % band of the calibration.",
      Paint::plain};
  if (best != nullptr && best->fits && p.time.step > best->prediction.time.step) {
    step.detail = signed_percent(p.time.step / best->prediction.time.step - 1) + " to the best";
    step.paint = tied(p.time, best->prediction.time, request.calibration.time_band)
                     ? Paint::plain
                     : Paint::warning;
  }
  out.push_back(std::move(step));
  out.push_back({"Tokens/s", human_count(p.tokens_per_second),
                 human_count(p.tokens_per_second / request.cluster.gpus()) + " per GPU",
                 fmt::format("{} tokens per step / step",
                             grouped(static_cast<std::int64_t>(request.job.tokens_per_step()))),
                 Paint::plain});
  out.push_back({"MFU", percent(p.mfu), in_teraflops(p.model_flops_per_gpu) + " TFLOP/s",
                 fmt::format("Model FLOPs ({}; PaLM, arXiv 2204.02311, appendix "
                             "B) / (step x GPUs x {} TFLOP/s, the dense {} peak of {})",
                             flops_formula(request.model, request.job), in_teraflops(peak),
                             gpu.peak_format(request.job.precision.compute), gpu.name),
                 Paint::plain});
  const CostBreakdown& parts = p.time.parts;
  out.push_back({"Bubble", percent(p.time.bubble_share()),
                 larger_first({"fill/drain", parts.fill_drain / p.time.step},
                              {"imbalance", parts.imbalance / p.time.step}),
                 "Share of the step that a stage waits for other stages, mean of the stages. "
                 "Fill/drain: what the schedule imposes on equal stages. Imbalance: waiting for "
                 "slower stages.",
                 Paint::plain});
  out.push_back(memory_of(request, candidate));
  out.push_back(training_of(request, p.time.step));
  return out;
}

PlanSummary summary_of(const PlanRequest& request, const Candidate& candidate,
                       const Candidate* best) {
  const PlanCosts& p = candidate.prediction;
  const Bytes spare = request.capacity() - p.memory.peak_reserved;
  PlanSummary out;
  out.good = candidate.fits;
  if (candidate.fits) {
    out.fits = "Fits with " + spare_text(spare) + chance_of(candidate);
  } else {
    out.fits = fmt::format("Does not fit: {} on stage {}{}", spare_text(spare),
                           p.memory.tightest_stage, chance_of(candidate));
  }
  if (best != nullptr) {
    const double more = p.time.step / best->prediction.time.step - 1;
    if (candidate.plan == best->plan) {
      out.against = "The best plan";
    } else if (tied(p.time, best->prediction.time, request.calibration.time_band)) {
      out.against = fmt::format("{} a step to the best plan, which the model cannot tell apart",
                                signed_percent(more));
    } else {
      out.against = fmt::format("{} a step to the best plan", signed_percent(more));
    }
  }
  std::string limit = words_of(limit_of(candidate, request.usable_memory()));
  if (!limit.empty() && limit.front() >= 'a' && limit.front() <= 'z') {
    limit.front() = static_cast<char>(limit.front() - 'a' + 'A');
  }
  out.limit = std::move(limit);
  out.evidence =
      fmt::format("Numbers are {} (rates of {}{}{})", name_of(p.evidence), request.calibration.name,
                  request.calibration.fitted_to.empty() ? "" : ": ", request.calibration.fitted_to);
  return out;
}

}  // namespace echelon
