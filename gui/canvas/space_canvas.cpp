#include "gui/canvas/space_canvas.hpp"

#include <QLegend>
#include <algorithm>
#include <cmath>
#include <utility>

#include "gui/canvas/nice_axis.hpp"
#include "gui/canvas/theme.hpp"
#include "report/format.hpp"
#include "report/text/text.hpp"

namespace echelon::gui {
namespace {

/// The range of all values and of the most relevant ones.
struct Range {
  double low = 0, high = 0, core_low = 0, core_high = 0;
};

/// Slow plans may take ten times as long as the best, so the chart starts with those within 1.5x.
/// Memory and GPU counts are shown completely.
Range range_of(Metric figure, const std::vector<double>& values) {
  constexpr double kCore = 1.5;
  const auto [least, most] = std::ranges::minmax(values);
  Range range{least, most, least, most};
  const bool whole = figure == Metric::memory || figure == Metric::headroom ||
                     figure == Metric::fits || figure == Metric::gpus || least <= 0;
  if (!whole && info_of(figure).less_is_better) range.core_high = std::min(most, kCore * least);
  if (!whole && !info_of(figure).less_is_better) range.core_low = std::max(least, most / kCore);
  const auto widen = [](double& low, double& high) {
    const double margin = high > low ? 0.08 * (high - low) : std::max(0.1 * std::abs(low), 1e-9);
    low -= margin;
    high += margin;
  };
  widen(range.low, range.high);
  widen(range.core_low, range.core_high);
  return range;
}

QString axis_title(const MetricInfo& facts, const MetricScale& scale) {
  QString title = QString::fromStdString(std::string(facts.title));
  if (!scale.unit.empty() && facts.title.find("USD") == std::string_view::npos)
    title += " (" + QString::fromStdString(std::string(scale.unit)) + ")";
  return title;
}

}  // namespace

SpaceCanvas::SpaceCanvas(QWidget* parent)
    : QChartView(parent),
      axis_x_(new QValueAxis),
      axis_y_(new QValueAxis),
      front_(new QLineSeries),
      band_(new QRubberBand(QRubberBand::Rectangle, viewport())) {
  setAccessibleName("Plans over two metrics");
  setFocusPolicy(Qt::StrongFocus);
  setMouseTracking(true);
  viewport()->setMouseTracking(true);
  setRenderHint(QPainter::Antialiasing);
  setViewportUpdateMode(QGraphicsView::FullViewportUpdate);
  setFrameShape(QFrame::NoFrame);
  chart()->legend()->hide();
  chart()->setMargins({2, 2 + fontMetrics().height(), 2, 2});  // the name of the limit is above
  chart()->addSeries(front_);
  for (const auto& [axis, side] : {std::pair{axis_x_, Qt::AlignBottom}, {axis_y_, Qt::AlignLeft}}) {
    chart()->addAxis(axis, side);
    front_->attachAxis(axis);
    axis->setTruncateLabels(false);
  }
  style_chart(*chart(), palette());
  front_->setPen(QPen(series_colour(1), 1.5));
}

void SpaceCanvas::show_space(SpaceResultPtr space) {
  const bool same = space_ && space && zoomed_;
  space_ = std::move(space);
  hovered_.reset();
  place_points();
  const QRectF range = shown_range();
  const bool any =
      std::ranges::any_of(points_, [&](const Point& point) { return range.contains(point.at); });
  if (!same || !any) fit();
}

void SpaceCanvas::show_figures(Metric x, Metric y) {
  figure_x_ = x;
  figure_y_ = y;
  place_points();
  fit();
}

void SpaceCanvas::mark(const Candidate& candidate) {
  marked_ = candidate;
  viewport()->update();
}

void SpaceCanvas::place_points() {
  points_.clear();
  hovered_.reset();
  if (!space_) return;
  for (const RankedPlan& plan : plans_of(space_->resolved.request, space_->report))
    points_.push_back({plan, {}, {}});
  for (const NearestInfeasible& miss : space_->report.nearest_infeasible) {
    points_.push_back({.plan = {.candidate = &miss.candidate}, .miss = &miss, .at = {}});
  }
  std::erase_if(points_, [&](Point& point) {
    const std::optional<QPointF> at = values_of(*point.plan.candidate);
    point.at = at.value_or(QPointF());
    return !at;
  });
  QPointF largest;
  for (const Point& point : points_) {
    largest = {std::max(largest.x(), point.at.x()), std::max(largest.y(), point.at.y())};
  }
  scale_x_ = scale_of(figure_x_, largest.x());
  scale_y_ = scale_of(figure_y_, largest.y());
  QList<QPointF> front;
  std::vector<double> across;
  std::vector<double> up;
  for (Point& point : points_) {
    point.at = {point.at.x() / scale_x_.scale, point.at.y() / scale_y_.scale};
    across.push_back(point.at.x());
    up.push_back(point.at.y());
    if (point.plan.on_front) front.push_back(point.at);
  }
  if (!space_->report.nearest_infeasible
           .empty()) {  // plans that do not fit are shown with the limit
    if (const auto limit = limit_of(figure_x_)) across.push_back(*limit / scale_x_.scale);
    if (const auto limit = limit_of(figure_y_)) up.push_back(*limit / scale_y_.scale);
  }
  if (!points_.empty()) {
    const Range x = range_of(figure_x_, across);
    const Range y = range_of(figure_y_, up);
    whole_ = QRectF(QPointF(x.low, y.low), QPointF(x.high, y.high));
    core_ = QRectF(QPointF(x.core_low, y.core_low), QPointF(x.core_high, y.core_high));
  }
  std::ranges::sort(front, {}, [](const QPointF& at) { return std::pair(at.x(), at.y()); });
  front_->replace(front);
  // The winner is drawn over ties, front and the rest.
  const auto weight = [](const Point& point) {
    return point.plan.rank == 1 ? 3 : point.plan.tied ? 2 : point.plan.on_front ? 1 : 0;
  };
  std::ranges::stable_sort(points_, {}, weight);
  axis_x_->setTitleText(axis_title(info_of(figure_x_), scale_x_));
  axis_y_->setTitleText(axis_title(info_of(figure_y_), scale_y_));
}

/// In base units; empty if one of the metrics is not known.
std::optional<QPointF> SpaceCanvas::values_of(const Candidate& candidate) const {
  const PlanRequest& request = space_->resolved.request;
  const Economics money = economics_of(request, candidate.prediction.time);
  const auto x = value_of(figure_x_, request, candidate, money);
  const auto y = value_of(figure_y_, request, candidate, money);
  return x && y ? std::optional(QPointF(*x, *y)) : std::nullopt;
}

void SpaceCanvas::fit() {
  zoom_history_.clear();
  zoomed_ = false;
  if (!points_.empty()) set_range(core_);
}

void SpaceCanvas::fit_more() {
  const bool at_core = shown_range() == core_;
  fit();
  if (at_core && !points_.empty()) set_range(whole_);
}

/// In base units.
std::optional<double> SpaceCanvas::limit_of(Metric figure) const {
  const PlanRequest& request = space_->resolved.request;
  const Bytes limit = request.usable_memory();
  if (figure == Metric::headroom) return (request.capacity() - limit).in(kByte);
  if (figure == Metric::fits && !request.max_memory) return request.least_probability;
  if (figure != Metric::memory) return std::nullopt;
  return limit.in(kByte);
}

void SpaceCanvas::set_range(const QRectF& range) {
  constexpr int kPixelsX = 90;
  constexpr int kPixelsY = 45;
  set_nice_range(*axis_x_, range.left(), range.right(), std::clamp(width() / kPixelsX, 2, 12));
  set_nice_range(*axis_y_, range.top(), range.bottom(), std::clamp(height() / kPixelsY, 2, 12));
  viewport()->update();
}

QRectF SpaceCanvas::shown_range() const {
  return {QPointF(axis_x_->min(), axis_y_->min()), QPointF(axis_x_->max(), axis_y_->max())};
}

QPointF SpaceCanvas::pixel(QPointF at) const {
  const QRectF area = chart()->plotArea();
  const QRectF range = shown_range();
  return {area.left() + (at.x() - range.left()) / range.width() * area.width(),
          area.bottom() - (at.y() - range.top()) / range.height() * area.height()};
}

QPointF SpaceCanvas::unit(QPointF pixel) const {
  const QRectF area = chart()->plotArea();
  const QRectF range = shown_range();
  return {range.left() + (pixel.x() - area.left()) / area.width() * range.width(),
          range.top() + (area.bottom() - pixel.y()) / area.height() * range.height()};
}

const SpaceCanvas::Point* SpaceCanvas::nearest(QPointF where, double within) const {
  const Point* best = nullptr;
  double least = within * within;
  for (const Point& point : points_) {
    const QPointF away = pixel(point.at) - where;
    const double square = QPointF::dotProduct(away, away);
    if (square > least) continue;  // of equals, the one drawn last
    least = square;
    best = &point;
  }
  return best;
}

std::optional<QPointF> SpaceCanvas::marked_pixel() const {
  if (!marked_ || !space_ || points_.empty()) return std::nullopt;
  const std::optional<QPointF> values = values_of(*marked_);
  if (!values) return std::nullopt;
  const QPointF at = pixel({values->x() / scale_x_.scale, values->y() / scale_y_.scale});
  const QRectF area = chart()->plotArea();
  return QPointF(std::clamp(at.x(), area.left(), area.right()),
                 std::clamp(at.y(), area.top(), area.bottom()));
}

std::optional<QPointF> SpaceCanvas::pixel_of(const ParallelPlan& plan) const {
  for (const Point& point : points_) {
    if (point.plan.candidate->plan == plan) return pixel(point.at);
  }
  return std::nullopt;
}

const Candidate* SpaceCanvas::hovered() const {
  return hovered_ ? points_[*hovered_].plan.candidate : nullptr;
}

QString SpaceCanvas::hovered_tooltip() const {
  return hovered_ ? point_tooltip(points_[*hovered_]) : QString();
}

QString SpaceCanvas::point_tooltip(const Point& point) const {
  const PlanRequest& request = space_->resolved.request;
  const Candidate& candidate = *point.plan.candidate;
  const Economics money = economics_of(request, candidate.prediction.time);
  std::vector<Metric> shown = {Metric::step, Metric::memory, Metric::tokens_per_second,
                               Metric::mfu};
  for (const Metric figure : {figure_x_, figure_y_}) {
    if (std::ranges::find(shown, figure) == shown.end()) shown.push_back(figure);
  }
  std::string text = described(candidate.plan, {});
  std::string_view gap = "\n";
  for (const Metric figure : shown) {
    const auto value = value_of(figure, request, candidate, money);
    if (!value) continue;
    text += std::string(gap) + std::string(info_of(figure).title) + " " + format(figure, *value);
    gap = " · ";
  }
  if (point.miss != nullptr) {
    text += "\ndoes not fit: stage " + std::to_string(point.miss->stage) + " is short by " +
            with_gib(point.miss->missing);
    text += "; fits with " + fixes_text(*point.miss);
  } else if (point.plan.rank == 1) {
    text += "\nthe winner";
  } else if (point.plan.tied) {
    text += "\nwithin the prediction error of the winner";
  }
  if (point.plan.fastest) text += "\nthe shortest step";
  if (point.plan.on_front) text += "\non the Pareto front: no plan is both faster and smaller";
  return QString::fromStdString(text);
}

}  // namespace echelon::gui
