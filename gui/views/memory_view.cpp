#include "gui/views/memory_view.hpp"

#include <QKeyEvent>
#include <QPainter>
#include <algorithm>
#include <cmath>
#include <utility>

#include "gui/canvas/painting.hpp"
#include "gui/canvas/qt_text.hpp"
#include "gui/canvas/theme.hpp"
#include "gui/views/part_formulas.hpp"
#include "planner/explain/plan_detail.hpp"
#include "report/format.hpp"
#include "report/trade_offs.hpp"

namespace echelon::gui {
namespace {

constexpr double kEdge = 8;

QString gibibytes(Bytes bytes) { return qt_text(with_gib(bytes)); }

std::vector<LegendEntry> memory_legend(const MemoryBreakdown& memory, const QPalette& palette) {
  std::vector<LegendEntry> entries;
  const std::vector<MemoryPart> parts = parts_of(memory);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    entries.push_back({qt_text(parts[i].name), series_colour(static_cast<int>(i))});
  }
  entries.push_back({MemoryView::tr("reserve"), hatched(palette.color(QPalette::WindowText))});
  return entries;
}

}  // namespace

/// Layout for the current size and plan.
struct MemoryView::Frame {
  QRectF legend;
  QRectF limits;  ///< names of the limits
  QRectF plot;
  double per_stage = 0;  ///< width
  Bytes top;             ///< of the axis
  [[nodiscard]] double y(Bytes bytes) const { return plot.bottom() - bytes / top * plot.height(); }
};

MemoryView::MemoryView(QWidget* parent) : PaintedView(tr("Memory per pipeline stage"), parent) {}

void MemoryView::show_plan(PlanResultPtr plan) {
  plan_ = std::move(plan);
  reserved_.clear();
  stage_.reset();
  if (plan_) {
    const PlanRequest& request = plan_->resolved.request;
    reserved_ = reserved_peaks(request, plan_->candidate);
    limit_ = request.usable_memory();
    capacity_ = request.capacity();
    stage_ = plan_->candidate.prediction.memory.tightest_stage;
  }
  setAccessibleDescription(details());
  update();
}

void MemoryView::choose(int stage) {
  if (stages() == 0) return;
  stage = std::clamp(stage, 0, stages() - 1);
  if (stage == stage_) return;
  stage_ = stage;
  setAccessibleDescription(details());
  update();
  Q_EMIT stage_chosen(stage);
}

QString MemoryView::details() const {
  if (!plan_) return {};
  const auto at = static_cast<std::size_t>(*stage_);
  const MemoryPrediction& memory = plan_->candidate.prediction.memory;
  const Stage& stage = memory.contents[at];
  const Bytes peak = memory.stages[at].total();
  const Bytes spare = capacity_ - reserved_[at];
  QString text = tr("Stage %1 of %2: %3")
                     .arg(*stage_)
                     .arg(stages())
                     .arg(qt_text(counted(stage.layers.total(), "layer")));
  if (stage.recomputed.total() > 0) text += tr(", %1 recomputed").arg(stage.recomputed.total());
  if (stage.selective.total() > 0) text += tr(", %1 selectively").arg(stage.selective.total());
  text += tr(" · %1, %2 reserved of %3 · ")
              .arg(gibibytes(peak), gibibytes(reserved_[at]), gibibytes(capacity_));
  text += spare < Bytes{} ? tr("%1 too much").arg(gibibytes(-spare))
                          : tr("%1 to spare").arg(gibibytes(spare));
  return text + qt_text(chance_of(plan_->candidate));
}

MemoryView::Frame MemoryView::frame() const {
  Frame f;
  const QFontMetricsF metrics(font());
  const double line = metrics.height() + 2;
  f.legend = QRectF(kEdge, kEdge + 2 * line + 2, width() - 2 * kEdge, 0);
  f.legend.setHeight(draw_legend(nullptr, f.legend, font(), {}, memory_legend({}, palette())));
  const double left = kEdge + metrics.horizontalAdvance("0000") + 6;
  f.limits = QRectF(left, f.legend.bottom() + 2, width() - left - kEdge, line);
  const double top = f.limits.bottom() + 4;
  f.plot = QRectF(left, top, width() - left - kEdge, height() - top - line - kEdge);
  f.per_stage = f.plot.width() / std::max(1, stages());
  const Bytes highest = stages() > 0 ? *std::ranges::max_element(reserved_) : Bytes{1};
  const Bytes capacity = plan_ ? plan_->candidate.prediction.memory.capacity : Bytes{1};
  f.top = 1.1 * std::max({capacity, limit_, highest});
  return f;
}

QRectF MemoryView::bar_of(int stage) const {
  const Frame f = frame();
  const double width = std::clamp(0.8 * f.per_stage, 1.0, 96.0);
  const double middle = f.plot.left() + (stage + 0.5) * f.per_stage;
  const double top = f.y(reserved_[static_cast<std::size_t>(stage)]);
  return {middle - width / 2, top, width, f.plot.bottom() - top};
}

void MemoryView::draw_axis(QPainter& painter, const Frame& f) const {
  const QColor text = palette().color(QPalette::WindowText);
  const QFontMetricsF metrics(font());
  const double line = metrics.height();
  const double range = f.top.in(1_GiB);
  const double step = round_interval(range, std::max(2, static_cast<int>(f.plot.height() / 32)));
  for (double value = 0; value <= range; value += step) {
    const double y = f.y(value * Bytes{1_GiB});
    painter.setPen(with_opacity(text, 0.15));
    painter.drawLine(QPointF(f.plot.left(), y), QPointF(f.plot.right(), y));
    painter.setPen(text);
    painter.drawText(QRectF(0, y - line / 2, f.plot.left() - 5, line),
                     Qt::AlignRight | Qt::AlignVCenter, QString::number(value));
  }
  const double widest = metrics.horizontalAdvance(QString::number(stages())) + 8;
  const int each = std::max(1, static_cast<int>(std::ceil(widest / f.per_stage)));
  for (int stage = 0; stage < stages(); stage += each) {
    const double middle = f.plot.left() + (stage + 0.5) * f.per_stage;
    painter.drawText(QRectF(middle - widest, f.plot.bottom() + 2, 2 * widest, line),
                     Qt::AlignHCenter | Qt::AlignTop, QString::number(stage));
  }
}

void MemoryView::draw_bar(QPainter& painter, const Frame& f, int stage) const {
  const auto at = static_cast<std::size_t>(stage);
  const QRectF bar = bar_of(stage);
  if (stage == stage_ && stages() > 1) {
    painter.fillRect(
        QRectF(f.plot.left() + stage * f.per_stage, f.plot.top(), f.per_stage, f.plot.height()),
        with_opacity(palette().color(QPalette::Highlight), hasFocus() ? 0.25 : 0.15));
  }
  const std::vector<MemoryPart> parts = parts_of(plan_->candidate.prediction.memory.stages[at]);
  Bytes below;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const double bottom = f.y(below);
    below += parts[i].bytes;
    const double top = f.y(below);
    painter.fillRect(QRectF(bar.left(), top, bar.width(), bottom - top),
                     series_colour(static_cast<int>(i)));
  }
  const QColor text = palette().color(QPalette::WindowText);
  painter.fillRect(QRectF(bar.left(), bar.top(), bar.width(), f.y(below) - bar.top()),
                   hatched(text));
  if (reserved_[at] > limit_) {
    const QColor wrong = error_colour(palette());
    const QRectF excess(bar.left(), bar.top(), bar.width(), f.y(limit_) - bar.top());
    painter.fillRect(excess, with_opacity(palette().color(QPalette::Base), 0.55));
    painter.fillRect(excess, QBrush(wrong, Qt::BDiagPattern));
    painter.setPen(QPen(wrong, 1.5));
    painter.drawRect(excess);
  }
}

/// The lines, and their names above the plot, where they hide no bar.
void MemoryView::draw_limits(QPainter& painter, const Frame& f) const {
  constexpr double kSample = 18;  // of the line, before its name
  constexpr double kGap = 5;
  const Bytes capacity = plan_->candidate.prediction.memory.capacity;
  const PlanRequest& request = plan_->resolved.request;
  const QString gpu = qt_text(request.cluster.gpu().name);
  const auto limit = [&](Bytes bytes, const QPen& pen, const QString& name, const QRectF& label) {
    const double y = f.y(bytes);
    const double middle = label.center().y();
    painter.setPen(pen);
    painter.drawLine(QPointF(f.plot.left(), y), QPointF(f.plot.right(), y));
    painter.drawLine(QPointF(label.left(), middle), QPointF(label.left() + kSample, middle));
    draw_elided_text(painter, label.adjusted(kSample + kGap, 0, 0, 0), name);
  };
  const double half = f.limits.width() / 2;
  limit(capacity, QPen(error_colour(palette()), 1.6, Qt::SolidLine),
        tr("%1: %2").arg(gpu, gibibytes(capacity)), f.limits.adjusted(0, 0, -half, 0));
  limit(limit_, QPen(warning_colour(palette()), 1.6, Qt::DashLine),
        (request.max_memory ? tr("--max-memory: %1") : tr("likely to fit up to %1"))
            .arg(gibibytes(limit_)),
        f.limits.adjusted(half, 0, 0, 0));
}

void MemoryView::paintEvent(QPaintEvent* /*event*/) {
  QPainter painter(this);
  painter.fillRect(rect(), palette().color(QPalette::Base));
  if (!plan_) {
    draw_message(
        painter, rect(), palette(),
        tr("Choose a model and a cluster: the memory of every pipeline stage appears here."));
    return;
  }
  const Frame f = frame();
  const MemoryPrediction& memory = plan_->candidate.prediction.memory;
  const double line = QFontMetricsF(font()).height() + 2;
  const QColor text = palette().color(QPalette::WindowText);
  QFont bold = font();
  bold.setBold(true);
  painter.setFont(bold);
  painter.setPen(text);
  draw_elided_text(painter, QRectF(kEdge, kEdge, width() - 2 * kEdge, line),
                   tr("GiB per stage · at most %1 reserved, on stage %2")
                       .arg(gibibytes(memory.peak_reserved))
                       .arg(memory.tightest_stage));
  painter.setFont(font());
  painter.setPen(plan_->candidate.fits ? text : error_colour(palette()));
  draw_elided_text(painter, QRectF(kEdge, kEdge + line, width() - 2 * kEdge, line), details());
  draw_legend(&painter, f.legend, font(), text, memory_legend(memory.stages.front(), palette()));
  draw_axis(painter, f);
  for (int stage = 0; stage < stages(); ++stage) draw_bar(painter, f, stage);
  draw_limits(painter, f);
}

QString MemoryView::tooltip_at(const QPointF& at) const {
  if (!plan_) return {};
  const Frame f = frame();
  if (!f.plot.contains(at)) return {};
  const int stage =
      std::min(stages() - 1, static_cast<int>((at.x() - f.plot.left()) / f.per_stage));
  const MemoryBreakdown& memory =
      plan_->candidate.prediction.memory.stages[static_cast<std::size_t>(stage)];
  const Bytes reserved = reserved_[static_cast<std::size_t>(stage)];
  const Bytes here = (f.plot.bottom() - at.y()) / f.plot.height() * f.top;
  const auto part_tooltip = [&](std::string_view name, Bytes bytes) {
    QString text = tr("<b>%1</b> of stage %2: %3, %4 of its peak")
                       .arg(qt_text(name))
                       .arg(stage)
                       .arg(gibibytes(bytes), qt_text(percent(bytes / reserved)));
    if (const PartFormula* note = memory_formula(name)) {
      text += tr("<br>%1<br><i>%2</i>").arg(qt_text(note->formula), qt_text(note->source));
    }
    return text;
  };
  Bytes below;
  for (const MemoryPart& part : parts_of(memory)) {
    below += part.bytes;
    if (here <= below) return part_tooltip(part.name, part.bytes);
  }
  if (here <= reserved) return part_tooltip("reserve", reserved - memory.total());
  return {};
}

void MemoryView::keyPressEvent(QKeyEvent* event) {
  switch (event->key()) {
    case Qt::Key_Left: return choose(stage_.value_or(0) - 1);
    case Qt::Key_Right: return choose(stage_.value_or(0) + 1);
    case Qt::Key_Home: return choose(0);
    case Qt::Key_End: return choose(stages() - 1);
    default: QWidget::keyPressEvent(event);
  }
}

void MemoryView::mousePressEvent(QMouseEvent* event) {
  const Frame f = frame();
  if (event->button() != Qt::LeftButton || !f.plot.contains(event->position())) return;
  choose(static_cast<int>((event->position().x() - f.plot.left()) / f.per_stage));
}

}  // namespace echelon::gui
