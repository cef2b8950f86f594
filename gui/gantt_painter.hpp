// Draws the visible part of a Gantt chart into an image, in a time that the number of bars hardly
// matters for: bars narrower than a pixel are merged as they are met.
#pragma once

#include <QImage>
#include <QPalette>

#include "gui/gantt.hpp"

namespace echelon::gui {

/// What part of a chart is shown, in an area of `size` device-independent pixels.
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

/// A pixel has the colours of the bars in it by the share of the pixel they cover; on compute rows
/// what is left is striped, for that is the bubble.
/// Into `image`, which is made anew only when its size is not right.
void paint(const Gantt& gantt, const GanttWindow& window, const QPalette& palette,
           double device_pixel_ratio, QImage& image);

}  // namespace echelon::gui
