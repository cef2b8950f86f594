#include "gui/query/job_panel.hpp"

#include <fmt/format.h>

#include <QVBoxLayout>
#include <algorithm>

#include "cli/flags/table.hpp"
#include "core/model/model_io.hpp"
#include "gui/canvas/qt_text.hpp"
#include "gui/session/flag_names.hpp"
#include "report/format.hpp"

namespace echelon::gui {

namespace {

struct EntryRow {
  const char* flag;
  const char* title;
  bool browse = false;
  const char* section = nullptr;  ///< a heading above it
};

constexpr EntryRow kEntries[] = {{"model", "Model", true, "Model and data"},
                                 {"seq", "Sequence"},
                                 {"global-batch", "Global batch"},
                                 {kTrainTokensFlag, "Training tokens"},
                                 {"precision", "Precision"},
                                 {"flash-attention", "Flash attention"},
                                 {"layer-code", "Code of layers"},
                                 {"expert-imbalance", "Expert imbalance"},
                                 {"document-lengths", "Document lengths", true},
                                 {"lora", "LoRA"},
                                 {"quantized-weights", "Quantized weights"},
                                 {"cluster", "Cluster", true, "Hardware"},
                                 {"gpus", "GPUs"},
                                 {kMaxGpusFlag, "Max. GPUs"},
                                 {"max-memory", "Memory limit"},
                                 {kFrameworkFlag, "Framework"},
                                 {"calibration", "Calibration", true},
                                 {"objective", "Objective", false, "Goal"},
                                 {"prefer", "Prefer"},
                                 {"allow", "Allow only"},
                                 {"forbid", "Forbid"},
                                 {"exhaustive", "Exhaustive"},
                                 {"critical-batch", "Critical batch", false, "Training run"},
                                 {"mtbf", "Node MTBF"},
                                 {"checkpoint-bandwidth", "Checkpoint bandwidth"},
                                 {"restart-time", "Restart time"},
                                 {"gpu-price", "GPU hour, USD"},
                                 {"goodput-from", "Goodput from", true}};

/// Formats, formats with any recipe of states that a framework has, and recipes.
QStringList precision_choices() {
  QStringList formats, any, recipes;
  for (const PrecisionRecipe& recipe : precision_recipes()) {
    const QString name = qt_text(recipe.name);
    const QString format = name.section(QLatin1Char(':'), 0, 0);
    if (!formats.contains(format)) formats << format;
    if (name != format) recipes << name;
  }
  for (const Framework& framework : frameworks()) {
    for (const QString& format : formats) {
      const QString choice = format + QStringLiteral(":any");
      const auto of_format = [&](std::string_view name) {
        return qt_text(name).startsWith(format + QLatin1Char(':'));
      };
      if (std::ranges::count_if(framework.state_recipes, of_format) > 1 && !any.contains(choice)) {
        any << choice;
      }
    }
  }
  return formats + any + recipes;
}

/// A list of names is typed: a choice would replace it.
bool takes_a_list(const std::string& flag) { return flag == "allow" || flag == "forbid"; }

QStringList choices_of(const std::string& flag) {
  QStringList out;
  if (flag == "model") {
    for (const CatalogModel& model : model_catalog()) out << qt_text(model.name);
  } else if (flag == "cluster") {
    for (const std::string& name : cluster_catalog()) out << qt_text(name);
    out << QStringLiteral("this-machine");
  } else if (flag == "precision") {
    return precision_choices();
  } else if (flag == "flash-attention" || flag == "exhaustive") {
    out << QStringLiteral("true") << QStringLiteral("false");
  } else if (const cli::Flag* known = cli::find_flag(flag);
             !known->choices.empty() && !takes_a_list(flag)) {
    out = qt_text(known->choices).split(QLatin1Char(' '));
  }
  return out;
}

/// The value of a flag that is not set.
QString default_of(const std::string& flag, const cli::ResolvedRequest& resolved) {
  const PlanRequest& r = resolved.request;
  if (flag == "seq") return qt_text(grouped(r.job.sequence));
  if (flag == "global-batch") return qt_text(grouped(r.job.global_batch));
  if (flag == "precision") return qt_text(r.job.precision.name);
  if (flag == "flash-attention") {
    return r.job.flash_attention ? QStringLiteral("true") : QStringLiteral("false");
  }
  if (flag == "layer-code") return qt_text(name_of(r.job.layer_code));
  if (flag == "exhaustive") return QStringLiteral("false");
  if (flag == "allow") return QStringLiteral("all, or e.g. tp,dp");
  if (flag == "forbid") return QStringLiteral("nothing, or e.g. pp,offload");
  if (flag == "expert-imbalance") return qt_text(fmt::format("{}", r.job.expert_imbalance));
  if (flag == "document-lengths") return QStringLiteral("e.g. lognormal:2000:1.2");
  if (flag == "lora") return QStringLiteral("none, or e.g. 16:linear_qkv,linear_proj");
  if (flag == "quantized-weights") return QStringLiteral("none, or e.g. nf4:double-quant");
  if (flag == "cluster") return qt_text(cli::kDefaultCluster);
  if (flag == "gpus" && !r.max_gpus) return qt_text(grouped(r.cluster.gpus()));
  if (flag == "max-memory") return qt_text("likely to fit: " + with_gib(r.usable_memory()));
  if (flag == kFrameworkFlag) return qt_text(r.framework.name);
  if (flag == "calibration") return qt_text(r.calibration.name);
  if (flag == "objective") return qt_text(name_of(r.objective));
  if (flag == "prefer") return qt_text(name_of(r.preference));
  if (flag == kTrainTokensFlag) return QStringLiteral("e.g. 2T");
  if (flag == "mtbf" && r.cluster.mtbf_per_node())
    return qt_text(duration(*r.cluster.mtbf_per_node()));
  if (flag == "mtbf") return QStringLiteral("e.g. 6338h");
  if (flag == "gpu-price" && r.cluster.price_per_gpu_hour())
    return qt_text(fmt::format("{:.2f}", r.cluster.price_per_gpu_hour()->in(kDollar)));
  if (flag == "gpu-price") return QStringLiteral("e.g. 3.93");
  if (flag == "goodput-from") return QStringLiteral("report of a run");
  if (flag == "restart-time") return qt_text(duration(kRestart));
  if (flag == "checkpoint-bandwidth") return QStringLiteral("e.g. 20GB/s");
  if (flag == "critical-batch") return QStringLiteral("tokens, e.g. 8Mi");
  return {};
}

}  // namespace

JobPanel::JobPanel(PlanningSession& session, QWidget* parent)
    : QScrollArea(parent), session_(session) {
  setWidgetResizable(true);
  setFrameShape(QFrame::NoFrame);
  setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
  setAccessibleName(tr("Job"));
  auto* inside = new QWidget(this);
  auto* column = new QVBoxLayout(inside);
  column->setContentsMargins(8, 4, 8, 8);
  column->setSpacing(1);
  for (const EntryRow& row : kEntries) {
    if (row.section != nullptr) {
      auto* heading = new QLabel(tr(row.section), inside);
      QFont bold = heading->font();
      bold.setBold(true);
      heading->setFont(bold);
      heading->setContentsMargins(2, 8, 0, 2);
      column->addWidget(heading);
    }
    auto* entry = new FlagEntry(row.flag, tr(row.title), choices_of(row.flag), row.browse, inside);
    fields_[row.flag] = entry;
    column->addWidget(entry);
    connect(entry, &FlagEntry::edited, this, [this, flag = entry->flag()](const QString& text) {
      session_.set_request_flag(flag, text.trimmed().toStdString());
    });
    connect(entry, &FlagEntry::done, &session_, &PlanningSession::end_edit);
    connect(entry, &FlagEntry::left, this, &JobPanel::left);
    if (entry->flag() == "gpus" || entry->flag() == kMaxGpusFlag) {
      accept_digits_only(entry->entry());
    }
  }
  field("model")->entry().setPlaceholderText(tr("name or file"));
  general_error_ = new ErrorLabel(inside);
  column->addWidget(general_error_);
  column->addStretch();
  setWidget(inside);
  connect(&session_, &PlanningSession::edited, this, &JobPanel::refresh);
  connect(&session_, &PlanningSession::space_changed, this, &JobPanel::refresh);
  refresh();
}

FlagEntry* JobPanel::field(const std::string& flag) const {
  const auto at = fields_.find(flag);
  return at == fields_.end() ? nullptr : at->second;
}

void JobPanel::refresh() {
  // Errors of the request and of the search; those of the plan are shown by its controls.
  std::optional<Error> wrong = session_.request_error();
  if (!wrong) wrong = session_.search_error();
  // Without a model there is no error: the welcome page is shown.
  if (!session_.query().request.has("model")) wrong.reset();
  const std::string blamed = wrong ? cli::flag_of(*wrong) : std::string();
  bool shown = false;
  for (const auto& [flag, entry] : fields_) {
    const cli::Setting* setting = session_.query().request.find(flag);
    const QString value = setting != nullptr ? qt_text(setting->value) : QString();
    if (entry->text().trimmed() != value || value.isEmpty()) {
      entry->show_value(value, session_.resolved() ? default_of(flag, *session_.resolved())
                                                   : entry->entry().placeholderText());
    }
    const bool here = blamed == flag;
    shown = shown || here;
    Error error = wrong.value_or(Error{});
    error.where.clear();
    entry->show_reason(here ? qt_text(error.message()) : QString());
  }
  general_error_->show_error(wrong && !shown ? qt_text(wrong->message()) : QString());
}

}  // namespace echelon::gui
