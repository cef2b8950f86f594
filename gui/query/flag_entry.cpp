#include "gui/query/flag_entry.hpp"

#include <QAbstractItemView>
#include <QCompleter>
#include <QEvent>
#include <QFileDialog>
#include <QGridLayout>
#include <QKeyEvent>
#include <QPainter>
#include <QRegularExpressionValidator>
#include <QToolButton>
#include <utility>

#include "cli/commands/help.hpp"
#include "cli/flags/table.hpp"
#include "gui/canvas/qt_text.hpp"
#include "gui/canvas/theme.hpp"

namespace echelon::gui {

namespace {

constexpr int kTitleWidth = 86;
constexpr int kTypingPause = 600;  // ms after the last key

/// Passes letters on to the window's shortcuts.
class LetterShortcuts : public QObject {
 public:
  using QObject::QObject;

 protected:
  bool eventFilter(QObject* /*watched*/, QEvent* event) override {
    if (event->type() != QEvent::ShortcutOverride) return false;
    const auto* key = static_cast<QKeyEvent*>(event);
    const bool plain = (key->modifiers() & ~(Qt::ShiftModifier | Qt::KeypadModifier)) == 0;
    if (!plain || key->text().isEmpty() || !key->text().front().isPrint()) return false;
    if (key->text().front().isDigit()) return false;
    event->ignore();
    return true;
  }
};

/// Escape leaves an entry; Ctrl+E remains a shortcut of the window (in Qt: end of line).
class EntryKeys : public QObject {
 public:
  EntryKeys(QObject* parent, std::function<void()> what)
      : QObject(parent), what_(std::move(what)) {}

 protected:
  bool eventFilter(QObject* /*watched*/, QEvent* event) override {
    if (event->type() != QEvent::KeyPress && event->type() != QEvent::ShortcutOverride) {
      return false;
    }
    const auto* key = static_cast<QKeyEvent*>(event);
    if (event->type() == QEvent::ShortcutOverride) {
      const bool windows = key->key() == Qt::Key_E && key->modifiers() == Qt::ControlModifier;
      if (windows) event->ignore();
      return windows;
    }
    const bool escape = key->key() == Qt::Key_Escape;
    if (escape) what_();
    return escape;
  }

 private:
  std::function<void()> what_;
};

}  // namespace

void ListEntry::hidePopup() {
  const bool open = view()->isVisible();
  QComboBox::hidePopup();
  // The signal of the choice itself follows later.
  if (open) QMetaObject::invokeMethod(this, &ListEntry::popup_closed, Qt::QueuedConnection);
}

void accept_digits_only(QLineEdit& entry) {
  static const QRegularExpression kDigits(QStringLiteral("[0-9]*"));
  entry.setValidator(new QRegularExpressionValidator(kDigits, &entry));
  entry.installEventFilter(new LetterShortcuts(&entry));
}

void on_leave(QLineEdit& entry, ListEntry* list, const std::function<void()>& left) {
  entry.installEventFilter(new EntryKeys(&entry, left));
  QObject::connect(&entry, &QLineEdit::returnPressed, &entry, left);
  if (list == nullptr) return;
  list->installEventFilter(new EntryKeys(list, left));  // its line edit receives keys through it
  QObject::connect(list, &ListEntry::popup_closed, &entry, left);
  QObject::connect(list->completer(), qOverload<const QString&>(&QCompleter::activated), &entry,
                   left, Qt::QueuedConnection);
}

QString tooltip_of(const std::string& name) {
  const cli::Flag* flag = cli::find_flag(name);
  if (flag == nullptr) return {};
  return QStringLiteral("<p style='white-space:pre-wrap'><b>%1</b><br>%2</p>")
      .arg(qt_text(cli::spelling_of(*flag)).toHtmlEscaped(), qt_text(flag->help).toHtmlEscaped());
}

ErrorLabel::ErrorLabel(QWidget* parent) : QLabel(parent) {
  setWordWrap(true);
  setTextInteractionFlags(Qt::TextSelectableByMouse);
  QFont small = font();
  small.setPointSizeF(small.pointSizeF() * 0.9);
  setFont(small);
  paint_in_palette();
  hide();
}

void ErrorLabel::show_error(const QString& text) {
  setText(text);
  setVisible(!text.isEmpty());
}

void ErrorLabel::changeEvent(QEvent* event) {
  if (event->type() == QEvent::PaletteChange) paint_in_palette();
  QLabel::changeEvent(event);
}

void ErrorLabel::paint_in_palette() {
  QPalette own;  // of this role alone: the others follow the theme
  own.setColor(QPalette::WindowText, error_colour(QApplication::palette()));
  setPalette(own);
}

void draw_error_border(QWidget& widget, const QWidget& entry) {
  QPainter painter(&widget);
  painter.setRenderHint(QPainter::Antialiasing);
  painter.setPen(QPen(error_colour(widget.palette()), 2));
  const QRect around(entry.mapTo(&widget, QPoint(0, 0)), entry.size());
  painter.drawRoundedRect(QRectF(around).adjusted(-1.5, -1.5, 1.5, 1.5), 3, 3);
}

FlagEntry::FlagEntry(std::string flag, const QString& title, const QStringList& choices,
                     bool browse, QWidget* parent)
    : QWidget(parent), flag_(std::move(flag)) {
  auto* grid = new QGridLayout(this);
  grid->setContentsMargins(2, 2, 2, 2);
  grid->setHorizontalSpacing(6);
  grid->setVerticalSpacing(2);
  auto* label = new QLabel(title, this);
  label->setFixedWidth(kTitleWidth);
  label->setWordWrap(true);
  grid->addWidget(label, 0, 0);
  QWidget* shown = nullptr;
  if (choices.isEmpty()) {
    entry_ = new QLineEdit(this);
    shown = entry_;
  } else {
    build_list(choices);
    shown = list_;
  }
  label->setBuddy(shown);
  shown->setAccessibleName(title);
  shown->setToolTip(tooltip_of(flag_));
  label->setToolTip(shown->toolTip());
  grid->addWidget(shown, 0, 1);
  grid->setColumnStretch(1, 1);
  if (browse) {
    auto* button = new QToolButton(this);
    button->setText(QStringLiteral("…"));
    button->setToolTip(tr("Choose a file (or drop one on the window)"));
    button->setAccessibleName(tr("File for %1").arg(title));
    button->setFocusPolicy(Qt::ClickFocus);  // Tab moves from entry to entry
    connect(button, &QToolButton::clicked, this, &FlagEntry::browse);
    grid->addWidget(button, 0, 2);
  }
  reason_ = new ErrorLabel(this);
  grid->addWidget(reason_, 1, 0, 1, 3);
  typing_.setSingleShot(true);
  typing_.setInterval(kTypingPause);
  connect(&typing_, &QTimer::timeout, this, &FlagEntry::show_pending_error);
  connect(entry_, &QLineEdit::textEdited, this, [this](const QString& text) {
    typing_.start();
    Q_EMIT edited(text);
  });
  connect(entry_, &QLineEdit::editingFinished, this, [this] {
    show_pending_error();
    Q_EMIT done();
  });
  on_leave(*entry_, list_, [this] {
    if (entry_->hasFocus() || (list_ != nullptr && list_->hasFocus())) Q_EMIT left();
  });
}

void FlagEntry::build_list(const QStringList& choices) {
  list_ = new ListEntry(this);
  list_->setEditable(true);
  list_->setInsertPolicy(QComboBox::NoInsert);
  list_->addItems(choices);
  list_->setCurrentIndex(-1);
  list_->setMinimumContentsLength(8);
  list_->setSizeAdjustPolicy(QComboBox::AdjustToMinimumContentsLengthWithIcon);
  list_->completer()->setFilterMode(Qt::MatchContains);
  list_->completer()->setCompletionMode(QCompleter::PopupCompletion);
  entry_ = list_->lineEdit();
  connect(list_, &QComboBox::activated, this, [this](int index) {
    show_pending_error();
    Q_EMIT edited(list_->itemText(index));
    Q_EMIT done();
  });
}

void FlagEntry::show_value(const QString& text, const QString& placeholder) {
  entry_->setPlaceholderText(placeholder);
  if (entry_->text() == text) return;
  entry_->setText(text);
  entry_->setCursorPosition(0);
}

void FlagEntry::show_reason(const QString& reason) {
  pending_error_ = reason;
  const bool early = typing_.isActive() && reason_->text().isEmpty() && !reason.isEmpty();
  if (early || reason_->text() == reason) return;
  reason_->show_error(reason);
  entry_->setAccessibleDescription(reason);
  update();
}

void FlagEntry::show_pending_error() {
  typing_.stop();
  show_reason(pending_error_);
}

void FlagEntry::paintEvent(QPaintEvent* event) {
  QWidget::paintEvent(event);
  if (!reason_->text().isEmpty()) {
    draw_error_border(*this, list_ != nullptr ? *static_cast<QWidget*>(list_) : *entry_);
  }
}

void FlagEntry::browse() {
  const QString path = QFileDialog::getOpenFileName(this, tr("Choose a file"), {},
                                                    tr("JSON (*.json);;All files (*)"));
  if (path.isEmpty()) return;
  Q_EMIT edited(path);
  Q_EMIT done();
}

}  // namespace echelon::gui
