// The answer of a search; its lists of plans: plan_list_text.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "core/base/parse_quantity.hpp"
#include "planner/search/bounds.hpp"
#include "planner/space/constraints_of_plan.hpp"
#include "planner/space/plan_from_constraints.hpp"
#include "report/explain.hpp"
#include "report/format.hpp"
#include "report/metrics.hpp"
#include "report/plan_files.hpp"
#include "report/text/plan_list_text.hpp"
#include "report/text/table.hpp"
#include "report/text/text.hpp"
#include "report/trade_offs.hpp"

namespace echelon {

namespace {

constexpr std::size_t kMostRejections = 8;

std::string why_it_won(const SearchResult& choice, const TextStyle& style) {
  const SearchOutcome& report = choice.report;
  if (report.candidates.size() < 2) return {};
  const Candidate& best = report.candidates[0];
  const Candidate& next = report.candidates[1];
  const std::string other = described(next.plan, style);
  std::string why;
  if (choice.request.objective == Objective::memory_headroom) {
    const Bytes more = next.prediction.memory.peak_reserved - best.prediction.memory.peak_reserved;
    why = fmt::format("needs least memory; {} more makes a step {} faster ({})", with_gib(more),
                      duration(best.prediction.time.step - next.prediction.time.step), other);
  } else if (next.prediction.time.step < best.prediction.time.step) {
    const double behind = 1 - next.prediction.time.step / best.prediction.time.step;
    why = fmt::format("{} slower than the next best ({}), but that one {}.", percent(behind), other,
                      drawbacks(next, best));
  } else {
    const double lead = next.prediction.time.step / best.prediction.time.step - 1;
    why = fmt::format("{} faster than the next best ({}): that one has {}.", percent(lead), other,
                      why_slower(best, next));
    if (tied_with_best(choice, next)) why += " That is too close to call: measure both.";
  }
  return folded(why, "why        ", style);
}

/// "Run tp 4 · pp 4: 14.6 s per step, 99 % likely to fit; 1.3 % slower than the fastest, which …"
std::string recommendation(const SearchResult& choice, const TextStyle& style) {
  const SearchOutcome& report = choice.report;
  const Candidate& best = *report.winner();
  const Seconds step = best.prediction.time.step;
  const std::optional<double> likely = best.score.fits_probability;
  std::string out = fmt::format(
      "{} {}: {} per step", best.fits ? "Run" : "Nothing is likely to fit. The best that may is",
      described(best.plan, style), duration(step));
  if (best.fits) {
    out += likely ? chance_of(best) : fmt::format(", {} to spare", spare_of(choice.request, best));
  } else {
    out += fmt::format(", but it is only {}: no plan is {:.0f} % likely to", likely_to_fit(*likely),
                       100 * kLeastProbability);
  }
  if (report.fastest) {
    const double slower = step / report.fastest->prediction.time.step - 1;
    constexpr double kLeastShown = 5e-4;
    out += fmt::format("; {} slower than the fastest, which {}",
                       slower < kLeastShown ? "less than 0.1 %" : percent(slower),
                       drawbacks(*report.fastest, best));
  }
  return "\n" + folded(painted(out + ".", best.fits ? Paint::bold : Paint::bad, style), "", style);
}

/// The plan with the shortest step, and that of those likely to fit, where others were chosen.
std::string faster_plans(const SearchResult& choice, const TextStyle& style) {
  const SearchOutcome& report = choice.report;
  const auto row = [&](std::string_view label, const Candidate& plan, std::string_view how) {
    return folded(fmt::format("{}: {}, {} to spare{}{}", described(plan.plan, style),
                              duration(plan.prediction.time.step), spare_of(choice.request, plan),
                              chance_of(plan), how),
                  fmt::format("{:<11}", label), style);
  };
  std::string out;
  if (report.fastest) out += row("fastest", *report.fastest, " (--prefer fastest)");
  // One as fast as the winner says nothing new.
  constexpr double kWorthShowing = 0.01;
  const Seconds step = report.winner()->prediction.time.step;
  if (const auto& likely = report.fastest_likely;
      likely && likely->prediction.time.step < step * (1 - kWorthShowing)) {
    out += row("likely", *likely, "");
  }
  return out;
}

std::string rejections(const SearchOutcome& report, const TextStyle& style) {
  if (report.rejected.empty()) return {};
  Table table({{"count"}, {"reason", Table::Align::left, 0}, {"nearest", Table::Align::left, 1}});
  std::vector<RejectionCount> sorted = report.rejected;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.count > b.count; });
  if (sorted.size() > kMostRejections) sorted.resize(kMostRejections);
  for (const RejectionCount& rejection : sorted) {
    table.add({grouped(rejection.count), std::string(name_of(rejection.reason)),
               Cell(rejection.nearest, Paint::dim)});
  }
  return heading("Ruled out", style) + table.text(style);
}

/// Flags that change one thing of a plan and leave it legal; "" where none of these does.
std::string one_change(const PlanRequest& request, const ParallelPlan& plan) {
  const auto legal = [&](auto change) {
    PlanRequest changed = request;
    changed.constraints = pinned_to(plan);
    change(changed.constraints);
    return plan_from_constraints(changed).ok();
  };
  const auto microbatch = [](int samples) {
    return [samples](PlanConstraints& c) { c.pin<&ParallelPlan::microbatch>(samples); };
  };
  for (const int samples : {2 * plan.microbatch, plan.microbatch / 2}) {
    if (samples > 0 && legal(microbatch(samples))) return fmt::format("--microbatch {}", samples);
  }
  const bool none = plan.recompute == Recompute::none;
  const auto recompute = [none](PlanConstraints& c) {
    c.pin<&ParallelPlan::recompute>(none ? Recompute::full : Recompute::none);
    c.release<&ParallelPlan::recompute_layers, &ParallelPlan::selective_layers>();
  };
  return legal(recompute) ? fmt::format("--recompute {}", none ? "full" : "none") : "";
}

std::string next_steps(const SearchResult& choice, const TypedSearch& typed,
                       const TextStyle& style) {
  const bool kept = !typed.plan_file.empty();
  const std::string plan = shell_quoted(kept ? typed.plan_file : "plan.json");
  const std::string other = typed.plan_file == "b.json" ? "c.json" : "b.json";
  Table table({{"", Table::Align::left, 0}, {"", Table::Align::left, 1}});
  table.add({typed.explain, Cell("bottlenecks and best upgrades", Paint::dim)});
  if (!kept) {
    table.add({typed.command + " -o plan.json", Cell("keep this plan in a file", Paint::dim)});
  }
  const std::string change = one_change(choice.request, choice.report.winner()->plan);
  if (!change.empty()) {
    table.add({fmt::format("plan predict {} {} -o {}", plan, change, other),
               Cell("change one thing", Paint::dim)});
    table.add(
        {fmt::format("plan compare {} {}", plan, other), Cell("and see what it does", Paint::dim)});
  }
  return heading("Next", style) + table.text(style);
}

}  // namespace

std::string open_splits_of(const SearchOutcome& report) {
  const auto words = [](OpenSplits::Kind kind) {
    switch (kind) {
      case OpenSplits::Kind::pinned_recompute: return "with pinned numbers of recomputed layers";
    }
    return "";
  };
  if (report.open_splits.empty()) return {};
  std::string out = "for";
  double gap = 0;
  for (const OpenSplits& open : report.open_splits) {
    out += fmt::format("{} {} {}", &open == &report.open_splits.front() ? "" : ", and for",
                       counted(open.points, "combination"), words(open.kind));
    gap = std::max(gap, open.gap);
  }
  return out + fmt::format(
                   " only the balanced split of the layers was priced; another split may "
                   "be up to {:.1f} % faster.",
                   100 * gap);
}

std::string proof_of(const SearchOutcome& report) {
  const SearchCounts& counts = report.counts;
  if (!report.exhaustive) {
    return fmt::format(
        "Not proved: best of the {} combinations priced before the search was stopped. One that is "
        "up to {:.1f} % faster may exist.",
        grouped(counts.fitting), 100 * report.proved_gap);
  }
  const std::string looked_at = fmt::format(
      "{} {}fit and were priced, {} were ruled out by their bounds, {} do not fit, the rest were "
      "rejected (below).",
      grouped(counts.fitting), report.fitting_winner() != nullptr ? "" : "may ",
      grouped(counts.bounded), grouped(counts.too_large));
  const std::string all =
      fmt::format("all {} combinations of the searched axes", grouped(counts.points));
  if (report.proved()) return fmt::format("Proved best of {}: {}", all, looked_at);
  const std::string assumed = fmt::format(
      "if no simulated step is more than {:.0f} % shorter than its closed form and the split of "
      "layers that is best in closed form is the best; without these assumptions one up to {:.1f} "
      "% faster is not ruled out.",
      100 * kClosedFormExcess, 100 * report.proved_gap);
  if (report.best_as_assumed()) {
    return fmt::format("Best of {} {} Of all, {}", all, assumed, looked_at);
  }
  return fmt::format("Best found of {}, not proved: {} This holds {} Of all, {}", all,
                     open_splits_of(report), assumed, looked_at);
}

std::string fix_text(const Fix& fix) {
  struct Words {
    std::string operator()(const RecomputeEveryLayer&) const {
      return "--recompute full instead of the pinned recomputation";
    }
    std::string operator()(const HigherZero& fix) const {
      return fmt::format("--zero {} instead of the pinned ZeRO stage", fix.zero);
    }
    std::string operator()(const SmallestMicrobatch&) const {
      return "--microbatch 1 instead of the pinned microbatch";
    }
    std::string operator()(const SequenceParallelOn&) const {
      return "--sequence-parallel instead of --no-sequence-parallel";
    }
    std::string operator()(const MoreGpus& fix) const {
      return fmt::format("{} GPUs instead of {} ({} {})", fix.gpus, fix.now,
                         fix.axis == Axis::pp ? "pp" : "dp", fix.degree);
    }
    std::string operator()(const LargerGpus& fix) const {
      return fmt::format("GPUs with {:.0f} GiB instead of {:.0f} GiB",
                         std::ceil(fix.memory.in(1_GiB)), fix.now.in(1_GiB));
    }
  };
  return std::visit(Words{}, fix);
}

std::string fixes_text(const NearestInfeasible& miss) {
  std::string out = fix_text(miss.fix);
  if (miss.narrower_states) out += ", or --precision " + *miss.narrower_states;
  std::string frozen = miss.adapters ? fmt::format(" --lora {}", miss.adapters->rank) : "";
  if (miss.quantized_weights) frozen += " --quantized-weights " + miss.quantized_weights->text();
  if (!frozen.empty()) out += fmt::format(", or{} (adapters alone)", frozen);
  return out;
}

std::string nearest_misses(const SearchOutcome& report, const TextStyle& style) {
  std::string out = heading("Nearest misses", style);
  for (const NearestInfeasible& miss : report.nearest_infeasible) {
    out += folded(described(miss.candidate.plan, style), "  ", style);
    out += folded(
        fmt::format("stage {} is short by {} ({} bytes); fits with {}", miss.stage,
                    painted(with_gib(miss.missing), Paint::bad, style),
                    grouped(static_cast<std::int64_t>(miss.missing.in(kByte))), fixes_text(miss)),
        "    ", style);
  }
  return out;
}

std::string nearest_infeasible_text(const PlanRequest& request, const SearchOutcome& report,
                                    const TextStyle& style) {
  if (!report.exhaustive) {
    const std::string stopped = fmt::format(
        "Stopped before a plan was found: {} combinations were looked at, of which {} need more "
        "than one {} has. Whether another fits is not known: --time-limit allows more time.",
        grouped(report.counts.points), grouped(report.counts.too_large),
        request.cluster.gpu().name);
    return folded(painted(stopped, Paint::bad, style), "", style);
  }
  const std::string verdict = fmt::format(
      "Nothing fits{}: of {} combinations {} are legal, and all need more of one {}: {}.",
      without_savings(request), grouped(report.counts.points), grouped(report.counts.too_large),
      request.cluster.gpu().name, limit_text(request));
  std::string out =
      folded(painted(verdict, Paint::bad, style), "", style) + nearest_misses(report, style);
  if (!request.framework.parameter_offload.empty()) {
    out +=
        folded(fmt::format("{} can keep the parameters in the memory of the host, too ({}). That "
                           "has no price here and may make a plan fit.",
                           request.framework.name, request.framework.parameter_offload),
               "  ", style);
  }
  return out;
}

std::string search_text(const SearchResult& choice, const Sensitivity* buys_most,
                        const std::vector<Sensitivity>& even_batches, const TypedSearch& typed,
                        const TextStyle& style) {
  const PlanRequest& request = choice.request;
  const SearchOutcome& report = choice.report;
  std::string out = job_text(request, style);
  const Candidate* winner = report.winner();
  if (winner == nullptr) {
    return out + "\n" + nearest_infeasible_text(request, report, style) +
           rejections(report, style) + assumptions_text(request, style);
  }
  const Prediction costs = prediction_of(*winner);
  out += recommendation(choice, style);
  if (!winner->fits) out += nearest_misses(report, style);
  out += headline(request, *winner, {}, style);
  out += remarks_text(request, *winner, style);
  out += why_it_won(choice, style) + faster_plans(choice, style);
  if (buys_most != nullptr) {
    out += folded(buys_most_sentence(*buys_most, request), "buys most  ", style);
  }
  if (!even_batches.empty()) {
    out += folded(even_batches_sentence(even_batches, request), "batch      ", style);
  }
  out += folded(proof_of(report), "proof      ", style);
  out += memory_text(costs, style) + time_text(costs, style);
  out += plan_list_text(choice, style) + gpu_counts_text(choice, style);
  out += recipes_text(choice, style);
  out += choice.counts.empty() ? pareto_text(report, style) : front_over_counts_text(choice, style);
  out += rejections(report, style);
  return out + assumptions_text(request, style) + next_steps(choice, typed, style);
}

}  // namespace echelon
