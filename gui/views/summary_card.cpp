#include "gui/views/summary_card.hpp"

#include <QEvent>
#include <QHelpEvent>
#include <QPainter>
#include <QToolTip>
#include <algorithm>
#include <utility>

#include "gui/canvas/painting.hpp"
#include "gui/canvas/qt_text.hpp"
#include "gui/canvas/stale_overlay.hpp"
#include "gui/canvas/theme.hpp"
#include "report/format.hpp"

namespace echelon::gui {

namespace {

constexpr int kTiles = 6;
constexpr int kGap = 6;
constexpr int kPadding = 8;
constexpr double kSmallest = 0.8;  ///< of a line's size, before words that are too wide are elided

QFont scaled(QFont font, double by, bool bold) {
  font.setPointSizeF(font.pointSizeF() * by);
  font.setBold(bold);
  return font;
}

}  // namespace

SummaryCard::SummaryCard(QWidget* parent) : QWidget(parent) {
  setAccessibleName(tr("Summary of the plan"));
  setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Fixed);
  setMouseTracking(true);
}

void SummaryCard::show_plan(PlanResultPtr plan, const Candidate* best, const QString& stale_reason,
                            bool wrong) {
  plan_ = std::move(plan);
  stale_reason_ = stale_reason;
  wrong_ = wrong;
  figures_.clear();
  setAccessibleDescription(stale_reason_);
  if (plan_) {
    const PlanRequest& request = plan_->resolved.request;
    figures_ = stat_tiles_of(request, plan_->candidate, best);
    summary_ = summary_of(request, plan_->candidate, best);
    plan_words_ = qt_text(described(plan_->candidate.plan, TextStyle{}));
    QString spoken =
        stale_reason_.isEmpty() ? plan_words_ : stale_reason_ + QStringLiteral("; ") + plan_words_;
    for (const StatTile& figure : figures_) {
      spoken += QStringLiteral("; %1 %2").arg(qt_text(figure.name), qt_text(figure.value));
    }
    setAccessibleDescription(spoken);
  }
  update();
}

int SummaryCard::tile_height() const {
  return QFontMetrics(scaled(font(), 0.88, false)).height() * 2 +
         QFontMetrics(scaled(font(), 1.5, true)).height() + kPadding;
}

int SummaryCard::rows() const {
  const int narrowest = QFontMetrics(scaled(font(), 1.15, true)).horizontalAdvance("00,000 tok") +
                        kPadding + kPadding / 2;
  return width() >= kTiles * (narrowest + kGap) ? 1 : 2;
}

QSize SummaryCard::sizeHint() const {
  return {900, rows() * (tile_height() + kGap) + fontMetrics().height() * 2 + 3 * kGap};
}

QSize SummaryCard::minimumSizeHint() const { return {360, sizeHint().height()}; }

void SummaryCard::resizeEvent(QResizeEvent* event) {
  QWidget::resizeEvent(event);
  if (height() != sizeHint().height()) updateGeometry();
}

QRect SummaryCard::tile(int index) const {
  const int columns = kTiles / rows();
  const int column = index % columns;
  const int all = width() - 2 * kGap;
  const int left = kGap + column * (all + kGap) / columns;
  const int right = kGap + (column + 1) * (all + kGap) / columns - kGap;
  const int top = kGap + index / columns * (tile_height() + kGap);
  return {left, top, right - left, tile_height()};
}

QColor SummaryCard::colour_of(const StatTile& figure) const {
  const bool current = stale_reason_.isEmpty();
  if (current && figure.paint == Paint::good) return good_colour(palette());
  if (current && figure.paint == Paint::bad) return error_colour(palette());
  if (current && figure.paint == Paint::warning) return warning_colour(palette());
  return palette().color(QPalette::WindowText);
}

void SummaryCard::draw_tile(QPainter& painter, int index) const {
  const StatTile& figure = figures_[static_cast<std::size_t>(index)];
  const QRect box = tile(index);
  painter.setPen(Qt::NoPen);
  painter.setBrush(palette().color(QPalette::Base));
  painter.drawRoundedRect(box, 5, 5);
  const QRect inner = box.adjusted(kPadding, kPadding / 2, -kPadding / 2, -kPadding / 2);
  const auto line = [&](QFont font, const QColor& pen, int top, const std::string& words) {
    QFont smallest = font;
    smallest.setPointSizeF(font.pointSizeF() * kSmallest);
    const QString shown = clauses_within(qt_text(words), QFontMetricsF(smallest), inner.width());
    const double wanted = QFontMetricsF(font).horizontalAdvance(shown);
    const double by = std::clamp(inner.width() / std::max(1.0, wanted), kSmallest, 1.0);
    if (by < 1) font.setPointSizeF(font.pointSizeF() * by);
    painter.setFont(font);
    painter.setPen(pen);
    const QFontMetrics metrics(font);
    const QRect at(inner.left(), top, inner.width(), metrics.height());
    painter.drawText(at, Qt::AlignLeft | Qt::AlignVCenter, shown);
    return top + metrics.height();
  };
  QColor dimmed = palette().color(QPalette::WindowText);
  dimmed.setAlphaF(0.68F);
  QFont large = scaled(font(), 1.5, true);
  const int large_height = QFontMetrics(large).height();
  for (const double size : {1.15, 0.95}) {
    if (QFontMetrics(large).horizontalAdvance(qt_text(figure.value)) <= inner.width()) break;
    large = scaled(font(), size, true);
  }
  const int below = line(scaled(font(), 0.88, false), dimmed, inner.top(), figure.name);
  line(large, colour_of(figure), below + (large_height - QFontMetrics(large).height()) / 2,
       figure.value);
  line(scaled(font(), 0.88, false), dimmed, below + large_height, figure.detail);
}

/// The plan in one line, then its bottleneck or why it is stale.
void SummaryCard::draw_sentences(QPainter& painter) const {
  const QColor text = palette().color(QPalette::WindowText);
  int y = tile(kTiles - 1).bottom() + kGap;
  const auto sentence = [&](const QString& words, const QColor& pen, bool bold) {
    const QFont font = scaled(this->font(), 1, bold);
    const QFontMetrics metrics(font);
    painter.setFont(font);
    painter.setPen(pen);
    const QRect at(kGap + 2, y, width() - 2 * kGap - 4, metrics.height());
    painter.drawText(at, Qt::AlignLeft | Qt::AlignVCenter,
                     metrics.elidedText(words, Qt::ElideRight, at.width()));
    y += metrics.height() + 2;
  };
  if (stale_reason_.isEmpty()) {
    QColor dimmed = text;
    dimmed.setAlphaF(0.68F);
    sentence(plan_words_, text, true);
    sentence(QStringLiteral("%1. %2.").arg(qt_text(summary_.limit), qt_text(summary_.evidence)),
             dimmed, false);
    return;
  }
  sentence(stale_reason_, wrong_ ? error_colour(palette()) : text, true);
  painter.setOpacity(kStaleOpacity);
  sentence(plan_words_, text, false);
  painter.setOpacity(1);
}

void SummaryCard::paintEvent(QPaintEvent*) {
  QPainter painter(this);
  painter.setRenderHint(QPainter::Antialiasing);
  if (figures_.empty()) {
    painter.setPen(palette().color(QPalette::PlaceholderText));
    painter.drawText(rect().adjusted(2 * kGap, 0, -2 * kGap, 0), Qt::AlignCenter | Qt::TextWordWrap,
                     stale_reason_.isEmpty()
                         ? tr("Choose a model on the left: its best plan appears here.")
                         : stale_reason_);
    return;
  }
  painter.setOpacity(stale_reason_.isEmpty() ? 1 : kStaleOpacity);
  for (int i = 0; i < static_cast<int>(figures_.size()) && i < kTiles; ++i) draw_tile(painter, i);
  painter.setOpacity(1);
  draw_sentences(painter);
}

bool SummaryCard::event(QEvent* event) {
  if (event->type() != QEvent::ToolTip) return QWidget::event(event);
  const auto* help = static_cast<QHelpEvent*>(event);
  for (int i = 0; i < static_cast<int>(figures_.size()) && i < kTiles; ++i) {
    if (!tile(i).contains(help->pos())) continue;
    const StatTile& figure = figures_[static_cast<std::size_t>(i)];
    QToolTip::showText(
        help->globalPos(),
        QStringLiteral("<p><b>%1: %2</b> %3<br>%4</p>")
            .arg(qt_text(figure.name).toHtmlEscaped(), qt_text(figure.value).toHtmlEscaped(),
                 qt_text(figure.detail).toHtmlEscaped(), qt_text(figure.formula).toHtmlEscaped()),
        this);
    return true;
  }
  QToolTip::showText(
      help->globalPos(),
      figures_.empty()
          ? QString()
          : QStringLiteral("<p>%1<br>%2</p>")
                .arg(plan_words_.toHtmlEscaped(),
                     qt_text(summary_.limit + ". " + summary_.evidence).toHtmlEscaped()),
      this);
  return true;
}

}  // namespace echelon::gui
