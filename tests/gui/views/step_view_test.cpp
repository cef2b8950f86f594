#include "gui/views/step_view.hpp"

#include <QTest>

#include "tests/gui/plan_results.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

TEST_CASE("an empty step view shows a hint") {
  gui::StepView view;
  view.resize(300, 200);
  CHECK_FALSE(view.grab().isNull());
  CHECK(view.parts().empty());
  CHECK(view.tooltip_at({100, 100}).isEmpty());
}

TEST_CASE("the waterfall ends at the step time") {
  gui::StepView view;
  view.resize(600, 400);
  const gui::PlanResultPtr plan = small_plan();
  view.show_plan(plan);
  Seconds sum;
  for (const TimePart& part : view.parts()) {
    CHECK(part.time > Seconds{});
    sum += part.time;
  }
  CHECK(sum.in(kSecond) == Approx(plan->candidate.prediction.time.step.in(kSecond)));
  const int rows = static_cast<int>(view.parts().size());
  REQUIRE(rows > 3);
  for (int row = 1; row < rows; ++row) {
    CHECK(view.bar_of(row).left() == Approx(view.bar_of(row - 1).right()).margin(1.0));
    CHECK(view.bar_of(row).top() > view.bar_of(row - 1).bottom());
  }
  CHECK(view.bar_of(rows).right() == Approx(view.bar_of(rows - 1).right()).margin(1.0));
  CHECK(view.bar_of(rows).left() == view.bar_of(0).left());
}

TEST_CASE("the headline has the band and the evidence") {
  gui::StepView view;
  const gui::PlanResultPtr plan = small_plan();
  view.show_plan(plan);
  const TimePrediction& time = plan->candidate.prediction.time;
  CHECK(view.headline().contains(QString::fromStdString(duration(time.step))));
  CHECK(view.headline().contains(QString::fromStdString(duration(time.high))));
  CHECK(view.headline().contains(
      QString::fromUtf8(name_of(plan->candidate.prediction.evidence).data())));
}

TEST_CASE("a step tooltip has time, share, formula and source") {
  gui::StepView view;
  view.resize(600, 400);
  view.show_plan(small_plan());
  const QString note = view.tooltip_at(view.bar_of(0).center());
  CHECK(note.contains("compute"));
  CHECK(note.contains("of the step"));
  CHECK(note.contains("roofline"));
  const QString whole =
      view.tooltip_at(view.bar_of(static_cast<int>(view.parts().size())).center());
  CHECK(whole.contains("80 % of runs"));
  CHECK(view.tooltip_at({300, 2}).isEmpty());
}

TEST_CASE("keys select the parts of the step") {
  gui::StepView view;
  view.resize(600, 400);
  QTest::keyClick(&view, Qt::Key_Down);
  CHECK(view.row() == std::nullopt);
  view.show_plan(small_plan());
  QTest::keyClick(&view, Qt::Key_Down);
  CHECK(view.row() == 0);
  CHECK(view.accessibleDescription().contains("compute"));
  QTest::keyClick(&view, Qt::Key_Up);
  CHECK(view.row() == 0);
  for (int i = 0; i < 20; ++i) QTest::keyClick(&view, Qt::Key_Down);
  CHECK(view.row() == static_cast<int>(view.parts().size()));
  CHECK_FALSE(view.grab().isNull());
}

TEST_CASE("the waterfall stays inside a small window") {
  gui::StepView view;
  view.resize(300, 200);
  view.show_plan(small_plan());
  for (int row = 0; row <= static_cast<int>(view.parts().size()); ++row) {
    CHECK(QRectF(view.rect()).contains(view.bar_of(row)));
  }
}
