#include "gui/plan_controls.hpp"

#include <QEvent>
#include <QVBoxLayout>

#include "gui/qt_text.hpp"
#include "gui/theme.hpp"
#include "report/plan_summary.hpp"

namespace echelon::gui {

namespace {

struct Control {
  const char* flag;
  const char* title;
  PlanControl::Kind kind;
};

constexpr auto kDegree = PlanControl::Kind::degree;
constexpr auto kChoice = PlanControl::Kind::choice;
constexpr auto kText = PlanControl::Kind::text;
constexpr Control kControls[] = {{"tp", "Tensor", kDegree},
                                 {"pp", "Pipeline", kDegree},
                                 {"dp", "Data", kDegree},
                                 {"vpp", "Chunks (vpp)", kDegree},
                                 {"cp", "Context", kDegree},
                                 {"ep", "Experts", kDegree},
                                 {"etp", "Expert tp", kDegree},
                                 {"microbatch", "Microbatch", kDegree},
                                 {"zero", "ZeRO", kDegree},
                                 {"shard-group", "Shard group", kDegree},
                                 {"recompute", "Recompute", kChoice},
                                 {"recompute-layers", "… layers", kText},
                                 {"selective-layers", "… selective", kText},
                                 {"schedule", "Schedule", kChoice},
                                 {"sequence-parallel", "Seq. parallel", kChoice},
                                 {"overlap", "Overlap", kChoice},
                                 {"layers-per-stage", "Layers", kText},
                                 {"rank-order", "Rank order", kChoice},
                                 {"cp-comm", "Context by", kChoice},
                                 {"offload", "Offload", kText},
                                 {"bucket", "Grad. bucket", kText}};

/// The flag whose control tells `error`: its own, or the one that was just moved.
std::string blamed_control(const Error& error, const Desk& desk,
                           const std::map<std::string, PlanControl*>& controls) {
  const std::string own = cli::flag_of(error);
  if (controls.contains(own)) return own;
  if (!desk.last_changed().empty()) return desk.last_changed();
  return "tp";
}

}  // namespace

PlanControls::PlanControls(Desk& desk, QWidget* parent) : QWidget(parent), desk_(desk) {
  setAccessibleName(tr("One configuration"));
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
  connect(best_, &QToolButton::clicked, &desk_, &Desk::take_best);
  why_ = new QToolButton(this);
  why_->setText(tr("Why not?"));
  why_->setToolTip(tr("What is wrong with this configuration, and the nearest one that fits (N)"));
  connect(why_, &QToolButton::clicked, this, &PlanControls::why_not_asked);
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
  for (const Control& each : kControls) {
    auto* control = new PlanControl(each.flag, tr(each.title), each.kind, inside);
    controls_[each.flag] = control;
    rows->addWidget(control);
    connect(control, &PlanControl::edited, this,
            [this, flag = control->flag()](const QString& text) {
              desk_.change(flag, text.trimmed().toStdString());
            });
    connect(control, &PlanControl::done, &desk_, &Desk::seal);
    connect(control, &PlanControl::left, this, &PlanControls::left);
    connect(control, &PlanControl::locked, this,
            [this, flag = control->flag()](bool on) { desk_.lock(flag, on); });
  }
  rows->addStretch();
  area->setWidget(inside);
  column->addWidget(area, 1);
  connect(&desk_, &Desk::edited, this, &PlanControls::refresh);
  connect(&desk_, &Desk::priced, this, &PlanControls::refresh_verdict);
  connect(&desk_, &Desk::search_ended, this, &PlanControls::refresh_verdict);
  refresh();
  refresh_verdict();
}

PlanControl* PlanControls::control(const std::string& flag) const {
  const auto at = controls_.find(flag);
  return at == controls_.end() ? nullptr : at->second;
}

void PlanControls::refresh() {
  const std::optional<Error>& wrong = desk_.plan_error();
  const std::string blamed = wrong ? blamed_control(*wrong, desk_, controls_) : std::string();
  for (const auto& [flag, control] : controls_) {
    const cli::Setting* setting = desk_.sheet().plan.find(flag);
    control->show_value(setting != nullptr ? qt_text(setting->value) : QString());
    control->show_locked(desk_.sheet().locked.contains(flag));
    if (control->slider() != nullptr) control->show_stops(desk_.stops(flag));
    control->show_reason(blamed == flag ? qt_text(wrong->message()) : QString());
  }
  refresh_verdict();
}

void PlanControls::changeEvent(QEvent* event) {
  if (event->type() == QEvent::PaletteChange && against_ != nullptr) refresh_verdict();
  QWidget::changeEvent(event);
}

void PlanControls::refresh_verdict() {
  QPalette colours = palette();
  const auto say = [&](const QString& fits, const QString& against, const QColor& colour) {
    colours.setColor(QPalette::WindowText, colour);
    fits_->setPalette(colours);
    fits_->setText(fits);
    against_->setText(against);
  };
  const QColor plain = palette().color(QPalette::WindowText);
  best_->setEnabled(desk_.best() != nullptr && !desk_.sheet().follows_best);
  why_->setEnabled(desk_.plan() && !desk_.plan_is_stale());
  if (!desk_.sheet().question.has("model")) {
    say(tr("No model yet"), tr("Name one on the left, or choose an example."), plain);
  } else if (desk_.question_error()) {
    say(tr("No answer yet"), tr("An entry on the left is not complete, or wrong."), plain);
  } else if (desk_.plan_error()) {
    say(tr("Invalid configuration"), tr("The reason is below. Showing the last valid one."),
        error_colour(palette()));
  } else if (!desk_.plan() || desk_.plan_is_stale()) {
    say(desk_.searching() ? tr("Searching for the best plan …") : tr("No answer yet"),
        desk_.plan() ? tr("The figures are those of the previous question.") : QString(), plain);
  } else {
    const Candidate* best = desk_.best();
    const PlanSummary verdict =
        summary_of(desk_.plan()->asked.request, desk_.plan()->candidate, best);
    say(qt_text(verdict.fits),
        best != nullptr ? qt_text(verdict.against)
                        : (desk_.searching() ? tr("Searching for the best plan …") : QString()),
        verdict.good ? good_colour(palette()) : error_colour(palette()));
  }
}

}  // namespace echelon::gui
