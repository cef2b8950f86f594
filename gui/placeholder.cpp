#include "gui/placeholder.hpp"

namespace echelon::gui {

Placeholder::Placeholder(const QString& sentence, QWidget* content, QWidget* parent)
    : QStackedWidget(parent), sentence_(new QLabel(sentence)) {
  sentence_->setAlignment(Qt::AlignCenter);
  sentence_->setWordWrap(true);
  sentence_->setMargin(8);
  sentence_->setForegroundRole(QPalette::PlaceholderText);
  addWidget(sentence_);
  addWidget(content);
}

void Placeholder::show_sentence(const QString& sentence) {
  sentence_->setText(sentence);
  setCurrentIndex(0);
}

}  // namespace echelon::gui
