#include "gui/canvas/empty_state.hpp"

namespace echelon::gui {

EmptyState::EmptyState(const QString& message, QWidget* content, QWidget* parent)
    : QStackedWidget(parent), message_(new QLabel(message)) {
  message_->setAlignment(Qt::AlignCenter);
  message_->setWordWrap(true);
  message_->setMargin(8);
  message_->setForegroundRole(QPalette::PlaceholderText);
  addWidget(message_);
  addWidget(content);
}

void EmptyState::show_message(const QString& message) {
  message_->setText(message);
  setCurrentIndex(0);
}

}  // namespace echelon::gui
