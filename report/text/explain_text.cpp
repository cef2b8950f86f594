// The chain of a plan as sentences, one step after the other.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "core/base/parse_quantity.hpp"
#include "core/base/text.hpp"
#include "planner/economics.hpp"
#include "report/explain.hpp"
#include "report/format.hpp"
#include "report/text/table.hpp"
#include "report/text/text.hpp"
#include "report/trade_offs.hpp"

namespace echelon {

namespace {

std::string uncapitalized(std::string text) {
  if (text.starts_with("ZeRO")) return text;
  if (!text.empty()) text[0] = lower_case(text[0]);
  return text;
}

bool fits(const ChainStep& step) { return step.plan && step.plan->fits; }

std::string words_of(MemoryCategory category) {
  switch (category) {
    case MemoryCategory::weights: return "the weights";
    case MemoryCategory::gradients: return "the gradients";
    case MemoryCategory::optimizer: return "the optimizer's state";
    case MemoryCategory::activations: return "the activations";
    case MemoryCategory::buffers: return "the buffers";
  }
  return "memory";
}

std::string title_of(const ChainStep& step, Technique technique) {
  switch (technique) {
    case Technique::one_gpu: return "One GPU";
    case Technique::data_parallel:
      return fmt::format("Data parallel on {} GPUs", grouped(step.gpus));
    case Technique::recompute: return "Recompute activations";
    case Technique::zero:
      return step.zero > 0 ? fmt::format("ZeRO {}", step.zero) : std::string("Any ZeRO stage");
    case Technique::tensor: return "Tensor parallel";
    case Technique::pipeline: return "Pipeline";
    case Technique::interleaving: return "Interleave the pipeline";
    case Technique::context: return "Context parallel";
    case Technique::experts: return "Expert parallel";
    case Technique::offload: return "Offload the optimizer";
    case Technique::everything: return "All axes at once";
  }
  return {};
}

std::string title_of(const ChainStep& step) {
  const std::string title = title_of(step, step.technique);
  if (step.also == Technique::interleaving) return "Interleaved " + uncapitalized(title);
  return step.also ? title + " and " + uncapitalized(title_of(step, *step.also)) : title;
}

/// The effect of the technique on the shortage of the previous step.
std::string idea_of(Technique technique) {
  switch (technique) {
    case Technique::one_gpu: return "The whole model, the batch in accumulated microbatches.";
    case Technique::data_parallel: return "Each GPU holds everything and takes its own samples.";
    case Technique::recompute: return "keep each layer's input and compute the rest again";
    case Technique::zero: return "split over the data parallel ranks";
    case Technique::tensor: return "split every matrix over GPUs that NVLink joins";
    case Technique::pipeline: return "give each group of GPUs some of the layers";
    case Technique::interleaving: return "several small groups of layers per GPU";
    case Technique::context: return "split every sequence over GPUs";
    case Technique::experts: return "give each GPU some of the experts";
    case Technique::offload: return "keep its states in host memory";
    case Technique::everything: return "let every choice differ";
  }
  return {};
}

bool slower(const Candidate& before, const Candidate& after) {
  return after.prediction.time.step > before.prediction.time.step;
}

/// Why a slower plan is the better one, if that is so.
bool likelier(const Candidate& before, const Candidate& after) {
  return slower(before, after) && after.score.fits_probability > before.score.fits_probability;
}

/// "recompute falls from 2.11 s to 0 s": the part that a technique shrinks most, or "".
std::string gain_of(const Candidate& before, const Candidate& after) {
  if (likelier(before, after)) return "it is more likely to fit";
  const std::optional<PartIncrease> part =
      largest_increase(after.prediction.time.parts, before.prediction.time.parts);
  if (!part) return {};
  return fmt::format("{} falls from {} to {}", part->name, duration(part->to),
                     duration(part->from));
}

std::string capitalised(std::string text) {
  if (!text.empty() && text[0] >= 'a' && text[0] <= 'z') {
    text[0] = static_cast<char>(text[0] - 'a' + 'A');
  }
  return text;
}

/// The reason for this technique: the largest part of memory, or the gain.
std::string why_of(const PlanRequest& request, const ChainStep& before, const ChainStep& step) {
  const std::string idea = capitalised(idea_of(step.technique));
  if (step.technique == Technique::data_parallel) return idea;
  if (!before.plan) return idea + ".";
  if (!fits(before)) {
    const MemoryCategory largest = before.pressing->category;
    if (step.technique == Technique::recompute && largest != MemoryCategory::activations) {
      return fmt::format("Remaining: {}.", idea_of(step.technique));
    }
    const bool one = before.pressing->category == MemoryCategory::optimizer;
    return fmt::format("{} {} ({}): {}.", capitalised(words_of(before.pressing->category)),
                       one ? "dominates memory" : "dominate memory",
                       with_gib(before.pressing->bytes), idea_of(step.technique));
  }
  if (!step.plan) return idea + ".";
  const std::string gain = gain_of(*before.plan, *step.plan);
  if (step.technique == Technique::everything && slower(*before.plan, *step.plan) &&
      !likelier(*before.plan, *step.plan)) {
    return request.objective == Objective::step_time
               ? "Your pinned flags force this; without them the previous plan would do."
               : fmt::format("The objective is {}, not the step.", name_of(request.objective));
  }
  if (step.technique == Technique::everything) {
    return fmt::format("{}: no technique alone leads there{}{}.", idea, gain.empty() ? "" : "; ",
                       gain);
  }
  const std::string what =
      step.also ? fmt::format("{}; {}. The two gain most now", idea, idea_of(*step.also))
                : idea + ". It gains most now";
  return fmt::format("{}{}{}.", what, gain.empty() ? "" : ": ", gain);
}

/// "2.1 years for 2 T tokens", if a budget is given.
std::string for_budget(const PlanRequest& request, Seconds step) {
  const Economics money = economics_of(request, step);
  if (!money.time_for_budget) return {};
  return fmt::format(", {} for {} tokens", duration(*money.time_for_budget),
                     human_count(*request.job.token_budget));
}

std::string result_of(const PlanRequest& request, const ChainStep* before, const ChainStep& step) {
  if (!step.plan) return "No legal plan: " + step.illegal + ".";
  const MemoryPrediction& memory = step.plan->prediction.memory;
  const Seconds time = step.plan->prediction.time.step;
  if (!step.plan->fits) {
    std::string out = fmt::format("Short of {}", with_gib(step.missing));
    if (step.plan->plan.pp > 1) out += fmt::format(" on stage {}", step.stage);
    out += fmt::format(": {} needed, {}; {} take{} {}.", with_gib(memory.peak_reserved),
                       limit_text(request), words_of(step.pressing->category),
                       step.pressing->category == MemoryCategory::optimizer ? "s" : "",
                       with_gib(step.pressing->bytes));
    if (step.technique == Technique::one_gpu) {
      out += fmt::format(" With enough memory a step would take {}{}.", duration(time),
                         for_budget(request, time));
    }
    return out;
  }
  std::string out =
      fmt::format("{} to spare{}; {} a step{}", with_gib(request.capacity() - memory.peak_reserved),
                  chance_of(*step.plan), duration(time),
                  step.technique == Technique::one_gpu ? for_budget(request, time) : "");
  if (before != nullptr && fits(*before)) {
    const Seconds was = before->plan->prediction.time.step;
    out += was / time >= 2 ? fmt::format(", {:.3g} times as fast", was / time)
                           : fmt::format(" ({})", signed_percent(time / was - 1));
  }
  return out + "; " + words_of(step.limit) + ".";
}

std::string chain_text(const PlanRequest& request, const std::vector<ChainStep>& chain,
                       const TextStyle& style) {
  std::string out = heading("From one GPU to this plan", style);
  for (std::size_t i = 0; i < chain.size(); ++i) {
    const ChainStep& step = chain[i];
    const ChainStep* before = i > 0 ? &chain[i - 1] : nullptr;
    out +=
        folded(painted(title_of(step), Paint::bold, style), fmt::format("{:>3}  ", i + 1), style);
    const std::string why =
        before != nullptr ? why_of(request, *before, step) : idea_of(step.technique);
    out += folded(why, "     ", style);
    if (i > 0 && step.plan) {
      out +=
          folded(painted(described(step.plan->plan, style), Paint::accent, style), "     ", style);
    }
    const std::string result = result_of(request, before, step);
    out += folded(painted(result, fits(step) ? Paint::good : Paint::bad, style), "     ", style);
  }
  return out;
}

std::string layout_text(const Explanation& explanation, const TextStyle& style) {
  if (explanation.layout.empty()) return {};
  const ClusterTopology& cluster = explanation.choice.request.cluster;
  Table table({{"axis", Table::Align::left, 0},
               {"ranks"},
               {"NVLink domains", Table::Align::right, 2},
               {"sent per GPU"},
               {"time alone"},
               {"dp, pp innermost, others outermost", Table::Align::right, 1}});
  for (const AxisLayout& axis : explanation.layout) {
    const std::string elsewhere = axis.domains == axis.other_domains
                                      ? std::string("the same")
                                      : fmt::format("{} over {}", duration(axis.elsewhere),
                                                    counted(axis.other_domains, "domain"));
    const std::string name = axis.with_cp ? "dp x cp" : std::string(name_of(axis.axis));
    table.add({name, std::to_string(axis.ranks), std::to_string(axis.domains), with_gib(axis.sent),
               duration(axis.placed), elsewhere});
  }
  std::string out = heading("Layout on the network, per step", style) + table.text(style);
  const AxisLayout& first = explanation.layout.front();
  if (first.axis == Axis::tp && first.domains == 1 && first.other_domains > 1) {
    out +=
        folded(fmt::format("tp is innermost: {} neighbouring GPUs share one NVLink domain of {}. "
                           "Spread over {} domains its collectives would take {:.1f} times as "
                           "long.",
                           first.ranks, cluster.domain_gpus(), first.other_domains,
                           first.elsewhere / first.placed),
               "  ", style);
  }
  return out;
}

std::string beginning(const Explanation& explanation, const TextStyle& style) {
  const PlanRequest& request = explanation.choice.request;
  std::string out = job_text(request, style);
  if (const Candidate* winner = explanation.choice.report.winner()) {
    out += headline(request, *winner, "best plan", style);
    out += folded(proof_of(explanation.choice.report), "proof      ", style);
  }
  return out;
}

}  // namespace

std::string words_of(const Limit& limit) {
  const std::string share = percent(limit.share);
  switch (limit.bottleneck) {
    case Bottleneck::memory: return "memory is the limit";
    case Bottleneck::batch: return "the batch is the limit";
    case Bottleneck::shapes: return "the shapes of the model are the limit";
    case Bottleneck::compute: return "compute itself takes " + share + " of the step";
    case Bottleneck::recompute: return "recomputation takes " + share + " of the step";
    case Bottleneck::bandwidth: return "exposed communication takes " + share + " of the step";
    case Bottleneck::fill_drain:
      return "filling and draining the pipeline takes " + share + " of the step";
    case Bottleneck::imbalance:
      return "stages that wait for slower ones idle for " + share + " of the step";
    case Bottleneck::overhead: return "optimizer and host take " + share + " of the step";
  }
  return {};
}

std::string unfinished_text(const std::vector<std::string_view>& parts, const TextStyle& style) {
  if (parts.empty()) return {};
  const std::string text =
      fmt::format("Not finished within the time limit (--time-limit): {}.", fmt::join(parts, ", "));
  return "\n" + folded(painted(text, Paint::warning, style), "", style);
}

std::string explain_text(const Explanation& explanation, const TextStyle& style) {
  const PlanRequest& request = explanation.choice.request;
  std::string out = beginning(explanation, style);
  if (!explanation.chain.empty()) out += chain_text(request, explanation.chain, style);
  const SearchOutcome& report = explanation.choice.report;
  if (report.winner() == nullptr) {
    out += "\n" + nearest_infeasible_text(request, report, style);
  } else if (!report.winner()->fits) {
    out += nearest_misses(report, style);
  }
  out += layout_text(explanation, style);
  if (const Candidate* winner = explanation.choice.report.winner()) {
    out += sensitivities_text(request, *winner, explanation.sensitivities, style);
  }
  out += unfinished_text(explanation.unfinished, style);
  return out + assumptions_text(request, style);
}

std::string explain_briefly(const Explanation& explanation, const TextStyle& style) {
  const PlanRequest& request = explanation.choice.request;
  const Candidate* winner = explanation.choice.report.winner();
  if (winner == nullptr) return nearest_infeasible_text(request, explanation.choice.report, style);
  std::string out = headline(request, *winner, "best plan", style).substr(1);
  if (!explanation.choice.report.best_as_assumed()) {
    out += folded(proof_of(explanation.choice.report), "proof      ", style);
  }
  if (const Sensitivity* best = most_valuable(explanation.sensitivities)) {
    out += folded(buys_most_sentence(*best, request), "buys most  ", style);
  }
  return out + unfinished_text(explanation.unfinished, style);
}

std::string why_not_text(const Explanation& explanation, const WhyNotAnswer& asked,
                         const TextStyle& style) {
  return beginning(explanation, style) + verdict_text(explanation, asked, style);
}

}  // namespace echelon
