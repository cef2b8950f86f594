// Two plans side by side: what differs in the plan, in time and in memory.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/number.hpp"
#include "report/table.hpp"
#include "report/text.hpp"
#include "report/words.hpp"

namespace echelon {

namespace {

/// A row of two values, kept only where they differ.
void add_if_different(Table& table, const char* name, const std::string& a, const std::string& b) {
  if (a != b) table.add({name, a, b});
}

std::string what_differs(const Comparand& a, const Comparand& b, const TextStyle& style) {
  const PlanFile& x = a.plan;
  const PlanFile& y = b.plan;
  Table table({{"", Table::Align::left, 0}, {"A"}, {"B"}});
  const auto number = [](auto value) { return std::to_string(value); };
  add_if_different(table, "model", x.model.name, y.model.name);
  add_if_different(table, "cluster", x.cluster, y.cluster);
  add_if_different(table, "GPUs", number(x.gpus), number(y.gpus));
  add_if_different(table, "sequence", number(x.job.sequence), number(y.job.sequence));
  add_if_different(table, "global batch", number(x.job.global_batch), number(y.job.global_batch));
  add_if_different(table, "precision", x.job.precision.name, y.job.precision.name);
  add_if_different(table, "stack", x.stack, y.stack);
  add_if_different(table, "calibration", x.calibration, y.calibration);
  add_if_different(table, "tp", number(x.plan.tp), number(y.plan.tp));
  add_if_different(table, "pp", number(x.plan.pp), number(y.plan.pp));
  add_if_different(table, "vpp", number(x.plan.vpp), number(y.plan.vpp));
  add_if_different(table, "dp", number(x.plan.dp), number(y.plan.dp));
  add_if_different(table, "microbatch", number(x.plan.microbatch), number(y.plan.microbatch));
  add_if_different(table, "microbatches",
                   number(x.plan.microbatches_rounded_up(x.job.global_batch)),
                   number(y.plan.microbatches_rounded_up(y.job.global_batch)));
  add_if_different(table, "ZeRO", number(x.plan.zero), number(y.plan.zero));
  add_if_different(table, "shard group", number(x.plan.shard_group), number(y.plan.shard_group));
  add_if_different(table, "sequence parallel", x.plan.sequence_parallel ? "yes" : "no",
                   y.plan.sequence_parallel ? "yes" : "no");
  add_if_different(table, "recompute", recompute_words(x.plan), recompute_words(y.plan));
  add_if_different(table, "schedule", std::string(name_of(x.plan.schedule)),
                   std::string(name_of(y.plan.schedule)));
  if (table.empty()) return heading("The plans are the same", style);
  return heading("What differs", style) + table.text(style);
}

Paint paint_of(double change, bool less_is_better) {
  if (std::abs(change) < 1e-4) return Paint::dim;
  return (change < 0) == less_is_better ? Paint::good : Paint::bad;
}

std::string time_side_by_side(const PlanFile& x, const PlanFile& y, const TextStyle& style) {
  Table table({{"", Table::Align::left, 0}, {"A"}, {"B"}, {"B - A"}, {"of A's step"}});
  const std::vector<TimePart> a = parts_of(x.predicted.time);
  const std::vector<TimePart> b = parts_of(y.predicted.time);
  const Seconds step = x.predicted.time.total();
  const auto add = [&](std::string_view name, Seconds left, Seconds right) {
    if (left == Seconds{} && right == Seconds{}) return;
    const double change = (right - left) / step;
    const Paint paint = paint_of(change, true);
    table.add({std::string(name), duration(left), duration(right),
               Cell(signed_duration(right - left), paint), Cell(signed_percent(change), paint)});
  };
  for (std::size_t i = 0; i < a.size(); ++i) add(a[i].name, a[i].time, b[i].time);
  add("step", step, y.predicted.time.total());
  return heading("Time of one step", style) + table.text(style);
}

const MemoryBreakdown& tightest(const PredictedCosts& costs) {
  return *std::max_element(costs.stages.begin(), costs.stages.end(),
                           [](const auto& a, const auto& b) { return a.total() < b.total(); });
}

std::string memory_side_by_side(const PlanFile& x, const PlanFile& y, const TextStyle& style) {
  const MemoryUnit unit = memory_unit(std::max(x.predicted.peak, y.predicted.peak));
  Table table({{"", Table::Align::left, 0}, {"A"}, {"B"}, {"B - A"}});
  const auto add = [&](std::string_view name, Bytes left, Bytes right) {
    const Bytes change = right - left;
    table.add(
        {std::string(name), unit.of(left), unit.of(right),
         Cell((change < Bytes{} ? "" : "+") + unit.of(change), paint_of(change.in(1_GiB), true))});
  };
  const std::vector<MemoryPart> a = parts_of(tightest(x.predicted));
  const std::vector<MemoryPart> b = parts_of(tightest(y.predicted));
  for (std::size_t i = 0; i < a.size(); ++i) add(a[i].name, a[i].bytes, b[i].bytes);
  add("total", x.predicted.peak, y.predicted.peak);
  add("reserved", x.predicted.peak_reserved, y.predicted.peak_reserved);
  return heading(std::string("Memory of the fullest GPU, ") + unit.name, style) + table.text(style);
}

std::string verdict(const PlanFile& x, const PlanFile& y) {
  const double a = x.predicted.tokens_per_second;
  const double b = y.predicted.tokens_per_second;
  const std::string speeds =
      fmt::format("{} tokens/s for A, {} for B", human_count(a), human_count(b));
  if (std::abs(b / a - 1) < 5e-4) return "A and B are equally fast: " + speeds + ".";
  return fmt::format("{} is {:.1f} % faster: {}.", b > a ? "B" : "A",
                     100 * (std::max(a, b) / std::min(a, b) - 1), speeds);
}

}  // namespace

std::string compare_text(const Comparand& a, const Comparand& b, const TextStyle& style) {
  std::string out = folded(a.name + "  " + described(a.plan.plan, style), "A  ", style);
  out += folded(b.name + "  " + described(b.plan.plan, style), "B  ", style);
  out += "\n" + folded(painted(verdict(a.plan, b.plan), Paint::bold, style), "", style);
  for (const auto& [letter, side] : {std::pair{"A", &a}, std::pair{"B", &b}}) {
    if (!side->plan.predicted.fits) {
      out += folded(painted(fmt::format("{} does not fit into the memory of its GPUs.", letter),
                            Paint::bad, style),
                    "", style);
    }
    if (!side->note.empty()) out += folded(fmt::format("{}: {}", letter, side->note), "", style);
  }
  out += what_differs(a, b, style) + time_side_by_side(a.plan, b.plan, style);
  return out + memory_side_by_side(a.plan, b.plan, style);
}

}  // namespace echelon
