#include "gui/views/scaling_view.hpp"

#include <QSignalSpy>
#include <QTest>

#include "tests/gui/plan_results.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

/// gpt2 on two GPUs of one node, for quick searches.
gui::PlanResultPtr quick_plan() {
  return plan_result({{"model", "gpt2"},
                      {"cluster", "rtx-4090"},
                      {"gpus", "2"},
                      {"global-batch", "64"},
                      {"tp", "1"},
                      {"pp", "1"}});
}

/// A complete scaling search, 700 x 500.
struct ShownScaling {
  ShownScaling() {
    view.resize(700, 500);
    view.show();
    QSignalSpy finished(&view, &gui::ScalingView::finished);
    view.show_plan(quick_plan());
    for (int i = 0; i < 100 && finished.count() == 0; ++i) finished.wait(100);
    REQUIRE(finished.count() == 1);
  }
  gui::ScalingView view;
};

}  // namespace

TEST_CASE("an empty scaling view shows a hint") {
  gui::ScalingView view;
  view.resize(300, 200);
  view.show();
  CHECK_FALSE(view.grab().isNull());
  CHECK(view.points().empty());
  CHECK_FALSE(view.marked());
  QTest::keyClick(&view, Qt::Key_Right);
  QTest::keyClick(&view, Qt::Key_Return);
  QTest::keyClick(&view, Qt::Key_R);
  CHECK_FALSE(view.searching());
}

TEST_CASE("a hidden scaling view starts no search") {
  gui::ScalingView view;
  view.show_plan(quick_plan());
  QTest::qWait(1);
  CHECK_FALSE(view.searching());
}

TEST_CASE("the scaling view has the planner's numbers of GPUs, with the current one marked") {
  ShownScaling shown;
  std::vector<int> counts;
  for (const ScalingPoint& point : shown.view.points()) counts.push_back(point.gpus);
  const PlanRequest request = quick_plan()->resolved.request;
  CHECK(counts == scaling_counts(request.cluster, 8 * request.cluster.node().gpus));
  CHECK(shown.view.marked() == 2);
  CHECK_FALSE(shown.view.searching());
  for (int i = 1; i < static_cast<int>(counts.size()); ++i) {
    CHECK(shown.view.place_of(i).x() > shown.view.place_of(i - 1).x());
    CHECK(QRectF(shown.view.rect()).contains(shown.view.place_of(i)));
  }
  CHECK_FALSE(shown.view.grab().isNull());
}

TEST_CASE("points are as high as the rate of one GPU") {
  ShownScaling shown;
  const auto rate = [&](int i) {
    const ScalingPoint& point = shown.view.points()[static_cast<std::size_t>(i)];
    REQUIRE(point.best);
    return point.best->tokens_per_second / point.gpus;
  };
  const int last = static_cast<int>(shown.view.points().size()) - 1;
  const auto height = [&](int i) { return shown.view.place_of(i).y(); };
  for (int i = 1; i < last; ++i) {
    CHECK((height(i) - height(0)) * (rate(last) - rate(0)) ==
          Approx((height(last) - height(0)) * (rate(i) - rate(0))).margin(1e-3));
  }
}

TEST_CASE("a click and Enter choose the plan of a point") {
  ShownScaling shown;
  QSignalSpy chosen(&shown.view, &gui::ScalingView::chosen);
  const QPointF first = shown.view.place_of(0);
  CHECK(shown.view.tooltip_at(first).contains("1 GPU"));
  CHECK(shown.view.tooltip_at(first).contains("tokens/s"));
  CHECK(shown.view.tooltip_at({2, 2}).isEmpty());
  QTest::mouseClick(&shown.view, Qt::LeftButton, {}, first.toPoint());
  REQUIRE(chosen.count() == 1);
  CHECK(chosen[0][0].toInt() == 1);
  CHECK(shown.view.marked() == 1);
  QTest::keyClick(&shown.view, Qt::Key_Right);
  QTest::keyClick(&shown.view, Qt::Key_Return);
  REQUIRE(chosen.count() == 2);
  CHECK(chosen[1][0].toInt() == 2);
}

TEST_CASE("a stopped scaling search stays stopped until it is restarted") {
  gui::ScalingView view;
  view.resize(700, 500);
  view.show();
  QSignalSpy finished(&view, &gui::ScalingView::finished);
  view.show_plan(quick_plan());
  QTest::keyClick(&view, Qt::Key_R);  // at once
  CHECK(view.searching());
  QTest::keyClick(&view, Qt::Key_Escape);
  CHECK_FALSE(view.searching());
  const std::size_t points = view.points().size();
  QTest::qWait(20);
  CHECK(view.points().size() == points);
  CHECK(finished.count() == 0);
  QTest::keyClick(&view, Qt::Key_R);
  for (int i = 0; i < 100 && finished.count() == 0; ++i) finished.wait(100);
  CHECK(finished.count() == 1);
}

TEST_CASE("a number of GPUs without a plan shows the reason and chooses none") {
  gui::ScalingView view;
  view.resize(700, 500);
  view.show();
  QSignalSpy finished(&view, &gui::ScalingView::finished);
  view.show_plan(plan_result(
      {{"model", "llama2-7b"}, {"gpus", "8"}, {"global-batch", "8"}, {"tp", "8"}, {"pp", "1"}}));
  for (int i = 0; i < 100 && finished.count() == 0; ++i) finished.wait(100);
  REQUIRE(finished.count() == 1);
  REQUIRE_FALSE(view.points().front().best);  // tensor parallelism of 8 on one GPU
  QSignalSpy chosen(&view, &gui::ScalingView::chosen);
  CHECK(view.tooltip_at(view.place_of(0)).contains("no plan"));
  QTest::mouseClick(&view, Qt::LeftButton, {}, view.place_of(0).toPoint());
  CHECK(view.marked() == 1);
  CHECK(chosen.count() == 0);
  CHECK_FALSE(view.grab().isNull());
}
