#include "gui/canvas/timeline_view.hpp"

#include <QPainter>
#include <algorithm>
#include <cmath>
#include <utility>

#include "gui/canvas/painting.hpp"
#include "gui/canvas/qt_text.hpp"
#include "gui/canvas/theme.hpp"
#include "planner/explain/plan_detail.hpp"
#include "report/format.hpp"

namespace echelon::gui {
namespace {

constexpr double kMaxSynchronous = 4'000;   ///< instructions simulated without a worker thread
constexpr double kMaxInstructions = 2.5e6;  ///< about 1 GB of schedule and bars
constexpr double kTimelineEdge = 8;
constexpr double kMargin = 0.01;    ///< margin at either end, as a share of the step
constexpr double kMinRange = 1e-7;  ///< smallest visible range in seconds
constexpr double kMaxPerUnit = 30;

std::vector<LegendEntry> gantt_legend(const Gantt& gantt, const QPalette& palette) {
  std::vector<LegendEntry> entries;
  for (const BarKind kind : gantt.kinds) {
    entries.push_back({name_of(kind), series_colour(series_of(kind))});
  }
  entries.push_back({TimelineView::tr("idle"), hatched(palette.color(QPalette::WindowText))});
  return entries;
}

}  // namespace

TimelineView::TimelineView(QWidget* parent) : PaintedView(tr("Timeline of the pipeline"), parent) {
  setMouseTracking(true);
  setAttribute(Qt::WA_OpaquePaintEvent);
}

void TimelineView::show_plan(PlanResultPtr plan) {
  plan_ = std::move(plan);
  stale_ = plan_ != nullptr;
  too_long_ = false;
  simulation_.cancel();
  if (!plan_) set_gantt(nullptr);
  if (isVisible()) simulate();
}

/// The old timeline stays visible until the new one is simulated.
void TimelineView::simulate() {
  if (!stale_ || simulation_.busy()) return;
  const double instructions = instructions_of(plan_->resolved.request, plan_->candidate);
  if (instructions > kMaxInstructions) {
    set_gantt(nullptr);
    too_long_ = true;
    update();
    return;
  }
  const auto made = [plan = plan_] {
    return gantt_of(simulate_plan(plan->resolved.request, plan->candidate));
  };
  if (instructions <= kMaxSynchronous) return set_gantt(made());
  simulation_.start([this, made](const Worker::Ticket& ticket) {
    ticket.deliver([this, gantt = made()] { set_gantt(gantt); });
  });
  update();
}

void TimelineView::set_gantt(GanttPtr gantt) {
  stale_ = false;
  gantt_ = std::move(gantt);
  if (gantt_) predicted_ = plan_->candidate.prediction.time;
  hovered_.reset();
  pinned_.reset();
  measure_.reset();
  setAccessibleDescription(title());
  fit();
  if (gantt_) Q_EMIT simulated();
}

QString TimelineView::title() const {
  if (!gantt_) return tr("Timeline of one step");
  const CostBreakdown& parts = predicted_.parts;
  const QString whole = qt_text(duration(predicted_.step));
  const QString simulated = qt_text(duration(gantt_->step.timeline.makespan));
  const QString step =
      simulated == whole
          ? tr("Step %1, simulated").arg(whole)
          : tr("Step %1 (%2 simulated, without slowest node, fixed work)").arg(whole, simulated);
  return tr("%1 · idle %2 · fill/drain %3, imbalance %4")
      .arg(step, qt_text(percent(gantt_->idle)),
           qt_text(percent(parts.fill_drain / predicted_.step)),
           qt_text(percent(parts.imbalance / predicted_.step)));
}

QRectF TimelineView::plot() const {
  const QFontMetricsF metrics(font());
  const double line = metrics.height() + 2;
  const double left = kTimelineEdge + metrics.horizontalAdvance("rank 000") + 6;
  double top = kTimelineEdge + line;
  if (gantt_) {
    top += draw_legend(nullptr, QRectF(kTimelineEdge, top, width() - 2 * kTimelineEdge, 0), font(),
                       {}, gantt_legend(*gantt_, palette()));
  }
  top += line + 4;  // the ruler
  const double bottom = kTimelineEdge + line;
  return {left, top, std::max(1.0, width() - left - kTimelineEdge),
          std::max(1.0, height() - top - bottom)};
}

double TimelineView::min_per_unit() const {
  constexpr double kLegible = 1.5;
  if (!gantt_ || gantt_->height <= 0) return kLegible;
  return std::clamp(window_.size.height() / gantt_->height, kLegible, 10.0);
}

void TimelineView::fit() {
  window_.size = plot().size();
  window_.scroll = 0;
  window_.per_unit = min_per_unit();
  if (gantt_) {
    window_.from = -kMargin * gantt_->makespan;
    window_.to = (1 + kMargin) * gantt_->makespan;
  }
  window_changed();
}

void TimelineView::clamp_window() {
  if (!gantt_) return;
  const double whole = (1 + 2 * kMargin) * gantt_->makespan;
  const double span = std::clamp(window_.to - window_.from, std::min(kMinRange, whole), whole);
  window_.from = std::clamp(window_.from, -kMargin * gantt_->makespan,
                            (1 + kMargin) * gantt_->makespan - span);
  window_.to = window_.from + span;
  window_.per_unit = std::clamp(window_.per_unit, min_per_unit(), kMaxPerUnit);
  const double below = gantt_->height * window_.per_unit - window_.size.height();
  window_.scroll = std::clamp(window_.scroll, 0.0, std::max(0.0, below));
}

void TimelineView::window_changed() {
  clamp_window();
  drawn_.reset();
  update();
}

void TimelineView::zoom(double factor, double at_x) {
  const double at = window_.seconds(at_x);
  window_.from = at - (at - window_.from) * factor;
  window_.to = at + (window_.to - at) * factor;
  window_changed();
}

void TimelineView::pan(double pixels_x, double pixels_y) {
  const double seconds = pixels_x / window_.size.width() * (window_.to - window_.from);
  window_.from += seconds;
  window_.to += seconds;
  window_.scroll += pixels_y;
  window_changed();
}

std::optional<TimelineView::Place> TimelineView::place_at(const QPointF& at) const {
  const QRectF area = plot();
  if (!gantt_ || !area.contains(at)) return {};
  const double unit = (at.y() - area.top() + window_.scroll) / window_.per_unit;
  const auto after = std::ranges::upper_bound(gantt_->rows, unit, {}, &GanttRow::top);
  if (after == gantt_->rows.begin()) return {};
  const GanttRow& row = *(after - 1);
  if (unit > row.top + row.height) return {};
  constexpr double kSlack = 2;  // pixels
  const double per_pixel = (window_.to - window_.from) / window_.size.width();
  const Bar* bar = bar_near(row, window_.seconds(at.x() - area.left()), kSlack * per_pixel);
  if (bar == nullptr) return {};
  return Place{static_cast<std::size_t>(after - 1 - gantt_->rows.begin()),
               static_cast<std::size_t>(bar - row.bars.data())};
}

QString TimelineView::tooltip_at(const QPointF& at) const {
  const auto place = place_at(at);
  if (!place) return {};
  const GanttRow& row = gantt_->rows[place->row];
  return bar_details(*gantt_, row, row.bars[place->bar]).join("\n");
}

QString TimelineView::pinned() const {
  if (!gantt_ || !pinned_) return {};
  const GanttRow& row = gantt_->rows[pinned_->row];
  return bar_details(*gantt_, row, row.bars[pinned_->bar]).join(" · ");
}

std::optional<double> TimelineView::measured() const {
  if (!measure_) return {};
  return std::abs(measure_->second - measure_->first);
}

QRectF TimelineView::bar_rect(int row, int bar) const {
  const GanttRow& at = gantt_->rows[static_cast<std::size_t>(row)];
  const Bar& it = at.bars[static_cast<std::size_t>(bar)];
  const QRectF area = plot();
  const double left = window_.x(it.start);
  return {area.left() + left, area.top() + window_.top(at), window_.x(it.end) - left,
          window_.height(at)};
}

QString TimelineView::hint() const {
  if (!plan_) {
    return tr("Choose a model and a cluster: the timeline of one step appears here.");
  }
  if (too_long_) {
    return tr(
        "The schedule of this plan has too many instructions to draw. A larger microbatch or "
        "another ZeRO stage reduces them.");
  }
  return tr("Simulating the schedule …");
}

void TimelineView::draw_names(QPainter& painter) const {
  const QRectF area = plot();
  const double line = QFontMetricsF(font()).height();
  painter.setPen(palette().color(QPalette::WindowText));
  double free_from = area.top();
  for (const GanttRow& row : gantt_->rows) {
    if (row.queue != Queue::compute) continue;
    const double y = area.top() + window_.top(row) + (window_.height(row) - line) / 2;
    const double top = std::max(y, area.top());
    if (top < free_from || top + line > area.bottom() + 1 || y < area.top() - line) continue;
    painter.drawText(QRectF(kTimelineEdge, top, area.left() - kTimelineEdge - 6, line),
                     Qt::AlignRight | Qt::AlignVCenter, tr("rank %1").arg(row.rank));
    free_from = top + line;
  }
}

void TimelineView::draw_ruler(QPainter& painter) const {
  const QRectF area = plot();
  const QFontMetricsF metrics(font());
  const double range = window_.to - window_.from;
  const double widest = metrics.horizontalAdvance("000.000 ms") + 16;
  const double step = round_interval(range, std::max(1, static_cast<int>(area.width() / widest)));
  const QColor text = palette().color(QPalette::WindowText);
  // All labels use the unit of the largest one and enough decimals to differ.
  const double unit = window_.to >= 1 ? 1 : window_.to >= 1e-3 ? 1e-3 : 1e-6;
  const char* name = unit == 1 ? "s" : unit == 1e-3 ? "ms" : "us";
  const int decimals = std::clamp(static_cast<int>(-std::floor(std::log10(step / unit))), 0, 9);
  for (double at = std::ceil(window_.from / step) * step; at <= window_.to; at += step) {
    const double x = area.left() + window_.x(at);
    painter.setPen(with_opacity(text, 0.18));
    painter.drawLine(QPointF(x, area.top() - 4), QPointF(x, area.bottom()));
    const QString label = QStringLiteral("%1 %2")
                              .arg(std::abs(at) < step / 2 ? 0.0 : at / unit, 0, 'f', decimals)
                              .arg(name);
    painter.setPen(text);
    const double half = metrics.horizontalAdvance(label) / 2;
    const double left = std::clamp(x - half, area.left(), area.right() - 2 * half);
    painter.drawText(QPointF(left, area.top() - 6), label);
  }
}

void TimelineView::draw_marks(QPainter& painter) const {
  const QRectF area = plot();
  painter.save();
  painter.setClipRect(area);
  const QColor text = palette().color(QPalette::WindowText);
  const auto outline = [&](const Place& place, double width, const QColor& colour) {
    painter.setPen(QPen(colour, width));
    painter.setBrush(Qt::NoBrush);
    const QRectF box = bar_rect(static_cast<int>(place.row), static_cast<int>(place.bar));
    painter.drawRect(box.adjusted(0, 0, std::max(0.0, 2 - box.width()), -1));
  };
  if (hovered_) outline(*hovered_, 1.5, text);
  if (pinned_) outline(*pinned_, 2.5, palette().color(QPalette::Highlight));
  if (measure_) {
    const double from = area.left() + window_.x(std::min(measure_->first, measure_->second));
    const double to = area.left() + window_.x(std::max(measure_->first, measure_->second));
    const QRectF span(from, area.top(), to - from, area.height());
    painter.fillRect(span, with_opacity(palette().color(QPalette::Highlight), 0.25));
    painter.setPen(QPen(palette().color(QPalette::Highlight), 1));
    painter.drawLine(span.topLeft(), span.bottomLeft());
    painter.drawLine(span.topRight(), span.bottomRight());
    const QString label = qt_text(duration(Seconds{*measured()}));
    const QFontMetricsF metrics(font());
    QRectF box(0, 0, metrics.horizontalAdvance(label) + 10, metrics.height() + 4);
    box.moveCenter(QPointF(span.center().x(), area.top() + box.height()));
    box.moveLeft(std::clamp(box.left(), area.left(), area.right() - box.width()));
    painter.fillRect(box, palette().color(QPalette::Highlight));
    painter.setPen(palette().color(QPalette::HighlightedText));
    painter.drawText(box, Qt::AlignCenter, label);
  }
  painter.restore();
}

void TimelineView::paintEvent(QPaintEvent* /*event*/) {
  QPainter painter(this);
  const QColor base = palette().color(QPalette::Base);
  if (!gantt_) {
    painter.fillRect(rect(), base);
    return draw_message(painter, rect(), palette(), hint());
  }
  const QRectF area = plot();
  painter.fillRect(QRectF(0, 0, width(), area.top()), base);
  painter.fillRect(QRectF(0, area.top(), area.left(), height() - area.top()), base);
  painter.fillRect(QRectF(area.right() - 1, area.top(), width() - area.right() + 1, height()),
                   base);
  painter.fillRect(QRectF(0, area.bottom() - 1, width(), height() - area.bottom() + 1), base);
  const double ratio = painter.deviceTransform().m11();  // an exported image has its own
  if (std::exchange(drawn_, ratio) != ratio) paint(*gantt_, window_, palette(), ratio, image_);
  const QFontMetricsF metrics(font());
  const double line = metrics.height() + 2;
  const QColor text = palette().color(QPalette::WindowText);
  QFont bold = font();
  bold.setBold(true);
  painter.setFont(bold);
  painter.setPen(text);
  draw_elided_text(painter,
                   QRectF(kTimelineEdge, kTimelineEdge - 2, width() - 2 * kTimelineEdge, line),
                   title());
  painter.setFont(font());
  draw_legend(&painter, QRectF(kTimelineEdge, kTimelineEdge + line, width() - 2 * kTimelineEdge, 0),
              font(), text, gantt_legend(*gantt_, palette()));
  painter.drawImage(area.topLeft(), image_);
  draw_ruler(painter);
  draw_names(painter);
  draw_marks(painter);
  const QRectF last(kTimelineEdge, height() - line - kTimelineEdge / 2, width() - 2 * kTimelineEdge,
                    line);
  const QString details = pinned();
  painter.setPen(details.isEmpty() ? palette().color(QPalette::PlaceholderText) : text);
  const QString keys = tr("W/S zoom · A/D pan · F fit · click to pin · Shift+drag to measure");
  const QString busy = stale_ ? tr("Simulating the schedule … · ") : QString();
  draw_elided_text(painter, last, busy + (details.isEmpty() ? keys : details));
}

void TimelineView::changeEvent(QEvent* event) {
  drawn_.reset();  // palette or font
  QWidget::changeEvent(event);
}

void TimelineView::showEvent(QShowEvent* event) {
  QWidget::showEvent(event);
  simulate();
}

/// A fitted view stays fitted.
void TimelineView::resizeEvent(QResizeEvent* /*event*/) {
  const bool fitted = window_.per_unit == min_per_unit();
  window_.size = plot().size();
  if (fitted) window_.per_unit = min_per_unit();
  window_changed();
}

}  // namespace echelon::gui
