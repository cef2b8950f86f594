// A simulated step as rows of bars, for drawing and hit testing.
#pragma once

#include <QString>
#include <cstdint>
#include <memory>
#include <vector>

#include "costmodel/schedule/lower_plan.hpp"

namespace echelon::gui {

enum class BarKind : std::uint8_t {
  forward,
  backward,
  recompute,
  weight_gradient,
  message,
  gather,
  reduce,
  optimizer,
  load
};
inline constexpr int kBarKinds = 9;
[[nodiscard]] QString name_of(BarKind kind);
[[nodiscard]] int series_of(BarKind kind);  ///< for series_colour()

/// One instruction that takes time.
struct Bar {
  double start = 0;  ///< seconds
  double end = 0;
  std::uint32_t instruction = 0;  ///< of the rank's program
  BarKind kind = BarKind::forward;
  float recomputed = 0;  ///< share of recomputation, at its beginning
};

/// One queue of one pipeline rank; bars are sorted by time and do not overlap.
struct GanttRow {
  std::int32_t rank = 0;
  Queue queue = Queue::compute;
  std::vector<Bar> bars;
  double top = 0;     ///< in units of a communication row's height
  double height = 1;  ///< 4 for compute
};

struct Gantt {
  SimulatedStep step;
  std::vector<GanttRow> rows;  ///< by rank, compute first; idle queues are omitted
  double height = 0;           ///< of all rows
  double makespan = 0;         ///< seconds
  double idle = 0;             ///< costmodel's idle_share()
  std::vector<BarKind> kinds;  ///< kinds that occur, in the order of the enumeration
};
using GanttPtr = std::shared_ptr<const Gantt>;

[[nodiscard]] GanttPtr gantt_of(SimulatedStep step);

/// The first bar that ends after `time`; bars.size() after the last. O(log n).
[[nodiscard]] std::size_t first_after(const GanttRow& row, double time);
/// The bar at `time`, or the nearest one within `slack` seconds; null for none.
[[nodiscard]] const Bar* bar_near(const GanttRow& row, double time, double slack);

/// Tooltip lines: rank and queue, instruction, time, bytes, dependencies.
[[nodiscard]] QStringList bar_details(const Gantt& gantt, const GanttRow& row, const Bar& bar);

}  // namespace echelon::gui
