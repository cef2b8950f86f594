#include "gui/views/answer_view.hpp"

#include <QEvent>
#include <QFontDatabase>
#include <QFontMetricsF>
#include <QHBoxLayout>
#include <QScrollBar>
#include <QTextCharFormat>
#include <QTextCursor>
#include <QVBoxLayout>
#include <algorithm>
#include <utility>

#include "gui/canvas/qt_text.hpp"
#include "gui/canvas/theme.hpp"

namespace echelon::gui {

namespace {

/// The format of an escape code of report/terminal_style.cpp.
QTextCharFormat format_of(std::string_view code, const QPalette& palette) {
  QTextCharFormat format;
  format.setForeground(palette.color(QPalette::Text));
  if (code == "1") format.setFontWeight(QFont::Bold);
  if (code == "2") {
    QColor dimmed = palette.color(QPalette::Text);
    dimmed.setAlphaF(0.65F);
    format.setForeground(dimmed);
  }
  if (code == "31") format.setForeground(error_colour(palette));
  if (code == "32") format.setForeground(good_colour(palette));
  if (code == "33") format.setForeground(warning_colour(palette));
  if (code == "36") format.setForeground(palette.color(QPalette::Link));
  return format;
}

void write_painted(QTextEdit& page, std::string_view text, const QPalette& palette) {
  QTextCursor cursor(page.document());
  QTextCharFormat format = format_of("0", palette);
  while (!text.empty()) {
    const std::size_t escape = text.find("\x1b[");
    cursor.insertText(qt_text(text.substr(0, escape)), format);
    if (escape == std::string_view::npos) return;
    text.remove_prefix(escape + 2);
    const std::size_t end = text.find('m');
    format = format_of(text.substr(0, end), palette);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

}  // namespace

AnswerView::AnswerView(const QString& name, const QString& action, const QString& hint,
                       QWidget* parent)
    : QWidget(parent), hint_(hint), worker_(this) {
  setAccessibleName(name);
  auto* column = new QVBoxLayout(this);
  column->setContentsMargins(6, 6, 6, 6);
  auto* row = new QHBoxLayout;
  action_ = new QPushButton(action, this);
  connect(action_, &QPushButton::clicked, this, &AnswerView::start);
  note_ = new QLabel(this);
  note_->setWordWrap(true);
  bar_ = new QProgressBar(this);
  bar_->setRange(0, 100);
  bar_->setMaximumWidth(160);
  stop_ = new QToolButton(this);
  stop_->setText(tr("Stop"));
  connect(stop_, &QToolButton::clicked, this, &AnswerView::cancel);
  row->addWidget(action_);
  row->addWidget(note_, 1);
  row->addWidget(bar_);
  row->addWidget(stop_);
  column->addLayout(row);
  shown_ = new QTextEdit(this);
  shown_->setReadOnly(true);
  shown_->setAccessibleName(name);
  shown_->setFont(QFontDatabase::systemFont(QFontDatabase::FixedFont));
  shown_->setLineWrapMode(QTextEdit::NoWrap);
  shown_->setPlaceholderText(hint_);
  column->addWidget(shown_, 1);
  connect(&worker_, &Worker::progressed, this,
          [this](double share) { bar_->setValue(static_cast<int>(100 * share)); });
  connect(&worker_, &Worker::finished, this, [this] {
    refresh();
    Q_EMIT finished();
  });
  refresh();
}

void AnswerView::prepare(Work work) {
  worker_.cancel();
  work_ = std::move(work);
  stale_ = static_cast<bool>(answer_);
  failure_.clear();
  refresh();
}

void AnswerView::start() {
  if (!work_) return;
  bar_->setValue(0);
  worker_.start([this, work = work_](const Worker::Ticket& ticket) {
    Result<Text> answer = work([&](double share) { return ticket.progress(share); });
    ticket.deliver([this, answer = std::move(answer)] {
      stale_ = false;
      if (answer) {
        answer_ = *answer;
        failure_.clear();
      } else {
        answer_ = nullptr;
        failure_ = qt_text(answer.error().message());
      }
      render();
    });
  });
  refresh();
  Q_EMIT started();
}

void AnswerView::cancel() {
  worker_.cancel();
  refresh();
}

void AnswerView::refresh() {
  const bool busy = worker_.busy();
  action_->setEnabled(static_cast<bool>(work_) && !busy);
  bar_->setVisible(busy);
  stop_->setVisible(busy);
  note_->setText(!work_ && !answer_ ? tr("There is no plan yet.")
                 : stale_           ? tr("Results of the previous settings.")
                                    : QString());
}

void AnswerView::render() {
  const double column = QFontMetricsF(shown_->font()).horizontalAdvance(QLatin1Char('0'));
  const int bar = shown_->verticalScrollBar()->sizeHint().width();
  const double room = shown_->width() - bar - 2 * (shown_->document()->documentMargin() + 2);
  constexpr int kMinColumns = 60;
  constexpr int kMaxColumns = 140;
  columns_ = std::clamp(static_cast<int>(room / std::max(1.0, column)), kMinColumns, kMaxColumns);
  const int at = shown_->verticalScrollBar()->value();
  shown_->clear();
  if (!failure_.isEmpty()) {
    shown_->setPlainText(failure_);
  } else if (answer_) {
    // This widget's palette: that of the page changes later.
    write_painted(*shown_, answer_({.width = columns_, .color = true, .unicode = true}), palette());
  }
  shown_->verticalScrollBar()->setValue(at);
}

void AnswerView::resizeEvent(QResizeEvent* event) {
  QWidget::resizeEvent(event);
  render();
}

void AnswerView::changeEvent(QEvent* event) {
  if (event->type() == QEvent::PaletteChange) render();
  QWidget::changeEvent(event);
}

}  // namespace echelon::gui
