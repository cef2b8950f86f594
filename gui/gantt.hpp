// A simulated step as rows of bars: what the timeline draws and finds things in.
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
  float recomputed = 0;  ///< share at its beginning that is recomputation
};

/// One queue of one pipeline rank; its bars follow one another in time.
struct GanttRow {
  std::int32_t rank = 0;
  Queue queue = Queue::compute;
  std::vector<Bar> bars;
  double top = 0;     ///< in heights of a communication row, all rows one below the other
  double height = 1;  ///< 4 for compute
};

struct Gantt {
  SimulatedStep step;
  std::vector<GanttRow>
      rows;             ///< by rank, compute first; queues on which nothing runs are left out
  double height = 0;    ///< of all rows
  double makespan = 0;  ///< seconds
  double idle = 0;      ///< costmodel's idle_share()
  std::vector<BarKind> kinds;  ///< that occur, in the order of the enumeration
};
using GanttShown = std::shared_ptr<const Gantt>;

[[nodiscard]] GanttShown gantt_of(SimulatedStep step);

/// The first bar that ends after `time`; bars.size() after the last. O(log n).
[[nodiscard]] std::size_t first_after(const GanttRow& row, double time);
/// The bar that runs at `time`, or the nearest one at most `slack` seconds away; null: none.
[[nodiscard]] const Bar* bar_near(const GanttRow& row, double time, double slack);

/// "rank 3 compute", what runs, when, bytes, what it waits for: one line each.
[[nodiscard]] QStringList told(const Gantt& gantt, const GanttRow& row, const Bar& bar);

}  // namespace echelon::gui
