#include "report/text/plan_list_text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/parse_quantity.hpp"
#include "planner/economics.hpp"
#include "report/format.hpp"
#include "report/metrics.hpp"
#include "report/text/table.hpp"
#include "report/trade_offs.hpp"

namespace echelon {

namespace {

constexpr std::size_t kMostParetoRows = 6;
constexpr std::size_t kMostRowsOverCounts = 12;

/// Columns that the tables of candidates share, after their first one: degrees(), sequence
/// parallelism, recomputation. Those that say the usual of every candidate are dropped.
std::vector<Table::Column> degree_columns(std::string first) {
  std::vector<Table::Column> columns = {{std::move(first)}};
  for (const Degree& degree : degrees()) {
    columns.push_back({std::string(degree.field == &ParallelPlan::zero ? "ZeRO" : degree.name)});
  }
  columns.push_back({"sp", Table::Align::right, 3});
  columns.push_back({"recompute", Table::Align::left, 0});
  columns.push_back({"offload", Table::Align::right, 2});
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
  const double offloaded = plan.offload_optimizer;
  row.emplace_back(offloaded > 0 ? fmt::format("{:.0f} %", 100 * offloaded) : "no");
}

void drop_uninteresting(Table& table) {
  std::size_t column = 1;
  for (const Degree& degree : degrees()) {
    if (!degree.always_shown) table.drop_constant(column, "1");
    ++column;
  }
  table.drop_constant(column, "no");
  table.drop_constant(column + 1, "none");
  table.drop_constant(column + 2, "no");
}

/// "98.6 %"; "" where a limit on memory was given.
std::string probability_cell(const Candidate& candidate) {
  const std::optional<double> value = candidate.score.fits_probability;
  return value ? probability(*value) : "";
}

/// What each plan but the best trades against it, by number.
std::string trades_text(const SearchResult& choice, const TextStyle& style) {
  const std::vector<Candidate>& plans = choice.report.candidates;
  std::string out;
  for (std::size_t i = 1; i < plans.size(); ++i) {
    const std::string trade = choice.request.objective == Objective::memory_headroom
                                  ? with_gib(plans[i].prediction.memory.peak_reserved -
                                             plans.front().prediction.memory.peak_reserved) +
                                        " more memory"
                                  : trade_of(plans.front(), plans[i]);
    out += folded(trade, fmt::format("{:>3}  ", i + 1), style);
  }
  return out;
}

/// The plans of each family that are nearly as good as the one listed.
std::string siblings_text(const SearchResult& choice, const TextStyle& style) {
  const SearchOutcome& report = choice.report;
  const std::string_view to = glyph("–", "-", style);
  Table table({{""},
               {"plans", Table::Align::right, 1},
               {"slower"},
               {"to spare"},
               {"differ in", Table::Align::left, 0}});
  for (std::size_t i = 0; i < report.siblings.size(); ++i) {
    const Siblings& siblings = report.siblings[i];
    if (siblings.plans == 0) continue;
    std::vector<std::string> ranges;
    for (const Siblings::Range& range : siblings.ranges) {
      ranges.push_back(fmt::format("{} {}{}{}", range.field->label, range.first, to, range.last));
    }
    const Seconds listed = report.candidates[i].prediction.time.closed_form;
    const Bytes capacity = choice.request.capacity();
    table.add({std::to_string(i + 1), std::to_string(siblings.plans),
               fmt::format("{} to {}", signed_percent(siblings.least / listed - 1),
                           signed_percent(siblings.most / listed - 1)),
               fmt::format("{} to {}", with_gib(capacity - siblings.largest),
                           with_gib(capacity - siblings.smallest)),
               ranges.empty() ? "layers, recomputation or order of the ranks"
                              : fmt::format("{}", fmt::join(ranges, ", "))});
  }
  if (table.empty()) return {};
  return heading("More of these families among the plans priced, at most 1 % slower", style) +
         table.text(style);
}

}  // namespace

bool tied_with_best(const SearchResult& choice, const Candidate& other) {
  return choice.request.objective != Objective::memory_headroom &&
         tied(choice.report.winner()->prediction.time, other.prediction.time,
              choice.request.calibration.time_band);
}

std::string spare_of(const PlanRequest& request, const Candidate& candidate) {
  return with_gib(request.capacity() - candidate.prediction.memory.peak_reserved);
}

std::string plan_list_text(const SearchResult& choice, const TextStyle& style) {
  const SearchOutcome& report = choice.report;
  if (report.candidates.size() < 2) return siblings_text(choice, style);
  std::vector<Table::Column> columns = degree_columns("");
  columns.push_back({"step"});
  columns.push_back({"slower"});
  columns.push_back({"to spare", Table::Align::right, 1});
  columns.push_back({"fits"});
  const std::size_t fits = columns.size() - 1;
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
    table.add(std::move(row));
  }
  drop_uninteresting(table);
  table.drop_constant(fits, "");
  const bool by_memory = choice.request.objective == Objective::memory_headroom;
  std::string out = heading(by_memory ? "Best plans" : "Best plans, one of each family", style) +
                    table.text(style) + trades_text(choice, style);
  if (any_tied) {
    out += folded(
        "too close to call: the difference is within model error, most of which the "
        "plans share. Measure them.",
        "  " + std::string(close), style);
  }
  return out + siblings_text(choice, style);
}

namespace {

/// One of several searches: its step, `costs` of it and memory, and its plan, or why there is none.
void add_best(Table& table, std::vector<Cell> row, std::vector<Cell> costs, const BestPlan& found,
              bool chosen, const TextStyle& style) {
  if (!found.best) {
    row.insert(row.end(), costs.size() + 2, Cell(""));
    row.emplace_back(found.why_none, Paint::dim);
    return table.add(std::move(row));
  }
  const PlanCosts& p = found.best->prediction;
  row.emplace_back(duration(p.time.step));
  row.insert(row.end(), costs.begin(), costs.end());
  row.emplace_back(with_gib(p.memory.peak_reserved));
  row.emplace_back(described(found.best->plan, style), chosen ? Paint::accent : Paint::plain);
  table.add(std::move(row));
}

}  // namespace

/// What else was to be had on other numbers of GPUs.
std::string gpu_counts_text(const SearchResult& choice, const TextStyle& style) {
  if (choice.counts.empty()) return {};
  const std::optional<double>& budget = choice.request.job.token_budget;
  std::vector<Table::Column> columns = {{"GPUs"}, {"step"}, {"GPU hours per step"}};
  if (budget) columns.push_back({fmt::format("{} tokens in", human_count(*budget))});
  columns.push_back({"memory"});
  columns.push_back({"best plan there", Table::Align::left, 1});
  Table table(columns);
  for (const GpuCountResult& count : choice.counts) {
    const bool chosen = count.best && count.gpus == choice.request.cluster.gpus();
    std::vector<Cell> costs(budget ? 2 : 1, Cell(""));
    if (count.best) {
      const Seconds step = count.best->prediction.time.step;
      costs[0] = Cell(fmt::format("{:.3g}", count.gpus * step.in(kSecond) / 3600));
      if (budget) costs[1] = Cell(duration(*economics_of(choice.request, step).time_for_budget));
    }
    add_best(table, {Cell(grouped(count.gpus), chosen ? Paint::bold : Paint::plain)},
             std::move(costs), count, chosen, style);
  }
  return heading(fmt::format("Numbers of GPUs, chosen by {}", name_of(choice.request.objective)),
                 style) +
         table.text(style);
}

/// What else was to be had with other states.
std::string recipes_text(const SearchResult& choice, const TextStyle& style) {
  if (choice.recipes.empty()) return {};
  Table table({{"precision", Table::Align::left},
               {"step"},
               {"memory"},
               {"best plan with it", Table::Align::left, 1}});
  for (const RecipeResult& each : choice.recipes) {
    const bool chosen = each.best && each.recipe == choice.request.job.precision.name;
    add_best(table, {Cell(each.recipe, chosen ? Paint::bold : Paint::plain)}, {}, each, chosen,
             style);
  }
  return heading(fmt::format("Recipes of states, chosen by {}", name_of(choice.request.objective)),
                 style) +
         table.text(style) +
         folded(fmt::format(
                    "Whether training stays stable with gradients or moments of 16 bits is for you "
                    "to judge{}. plan export writes the flags that they need.",
                    choice.request.preference == Preference::fastest
                        ? ""
                        : fmt::format("; each of them has to gain {} %", 100 * kNarrowMoments)),
                "  ", style);
}

std::string pareto_text(const SearchOutcome& report, const TextStyle& style) {
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
  std::string out = heading(fmt::format("Less memory for more time: {} of {} on the Pareto front",
                                        rows, report.pareto.size()),
                            style) +
                    table.text(style);
  if (!report.whole_front) {
    out +=
        folded("The front is that of the plans simulated; --front finds that of all.", "  ", style);
  }
  return out;
}

/// The front over several numbers of GPUs, without plans that take more than twice the time of
/// another on as many.
std::string front_over_counts_text(const SearchResult& choice, const TextStyle& style) {
  std::map<int, Seconds> fastest;
  std::vector<const ParetoPoint*> front;
  for (const ParetoPoint& plan : choice.front) {  // fastest first
    const Seconds first = fastest.try_emplace(plan.gpus(), plan.step()).first->second;
    if (plan.step() <= 2.0 * first) front.push_back(&plan);
  }
  if (front.size() < 2) return {};
  const auto price = price_per_gpu_hour(choice.request);
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

}  // namespace echelon
