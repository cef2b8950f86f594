#include "gui/run/run_charts.hpp"

#include <QHBoxLayout>
#include <QLegend>
#include <QMouseEvent>
#include <QToolTip>
#include <algorithm>
#include <cmath>
#include <utility>

#include "gui/canvas/nice_axis.hpp"
#include "gui/canvas/theme.hpp"
#include "report/format.hpp"

namespace echelon::gui {

CurveView::CurveView(const QString& title, int colour, QString (*format)(double), QWidget* parent)
    : QChartView(parent),
      series_(new QLineSeries),
      x_(new QValueAxis),
      y_(new QValueAxis),
      title_(title),
      colour_(colour),
      format_(format) {
  setAccessibleName(title);
  setFrameShape(QFrame::NoFrame);
  setRenderHint(QPainter::Antialiasing);
  setMouseTracking(true);
  setMinimumSize(100, 50);
  QFont small = font();
  small.setBold(true);
  chart()->setTitleFont(small);
  chart()->setTitle(title);
  chart()->legend()->hide();
  chart()->setMargins({4, 2, 8, 2});
  chart()->addSeries(series_);
  for (const auto& [axis, side] : {std::pair{x_, Qt::AlignBottom}, {y_, Qt::AlignLeft}}) {
    chart()->addAxis(axis, side);
    series_->attachAxis(axis);
    axis->setTruncateLabels(false);
  }
  clear();
  apply_colours();
}

void CurveView::clear() {
  points_.clear();
  added_ = 0;
  every_ = 1;
  series_->clear();
  set_nice_range(*x_, 0, 1, 2);
  set_nice_range(*y_, 0, 1, 2);
  chart()->setTitle(title_);
}

void CurveView::add(double x, double y) {
  if (!std::isfinite(y)) return;  // reported in the log
  last_ = {x, y};
  if (added_++ % every_ == 0) points_.push_back(last_);
  if (points_.size() < kMaxPoints) return;
  for (qsizetype i = 0; 2 * i < points_.size(); ++i) points_[i] = points_[2 * i];
  points_.resize((points_.size() + 1) / 2);
  every_ *= 2;
}

void CurveView::draw() {
  if (points_.isEmpty()) return;
  QList<QPointF> shown = points_;
  if (shown.back() != last_) shown.push_back(last_);
  series_->replace(shown);
  series_->setPointsVisible(shown.size() < 60);
  const auto [low, high] = std::ranges::minmax_element(shown, {}, &QPointF::y);
  const double margin = std::max({0.06 * (high->y() - low->y()), 1e-3 * std::abs(high->y()), 1e-9});
  set_nice_range(*x_, shown.front().x(), std::max(shown.back().x(), shown.front().x() + 1),
                 std::clamp(width() / 90, 2, 8));
  set_nice_range(*y_, low->y() - margin, high->y() + margin, std::clamp(height() / 40, 2, 8));
  chart()->setTitle(QString("%1  %2").arg(title_, format_(last_.y())));
}

void CurveView::apply_colours() {
  style_chart(*chart(), palette());
  series_->setPen(QPen(series_colour(colour_), 2));
}

void CurveView::changeEvent(QEvent* event) {
  QChartView::changeEvent(event);
  if (event->type() == QEvent::PaletteChange) apply_colours();
}

void CurveView::resizeEvent(QResizeEvent* event) {
  QChartView::resizeEvent(event);
  draw();
}

void CurveView::mouseMoveEvent(QMouseEvent* event) {
  QChartView::mouseMoveEvent(event);
  if (series_->count() == 0) return;
  const double x = chart()->mapToValue(event->position(), series_).x();
  const QList<QPointF> shown = series_->points();
  const QPointF at = *std::ranges::min_element(
      shown, {}, [&](const QPointF& point) { return std::abs(point.x() - x); });
  QToolTip::showText(event->globalPosition().toPoint(),
                     QString("step %1: %2 %3").arg(at.x()).arg(title_, format_(at.y())), this);
}

RunCharts::RunCharts(QWidget* parent)
    : QWidget(parent),
      loss_(new CurveView("loss", 0, [](double y) { return QString::number(y, 'f', 4); })),
      speed_(new CurveView("tokens/s", 2, [](double y) {
        return QString::fromStdString(grouped(std::llround(y)));
      })) {
  setAccessibleName("Loss and tokens per second");
  auto* layout = new QHBoxLayout(this);
  layout->setContentsMargins(0, 0, 0, 0);
  layout->addWidget(loss_);
  layout->addWidget(speed_);
  constexpr int kRedrawDelay = 50;
  redraw_.setSingleShot(true);
  redraw_.setInterval(kRedrawDelay);
  connect(&redraw_, &QTimer::timeout, this, &RunCharts::draw);
}

void RunCharts::clear() {
  redraw_.stop();
  loss_->clear();
  speed_->clear();
}

void RunCharts::add(const RunStep& step) {
  const auto x = static_cast<double>(step.step);
  loss_->add(x, step.loss);
  speed_->add(x, step.tokens_per_second);
  if (!redraw_.isActive()) redraw_.start();
}

void RunCharts::draw() {
  redraw_.stop();
  loss_->draw();
  speed_->draw();
}

}  // namespace echelon::gui
