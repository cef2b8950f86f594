#include "gui/canvas/nice_axis.hpp"

#include <algorithm>
#include <cmath>

namespace echelon::gui {

void set_nice_range(QValueAxis& axis, double low, double high, int ticks) {
  const double rough = (high - low) / ticks;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  const double digit = rough / power;
  const double interval = power * (digit < 1.5 ? 1 : digit < 3.5 ? 2 : digit < 7.5 ? 5 : 10);
  const int decimals = std::max(0, static_cast<int>(std::ceil(-std::log10(interval) - 1e-9)));
  // Fixed meanwhile: the new range at the old interval may be millions of ticks.
  axis.setTickType(QValueAxis::TicksFixed);
  axis.setTickAnchor(0);
  axis.setRange(low, high);
  axis.setTickInterval(interval);
  axis.setTickType(QValueAxis::TicksDynamic);
  axis.setLabelFormat(QString("%.%1f").arg(decimals));
}

}  // namespace echelon::gui
