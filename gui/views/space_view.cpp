#include "gui/views/space_view.hpp"

#include <QEvent>
#include <QHBoxLayout>
#include <QToolButton>
#include <QVBoxLayout>
#include <utility>

#include "gui/canvas/theme.hpp"
#include "report/metrics.hpp"

namespace echelon::gui {
namespace {

QComboBox* figure_box(Metric chosen, const char* name) {
  auto* box = new QComboBox;
  box->setAccessibleName(name);
  for (const MetricInfo& facts : metrics()) {
    box->addItem(QString::fromStdString(std::string(facts.title)));
    box->setItemData(box->count() - 1, QString::fromStdString(std::string(facts.formula)),
                     Qt::ToolTipRole);
  }
  box->setCurrentIndex(static_cast<int>(chosen));
  constexpr int kLeast = 60;
  box->setSizeAdjustPolicy(QComboBox::AdjustToContents);
  box->setMinimumWidth(kLeast);
  return box;
}

}  // namespace

SpaceView::SpaceView(QWidget* parent)
    : QWidget(parent),
      x_(figure_box(Metric::step, "Across")),
      y_(figure_box(Metric::memory, "Up")),
      legend_(new QLabel),
      canvas_(new SpaceCanvas),
      page_(new EmptyState("No plans yet: choose a model and a cluster on the left.", canvas_)) {
  setAccessibleName("Space of plans");
  auto* all = new QToolButton;
  all->setText("Fit");
  all->setToolTip(
      "show all plans (F)\nwheel or rubber band: zoom · right click: previous zoom\n"
      "arrow keys: along the front · Home: winner");
  legend_->setSizePolicy(QSizePolicy::Ignored, QSizePolicy::Preferred);
  auto* bar = new QHBoxLayout;
  bar->addWidget(y_);
  bar->addWidget(new QLabel("versus"));
  bar->addWidget(x_);
  bar->addWidget(legend_, 1);
  bar->addWidget(all);
  auto* layout = new QVBoxLayout(this);
  layout->setContentsMargins(6, 6, 6, 6);
  layout->setSpacing(4);
  layout->addLayout(bar);
  layout->addWidget(page_, 1);
  setFocusProxy(canvas_);

  connect(x_, &QComboBox::currentIndexChanged, this, &SpaceView::axes_chosen);
  connect(y_, &QComboBox::currentIndexChanged, this, &SpaceView::axes_chosen);
  connect(all, &QToolButton::clicked, canvas_, &SpaceCanvas::fit_more);
  connect(canvas_, &SpaceCanvas::chosen, this, &SpaceView::chosen);
  show_legend();
}

void SpaceView::show_space(SpaceResultPtr space) {
  const bool any = space && !(space->report.candidates.empty() && space->report.pareto.empty() &&
                              space->report.nearest_infeasible.empty());
  if (any) {
    page_->show_content();
  } else if (space) {
    page_->show_message("Nothing fits: the Rejected tab shows the reasons.");
  } else {
    page_->show_message("No plans yet: choose a model and a cluster on the left.");
  }
  canvas_->show_space(std::move(space));
}

void SpaceView::mark(const Candidate& candidate) { canvas_->mark(candidate); }

void SpaceView::axes_chosen() {
  canvas_->show_figures(static_cast<Metric>(x_->currentIndex()),
                        static_cast<Metric>(y_->currentIndex()));
}

void SpaceView::show_legend() {
  const auto coloured = [](const char* sign, const QColor& colour, const char* words) {
    return QString("<span style='color:%1'>%2</span>&nbsp;%3")
        .arg(colour.name(), QString::fromUtf8(sign), QString::fromUtf8(words));
  };
  legend_->setText(QStringList{
      coloured("★", series_colour(5), "winner"), coloured("◯", series_colour(5), "tied"),
      coloured("●", series_colour(1), "Pareto front"), coloured("●", series_colour(0), "fits"),
      coloured("◯", palette().color(QPalette::PlaceholderText), "does not fit")}
                       .join(" &nbsp; "));
  legend_->setToolTip(
      "tied: within the prediction error of the winner (docs/explain.md)\n"
      "Pareto front: no other plan is both faster and smaller");
}

void SpaceView::changeEvent(QEvent* event) {
  QWidget::changeEvent(event);
  if (event->type() == QEvent::PaletteChange && legend_ != nullptr) show_legend();
}

}  // namespace echelon::gui
