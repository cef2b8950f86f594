// Charts of loss and tokens per second during a run.
#pragma once

#include <QChartView>
#include <QLineSeries>
#include <QList>
#include <QTimer>
#include <QValueAxis>
#include <QWidget>

#include "core/run/run_report.hpp"

namespace echelon::gui {

/// One curve with a bounded number of points: at the limit, every second one is dropped.
class CurveView : public QChartView {
  Q_OBJECT

 public:
  static constexpr qsizetype kMaxPoints = 1000;

  CurveView(const QString& title, int colour, QString (*format)(double), QWidget* parent = nullptr);
  void clear();
  void add(double x, double y);
  /// Draws the points added since the last call.
  void draw();
  [[nodiscard]] const QLineSeries& series() const { return *series_; }

 protected:
  void changeEvent(QEvent* event) override;
  void resizeEvent(QResizeEvent* event) override;
  void mouseMoveEvent(QMouseEvent* event) override;

 private:
  void apply_colours();

  QLineSeries* series_;
  QValueAxis* x_;
  QValueAxis* y_;
  QString title_;
  int colour_;
  QString (*format_)(double);  ///< value to text
  QList<QPointF> points_;
  QPointF last_;
  qint64 added_ = 0;
  qint64 every_ = 1;  ///< one of so many points is kept
};

class RunCharts : public QWidget {
  Q_OBJECT

 public:
  explicit RunCharts(QWidget* parent = nullptr);
  void clear();
  void add(const RunStep& step);
  /// Draws now instead of after the timer.
  void draw();
  [[nodiscard]] const CurveView& loss() const { return *loss_; }
  [[nodiscard]] const CurveView& speed() const { return *speed_; }

 private:
  CurveView* loss_;
  CurveView* speed_;
  QTimer redraw_;  ///< limits the redraw rate
};

}  // namespace echelon::gui
