#include "gui/views/scaling_view.hpp"

#include <QKeyEvent>
#include <QPainter>
#include <QPainterPath>
#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "core/base/parse_quantity.hpp"
#include "gui/canvas/painting.hpp"
#include "gui/canvas/qt_text.hpp"
#include "gui/canvas/theme.hpp"
#include "report/format.hpp"

namespace echelon::gui {
namespace {

constexpr double kScalingEdge = 8;
constexpr int kPauseBeforeScaling = 400;  ///< milliseconds without an edit before the search starts
constexpr int kTimesMore = 4;   ///< largest number of GPUs searched, as a multiple of the request's
constexpr int kLeastNodes = 8;  ///< … but at least this many nodes
constexpr int kBestSeries = 0;
constexpr int kSameSeries = 1;
constexpr int kCostSeries = 2;

/// Dollars, or GPU hours where the price is not known, per million tokens.
double cost_of(const Delivered& delivered) {
  return delivered.per_million ? delivered.per_million->in(kDollar)
                               : delivered.gpu_time.in(Seconds{3600});
}

std::vector<LegendEntry> scaling_legend(const QPalette& palette) {
  return {{ScalingView::tr("best plan"), series_colour(kBestSeries)},
          {ScalingView::tr("this layout, dp scaled"), series_colour(kSameSeries)},
          {ScalingView::tr("ideal"), with_opacity(palette.color(QPalette::WindowText), 0.5)}};
}

/// The smallest number of GPUs with a plan. Strong scaling is ideal where every GPU delivers as
/// much as one of these.
std::optional<int> base_of(const std::vector<ScalingPoint>& points) {
  for (const ScalingPoint& point : points) {
    if (point.best) return point.gpus;
  }
  return std::nullopt;
}

QString rate_title(const std::optional<int>& base) {
  return base ? ScalingView::tr("tokens/s per GPU (ideal: as on %1)")
                    .arg(qt_text(counted(*base, "GPU")))
              : ScalingView::tr("tokens/s per GPU");
}

QString short_number(double value) {
  return value >= 1000 ? qt_text(human_count(value)) : QString::number(value, 'g', 3);
}

}  // namespace

/// A logarithmic axis.
struct ScalingView::LogAxis {
  double low = 1;
  double high = 10;
  [[nodiscard]] double share(double value) const {
    return std::log(value / low) / std::log(high / low);
  }
  void hold(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
};

/// From 0, so that heights compare.
struct ScalingView::LinearAxis {
  double high = 0;
  [[nodiscard]] double share(double value) const { return high > 0 ? value / high : 0; }
  void hold(double value) { high = std::max(high, value); }
};

struct ScalingView::Frame {
  QRectF legend, rates, costs;
  LogAxis gpus;
  LinearAxis rate, cost;
  [[nodiscard]] double x(double value) const {
    return rates.left() + gpus.share(value) * rates.width();
  }
  /// Of `value` tokens per second on all GPUs; the axis is per GPU.
  [[nodiscard]] QPointF rate_at(int count, double value) const {
    return {x(count), rates.bottom() - rate.share(value / count) * rates.height()};
  }
  [[nodiscard]] QPointF cost_at(int count, double value) const {
    return {x(count), costs.bottom() - cost.share(value) * costs.height()};
  }
};

ScalingView::ScalingView(QWidget* parent)
    : PaintedView(tr("Strong scaling"), parent), progress_(this), stop_(this) {
  progress_.setRange(0, 100);
  progress_.setTextVisible(false);
  progress_.setAccessibleName(tr("Share of the GPU counts searched"));
  stop_.setText(tr("Stop"));
  stop_.setToolTip(tr("Stop the scaling search (Escape)"));
  rest_.setSingleShot(true);
  rest_.setInterval(kPauseBeforeScaling);
  connect(&rest_, &QTimer::timeout, this, &ScalingView::search);
  connect(&stop_, &QPushButton::clicked, this, &ScalingView::cancel);
  connect(&search_, &Worker::finished, this, &ScalingView::busy_changed);
  connect(&search_, &Worker::progressed, this,
          [this](double share) { progress_.setValue(static_cast<int>(100 * share)); });
  end_search();
}

void ScalingView::show_plan(PlanResultPtr plan) {
  if (plan && plan == plan_) {  // keep the points found
    if (stale_ && isVisible()) rest_.start();
    return;
  }
  plan_ = std::move(plan);
  search_.cancel();
  end_search();
  points_.clear();
  marked_.reset();
  stale_ = plan_ != nullptr;
  if (stale_ && isVisible()) rest_.start();
  update();
}

void ScalingView::search() {
  if (!stale_ || search_.busy()) return;
  stale_ = false;
  points_.clear();
  marked_.reset();
  const ClusterTopology& cluster = plan_->resolved.request.cluster;
  const int most = std::max(kTimesMore * cluster.gpus(), kLeastNodes * cluster.node().gpus);
  progress_.setValue(0);
  progress_.show();
  stop_.show();
  place_controls();
  search_.start(
      [this, plan = plan_, counts = scaling_counts(cluster, most)](const Worker::Ticket& ticket) {
        const auto all = static_cast<double>(counts.size());
        for (std::size_t i = 0; i < counts.size() && !ticket.stale(); ++i) {
          const Progress progress = [&](double part) {
            return ticket.progress((static_cast<double>(i) + part) / all);
          };
          ScalingPoint point =
              scaling_point(plan->resolved.request, plan->candidate.plan, counts[i], progress);
          ticket.deliver([this, point = std::move(point)] { add(point); });
        }
        ticket.deliver([this] {
          end_search();
          Q_EMIT finished();
        });
      });
  Q_EMIT busy_changed();
  update();
}

void ScalingView::add(const ScalingPoint& point) {
  points_.push_back(point);
  if (point.gpus == plan_->resolved.request.cluster.gpus()) {
    marked_ = static_cast<int>(points_.size()) - 1;
    setAccessibleDescription(point_tooltip(point));
  }
  update();
}

void ScalingView::end_search() {
  progress_.hide();
  stop_.hide();
  update();
}

void ScalingView::cancel() {
  rest_.stop();
  search_.cancel();
  end_search();
}

std::optional<int> ScalingView::marked() const {
  if (!marked_) return {};
  return points_[static_cast<std::size_t>(*marked_)].gpus;
}

void ScalingView::mark(int at) {
  if (points_.empty()) return;
  marked_ = std::clamp(at, 0, static_cast<int>(points_.size()) - 1);
  setAccessibleDescription(point_tooltip(points_[static_cast<std::size_t>(*marked_)]));
  update();
}

ScalingView::Frame ScalingView::frame() const {
  Frame f;
  const QFontMetricsF metrics(font());
  const double line = metrics.height() + 2;
  f.legend = QRectF(kScalingEdge, kScalingEdge + line, width() - 2 * kScalingEdge, line);
  f.legend.setHeight(draw_legend(nullptr, f.legend, font(), {}, scaling_legend(palette())));
  const double left = kScalingEdge + metrics.horizontalAdvance("0.0000") + 6;
  const double top = f.legend.bottom() + line + 2;  // the title of the axis
  const double bottom = height() - kScalingEdge - line - 2;
  const double between = 1.5 * line;
  const double rates = std::max(1.0, 0.62 * (bottom - top - between));
  const double across = width() - left - 3 * kScalingEdge;
  f.rates = QRectF(left, top, across, rates);
  f.costs =
      QRectF(left, top + rates + between, across, std::max(1.0, bottom - top - rates - between));
  for (const ScalingPoint& point : points_) {
    const double gpus = point.gpus;
    if (&point == points_.data()) f.gpus = {gpus, gpus};
    f.gpus.hold(gpus);
    f.rate.hold(ideal_rate(points_, point.gpus) / gpus);
    for (const auto& each : {point.best, point.same}) {
      if (!each) continue;
      f.rate.hold(each->tokens_per_second / gpus);
      f.cost.hold(cost_of(*each));
    }
  }
  constexpr double kRoom = 1.25;
  constexpr double kHeadroom = 1.25;
  f.gpus.low /= kRoom;
  f.gpus.high *= kRoom;
  for (LinearAxis* axis : {&f.rate, &f.cost}) axis->high *= kHeadroom;
  return f;
}

QPointF ScalingView::place_of(int at) const {
  const ScalingPoint& point = points_[static_cast<std::size_t>(at)];
  const Frame f = frame();
  if (!point.best) return {f.x(point.gpus), f.rates.bottom() - 6};
  return f.rate_at(point.gpus, point.best->tokens_per_second);
}

void ScalingView::draw_axes(QPainter& painter, const Frame& f) const {
  const QColor text = palette().color(QPalette::WindowText);
  const QFontMetricsF metrics(font());
  const double line = metrics.height();
  const auto grid = [&](const QRectF& area, const LinearAxis& axis) {
    if (axis.high <= 0) return;  // nothing fits
    const int most = std::max(2, static_cast<int>(area.height() / (1.5 * line)));
    const double step = round_interval(axis.high, most);
    for (int i = 0; i * step <= axis.high; ++i) {
      const double y = area.bottom() - axis.share(i * step) * area.height();
      painter.setPen(with_opacity(text, i == 0 ? 0.35 : 0.15));
      painter.drawLine(QPointF(area.left(), y), QPointF(area.right(), y));
      if (y - line / 2 < area.top() - 2) continue;  // the title is there
      painter.setPen(text);
      painter.drawText(QRectF(0, y - line / 2, area.left() - 5, line),
                       Qt::AlignRight | Qt::AlignVCenter, short_number(i * step));
    }
  };
  grid(f.rates, f.rate);
  grid(f.costs, f.cost);
  double free_from = 0;
  for (const ScalingPoint& point : points_) {
    const double x = f.x(point.gpus);
    painter.setPen(with_opacity(text, 0.12));
    painter.drawLine(QPointF(x, f.rates.top()), QPointF(x, f.rates.bottom()));
    painter.drawLine(QPointF(x, f.costs.top()), QPointF(x, f.costs.bottom()));
    const QString label = qt_text(grouped(point.gpus));
    const double half = metrics.horizontalAdvance(label) / 2 + 3;
    if (x - half < free_from) continue;
    painter.setPen(text);
    painter.drawText(QRectF(x - half, f.costs.bottom() + 2, 2 * half, line), Qt::AlignCenter,
                     label);
    free_from = x + half;
  }
  const bool priced = std::ranges::any_of(
      points_, [](const ScalingPoint& point) { return point.best && point.best->per_million; });
  painter.setPen(text);
  draw_elided_text(painter, QRectF(kScalingEdge, f.rates.top() - line - 2, f.rates.right(), line),
                   rate_title(base_of(points_)));
  draw_elided_text(
      painter, QRectF(kScalingEdge, f.costs.top() - line - 2, f.costs.right(), line),
      priced ? tr("US dollars per million tokens") : tr("GPU hours per million tokens"));
}

void ScalingView::draw_rates(QPainter& painter, const Frame& f) const {
  const auto polyline = [&](const QPen& pen, auto value, bool dots) {
    QPainterPath path;
    std::vector<QPointF> places;
    for (const ScalingPoint& point : points_) {
      const std::optional<double> rate = value(point);
      if (!rate) continue;
      places.push_back(f.rate_at(point.gpus, *rate));
      if (places.size() == 1)
        path.moveTo(places.back());
      else
        path.lineTo(places.back());
    }
    painter.setPen(pen);
    painter.setBrush(Qt::NoBrush);
    painter.drawPath(path);
    if (!dots) return;
    painter.setBrush(pen.color());
    for (const QPointF& place : places) painter.drawEllipse(place, 3.5, 3.5);
  };
  const auto rate_of = [](const std::optional<Delivered>& delivered) {
    return delivered ? std::optional(delivered->tokens_per_second) : std::nullopt;
  };
  const QColor text = palette().color(QPalette::WindowText);
  const std::optional<int> base = base_of(points_);  // where the line starts
  polyline(
      QPen(with_opacity(text, 0.5), 1.5, Qt::DashLine),
      [&](const ScalingPoint& p) -> std::optional<double> {
        const double ideal = ideal_rate(points_, p.gpus);
        return base && p.gpus >= *base ? std::optional(ideal) : std::nullopt;
      },
      false);
  polyline(
      QPen(series_colour(kSameSeries), 2), [&](const ScalingPoint& p) { return rate_of(p.same); },
      true);
  polyline(
      QPen(series_colour(kBestSeries), 2), [&](const ScalingPoint& p) { return rate_of(p.best); },
      true);
  for (const ScalingPoint& point : points_) {
    if (point.best) continue;
    painter.setPen(QPen(error_colour(palette()), 2));
    const QPointF at = place_of(static_cast<int>(&point - points_.data()));
    painter.drawLine(at + QPointF(-4, -4), at + QPointF(4, 4));
    painter.drawLine(at + QPointF(-4, 4), at + QPointF(4, -4));
  }
  if (!marked_) return;
  painter.setPen(QPen(text, 2));
  painter.setBrush(Qt::NoBrush);
  painter.drawEllipse(place_of(*marked_), 7, 7);
}

void ScalingView::draw_costs(QPainter& painter, const Frame& f) const {
  QPainterPath path;
  painter.setBrush(series_colour(kCostSeries));
  painter.setPen(QPen(series_colour(kCostSeries), 2));
  bool first = true;
  for (const ScalingPoint& point : points_) {
    if (!point.best) continue;
    const QPointF place = f.cost_at(point.gpus, cost_of(*point.best));
    if (std::exchange(first, false))
      path.moveTo(place);
    else
      path.lineTo(place);
    painter.drawEllipse(place, 3.5, 3.5);
  }
  painter.setBrush(Qt::NoBrush);
  painter.drawPath(path);
}

void ScalingView::paintEvent(QPaintEvent* /*event*/) {
  QPainter painter(this);
  painter.fillRect(rect(), palette().color(QPalette::Base));
  if (points_.empty()) {
    const bool coming = plan_ && (searching() || rest_.isActive() || stale_);
    return draw_message(
        painter, rect(), palette(),
        coming  ? tr("Searching the best plan for each number of GPUs …")
        : plan_ ? tr("The search was stopped. Press R to search again.")
                : tr("Choose a model and a cluster: the strong scaling of the job appears here."));
  }
  painter.setRenderHint(QPainter::Antialiasing);
  const Frame f = frame();
  const QColor text = palette().color(QPalette::WindowText);
  QFont bold = font();
  bold.setBold(true);
  painter.setFont(bold);
  painter.setPen(text);
  const double line = QFontMetricsF(font()).height() + 2;
  const double room =
      stop_.isVisible() ? progress_.x() - 2 * kScalingEdge : width() - 2 * kScalingEdge;
  draw_elided_text(painter, QRectF(kScalingEdge, kScalingEdge, room, line),
                   tr("Strong scaling of %1 (fixed global batch)")
                       .arg(qt_text(plan_->resolved.request.model.name)));
  painter.setFont(font());
  draw_legend(&painter, f.legend, font(), text, scaling_legend(palette()));
  draw_axes(painter, f);
  draw_rates(painter, f);
  draw_costs(painter, f);
}

}  // namespace echelon::gui
