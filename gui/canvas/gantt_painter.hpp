// Draws the visible part of a Gantt chart into an image. The time hardly depends on the number of
// bars, because bars narrower than a pixel share it.
#pragma once

#include <QImage>
#include <QPalette>

#include "gui/canvas/gantt.hpp"

namespace echelon::gui {

/// The visible part of a chart, in an area of `size` device-independent pixels.
struct GanttWindow {
  double from = 0;      ///< seconds at the left edge
  double to = 1;        ///< … and at the right one
  double scroll = 0;    ///< pixels above the top edge
  double per_unit = 8;  ///< pixels of a communication row's height
  QSizeF size;

  [[nodiscard]] double x(double seconds) const {
    return (seconds - from) / (to - from) * size.width();
  }
  [[nodiscard]] double seconds(double x) const { return from + x / size.width() * (to - from); }
  [[nodiscard]] double top(const GanttRow& row) const { return row.top * per_unit - scroll; }
  [[nodiscard]] double height(const GanttRow& row) const { return row.height * per_unit; }
  bool operator==(const GanttWindow&) const = default;
};

/// Where bars are narrower than a pixel, their shares of it are stacked. Idle time on compute rows,
/// the bubble, is striped. `image` is reallocated only if its size is wrong.
void paint(const Gantt& gantt, const GanttWindow& window, const QPalette& palette,
           double device_pixel_ratio, QImage& image);

}  // namespace echelon::gui
