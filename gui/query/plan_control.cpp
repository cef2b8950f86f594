// The controls of one flag of a plan.
#include <QEvent>
#include <QGridLayout>
#include <QPainter>
#include <QPainterPath>
#include <QStyleOptionSlider>
#include <algorithm>
#include <cmath>
#include <utility>

#include "cli/flags/table.hpp"
#include "gui/canvas/qt_text.hpp"
#include "gui/canvas/theme.hpp"
#include "gui/query/plan_controls.hpp"

namespace echelon::gui {

namespace {

constexpr int kControlTitle = 82;
constexpr int kValueWidth = 52;

/// A padlock, closed or open, in one colour.
QIcon padlock(bool closed, const QColor& colour) {
  constexpr int kSide = 32;
  QPixmap picture(kSide, kSide);
  picture.fill(Qt::transparent);
  QPainter painter(&picture);
  painter.setRenderHint(QPainter::Antialiasing);
  QPen bow(colour, 3);
  painter.setPen(bow);
  painter.setBrush(Qt::NoBrush);
  QPainterPath arch;
  const double left = closed ? 10 : 14;
  arch.moveTo(left, 16);
  arch.lineTo(left, 11);
  arch.arcTo(QRectF(left, 5, 12, 12), 180, -180);
  if (closed) arch.lineTo(left + 12, 16);
  painter.drawPath(arch);
  painter.setPen(Qt::NoPen);
  painter.setBrush(colour);
  painter.drawRoundedRect(QRectF(6, 15, 20, 13), 2, 2);
  return QIcon(picture);
}

}  // namespace

TickSlider::TickSlider(QWidget* parent) : QSlider(Qt::Horizontal, parent) {
  setRange(0, 0);
  setPageStep(1);
  connect(this, &QSlider::valueChanged, this, [this](int index) {
    if (showing_ || index < 0 || index >= static_cast<int>(stops_.size())) return;
    Q_EMIT moved_to(stops_[static_cast<std::size_t>(index)].value);
  });
}

void TickSlider::show_ticks(std::vector<cli::SliderTick> stops, int value) {
  stops_ = std::move(stops);
  int nearest = 0;
  for (int i = 0; i < static_cast<int>(stops_.size()); ++i) {
    const auto distance = [&](int at) {
      return std::abs(std::log2(std::max(0.5, double(stops_[static_cast<std::size_t>(at)].value))) -
                      std::log2(std::max(0.5, double(value))));
    };
    if (distance(i) < distance(nearest)) nearest = i;
  }
  showing_ = true;
  setRange(0, std::max(0, static_cast<int>(stops_.size()) - 1));
  setValue(nearest);
  showing_ = false;
  setEnabled(stops_.size() > 1);
  update();
}

void TickSlider::paintEvent(QPaintEvent* event) {
  QStyleOptionSlider option;
  initStyleOption(&option);
  const QRect handle =
      style()->subControlRect(QStyle::CC_Slider, &option, QStyle::SC_SliderHandle, this);
  QPainter painter(this);
  painter.setRenderHint(QPainter::Antialiasing);
  painter.setPen(Qt::NoPen);
  QColor illegal = palette().color(QPalette::WindowText);
  illegal.setAlphaF(0.18F);
  const int count = static_cast<int>(stops_.size());
  for (int i = 0; i < count && count > 1; ++i) {
    const double x = handle.width() / 2.0 + i * double(width() - handle.width()) / (count - 1);
    const bool legal = stops_[static_cast<std::size_t>(i)].legal;
    painter.setBrush(legal ? palette().color(QPalette::Highlight) : illegal);
    painter.drawRect(QRectF(x - 1, height() - 4.0, 2, 4));
  }
  painter.end();
  QSlider::paintEvent(event);
}

PlanControl::PlanControl(std::string flag, const QString& title, Kind kind, QWidget* parent)
    : QWidget(parent), flag_(std::move(flag)) {
  auto* grid = new QGridLayout(this);
  grid->setContentsMargins(2, 1, 2, 1);
  grid->setHorizontalSpacing(5);
  grid->setVerticalSpacing(1);
  lock_ = new QToolButton(this);
  lock_->setCheckable(true);
  lock_->setAutoRaise(true);
  lock_->setIconSize(QSize(14, 14));
  lock_->setFixedSize(22, 22);
  lock_->setFocusPolicy(Qt::StrongFocus);
  lock_->setToolTip(tr("Keep this value in every search"));
  lock_->setAccessibleName(tr("Lock %1").arg(title));
  grid->addWidget(lock_, 0, 0);
  auto* label = new QLabel(title, this);
  label->setFixedWidth(kControlTitle);
  label->setToolTip(tooltip_of(flag_));
  grid->addWidget(label, 0, 1);
  QWidget* shown = nullptr;
  if (kind == Kind::choice) {
    list_ = new ListEntry(this);
    list_->setEditable(true);
    list_->setInsertPolicy(QComboBox::NoInsert);
    const cli::Flag* known = cli::find_flag(flag_);
    list_->addItems(known->value.empty()
                        ? QStringList{QStringLiteral("true"), QStringLiteral("false")}
                        : qt_text(known->choices).split(QLatin1Char(' ')));
    list_->setSizeAdjustPolicy(QComboBox::AdjustToMinimumContentsLengthWithIcon);
    list_->setMinimumContentsLength(6);
    entry_ = list_->lineEdit();
    shown = list_;
    connect(list_, &QComboBox::activated, this, [this](int index) {
      Q_EMIT edited(list_->itemText(index));
      Q_EMIT done();
    });
  } else {
    entry_ = new QLineEdit(this);
    shown = entry_;
  }
  if (kind == Kind::degree) {
    slider_ = new TickSlider(this);
    slider_->setMinimumWidth(60);
    slider_->setToolTip(tooltip_of(flag_));
    slider_->setAccessibleName(title);
    grid->addWidget(slider_, 0, 2);
    entry_->setFixedWidth(kValueWidth);
    entry_->setAlignment(Qt::AlignRight);
    accept_digits_only(*entry_);
    connect(slider_, &TickSlider::moved_to, this,
            [this](int value) { Q_EMIT edited(QString::number(value)); });
    connect(slider_, &QSlider::sliderReleased, this, &PlanControl::done);
  }
  shown->setToolTip(tooltip_of(flag_));
  shown->setAccessibleName(title);
  grid->addWidget(shown, 0, 3);
  grid->setColumnStretch(kind == Kind::degree ? 2 : 3, 1);
  reason_ = new ErrorLabel(this);
  grid->addWidget(reason_, 1, 1, 1, 3);
  connect(entry_, &QLineEdit::textEdited, this, &PlanControl::edited);
  connect(entry_, &QLineEdit::editingFinished, this, &PlanControl::done);
  on_leave(*entry_, list_, [this] {
    if (entry_->hasFocus() || (list_ != nullptr && list_->hasFocus())) Q_EMIT left();
  });
  connect(lock_, &QToolButton::clicked, this, &PlanControl::locked);
  draw_lock();
}

void PlanControl::show_value(const QString& text) {
  if (entry_->text().trimmed() != text) {
    entry_->setText(text);
    entry_->setCursorPosition(0);
  }
}

void PlanControl::show_ticks(const std::vector<cli::SliderTick>& stops) {
  if (slider_ != nullptr) slider_->show_ticks(stops, entry_->text().toInt());
}

void PlanControl::show_locked(bool locked) {
  lock_->setChecked(locked);
  draw_lock();
}

void PlanControl::show_reason(const QString& reason) {
  if (reason_->text() == reason) return;
  reason_->show_error(reason);
  entry_->setAccessibleDescription(reason);
  update();
}

void PlanControl::draw_lock() {
  QColor colour = palette().color(lock_->isChecked() ? QPalette::Link : QPalette::WindowText);
  if (!lock_->isChecked()) colour.setAlphaF(0.45F);
  lock_->setIcon(padlock(lock_->isChecked(), colour));
}

void PlanControl::changeEvent(QEvent* event) {
  if (event->type() == QEvent::PaletteChange) draw_lock();
  QWidget::changeEvent(event);
}

void PlanControl::paintEvent(QPaintEvent* event) {
  QWidget::paintEvent(event);
  if (!reason_->text().isEmpty()) {
    draw_error_border(*this, list_ != nullptr ? *static_cast<QWidget*>(list_) : *entry_);
  }
}

}  // namespace echelon::gui
