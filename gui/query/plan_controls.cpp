#include "gui/query/plan_controls.hpp"

#include <QEvent>
#include <QVBoxLayout>
#include <algorithm>

#include "core/plan/plan_fields.hpp"
#include "gui/canvas/qt_text.hpp"
#include "gui/canvas/theme.hpp"
#include "report/plan_summary.hpp"

namespace echelon::gui {

namespace {

PlanControl::Kind kind_of(const PlanField& field) {
  using enum PlanFieldKind;
  if (field.kind == degree || field.kind == count || field.kind == group) {
    return PlanControl::Kind::degree;
  }
  const bool offers = field.kind == on_off || !field.choices.empty();
  return offers ? PlanControl::Kind::choice : PlanControl::Kind::text;
}

/// The first field of each flag in the order of the controls: sliders first.
std::vector<const PlanField*> fields_with_controls() {
  std::vector<const PlanField*> fields;
  for (const PlanField* field : kPlanFieldsInHelp) {
    if (field == plan_field_of(field->flag)) fields.push_back(field);
  }
  std::ranges::stable_partition(
      fields, [](const PlanField* field) { return kind_of(*field) == PlanControl::Kind::degree; });
  return fields;
}

/// The flag whose control shows `error`: its own, or else the one edited last.
std::string blamed_control(const Error& error, const PlanningSession& session,
                           const std::map<std::string, PlanControl*>& controls) {
  const std::string own = cli::flag_of(error);
  if (controls.contains(own)) return own;
  if (!session.last_changed().empty()) return session.last_changed();
  return "tp";
}

/// With --precision FORMAT:any, the states that the search chose.
QString chosen_states(const PlanningSession& session) {
  const std::vector<PrecisionRecipe>& recipes = session.resolved()->request.recipes;
  if (recipes.empty()) return {};
  return PlanControls::tr("\n%1, the best of %2 recipes")
      .arg(qt_text(session.recipe().name))
      .arg(recipes.size());
}

}  // namespace

PlanControls::PlanControls(PlanningSession& session, QWidget* parent)
    : QWidget(parent), session_(session) {
  setAccessibleName(tr("Configuration"));
  auto* column = new QVBoxLayout(this);
  column->setContentsMargins(8, 6, 4, 0);
  column->setSpacing(4);
  auto* head = new QHBoxLayout;
  fits_ = new QLabel(this);
  fits_->setWordWrap(true);
  QFont bold = fits_->font();
  bold.setBold(true);
  fits_->setFont(bold);
  head->addWidget(fits_, 1);
  best_ = new QToolButton(this);
  best_->setText(tr("Best"));
  best_->setToolTip(tr("Load the best plan and follow it (B)"));
  connect(best_, &QToolButton::clicked, &session_, &PlanningSession::follow_best);
  why_ = new QToolButton(this);
  why_->setText(tr("Why not?"));
  why_->setToolTip(tr("Problems of this configuration, and the nearest one that fits (N)"));
  connect(why_, &QToolButton::clicked, this, &PlanControls::why_not_requested);
  head->addWidget(best_, 0, Qt::AlignTop);
  head->addWidget(why_, 0, Qt::AlignTop);
  column->addLayout(head);
  against_ = new QLabel(this);
  against_->setWordWrap(true);
  column->addWidget(against_);
  auto* area = new QScrollArea(this);
  area->setWidgetResizable(true);
  area->setFrameShape(QFrame::NoFrame);
  area->setHorizontalScrollBarPolicy(Qt::ScrollBarAlwaysOff);
  auto* inside = new QWidget(area);
  auto* rows = new QVBoxLayout(inside);
  rows->setContentsMargins(0, 0, 6, 6);
  rows->setSpacing(0);
  for (const PlanField* field : fields_with_controls()) {
    auto* control =
        new PlanControl(std::string(field->flag), qt_text(field->title), kind_of(*field), inside);
    controls_[control->flag()] = control;
    rows->addWidget(control);
    connect(control, &PlanControl::edited, this,
            [this, flag = control->flag()](const QString& text) {
              session_.set_plan_flag(flag, text.trimmed().toStdString());
            });
    connect(control, &PlanControl::done, &session_, &PlanningSession::end_edit);
    connect(control, &PlanControl::left, this, &PlanControls::left);
    connect(control, &PlanControl::locked, this,
            [this, flag = control->flag()](bool on) { session_.lock(flag, on); });
  }
  rows->addStretch();
  area->setWidget(inside);
  column->addWidget(area, 1);
  connect(&session_, &PlanningSession::edited, this, &PlanControls::refresh);
  connect(&session_, &PlanningSession::priced, this, &PlanControls::refresh_summary);
  connect(&session_, &PlanningSession::search_ended, this, &PlanControls::refresh_summary);
  refresh();
  refresh_summary();
}

PlanControl* PlanControls::control(const std::string& flag) const {
  const auto at = controls_.find(flag);
  return at == controls_.end() ? nullptr : at->second;
}

void PlanControls::refresh() {
  const std::optional<Error>& wrong = session_.plan_error();
  const std::string blamed = wrong ? blamed_control(*wrong, session_, controls_) : std::string();
  for (const auto& [flag, control] : controls_) {
    const cli::Setting* setting = session_.query().plan.find(flag);
    control->show_value(setting != nullptr ? qt_text(setting->value) : QString());
    control->show_locked(session_.query().locked.contains(flag));
    if (control->slider() != nullptr) control->show_ticks(session_.stops(flag));
    Error error = wrong.value_or(Error{});
    error.where.clear();  // the place is that of the control
    control->show_reason(blamed == flag ? qt_text(error.message()) : QString());
  }
  refresh_summary();
}

void PlanControls::changeEvent(QEvent* event) {
  if (event->type() == QEvent::PaletteChange && against_ != nullptr) refresh_summary();
  QWidget::changeEvent(event);
}

void PlanControls::refresh_summary() {
  QPalette colours = palette();
  const auto show = [&](const QString& fits, const QString& against, const QColor& colour) {
    colours.setColor(QPalette::WindowText, colour);
    fits_->setPalette(colours);
    fits_->setText(fits);
    against_->setText(against);
  };
  const QColor plain = palette().color(QPalette::WindowText);
  best_->setEnabled(session_.best() != nullptr && !session_.query().follows_best);
  why_->setEnabled(session_.plan() && !session_.plan_is_stale());
  if (!session_.query().request.has("model")) {
    show(tr("No model"), tr("Choose a model on the left, or an example."), plain);
  } else if (session_.request_error()) {
    show(tr("No result"), tr("Fix the entry marked on the left."), plain);
  } else if (session_.plan_error()) {
    show(tr("Invalid configuration"), tr("The reason is below. Showing the last valid plan."),
         error_colour(palette()));
  } else if (!session_.plan() || session_.plan_is_stale()) {
    show(session_.searching() ? tr("Searching for the best plan …") : tr("Not searched yet"),
         session_.plan() ? tr("Showing the results of the previous settings.") : QString(), plain);
  } else {
    const Candidate* best = session_.best();
    const PlanSummary summary =
        summary_of(session_.plan()->resolved.request, session_.plan()->candidate, best);
    show(qt_text(summary.fits),
         best != nullptr ? qt_text(summary.against) + chosen_states(session_)
                         : (session_.searching() ? tr("Searching for the best plan …") : QString()),
         summary.good ? good_colour(palette()) : error_colour(palette()));
  }
}

}  // namespace echelon::gui
