#include "gui/space_canvas.hpp"

#include <QLegend>
#include <QPainter>
#include <QPainterPath>
#include <algorithm>
#include <cmath>
#include <utility>

#include "gui/theme.hpp"
#include "report/words.hpp"

namespace echelon::gui {
namespace {

/// 1, 2 or 5 times a power of ten: about `count` of them in `range`.
double nice_interval(double range, int count) {
  const double rough = range / count;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  const double digit = rough / power;
  return power * (digit < 1.5 ? 1 : digit < 3.5 ? 2 : digit < 7.5 ? 5 : 10);
}

void dress_axis(QValueAxis& axis, double low, double high, int ticks) {
  const double interval = nice_interval(high - low, ticks);
  const int decimals = std::max(0, static_cast<int>(std::ceil(-std::log10(interval) - 1e-9)));
  axis.setRange(low, high);
  axis.setTickInterval(interval);
  axis.setLabelFormat(QString("%.%1f").arg(decimals));
}

QString axis_title(const FigureFacts& facts, const FigureScale& scale) {
  QString title = QString::fromStdString(std::string(facts.title));
  if (!scale.unit.empty() && facts.title.find("USD") == std::string_view::npos)
    title += " (" + QString::fromStdString(std::string(scale.unit)) + ")";
  return title;
}

QPainterPath star(QPointF centre, double radius) {
  QPainterPath path;
  constexpr double kPi = 3.14159265358979323846;
  for (int i = 0; i < 10; ++i) {
    const double r = i % 2 == 0 ? radius : 0.45 * radius;
    const double angle = kPi * (i / 5.0 - 0.5);
    const QPointF at = centre + r * QPointF(std::cos(angle), std::sin(angle));
    i == 0 ? path.moveTo(at) : path.lineTo(at);
  }
  path.closeSubpath();
  return path;
}

}  // namespace

SpaceCanvas::SpaceCanvas(QWidget* parent)
    : QChartView(parent),
      axis_x_(new QValueAxis),
      axis_y_(new QValueAxis),
      front_(new QLineSeries),
      band_(new QRubberBand(QRubberBand::Rectangle, viewport())) {
  setAccessibleName("Plans over two figures");
  setFocusPolicy(Qt::StrongFocus);
  setMouseTracking(true);
  viewport()->setMouseTracking(true);
  setRenderHint(QPainter::Antialiasing);
  setViewportUpdateMode(QGraphicsView::FullViewportUpdate);
  setFrameShape(QFrame::NoFrame);
  chart()->legend()->hide();
  chart()->setMargins({2, 2, 2, 2});
  chart()->addSeries(front_);
  for (const auto& [axis, side] : {std::pair{axis_x_, Qt::AlignBottom}, {axis_y_, Qt::AlignLeft}}) {
    chart()->addAxis(axis, side);
    front_->attachAxis(axis);
    axis->setTickType(QValueAxis::TicksDynamic);
    axis->setTickAnchor(0);
  }
  dress_chart(*chart(), palette());
  front_->setPen(QPen(series_colour(1), 1.5));
}

void SpaceCanvas::show_space(SpaceShown space) {
  const bool same = space_ && space && zoomed_;
  space_ = std::move(space);
  hovered_.reset();
  place_points();
  const QRectF range = shown_range();
  const bool any =
      std::ranges::any_of(points_, [&](const Point& point) { return range.contains(point.at); });
  if (!same || !any) fit();
}

void SpaceCanvas::show_figures(Figure x, Figure y) {
  figure_x_ = x;
  figure_y_ = y;
  place_points();
  fit();
}

void SpaceCanvas::mark(const ParallelPlan& plan) {
  marked_ = plan;
  viewport()->update();
}

void SpaceCanvas::place_points() {
  points_.clear();
  hovered_.reset();
  if (!space_) return;
  const PlanRequest& request = space_->asked.request;
  for (const SpacePlan& plan : plans_of(request, space_->report)) points_.push_back({plan, {}, {}});
  for (const NearMiss& miss : space_->report.near_misses) {
    points_.push_back({.plan = {.candidate = &miss.candidate}, .miss = &miss, .at = {}});
  }
  std::erase_if(points_, [&](Point& point) {
    const Candidate& candidate = *point.plan.candidate;
    const Economics money = economics_of(request, candidate.prediction.time.step);
    const auto x = value_of(figure_x_, request, candidate, money);
    const auto y = value_of(figure_y_, request, candidate, money);
    if (x && y) point.at = {*x, *y};
    return !x || !y;
  });
  QPointF largest;
  for (const Point& point : points_) {
    largest = {std::max(largest.x(), point.at.x()), std::max(largest.y(), point.at.y())};
  }
  scale_x_ = scale_of(figure_x_, largest.x());
  scale_y_ = scale_of(figure_y_, largest.y());
  QRectF box;
  QList<QPointF> front;
  for (Point& point : points_) {
    point.at = {point.at.x() / scale_x_.scale, point.at.y() / scale_y_.scale};
    // united() leaves out rectangles of no size.
    box =
        box.isNull() && &point == &points_.front()
            ? QRectF(point.at, point.at)
            : QRectF(QPointF(std::min(box.left(), point.at.x()), std::min(box.top(), point.at.y())),
                     QPointF(std::max(box.right(), point.at.x()),
                             std::max(box.bottom(), point.at.y())));
    if (point.plan.on_front) front.push_back(point.at);
  }
  const auto margin = [](double size, double at) {
    return size > 0 ? 0.06 * size : std::max(0.1 * std::abs(at), 1e-9);
  };
  const double dx = margin(box.width(), box.left());
  const double dy = margin(box.height(), box.top());
  whole_ = box.adjusted(-dx, -dy, dx, dy);
  std::ranges::sort(front, {}, [](const QPointF& at) { return std::pair(at.x(), at.y()); });
  front_->replace(front);
  // Winner over ties over front over the rest.
  const auto weight = [](const Point& point) {
    return point.plan.rank == 1 ? 3 : point.plan.tied ? 2 : point.plan.on_front ? 1 : 0;
  };
  std::ranges::stable_sort(points_, {}, weight);
  axis_x_->setTitleText(axis_title(facts_of(figure_x_), scale_x_));
  axis_y_->setTitleText(axis_title(facts_of(figure_y_), scale_y_));
}

void SpaceCanvas::fit() {
  earlier_.clear();
  zoomed_ = false;
  if (!points_.empty()) set_range(whole_);
}

void SpaceCanvas::set_range(const QRectF& range) {
  constexpr int kPixelsX = 90;
  constexpr int kPixelsY = 45;
  dress_axis(*axis_x_, range.left(), range.right(), std::clamp(width() / kPixelsX, 2, 12));
  dress_axis(*axis_y_, range.top(), range.bottom(), std::clamp(height() / kPixelsY, 2, 12));
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
    if (square > least) continue;  // of equals the one drawn last
    least = square;
    best = &point;
  }
  return best;
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

QString SpaceCanvas::words_of_hovered() const {
  return hovered_ ? words_of(points_[*hovered_]) : QString();
}

QString SpaceCanvas::words_of(const Point& point) const {
  const PlanRequest& request = space_->asked.request;
  const Candidate& candidate = *point.plan.candidate;
  const Economics money = economics_of(request, candidate.prediction.time.step);
  std::vector<Figure> shown = {Figure::step, Figure::memory, Figure::tokens_per_second,
                               Figure::mfu};
  for (const Figure figure : {figure_x_, figure_y_}) {
    if (std::ranges::find(shown, figure) == shown.end()) shown.push_back(figure);
  }
  std::string text = described(candidate.plan, {});
  std::string_view gap = "\n";
  for (const Figure figure : shown) {
    const auto value = value_of(figure, request, candidate, money);
    if (!value) continue;
    text += std::string(gap) + std::string(facts_of(figure).title) + " " + told(figure, *value);
    gap = " · ";
  }
  if (point.miss != nullptr) {
    text += "\ndoes not fit: stage " + std::to_string(point.miss->stage) + " is short by " +
            with_gib(point.miss->missing);
    if (!point.miss->fix.empty()) text += "; fits with " + point.miss->fix;
  } else if (point.plan.rank == 1) {
    text += "\nthe winner";
  } else if (point.plan.tied) {
    text += "\ntoo close to the winner to call";
  }
  if (point.plan.on_front) text += "\non the Pareto front: no plan is both faster and smaller";
  return QString::fromStdString(text);
}

void SpaceCanvas::draw_limits(QPainter& painter) const {
  const QRectF area = chart()->plotArea();
  const Bytes usable = space_->asked.request.usable_memory();
  const QColor colour = error_colour(palette());
  const auto limit_of = [&](Figure figure, const FigureScale& scale) -> std::optional<double> {
    if (figure == Figure::memory) return usable.in(kByte) / scale.scale;
    if (figure == Figure::headroom) return 0;
    return std::nullopt;
  };
  const QString words = QString::fromStdString("usable " + with_gib(usable));
  painter.setPen(QPen(colour, 1.2, Qt::DashLine));
  QColor beyond = colour;
  beyond.setAlphaF(0.10F);
  const QBrush hatch(beyond, Qt::SolidPattern);
  if (const auto limit = limit_of(figure_y_, scale_y_)) {
    const double y = pixel({0, *limit}).y();
    const bool above = figure_y_ == Figure::memory;
    QRectF wrong = area;
    above ? wrong.setBottom(std::max(y, area.top())) : wrong.setTop(std::min(y, area.bottom()));
    if (wrong.height() > 0) painter.fillRect(wrong & area, hatch);
    if (area.top() <= y && y <= area.bottom()) {
      painter.drawLine(QPointF(area.left(), y), QPointF(area.right(), y));
      painter.drawText(QRectF(area.left(), y - 20, area.width() - 6, 18),
                       Qt::AlignRight | Qt::AlignBottom, words);
    }
  }
  if (const auto limit = limit_of(figure_x_, scale_x_)) {
    const double x = pixel({*limit, 0}).x();
    QRectF wrong = area;
    figure_x_ == Figure::memory ? wrong.setLeft(std::max(x, area.left()))
                                : wrong.setRight(std::min(x, area.right()));
    if (wrong.width() > 0) painter.fillRect(wrong & area, hatch);
    if (area.left() <= x && x <= area.right()) {
      painter.drawLine(QPointF(x, area.top()), QPointF(x, area.bottom()));
      painter.drawText(QRectF(x - 204, area.top() + 4, 200, 18), Qt::AlignRight, words);
    }
  }
}

void SpaceCanvas::draw_point(QPainter& painter, const Point& point) const {
  const QPointF at = pixel(point.at);
  QColor fill = series_colour(0);
  if (point.miss != nullptr) {
    painter.setPen(QPen(palette().color(QPalette::PlaceholderText), 1.4));
    painter.setBrush(Qt::NoBrush);
    painter.drawEllipse(at, 4, 4);
    return;
  }
  if (point.plan.rank == 1) {
    painter.setPen(QPen(palette().color(QPalette::Base), 1));
    painter.setBrush(series_colour(5));
    painter.drawPath(star(at, 9.5));
    return;
  }
  painter.setPen(point.plan.tied ? QPen(series_colour(5), 1.6) : QPen(Qt::NoPen));
  if (point.plan.on_front) {
    painter.setBrush(series_colour(1));
    painter.drawEllipse(at, 4.2, 4.2);
    return;
  }
  fill.setAlphaF(point.plan.tied ? 0.9F : 0.55F);
  painter.setBrush(fill);
  painter.drawEllipse(at, 3.2, 3.2);
}

void SpaceCanvas::drawForeground(QPainter* painter, const QRectF& rect) {
  QChartView::drawForeground(painter, rect);
  if (!space_ || points_.empty()) return;
  painter->save();
  painter->resetTransform();
  painter->setRenderHint(QPainter::Antialiasing);
  const QRectF area = chart()->plotArea();
  painter->setClipRect(area.adjusted(-1, -1, 1, 1));
  draw_limits(*painter);
  const QRectF near = area.adjusted(-10, -10, 10, 10);
  for (const Point& point : points_) {
    if (near.contains(pixel(point.at))) draw_point(*painter, point);
  }
  painter->setBrush(Qt::NoBrush);
  const std::optional<QPointF> marked = marked_ ? pixel_of(*marked_) : std::nullopt;
  if (marked) {
    painter->setPen(QPen(palette().color(QPalette::WindowText), 2));
    painter->drawEllipse(*marked, 11, 11);
  }
  if (hovered_) {
    painter->setPen(QPen(palette().color(QPalette::Highlight), 2));
    painter->drawEllipse(pixel(points_[*hovered_].at), 7, 7);
  }
  painter->restore();
}

}  // namespace echelon::gui
