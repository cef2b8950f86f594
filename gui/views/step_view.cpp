#include "gui/views/step_view.hpp"

#include <QKeyEvent>
#include <QPainter>
#include <QToolTip>
#include <algorithm>
#include <utility>

#include "gui/canvas/painting.hpp"
#include "gui/canvas/qt_text.hpp"
#include "gui/canvas/theme.hpp"
#include "gui/views/part_formulas.hpp"

namespace echelon::gui {
namespace {

constexpr double kStepEdge = 8;

QString time_text_of(Seconds time) { return qt_text(duration(time)); }

}  // namespace

struct StepView::Frame {
  QFont font;
  double line = 0;  ///< height of a row
  double top = 0;   ///< of the first row
  QRectF names, plot, values;
  Seconds range;
  [[nodiscard]] double x(Seconds time) const { return plot.left() + time / range * plot.width(); }
};

StepView::StepView(QWidget* parent) : PaintedView(tr("Parts of the step time"), parent) {}

void StepView::show_plan(PlanResultPtr plan) {
  plan_ = std::move(plan);
  parts_.clear();
  colours_.clear();
  row_.reset();
  if (plan_) {
    int colour = 0;
    for (const TimePart& part : parts_of(plan_->candidate.prediction.time.parts)) {
      if (part.time > Seconds{}) {
        parts_.push_back(part);
        colours_.push_back(colour);
      }
      ++colour;
    }
  }
  setAccessibleDescription(headline());
  update();
}

QString StepView::headline() const {
  if (!plan_) return {};
  const PlanCosts& p = plan_->candidate.prediction;
  return tr("Step %1 (%2 – %3, %4)")
      .arg(time_text_of(p.time.step), time_text_of(p.time.low), time_text_of(p.time.high),
           qt_text(name_of(p.evidence)));
}

StepView::Frame StepView::frame() const {
  Frame f;
  f.font = font();
  const double head = QFontMetricsF(f.font).height() + 6;
  f.top = kStepEdge + head;
  const auto rows = static_cast<double>(parts_.size() + 1);
  f.line = std::min(34.0, (height() - f.top - kStepEdge) / rows);
  if (f.line < QFontMetricsF(f.font).height()) {
    f.font.setPixelSize(std::max(7, static_cast<int>(0.8 * f.line)));
  }
  const QFontMetricsF metrics(f.font);
  double names = metrics.horizontalAdvance(tr("step"));
  for (const TimePart& part : parts_) {
    names = std::max(names, metrics.horizontalAdvance(qt_text(part.name)));
  }
  const double values = metrics.horizontalAdvance("000 ms  100.0 %") + 4;
  const double rest = rows * f.line;
  f.names = QRectF(kStepEdge, f.top, names, rest);
  f.values = QRectF(width() - kStepEdge - values, f.top, values, rest);
  f.plot = QRectF(f.names.right() + 8, f.top, f.values.left() - f.names.right() - 16, rest);
  const TimePrediction& time = plan_->candidate.prediction.time;
  f.range = 1.02 * std::max(time.high, time.step);
  return f;
}

QRectF StepView::bar_of(int row) const {
  const Frame f = frame();
  Seconds before;
  for (int i = 0; i < row && i < static_cast<int>(parts_.size()); ++i) {
    before += parts_[static_cast<std::size_t>(i)].time;
  }
  const bool whole = row >= static_cast<int>(parts_.size());
  const double from = whole ? f.plot.left() : f.x(before);
  const double to = f.x(whole ? before : before + parts_[static_cast<std::size_t>(row)].time);
  const double inset = std::max(1.0, 0.16 * f.line);
  return {from, f.top + row * f.line + inset, std::max(1.0, to - from), f.line - 2 * inset};
}

void StepView::draw_row(QPainter& painter, const Frame& f, int row) const {
  const TimePart& part = parts_[static_cast<std::size_t>(row)];
  const QRectF bar = bar_of(row);
  const QColor text = palette().color(QPalette::WindowText);
  painter.fillRect(bar, series_colour(colours_[static_cast<std::size_t>(row)]));
  painter.setPen(QPen(with_opacity(text, 0.35), 1, Qt::DotLine));
  painter.drawLine(QPointF(bar.right(), bar.bottom()), QPointF(bar.right(), bar_of(row + 1).top()));
  const double y = f.top + row * f.line;
  painter.setPen(text);
  draw_elided_text(painter, QRectF(f.names.left(), y, f.names.width() + 2, f.line),
                   qt_text(part.name));
  const Seconds step = plan_->candidate.prediction.time.step;
  draw_elided_text(painter, QRectF(f.values.left(), y, f.values.width(), f.line),
                   tr("%1  %2").arg(time_text_of(part.time), qt_text(percent(part.time / step))),
                   Qt::AlignRight | Qt::AlignVCenter);
}

/// The step and its 80 % band as a whisker.
void StepView::draw_total(QPainter& painter, const Frame& f) const {
  const int row = static_cast<int>(parts_.size());
  const TimePrediction& time = plan_->candidate.prediction.time;
  const QRectF bar = bar_of(row);
  const QColor text = palette().color(QPalette::WindowText);
  painter.fillRect(bar, with_opacity(text, 0.35));
  const double middle = bar.center().y();
  const double cap = bar.height() / 3;
  painter.setPen(QPen(text, 1.5));
  painter.drawLine(QPointF(f.x(time.low), middle), QPointF(f.x(time.high), middle));
  for (const Seconds end : {time.low, time.high}) {
    painter.drawLine(QPointF(f.x(end), middle - cap), QPointF(f.x(end), middle + cap));
  }
  QFont bold = f.font;
  bold.setBold(true);
  painter.setFont(bold);
  const double y = f.top + row * f.line;
  draw_elided_text(painter, QRectF(f.names.left(), y, f.names.width() + 2, f.line), tr("step"));
  draw_elided_text(painter, QRectF(f.values.left(), y, f.values.width(), f.line),
                   time_text_of(time.step), Qt::AlignRight | Qt::AlignVCenter);
}

void StepView::paintEvent(QPaintEvent* /*event*/) {
  QPainter painter(this);
  painter.fillRect(rect(), palette().color(QPalette::Base));
  if (!plan_) {
    draw_message(painter, rect(), palette(),
                 tr("Choose a model and a cluster: the parts of the step time appear here."));
    return;
  }
  const Frame f = frame();
  QFont bold = font();
  bold.setBold(true);
  painter.setFont(bold);
  painter.setPen(palette().color(QPalette::WindowText));
  draw_elided_text(painter,
                   QRectF(kStepEdge, kStepEdge, width() - 2 * kStepEdge, f.top - kStepEdge - 4),
                   headline());
  painter.setFont(f.font);
  if (row_) {
    painter.fillRect(QRectF(0, f.top + *row_ * f.line, width(), f.line),
                     with_opacity(palette().color(QPalette::Highlight), 0.2));
  }
  for (int row = 0; row < static_cast<int>(parts_.size()); ++row) draw_row(painter, f, row);
  draw_total(painter, f);
}

QString StepView::tooltip_at(const QPointF& at) const {
  if (!plan_) return {};
  const Frame f = frame();
  if (at.y() < f.top) return {};
  const auto row = static_cast<std::size_t>((at.y() - f.top) / f.line);
  if (row > parts_.size()) return {};
  const TimePrediction& time = plan_->candidate.prediction.time;
  if (row == parts_.size()) {
    return tr("<b>step</b>: %1, 80 % of runs lie between %2 and %3<br>Sum of the parts, "
              "averaged over the stages.")
        .arg(time_text_of(time.step), time_text_of(time.low), time_text_of(time.high));
  }
  const TimePart& part = parts_[row];
  QString text = tr("<b>%1</b>: %2, %3 of the step")
                     .arg(qt_text(part.name), time_text_of(part.time),
                          qt_text(percent(part.time / time.step)));
  if (const PartFormula* note = time_formula(part.name)) {
    text += tr("<br>%1<br><i>%2</i>").arg(qt_text(note->formula), qt_text(note->source));
  }
  return text;
}

void StepView::keyPressEvent(QKeyEvent* event) {
  const int by = event->key() == Qt::Key_Down ? 1 : event->key() == Qt::Key_Up ? -1 : 0;
  if (by == 0 || !plan_) return QWidget::keyPressEvent(event);
  row_ = row_ ? std::clamp(*row_ + by, 0, static_cast<int>(parts_.size())) : 0;
  const QString note = tooltip_at(bar_of(*row_).center());
  setAccessibleDescription(note);
  QToolTip::showText(mapToGlobal(bar_of(*row_).bottomLeft().toPoint()), note, this);
  update();
}

}  // namespace echelon::gui
