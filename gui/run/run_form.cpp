#include "gui/run/run_form.hpp"

#include <QFileDialog>
#include <QFormLayout>
#include <QHBoxLayout>
#include <QLabel>
#include <QProcess>
#include <QToolButton>
#include <QVBoxLayout>
#include <algorithm>
#include <array>
#include <string_view>

#include "cli/flags/table.hpp"
#include "gui/canvas/theme.hpp"
#include "report/text/text.hpp"

namespace echelon::gui {
namespace {

enum class Browses { nothing, file, folder };

struct Field {
  const char* flag;
  const char* title;
  const char* empty;  ///< placeholder: the default
  Browses browses = Browses::nothing;
};
constexpr std::array<Field, 12> kFields = {{
    {"steps", "steps", "20"},
    {"data", "data", "synthetic tokens", Browses::file},
    {"learning-rate", "learning rate", "3e-4"},
    {"warmup-steps", "warm-up steps", "0"},
    {"seed", "seed", "1"},
    {"checkpoint-dir", "checkpoint folder", "no checkpoints", Browses::folder},
    {"checkpoint-every", "checkpoint interval", "only at the end"},
    {"init-from", "initial weights", "random", Browses::folder},
    {"export", "export to", "no export", Browses::folder},
    {"report", "report", "temporary"},
    {"launcher", "launcher", "local, or that of this process"},
    {"cores", "cores", "all"},
}};

/// Switches, and the one value of --cluster that runs accept.
struct Tick {
  const char* flag;
  const char* title;
  const char* value;  ///< "" for a switch
};
constexpr std::array<Tick, 1> kTicks = {{
    {"cluster", "allow a plan for another machine", "this-machine"},
}};

/// --resume: no flag, without a value, auto.
enum Resumes { kStartAnew, kContinue, kStartOrContinue };
constexpr std::array<const char*, 3> kResumes = {"start anew", "continue from the latest one",
                                                 "start anew, or continue"};

QString tip_of(const char* flag) {
  const cli::Flag* known = cli::find_flag(flag);
  const std::string_view help = known == nullptr ? std::string_view() : known->help;
  return QString("--%1: %2").arg(flag, QString::fromStdString(std::string(help)));
}

}  // namespace

RunForm::RunForm(QWidget* parent)
    : QWidget(parent),
      plan_(new QLineEdit),
      resume_(new QComboBox),
      others_(new QLineEdit),
      command_(new QPlainTextEdit) {
  setAccessibleName("Settings of the run");
  auto* form = new QFormLayout;
  form->setContentsMargins(0, 0, 0, 0);
  form->setVerticalSpacing(4);
  form->setFieldGrowthPolicy(QFormLayout::ExpandingFieldsGrow);
  const auto add = [&](const QString& title, QLineEdit* field, const QString& empty,
                       const QString& tip, Browses browses) {
    field->setPlaceholderText(empty);
    field->setToolTip(tip);
    field->setAccessibleName(title);
    QWidget* whole =
        browses == Browses::nothing ? field : with_button(field, browses == Browses::folder);
    auto* label = new QLabel(title);
    label->setToolTip(tip);
    label->setBuddy(field);
    form->addRow(label, whole);
    connect(field, &QLineEdit::textChanged, this, [this] {
      show_command();
      Q_EMIT changed();
    });
    connect(field, &QLineEdit::returnPressed, this, &RunForm::start_requested);
  };
  add("plan file", plan_, "plan.json", "the plan file to execute (plan … -o plan.json)",
      Browses::file);
  for (const Field& field : kFields) {
    auto* edit = new QLineEdit;
    fields_.insert(field.flag, edit);
    add(field.title, edit, field.empty, tip_of(field.flag), field.browses);
  }
  for (const char* choice : kResumes) resume_->addItem(choice);
  resume_->setToolTip(tip_of("resume"));
  resume_->setAccessibleName("resume");
  auto* resume_label = new QLabel("resume");
  resume_label->setToolTip(tip_of("resume"));
  resume_label->setBuddy(resume_);
  form->addRow(resume_label, resume_);
  connect(resume_, &QComboBox::currentIndexChanged, this, [this] {
    show_command();
    Q_EMIT changed();
  });
  add("other flags", others_, "--max-grad-norm 1 --optimizer adamw",
      "any other flag of plan run --help", Browses::nothing);
  for (const Tick& tick : kTicks) {
    auto* box = new QCheckBox(tick.title);
    box->setToolTip(tip_of(tick.flag));
    ticks_.insert(tick.flag, box);
    form->addRow(box);
    connect(box, &QCheckBox::toggled, this, [this] {
      show_command();
      Q_EMIT changed();
    });
  }
  command_->setReadOnly(true);
  command_->setAccessibleName("Command of this run");
  command_->setToolTip(
      "the shell command of this run; the window adds --events 1 --quiet to follow it");
  command_->setFont(QFont("monospace"));
  command_->setMaximumHeight(4 * command_->fontMetrics().lineSpacing() + 12);
  command_->setMinimumHeight(2 * command_->fontMetrics().lineSpacing() + 12);
  command_->setTabChangesFocus(true);
  auto* layout = new QVBoxLayout(this);
  layout->setContentsMargins(6, 6, 6, 6);
  layout->addLayout(form);
  layout->addWidget(command_);
  layout->addStretch(1);
  setSizePolicy(QSizePolicy::Ignored, QSizePolicy::Preferred);
  show_command();
}

QWidget* RunForm::with_button(QLineEdit* field, bool folder) {
  auto* whole = new QWidget;
  auto* row = new QHBoxLayout(whole);
  row->setContentsMargins(0, 0, 0, 0);
  row->setSpacing(2);
  row->addWidget(field, 1);
  auto* button = new QToolButton;
  button->setText("…");
  button->setAccessibleName("Browse");
  button->setToolTip(folder ? "choose a folder" : "choose a file");
  row->addWidget(button);
  connect(button, &QToolButton::clicked, this, [this, field, folder] {
    const QString path =
        folder ? QFileDialog::getExistingDirectory(this) : QFileDialog::getOpenFileName(this);
    if (!path.isEmpty()) field->setText(path);
  });
  return whole;
}

QStringList RunForm::flags() const {
  QStringList flags;
  for (const Field& field : kFields) {
    const QString value = fields_[field.flag]->text().trimmed();
    if (!value.isEmpty()) flags << QString("--") + field.flag << value;
  }
  if (resume_->currentIndex() != kStartAnew) flags << "--resume";
  if (resume_->currentIndex() == kStartOrContinue) flags << "auto";
  for (const Tick& tick : kTicks) {
    if (!ticks_[tick.flag]->isChecked()) continue;
    flags << QString("--") + tick.flag;
    if (*tick.value != 0) flags << tick.value;
  }
  return flags + QProcess::splitCommand(others_->text());
}

void RunForm::set_flags(const QStringList& flags) {
  for (QLineEdit* field : fields_) field->clear();
  for (QCheckBox* tick : ticks_) tick->setChecked(false);
  resume_->setCurrentIndex(kStartAnew);
  QStringList others;
  for (qsizetype i = 0; i < flags.size(); ++i) {
    const QString name = flags[i].startsWith("--") ? flags[i].mid(2) : QString();
    if (QLineEdit* field = fields_.value(name); field != nullptr && i + 1 < flags.size()) {
      field->setText(flags[++i]);
      continue;
    }
    if (name == "resume") {
      const bool automatic = i + 1 < flags.size() && flags[i + 1] == "auto";
      resume_->setCurrentIndex(automatic ? kStartOrContinue : kContinue);
      i += automatic ? 1 : 0;
      continue;
    }
    const auto* const tick =
        std::ranges::find_if(kTicks, [&](const Tick& each) { return name == each.flag; });
    const bool whole = tick != kTicks.end() &&
                       (*tick->value == 0 || (i + 1 < flags.size() && flags[i + 1] == tick->value));
    if (whole) {
      ticks_[name]->setChecked(true);
      i += *tick->value == 0 ? 0 : 1;
    } else {
      others << QString::fromStdString(shell_quoted(flags[i].toStdString()));
    }
  }
  others_->setText(others.join(' '));
}

QString RunForm::command() const {
  QStringList words = {"plan", "run"};
  for (const QString& word : QStringList(plan().isEmpty() ? "plan.json" : plan()) + flags())
    words << QString::fromStdString(shell_quoted(word.toStdString()));
  return words.join(' ');
}

void RunForm::show_command() { command_->setPlainText(command()); }

bool RunForm::mark_error(const QString& message) {
  for (auto field = fields_.begin(); field != fields_.end(); ++field) {
    const QString flag = "--" + field.key() + ":";
    if (!message.contains(flag)) continue;
    QPalette colours = field.value()->palette();
    colours.setColor(QPalette::Text, error_colour(palette()));
    colours.setColor(QPalette::PlaceholderText, error_colour(palette()));
    field.value()->setPalette(colours);
    field.value()->setToolTip(message);
    field.value()->setFocus();
    wrong_ << field.key();
    return true;
  }
  return false;
}

void RunForm::clear_marks() {
  for (const QString& flag : wrong_) {
    fields_[flag]->setPalette(palette());
    fields_[flag]->setToolTip(tip_of(flag.toUtf8().constData()));
  }
  wrong_.clear();
}

void RunForm::changeEvent(QEvent* event) {
  QWidget::changeEvent(event);
  if (event->type() == QEvent::PaletteChange) clear_marks();
}

}  // namespace echelon::gui
