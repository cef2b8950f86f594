// Two plans side by side: what differs in the plan, in time and in memory.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "report/format.hpp"
#include "report/plan_diff.hpp"
#include "report/text/table.hpp"
#include "report/text/text.hpp"

namespace echelon {

namespace {

std::string what_differs(const PlanFile& a, const PlanFile& b, const TextStyle& style) {
  Table table({{"", Table::Align::left, 0}, {"A"}, {"B"}});
  for (const FieldDelta& row : field_deltas(a, b)) table.add({std::string(row.name), row.a, row.b});
  if (table.empty()) return heading("The plans are the same", style);
  return heading("What differs", style) + table.text(style);
}

Paint paint_of(double change, bool less_is_better) {
  if (std::abs(change) < 1e-4) return Paint::dim;
  return (change < 0) == less_is_better ? Paint::good : Paint::bad;
}

std::string time_side_by_side(const PlanFile& x, const PlanFile& y, const TextStyle& style) {
  Table table({{"", Table::Align::left, 0}, {"A"}, {"B"}, {"B - A"}, {"of A's step"}});
  const Seconds step = x.predicted.time.total();
  std::vector<TimeDelta> rows = part_deltas(x.predicted.time, y.predicted.time);
  if (x.predicted.closed_form && y.predicted.closed_form) {
    rows.push_back({"closed form", *x.predicted.closed_form, *y.predicted.closed_form});
  }
  for (const TimeDelta& row : rows) {
    const double change = (row.b - row.a) / step;
    const Paint paint = paint_of(change, true);
    table.add({std::string(row.name), duration(row.a), duration(row.b),
               Cell(signed_duration(row.b - row.a), paint), Cell(signed_percent(change), paint)});
  }
  return heading("Time of one step", style) + table.text(style);
}

std::string memory_side_by_side(const PlanFile& x, const PlanFile& y, const TextStyle& style) {
  const MemoryUnit unit = memory_unit(std::max(x.predicted.peak, y.predicted.peak));
  Table table({{"", Table::Align::left, 0}, {"A"}, {"B"}, {"B - A"}});
  for (const MemoryDelta& row : fullest_stage_deltas(x.predicted, y.predicted)) {
    const Bytes change = row.b - row.a;
    table.add(
        {std::string(row.name), unit.of(row.a), unit.of(row.b),
         Cell((change < Bytes{} ? "" : "+") + unit.of(change), paint_of(change.in(1_GiB), true))});
  }
  return heading(std::string("Memory of the fullest GPU, ") + unit.name, style) + table.text(style);
}

}  // namespace

std::string compare_text(const PlanWithPrediction& a, const PlanWithPrediction& b,
                         const TextStyle& style) {
  std::string out = folded(a.name + "  " + described(a.plan.plan, style), "A  ", style);
  out += folded(b.name + "  " + described(b.plan.plan, style), "B  ", style);
  out += "\n" + folded(painted(faster_of(a.plan, b.plan), Paint::bold, style), "", style);
  const std::optional<double> of_a = a.plan.predicted.fits_probability;
  const std::optional<double> of_b = b.plan.predicted.fits_probability;
  if (of_a && of_b) {
    out += folded(fmt::format("A is {}, B is {}.", likely_to_fit(*of_a), likely_to_fit(*of_b)), "",
                  style);
  }
  for (const auto& [letter, side] : {std::pair{"A", &a}, std::pair{"B", &b}}) {
    if (!side->plan.predicted.fits) {
      out += folded(painted(fmt::format("{} does not fit into the memory of its GPUs.", letter),
                            Paint::bad, style),
                    "", style);
    }
    if (!side->note.empty()) out += folded(fmt::format("{}: {}", letter, side->note), "", style);
  }
  out += what_differs(a.plan, b.plan, style) + time_side_by_side(a.plan, b.plan, style);
  return out + memory_side_by_side(a.plan, b.plan, style);
}

}  // namespace echelon
