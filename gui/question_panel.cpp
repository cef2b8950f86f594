#include "gui/question_panel.hpp"

#include <QVBoxLayout>

#include "cli/flags.hpp"
#include "core/model/model_io.hpp"
#include "gui/qt_text.hpp"
#include "report/format.hpp"

namespace echelon::gui {

namespace {

struct Asking {
  const char* flag;
  const char* title;
  bool browse = false;
  const char* section = nullptr;  ///< a heading above it
};

constexpr Asking kAsked[] = {{"model", "Model", true, "Model and data"},
                             {"seq", "Sequence"},
                             {"global-batch", "Global batch"},
                             {"tokens", "Token budget"},
                             {"precision", "Precision"},
                             {"flash-attention", "Flash attention"},
                             {"cluster", "Cluster", true, "Hardware"},
                             {"gpus", "GPUs"},
                             {"gpus-at-most", "… or up to"},
                             {"max-memory", "Max. memory"},
                             {"stack", "Stack"},
                             {"calibration", "Calibration", true},
                             {"objective", "Objective", false, "Goal"},
                             {"critical-batch", "Critical batch"},
                             {"mtbf", "Node MTBF"},
                             {"checkpoint-bandwidth", "Checkpoints at"},
                             {"restart-time", "Restart time"}};

QStringList choices_of(const std::string& flag) {
  QStringList out;
  if (flag == "model") {
    for (const CatalogModel& model : model_catalog()) out << qt_text(model.name);
  } else if (flag == "cluster") {
    for (const std::string& name : cluster_catalog()) out << qt_text(name);
    out << QStringLiteral("this-machine");
  } else if (flag == "precision") {
    out << QStringLiteral("bf16") << QStringLiteral("fp16") << QStringLiteral("fp8")
        << QStringLiteral("fp32");
    for (const PrecisionRecipe& recipe : precision_recipes()) out << qt_text(recipe.name);
  } else if (flag == "flash-attention") {
    out << QStringLiteral("true") << QStringLiteral("false");
  } else if (const cli::Flag* known = cli::find_flag(flag); !known->choices.empty()) {
    out = qt_text(known->choices).split(QLatin1Char(' '));
  }
  return out;
}

/// What holds where a flag is not set.
QString otherwise(const std::string& flag, const cli::Asked& asked) {
  const PlanRequest& r = asked.request;
  if (flag == "seq") return qt_text(grouped(r.job.sequence));
  if (flag == "global-batch") return qt_text(grouped(r.job.global_batch));
  if (flag == "precision") return qt_text(r.job.precision.name);
  if (flag == "flash-attention") return QStringLiteral("true");
  if (flag == "cluster") return qt_text(cli::kDefaultCluster);
  if (flag == "gpus" && !r.gpus_at_most) return qt_text(grouped(r.cluster.gpus()));
  if (flag == "max-memory") return qt_text(with_gib(r.usable_memory()));
  if (flag == "stack") return qt_text(r.stack.name);
  if (flag == "calibration") return qt_text(r.calibration.name);
  if (flag == "objective") return qt_text(name_of(r.objective));
  if (flag == "tokens") return QStringLiteral("e.g. 2T");
  if (flag == "mtbf" && r.cluster.mtbf_per_node())
    return qt_text(duration(*r.cluster.mtbf_per_node()));
  if (flag == "mtbf") return QStringLiteral("e.g. 6338h");
  if (flag == "restart-time") return qt_text(duration(kRestart));
  if (flag == "checkpoint-bandwidth") return QStringLiteral("e.g. 20GB/s");
  if (flag == "critical-batch") return QStringLiteral("tokens, e.g. 8Mi");
  return {};
}

}  // namespace

QuestionPanel::QuestionPanel(Desk& desk, QWidget* parent) : QScrollArea(parent), desk_(desk) {
  setWidgetResizable(true);
  setFrameShape(QFrame::NoFrame);
  setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
  setAccessibleName(tr("What is asked"));
  auto* inside = new QWidget(this);
  auto* column = new QVBoxLayout(inside);
  column->setContentsMargins(8, 4, 8, 8);
  column->setSpacing(1);
  for (const Asking& asking : kAsked) {
    if (asking.section != nullptr) {
      auto* heading = new QLabel(tr(asking.section), inside);
      QFont bold = heading->font();
      bold.setBold(true);
      heading->setFont(bold);
      heading->setContentsMargins(2, 8, 0, 2);
      column->addWidget(heading);
    }
    auto* entry = new FlagEntry(asking.flag, tr(asking.title), choices_of(asking.flag),
                                asking.browse, inside);
    fields_[asking.flag] = entry;
    column->addWidget(entry);
    connect(entry, &FlagEntry::edited, this, [this, flag = entry->flag()](const QString& text) {
      desk_.ask(flag, text.trimmed().toStdString());
    });
    connect(entry, &FlagEntry::done, &desk_, &Desk::seal);
    connect(entry, &FlagEntry::left, this, &QuestionPanel::left);
    if (entry->flag() == "gpus" || entry->flag() == "gpus-at-most") {
      take_digits_only(entry->entry());
    }
  }
  field("model")->entry().setPlaceholderText(tr("a name or a file"));
  elsewhere_ = new Reason(inside);
  column->addWidget(elsewhere_);
  column->addStretch();
  setWidget(inside);
  connect(&desk_, &Desk::edited, this, &QuestionPanel::refresh);
  connect(&desk_, &Desk::space_found, this, &QuestionPanel::refresh);
  refresh();
}

FlagEntry* QuestionPanel::field(const std::string& flag) const {
  const auto at = fields_.find(flag);
  return at == fields_.end() ? nullptr : at->second;
}

void QuestionPanel::refresh() {
  // An error in what is asked stands here; one in the plan only where its own controls cannot
  // tell it.
  std::optional<Error> wrong = desk_.question_error();
  if (!wrong) wrong = desk_.search_error();
  // Nothing is wrong before a model is named: the window says what to do.
  if (!desk_.sheet().question.has("model")) wrong.reset();
  const std::string blamed = wrong ? cli::flag_of(*wrong) : std::string();
  bool told = false;
  for (const auto& [flag, entry] : fields_) {
    const cli::Setting* setting = desk_.sheet().question.find(flag);
    const QString value = setting != nullptr ? qt_text(setting->value) : QString();
    if (entry->text().trimmed() != value || value.isEmpty()) {
      entry->show_value(value, desk_.asked() ? otherwise(flag, *desk_.asked())
                                             : entry->entry().placeholderText());
    }
    const bool here = blamed == flag;
    told = told || here;
    Error error = wrong.value_or(Error{});
    error.where.clear();
    entry->show_reason(here ? qt_text(error.message()) : QString());
  }
  elsewhere_->tell(wrong && !told ? qt_text(wrong->message()) : QString());
}

}  // namespace echelon::gui
