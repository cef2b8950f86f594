// The answer of a search. Over 400 lines because it is one text, whose parts are here in its order.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "core/base/parse_quantity.hpp"
#include "planner/space/constraints_of_plan.hpp"
#include "planner/space/plan_from_constraints.hpp"
#include "report/explain.hpp"
#include "report/format.hpp"
#include "report/metrics.hpp"
#include "report/plan_files.hpp"
#include "report/text/table.hpp"
#include "report/text/text.hpp"

namespace echelon {

namespace {

constexpr std::size_t kMostParetoRows = 6;
constexpr std::size_t kMostRowsOverCounts = 12;
constexpr std::size_t kMostRejections = 8;

std::string why_slower(const Candidate& best, const Candidate& other) {
  if (const auto part = largest_increase(best.prediction.time.parts, other.prediction.time.parts)) {
    return fmt::format("{} more {}", duration(part->more()), part->name);
  }
  return other.prediction.time.step > best.prediction.time.step ? "small losses in many parts"
                                                                : "the same speed, and more memory";
}

/// What speaks against a plan that is faster than the best: "which is 65 % likely to fit".
std::string what_is_against(const Candidate& best, const Candidate& faster) {
  std::vector<std::string> reasons;
  const std::optional<double> ours = best.score.fits_probability;
  const std::optional<double> its = faster.score.fits_probability;
  constexpr double kLessLikely = 5e-3;
  if (ours && its && *its < *ours - kLessLikely) reasons.push_back("is " + likely_to_fit(*its));
  for (const FeaturePrice& feature : kFeaturePrices) {
    if (faster.score.unusual.has(feature.feature) && !best.score.unusual.has(feature.feature)) {
      reasons.push_back("has " + std::string(feature.label));
    }
  }
  if (reasons.empty()) return "within what a less risky plan may cost";
  std::string out = "which " + reasons.front();
  for (std::size_t i = 1; i < reasons.size(); ++i) {
    out += (i + 1 == reasons.size() ? " and " : ", ") + reasons[i];
  }
  return out;
}

/// Columns that the tables of candidates share, after their first one: degrees(), sequence
/// parallelism, recomputation. Those that say the usual of every candidate are dropped.
std::vector<Table::Column> degree_columns(std::string first) {
  std::vector<Table::Column> columns = {{std::move(first)}};
  for (const Degree& degree : degrees()) {
    columns.push_back({std::string(degree.field == &ParallelPlan::zero ? "ZeRO" : degree.name)});
  }
  columns.push_back({"sp", Table::Align::right, 3});
  columns.push_back({"recompute", Table::Align::left, 0});
  return columns;
}

void add_degrees(std::vector<Cell>& row, const ParallelPlan& plan) {
  for (const Degree& degree : degrees()) {
    std::string text = std::to_string(plan.*degree.field);
    const bool part = plan.zero > 0 && plan.shard_group != plan.dp * plan.cp;
    if (degree.field == &ParallelPlan::zero && part)
      text += fmt::format(" over {}", plan.shard_group);
    row.emplace_back(std::move(text));
  }
  row.emplace_back(plan.sequence_parallel ? "yes" : "no");
  row.emplace_back(recompute_text(plan));
}

void drop_uninteresting(Table& table) {
  std::size_t column = 1;
  for (const Degree& degree : degrees()) {
    if (!degree.always_shown) table.drop_constant(column, "1");
    ++column;
  }
  table.drop_constant(column, "no");
  table.drop_constant(column + 1, "none");
}

/// Plans by time, of which those too close to the best to call are marked.
bool tied_with_best(const SearchResult& choice, const Candidate& other) {
  return choice.request.objective != Objective::memory_headroom &&
         tied(choice.report.winner()->prediction.time, other.prediction.time,
              choice.request.calibration.time_band);
}

/// The advantages of the winner over another plan.
std::string why_behind(const SearchResult& choice, const Candidate& other) {
  const Candidate& best = *choice.report.winner();
  if (choice.request.objective != Objective::memory_headroom) return why_slower(best, other);
  return with_gib(other.prediction.memory.peak_reserved - best.prediction.memory.peak_reserved) +
         " more memory";
}

/// "14.2" of "14.2 GiB".
std::string spare_of(const PlanRequest& request, const Candidate& candidate) {
  return gib(request.capacity() - candidate.prediction.memory.peak_reserved);
}

/// "99 %"; "" where a limit on memory was given.
std::string probability_cell(const Candidate& candidate) {
  const std::optional<double> probability = candidate.score.fits_probability;
  if (!probability) return "";
  return *probability > 0.999 ? "> 99.9 %" : percent(*probability);
}

/// The plans of each family that are nearly as good as the one listed.
std::string siblings_text(const SearchResult& choice, const TextStyle& style) {
  const SearchOutcome& report = choice.report;
  std::string out;
  for (std::size_t i = 0; i < report.siblings.size(); ++i) {
    const Siblings& siblings = report.siblings[i];
    if (siblings.plans == 0) continue;
    const std::string_view dash = glyph("–", "-", style);
    std::string ranges;
    for (const Siblings::Range& range : siblings.ranges) {
      ranges += fmt::format("{}{} {}{}{}", ranges.empty() ? "" : ", ", range.field->label,
                            range.first, dash, range.last);
    }
    const Candidate& listed = report.candidates[i];
    const Seconds far = std::max(siblings.most - listed.prediction.time.closed_form,
                                 listed.prediction.time.closed_form - siblings.least);
    const Bytes capacity = choice.request.capacity();
    out += folded(
        fmt::format("{} like it{}{}: within {}, {}{}{} GiB to spare", siblings.plans,
                    ranges.empty() ? "" : ", ", ranges,
                    percent(far / listed.prediction.time.closed_form),
                    gib(capacity - siblings.largest), dash, gib(capacity - siblings.smallest)),
        fmt::format("  {}  ", i + 1), style);
  }
  return out;
}

std::string runners_up(const SearchResult& choice, const TextStyle& style) {
  const SearchOutcome& report = choice.report;
  if (report.candidates.size() < 2) return siblings_text(choice, style);
  std::vector<Table::Column> columns = degree_columns("");
  columns.push_back({"step"});
  columns.push_back({"slower"});
  columns.push_back({"GiB to spare"});
  columns.push_back({"fits"});
  columns.push_back({"mostly because of", Table::Align::left, 1});
  Table table(columns);
  const Candidate& best = report.candidates.front();
  const std::string_view close = glyph("≈ ", "~ ", style);
  bool any_tied = false;
  for (std::size_t i = 0; i < report.candidates.size(); ++i) {
    const Candidate& candidate = report.candidates[i];
    const double slower = candidate.prediction.time.step / best.prediction.time.step - 1;
    const bool mark = i > 0 && tied_with_best(choice, candidate);
    any_tied = any_tied || mark;
    std::vector<Cell> row = {std::to_string(i + 1)};
    add_degrees(row, candidate.plan);
    row.emplace_back(duration(candidate.prediction.time.step));
    row.emplace_back(i == 0 ? "best" : (mark ? std::string(close) : "") + signed_percent(slower));
    row.emplace_back(spare_of(choice.request, candidate));
    row.emplace_back(probability_cell(candidate));
    row.emplace_back(i == 0 ? "" : why_behind(choice, candidate), Paint::dim);
    table.add(std::move(row));
  }
  drop_uninteresting(table);
  std::string out = heading("Best plans, one of each family", style) + table.text(style) +
                    siblings_text(choice, style);
  if (any_tied) {
    out += folded(
        "too close to call: the difference is within model error, most of which the "
        "plans share. Measure them.",
        "  " + std::string(close), style);
  }
  return out;
}

/// The best plans on other numbers of GPUs.
std::string gpu_counts(const SearchResult& choice, const TextStyle& style) {
  if (choice.counts.empty()) return {};
  Table table({{"GPUs"},
               {"step"},
               {"GPU hours per step"},
               {"memory"},
               {"best plan there", Table::Align::left, 1}});
  for (const GpuCountResult& count : choice.counts) {
    if (!count.best) {
      table.add({grouped(count.gpus), "", "", "", Cell(count.why_none, Paint::dim)});
      continue;
    }
    const PlanCosts& p = count.best->prediction;
    const bool chosen = count.gpus == choice.request.cluster.gpus();
    table.add({Cell(grouped(count.gpus), chosen ? Paint::bold : Paint::plain),
               duration(p.time.step),
               fmt::format("{:.3g}", count.gpus * p.time.step.in(kSecond) / 3600),
               with_gib(p.memory.peak_reserved),
               Cell(described(count.best->plan, style), chosen ? Paint::accent : Paint::plain)});
  }
  return heading(fmt::format("Numbers of GPUs, chosen by {}", name_of(choice.request.objective)),
                 style) +
         table.text(style);
}

std::string why_it_won(const SearchResult& choice, const TextStyle& style) {
  const SearchOutcome& report = choice.report;
  if (report.candidates.size() < 2) return {};
  const Candidate& best = report.candidates[0];
  const Candidate& next = report.candidates[1];
  if (choice.request.objective == Objective::memory_headroom) {
    const Bytes more = next.prediction.memory.peak_reserved - best.prediction.memory.peak_reserved;
    return folded(
        fmt::format("needs least memory; {} more makes a step {} faster ({})", with_gib(more),
                    duration(best.prediction.time.step - next.prediction.time.step),
                    described(next.plan, style)),
        "why        ", style);
  }
  const double lead = next.prediction.time.step / best.prediction.time.step - 1;
  const std::string_view advice =
      tied_with_best(choice, next) ? " That is too close to call: measure both." : "";
  const std::string other = described(next.plan, style);
  if (lead < 0) {
    return folded(fmt::format("{:.1f} % slower than the next best ({}), {}.{}", -100 * lead, other,
                              what_is_against(best, next), advice),
                  "why        ", style);
  }
  return folded(fmt::format("{:.1f} % faster than the next best ({}): that one has {}.{}",
                            100 * lead, other, why_slower(best, next), advice),
                "why        ", style);
}

/// "Run tp 4 · pp 4: 14.6 s, 99 % likely to fit, 1.3 % slower than the fastest, which …"
std::string recommendation(const SearchResult& choice, const TextStyle& style) {
  const SearchOutcome& report = choice.report;
  const Candidate& best = *report.winner();
  std::string out = fmt::format("Run {}: {} per step", described(best.plan, style),
                                duration(best.prediction.time.step));
  if (const auto probability = best.score.fits_probability) {
    out += ", " + likely_to_fit(*probability);
    if (*probability < kLeastProbability) out += " (no plan is likelier to)";
  }
  if (report.fastest) {
    out += fmt::format(", {} slower than the fastest, {}",
                       percent(best.prediction.time.step / report.fastest->prediction.time.step - 1),
                       what_is_against(best, *report.fastest));
  }
  return "\n" + folded(painted(out + ".", Paint::bold, style), "", style);
}

/// The plan with the shortest step, where another was chosen.
std::string fastest_plan(const SearchResult& choice, const TextStyle& style) {
  const SearchOutcome& report = choice.report;
  if (!report.fastest) return {};
  const Candidate& fastest = *report.fastest;
  std::string line = fmt::format("{}: {}, {} GiB to spare", described(fastest.plan, style),
                                 duration(fastest.prediction.time.step),
                                 spare_of(choice.request, fastest));
  if (const auto probability = fastest.score.fits_probability) {
    line += ", " + likely_to_fit(*probability);
  }
  return folded(line + " (--prefer fastest)", "fastest    ", style);
}

std::string pareto(const SearchOutcome& report, const TextStyle& style) {
  // Plans that take more than twice the time interest nobody who can run the others.
  std::vector<const Candidate*> front;
  for (const Candidate& candidate : report.pareto) {
    const Seconds fastest = report.pareto.front().prediction.time.step;
    if (candidate.prediction.time.step <= 2.0 * fastest) front.push_back(&candidate);
  }
  if (front.size() < 2) return {};
  std::vector<Table::Column> columns = degree_columns("memory");
  columns.push_back({"step"});
  columns.push_back({"slower", Table::Align::right, 1});
  Table table(columns);
  const Seconds fastest = front.front()->prediction.time.step;
  const std::size_t rows = std::min(front.size(), kMostParetoRows);
  for (std::size_t i = 0; i < rows; ++i) {
    // Spread over the front, both ends included.
    const Candidate& candidate = *front[i * (front.size() - 1) / (rows - 1)];
    std::vector<Cell> row = {with_gib(candidate.prediction.memory.peak_reserved)};
    add_degrees(row, candidate.plan);
    row.emplace_back(duration(candidate.prediction.time.step));
    row.emplace_back(i == 0 ? "fastest"
                            : signed_percent(candidate.prediction.time.step / fastest - 1));
    table.add(std::move(row));
  }
  drop_uninteresting(table);
  return heading(fmt::format("Less memory for more time: {} of {} on the Pareto front{}", rows,
                             report.pareto.size(),
                             report.whole_front ? "" : " of the plans priced (--front: of all)"),
                 style) +
         table.text(style);
}

/// The front over several numbers of GPUs, without plans that take more than twice the time of
/// another on as many.
std::string front_over_counts(const SearchResult& choice, const TextStyle& style) {
  std::map<int, Seconds> fastest;
  std::vector<const ParetoPoint*> front;
  for (const ParetoPoint& plan : choice.front) {  // fastest first
    const Seconds first = fastest.try_emplace(plan.gpus(), plan.step()).first->second;
    if (plan.step() <= 2.0 * first) front.push_back(&plan);
  }
  if (front.size() < 2) return {};
  const auto price = choice.request.cluster.price_per_gpu_hour();
  std::vector<Table::Column> columns = degree_columns("GPUs");
  columns.push_back({"step"});
  columns.push_back({"to spare"});
  columns.push_back({price ? "USD per step" : "GPU hours per step", Table::Align::right, 1});
  Table table(columns);
  const std::size_t rows = std::min(front.size(), kMostRowsOverCounts);
  for (std::size_t i = 0; i < rows; ++i) {
    const ParetoPoint& plan = *front[i * (front.size() - 1) / (rows - 1)];
    const double hours = plan.gpu_time.in(kSecond) / 3600;
    std::vector<Cell> row = {grouped(plan.gpus())};
    add_degrees(row, plan.candidate.plan);
    row.emplace_back(duration(plan.step()));
    row.emplace_back(with_gib(choice.request.capacity() - plan.memory()));
    row.emplace_back(fmt::format("{:.3g}", price ? hours * price->in(kDollar) : hours));
    table.add(std::move(row));
  }
  drop_uninteresting(table);
  return heading(fmt::format("Step, headroom, GPUs, cost: {} of {} on the Pareto front", rows,
                             choice.front.size()),
                 style) +
         table.text(style);
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

std::string nearest_infeasible(const SearchOutcome& report, const TextStyle& style) {
  std::string out = heading("Nearest misses", style);
  for (const NearestInfeasible& miss : report.nearest_infeasible) {
    out += folded(described(miss.candidate.plan, style), "  ", style);
    out += folded(
        fmt::format("stage {} is short by {} ({} bytes); fits with {}", miss.stage,
                    painted(with_gib(miss.missing), Paint::bad, style),
                    grouped(static_cast<std::int64_t>(miss.missing.in(kByte))), fix_text(miss.fix)),
        "    ", style);
  }
  return out;
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
        grouped(counts.fitting), 100 * report.gap);
  }
  const std::string looked_at = fmt::format(
      "{} fit and were priced, {} were ruled out by their bounds, {} do not fit, the rest were "
      "rejected (below).",
      grouped(counts.fitting), grouped(counts.bounded), grouped(counts.too_large));
  const std::string all =
      fmt::format("all {} combinations of the searched axes", grouped(counts.points));
  if (report.proved()) return fmt::format("Proved best of {}: {}", all, looked_at);
  return fmt::format("Best found of {}, not proved: {} Of all, {}", all, open_splits_of(report),
                     looked_at);
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

std::string nearest_infeasible_text(const PlanRequest& request, const SearchOutcome& report,
                                    const TextStyle& style) {
  const std::string verdict = fmt::format(
      "Nothing fits: of {} combinations {} are legal, and all need more than the {} that "
      "may be used of one {}.",
      grouped(report.counts.points), grouped(report.counts.too_large),
      with_gib(request.usable_memory()), request.cluster.gpu().name);
  return folded(painted(verdict, Paint::bad, style), "", style) + nearest_infeasible(report, style);
}

std::string search_text(const SearchResult& choice, const Sensitivity* buys_most,
                        const TypedSearch& typed, const TextStyle& style) {
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
  out += headline(request, *winner, "best plan", style);
  out += remarks_text(request, *winner, style);
  out += why_it_won(choice, style) + fastest_plan(choice, style);
  if (buys_most != nullptr) {
    out += folded(buys_most_sentence(*buys_most, request), "buys most  ", style);
  }
  out += folded(proof_of(report), "proof      ", style);
  out += memory_text(costs, style) + time_text(costs, style);
  out += runners_up(choice, style) + gpu_counts(choice, style);
  out += choice.counts.empty() ? pareto(report, style) : front_over_counts(choice, style);
  out += rejections(report, style);
  return out + assumptions_text(request, style) + next_steps(choice, typed, style);
}

}  // namespace echelon
