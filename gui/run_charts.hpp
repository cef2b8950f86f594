// Loss and tokens per second over the steps of a run, while it runs.
#pragma once

#include <QChartView>
#include <QLineSeries>
#include <QList>
#include <QTimer>
#include <QValueAxis>
#include <QWidget>

#include "core/run/run_report.hpp"

namespace echelon::gui {

/// One curve whose points stay few: when there are too many, every second one goes.
class CurveView : public QChartView {
  Q_OBJECT

 public:
  static constexpr qsizetype kMostPoints = 1000;

  CurveView(const QString& title, int colour, QString (*told)(double), QWidget* parent = nullptr);
  void clear();
  void add(double x, double y);
  /// Draws what was added since.
  void draw();
  [[nodiscard]] const QLineSeries& series() const { return *series_; }

 protected:
  void changeEvent(QEvent* event) override;
  void resizeEvent(QResizeEvent* event) override;
  void mouseMoveEvent(QMouseEvent* event) override;

 private:
  void dress();

  QLineSeries* series_;
  QValueAxis* x_;
  QValueAxis* y_;
  QString title_;
  int colour_;
  QString (*told_)(double);  ///< a value in words
  QList<QPointF> points_;
  QPointF last_;
  qint64 added_ = 0;
  qint64 every_ = 1;  ///< of so many points one is kept
};

class RunCharts : public QWidget {
  Q_OBJECT

 public:
  explicit RunCharts(QWidget* parent = nullptr);
  void clear();
  void add(const RunStep& step);
  /// At once, not within the next moments.
  void draw();
  [[nodiscard]] const CurveView& loss() const { return *loss_; }
  [[nodiscard]] const CurveView& speed() const { return *speed_; }

 private:
  CurveView* loss_;
  CurveView* speed_;
  QTimer soon_;  ///< steps may come faster than anyone can see
};

}  // namespace echelon::gui
