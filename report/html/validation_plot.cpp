#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <vector>

#include "core/base/quantile.hpp"
#include "report/validation.hpp"

namespace echelon {

namespace {

constexpr double kPanelSide = 230;   ///< side of a panel's frame, pixels
constexpr double kPanelMargin = 46;  ///< left and below it, for the numbers
constexpr double kPanelGap = 26;     ///< above and right of it
constexpr std::size_t kPanelColumns = 4;
constexpr std::size_t kLeastRows = 4;  ///< of a source with a panel of its own

struct PlotPoint {
  double measured = 0;  ///< seconds
  double predicted = 0;
  double low = 0;
  double high = 0;
  bool flagged = false;
  std::string name;
};
using PlotPanels = std::vector<std::pair<std::string, std::vector<PlotPoint>>>;

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else {
      out += c;
    }
  }
  return out;
}

PlotPanels panels_of(const ValidationReport& report) {
  std::map<std::string, std::vector<PlotPoint>> by_source;
  for (const ValidatedRow& row : report.rows) {
    if (!row.time_error) continue;
    by_source[row.source].push_back({row.measured_step->in(kSecond),
                                     row.predicted_step->in(kSecond), row.low.in(kSecond),
                                     row.high.in(kSecond), row.flagged_for_time(), row.row_id});
  }
  PlotPanels panels;
  std::vector<PlotPoint> rest;
  for (auto& [source, points] : by_source) {
    if (points.size() >= kLeastRows) {
      panels.emplace_back(source, std::move(points));
    } else {
      rest.insert(rest.end(), points.begin(), points.end());
    }
  }
  if (!rest.empty()) panels.emplace_back("other sources", std::move(rest));
  return panels;
}

/// Both axes of a panel: the same decades, so that equality is the diagonal.
struct LogAxes {
  double left, top;  ///< of the frame, pixels
  double low, high;  ///< decimal logarithms of seconds at its ends

  [[nodiscard]] double along(double seconds) const {
    return kPanelSide * (std::clamp(std::log10(seconds), low, high) - low) / (high - low);
  }
  [[nodiscard]] double x(double seconds) const { return left + along(seconds); }
  [[nodiscard]] double y(double seconds) const { return top + kPanelSide - along(seconds); }
};

LogAxes axes_of(const std::vector<PlotPoint>& points, double left, double top) {
  double least = points.front().measured;
  double most = least;
  for (const PlotPoint& point : points) {
    least = std::min({least, point.measured, point.predicted});
    most = std::max({most, point.measured, point.predicted});
  }
  constexpr double kAir = 0.12;
  return {left, top, std::log10(least) - kAir, std::log10(most) + kAir};
}

void draw_ticks(const LogAxes& axes, std::string& svg) {
  const auto last = static_cast<int>(std::floor(axes.high));
  for (int decade = static_cast<int>(std::floor(axes.low)); decade <= last; ++decade) {
    for (const int mantissa : {1, 2, 5}) {
      const double seconds = mantissa * std::pow(10.0, decade);
      if (std::log10(seconds) < axes.low || std::log10(seconds) > axes.high) continue;
      const double x = axes.x(seconds);
      const double y = axes.y(seconds);
      const double bottom = axes.top + kPanelSide;
      fmt::format_to(std::back_inserter(svg),
                     "<path class=\"grid\" d=\"M{0:.1f} {1:.1f}V{2:.1f}M{3:.1f} {4:.1f}H{5:.1f}\"/>"
                     "<text x=\"{0:.1f}\" y=\"{6:.1f}\" text-anchor=\"middle\">{7:g}</text>"
                     "<text x=\"{8:.1f}\" y=\"{9:.1f}\" text-anchor=\"end\">{7:g}</text>\n",
                     x, axes.top, bottom, axes.left, y, axes.left + kPanelSide, bottom + 13,
                     seconds, axes.left - 4, y + 3);
    }
  }
}

/// The band as the median row has it: from low / predicted to high / predicted. A row inside it is
/// measured between low and high; in the picture the prediction lies between measured / high and
/// measured / low.
void draw_band(const LogAxes& axes, const std::vector<PlotPoint>& points, std::string& svg) {
  std::vector<double> lows;
  std::vector<double> highs;
  for (const PlotPoint& point : points) {
    lows.push_back(point.low / point.predicted);
    highs.push_back(point.high / point.predicted);
  }
  std::ranges::sort(lows);
  std::ranges::sort(highs);
  const double from = std::pow(10.0, axes.low);
  const double to = std::pow(10.0, axes.high);
  const double above = 1 / std::max(0.05, quantile(lows, 0.5));
  const double below = 1 / quantile(highs, 0.5);
  std::string corners;
  constexpr int kSteps = 24;  // clamping at the frame bends the edges, so they are drawn in pieces
  for (int i = 0; i <= kSteps; ++i) {
    const double at = from * std::pow(to / from, static_cast<double>(i) / kSteps);
    fmt::format_to(std::back_inserter(corners), "{:.1f},{:.1f} ", axes.x(at), axes.y(at * above));
  }
  for (int i = kSteps; i >= 0; --i) {
    const double at = from * std::pow(to / from, static_cast<double>(i) / kSteps);
    fmt::format_to(std::back_inserter(corners), "{:.1f},{:.1f} ", axes.x(at), axes.y(at * below));
  }
  fmt::format_to(std::back_inserter(svg),
                 "<polygon class=\"band\" points=\"{}\"/>"
                 "<path class=\"equal\" d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\"/>\n",
                 corners, axes.x(from), axes.y(from), axes.x(to), axes.y(to));
}

void draw_panel(const std::string& title, const std::vector<PlotPoint>& points, double left,
                double top, std::string& svg) {
  const LogAxes axes = axes_of(points, left, top);
  draw_band(axes, points, svg);
  draw_ticks(axes, svg);
  fmt::format_to(std::back_inserter(svg),
                 "<rect class=\"frame\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{}\" height=\"{}\"/>"
                 "<text class=\"title\" x=\"{:.1f}\" y=\"{:.1f}\">{} ({} rows)</text>\n",
                 left, top, kPanelSide, kPanelSide, left, top - 6, escaped(title), points.size());
  for (const PlotPoint& point : points) {
    fmt::format_to(std::back_inserter(svg),
                   "<circle{} cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.2\"><title>{}</title></circle>\n",
                   point.flagged ? " class=\"flagged\"" : "", axes.x(point.measured),
                   axes.y(point.predicted), escaped(point.name));
  }
}

}  // namespace

std::string validation_svg(const ValidationReport& report) {
  const PlotPanels panels = panels_of(report);
  const std::size_t columns = std::clamp<std::size_t>(panels.size(), 1, kPanelColumns);
  const std::size_t lines = std::max<std::size_t>(1, (panels.size() + columns - 1) / columns);
  const double cell = kPanelMargin + kPanelSide + kPanelGap;
  const double width = cell * static_cast<double>(columns);
  const double height = cell * static_cast<double>(lines) + 24;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" "
      "viewBox=\"0 0 {0} {1}\" font-family=\"sans-serif\" font-size=\"10\">\n"
      "<style>.grid{{stroke:#e4e4e4;fill:none}}.frame{{stroke:#555;fill:none}}"
      ".band{{fill:#cfe0f3}}.equal{{stroke:#3b6ea8}}.title{{font-size:12px;font-weight:bold}}"
      "circle{{fill:#17406d;fill-opacity:.55}}"
      ".flagged{{fill:none;stroke:#c2571a;stroke-width:1}}</style>\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"#fff\"/>\n",
      width, height);
  for (std::size_t i = 0; i < panels.size(); ++i) {
    draw_panel(panels[i].first, panels[i].second,
               kPanelMargin + cell * static_cast<double>(i % columns),
               kPanelGap + cell * static_cast<double>(i / columns), svg);
  }
  fmt::format_to(std::back_inserter(svg), "<text x=\"{}\" y=\"{}\">{}</text>\n</svg>\n",
                 kPanelMargin, height - 8,
                 panels.empty() ? "No row was predicted and measured."
                                : "Across: measured seconds per step. Up: predicted. Shaded: the "
                                  "80 % band of the median row. Hollow: flagged rows.");
  return svg;
}

}  // namespace echelon
