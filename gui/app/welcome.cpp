#include "gui/app/welcome.hpp"

#include <QCommandLinkButton>
#include <QFileInfo>
#include <QGridLayout>
#include <QPushButton>

#include "gui/canvas/qt_text.hpp"
#include "gui/session/flag_names.hpp"
#include "report/format.hpp"

namespace echelon::gui {

namespace {

/// Flat and left-aligned; the tooltip has the full path.
QPushButton* file_button(const QString& text, const QString& path) {
  auto* button = new QPushButton(text);
  button->setFlat(true);
  button->setToolTip(path);
  button->setStyleSheet(QStringLiteral("text-align: left; padding: 2px 4px"));
  button->setSizePolicy(QSizePolicy::Ignored, QSizePolicy::Fixed);
  return button;
}

QLabel* paragraph(const QString& text) {
  auto* label = new QLabel(text);
  label->setWordWrap(true);
  return label;
}

QLabel* heading(const QString& text, double size) {
  auto* label = paragraph(text);
  QFont font = label->font();
  font.setBold(true);
  font.setPointSizeF(font.pointSizeF() * size);
  label->setFont(font);
  return label;
}

}  // namespace

const std::vector<Example>& examples() {
  // Tokens and batch as published: Llama 2, arXiv 2307.09288 table 1; Llama 3, its model card and
  // arXiv 2407.21783 section 3; DeepSeek-V3, arXiv 2412.19437 section 4.
  static const std::vector<Example> kExamples = {
      {"llama2-7b", 64, "", "DGX H100", "2T", ""},
      {"llama3-70b", 256, "", "DGX H100", "15T", ""},
      {"llama3.1-405b", 16384, "", "DGX H100", "15.6T", "2048"},
      {"deepseek-v3", 2048, "dgx-h800", "HGX H800", "14.8T", ""},
  };
  return kExamples;
}

Query query_of(const Example& example) {
  Query query;
  const auto set = [&](const char* flag, std::string value) {
    query.request.set(flag, {std::move(value), std::string("--") + flag});
  };
  set("model", example.model);
  set("gpus", std::to_string(example.gpus));
  if (*example.cluster != '\0') set("cluster", example.cluster);
  if (*example.batch != '\0') set("global-batch", example.batch);
  set(kTrainTokensFlag, example.tokens);
  return query;
}

Welcome::Welcome(QWidget* parent) : QScrollArea(parent) {
  setAccessibleName(tr("Welcome"));
  setWidgetResizable(true);
  setFrameShape(QFrame::NoFrame);
  setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
  setFocusPolicy(Qt::StrongFocus);
  auto* inside = new QWidget(this);
  auto* column = new QVBoxLayout(inside);
  column->setContentsMargins(18, 12, 18, 12);
  column->addWidget(heading(tr("What do you want to train?"), 1.4));
  column->addWidget(
      paragraph(tr("Choose a model and hardware on the left, or start with an example. The best "
                   "parallel layout appears here, next to its alternatives.")));
  auto* cards = new QGridLayout;
  int index = 0;
  for (const Example& example : examples()) {
    auto* card = new QCommandLinkButton(
        QString::fromUtf8(example.model),
        tr("on %1 GPUs, %2")
            .arg(qt_text(grouped(example.gpus)), QString::fromUtf8(example.machine)));
    card->setSizePolicy(QSizePolicy::Expanding, QSizePolicy::Fixed);
    connect(card, &QPushButton::clicked, this,
            [this, &example] { Q_EMIT example_chosen(query_of(example)); });
    cards->addWidget(card, index / 2, index % 2);
    ++index;
  }
  column->addLayout(cards);
  recent_box_ = new QWidget;
  recent_ = new QVBoxLayout(recent_box_);
  recent_->setContentsMargins(0, 6, 0, 0);
  recent_->setSpacing(0);
  column->addWidget(recent_box_);
  auto* open = new QPushButton(tr("Open a file …"));
  connect(open, &QPushButton::clicked, this, &Welcome::open_requested);
  auto* row = new QHBoxLayout;
  row->addWidget(open);
  row->addWidget(
      paragraph(
          tr("or drop one on the window: a HuggingFace config.json, a cluster description, a "
             "plan file, a session or a run report. <b>F1</b> lists the keyboard shortcuts.")),
      1);
  column->addLayout(row);
  column->addStretch();
  setWidget(inside);
  show_recent({}, {});
}

void Welcome::show_recent(const QStringList& files, const QString& last) {
  while (QLayoutItem* item = recent_->takeAt(0)) {
    item->widget()->hide();
    item->widget()->deleteLater();  // it may be the button that was clicked
    delete item;
  }
  recent_box_->setVisible(!files.isEmpty() || !last.isEmpty());
  if (!files.isEmpty() || !last.isEmpty()) recent_->addWidget(heading(tr("Recent"), 1));
  const auto add = [this](const QString& text, const QString& path) {
    QPushButton* button = file_button(text, path);
    connect(button, &QPushButton::clicked, this, [this, path] { Q_EMIT file_chosen(path); });
    recent_->addWidget(button);
  };
  if (!last.isEmpty()) add(tr("Restore the last session"), last);
  for (const QString& file : files) {
    const QFileInfo info(file);
    add(tr("%1   (%2)").arg(info.fileName(), info.absolutePath()), file);
  }
}

}  // namespace echelon::gui
