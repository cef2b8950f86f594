// Axes with round numbers as labels.
#pragma once

#include <QValueAxis>

namespace echelon::gui {

/// From `low` to `high`, with about `ticks` labels at multiples of 1, 2 or 5 times a power of ten.
void set_nice_range(QValueAxis& axis, double low, double high, int ticks);

}  // namespace echelon::gui
