#include "gui/views/space_view.hpp"

#include <QComboBox>
#include <QTest>
#include <QWheelEvent>
#include <algorithm>

#include "gui/canvas/theme.hpp"
#include "tests/gui/view_test.hpp"

using namespace echelon;

namespace {

struct Space {
  gui::SpaceView view;
  std::vector<Candidate> chosen;

  explicit Space(const gui::SpaceResultPtr& space = some_space()) {
    view.resize(900, 600);
    QObject::connect(&view, &gui::SpaceView::chosen,
                     [this](const Candidate& candidate) { chosen.push_back(candidate); });
    view.show_space(space);
    view.show();
    view.grab();
  }
  gui::SpaceCanvas& canvas() { return view.canvas(); }
  QPoint pixel(const Candidate& candidate) {
    const auto at = canvas().pixel_of(candidate.plan);
    REQUIRE(at);
    return at->toPoint();
  }
  void point_at(QPoint where) {
    QMouseEvent move(QEvent::MouseMove, where, canvas().viewport()->mapToGlobal(where),
                     Qt::NoButton, Qt::NoButton, Qt::NoModifier);
    QApplication::sendEvent(canvas().viewport(), &move);
  }
  void wheel(QPoint where, int notches) {
    QWheelEvent turn(where, canvas().viewport()->mapToGlobal(where), {}, {0, 120 * notches},
                     Qt::NoButton, Qt::NoModifier, Qt::NoScrollPhase, false);
    QApplication::sendEvent(canvas().viewport(), &turn);
  }
};

const SearchOutcome& plans() { return some_space()->report; }

}  // namespace

TEST_CASE("all plans of a space are inside the chart, with the winner and the front drawn") {
  Space s;
  QTest::keyClick(&s.canvas(), Qt::Key_F);
  for (const Candidate& candidate : plans().candidates) {
    CHECK(s.canvas().chart()->plotArea().contains(QPointF(s.pixel(candidate))));
  }
  CHECK(pixels_of(s.canvas(), gui::series_colour(5)) > 60);  // the star
  CHECK(pixels_of(s.canvas(), gui::series_colour(1)) > 40);  // the front
}

TEST_CASE("slow plans do not compress the range of the best ones, and F shows them") {
  Space s;
  const double best = plans().winner()->prediction.time.step.in(kSecond);
  const double slowest = plans().pareto.back().prediction.time.step.in(kSecond);
  REQUIRE(slowest > 2 * best);
  CHECK(s.canvas().shown_range().right() < 1.6 * best);
  QTest::keyClick(&s.canvas(), Qt::Key_F);
  CHECK(s.canvas().shown_range().right() > slowest);
  QTest::keyClick(&s.canvas(), Qt::Key_F);
  CHECK(s.canvas().shown_range().right() < 1.6 * best);
}

TEST_CASE("faster plans are further left, smaller ones further down") {
  Space s;
  const Candidate& fast = plans().pareto.front();
  const Candidate& small = plans().pareto.back();
  REQUIRE(plans().pareto.size() > 1);
  CHECK(s.pixel(fast).x() < s.pixel(small).x());
  CHECK(s.pixel(fast).y() < s.pixel(small).y());
}

TEST_CASE("the tooltip describes the plan under the cursor, and is empty elsewhere") {
  Space s;
  const Candidate& winner = *plans().winner();
  s.point_at(s.pixel(winner) + QPoint(4, 3));
  REQUIRE(s.canvas().hovered() != nullptr);
  CHECK(s.canvas().hovered_tooltip().contains("the winner"));
  CHECK(s.canvas().hovered_tooltip().contains("reserved"));
  s.point_at({s.canvas().width() / 2, 3});
  CHECK(s.canvas().hovered() == nullptr);
}

TEST_CASE("a click chooses the plan under the cursor, and none elsewhere") {
  Space s;
  const Candidate& winner = *plans().winner();
  QTest::mouseClick(s.canvas().viewport(), Qt::LeftButton, {}, s.pixel(winner));
  REQUIRE(s.chosen.size() == 1);
  CHECK(s.chosen[0].plan == winner.plan);
  QTest::mouseClick(s.canvas().viewport(), Qt::LeftButton, {}, {s.canvas().width() / 2, 3});
  CHECK(s.chosen.size() == 1);
}

TEST_CASE("a rubber band zooms, a right click undoes it, F shows all plans") {
  Space s;
  const QRectF all = s.canvas().shown_range();
  const QPoint from = s.canvas().chart()->plotArea().center().toPoint();
  QTest::mousePress(s.canvas().viewport(), Qt::LeftButton, {}, from);
  QTest::mouseMove(s.canvas().viewport(), from + QPoint(90, 60));
  QTest::mouseRelease(s.canvas().viewport(), Qt::LeftButton, {}, from + QPoint(90, 60));
  const QRectF part = s.canvas().shown_range();
  CHECK(part.width() < 0.2 * all.width());
  CHECK(all.contains(part));
  CHECK(s.chosen.empty());
  s.view.show_space(some_space());  // a newer result keeps the zoom if it contains plans
  QTest::mouseClick(s.canvas().viewport(), Qt::RightButton, {}, from);
  CHECK(s.canvas().shown_range() == all);
  s.wheel(from, 3);
  QTest::keyClick(&s.canvas(), Qt::Key_F);
  CHECK(s.canvas().shown_range() == all);
}

TEST_CASE("the wheel zooms at the cursor and stops at the whole space") {
  Space s;
  const QRectF all = s.canvas().shown_range();
  const Candidate& winner = *plans().winner();
  const QPoint there = s.pixel(winner);
  s.wheel(there, 2);
  CHECK(s.canvas().shown_range().width() < 0.7 * all.width());
  CHECK((s.pixel(winner) - there).manhattanLength() <= 2);
  s.wheel(there, -40);
  CHECK(s.canvas().shown_range().contains(all));
  const QRectF whole = s.canvas().shown_range();
  s.wheel(there, -1);
  CHECK(s.canvas().shown_range() == whole);
  s.wheel(there, 200);  // stops before axis labels become equal
  CHECK(s.canvas().shown_range().width() > 0);
}

TEST_CASE("arrow keys move along the front, Home selects the winner") {
  Space s;
  REQUIRE(plans().pareto.size() > 2);
  QTest::keyClick(&s.canvas(), Qt::Key_Right);
  QTest::keyClick(&s.canvas(), Qt::Key_Right);
  REQUIRE(s.chosen.size() == 2);
  CHECK(s.chosen[0].plan == plans().pareto[0].plan);
  CHECK(s.chosen[1].plan == plans().pareto[1].plan);
  QTest::keyClick(&s.canvas(), Qt::Key_Left);
  QTest::keyClick(&s.canvas(), Qt::Key_Left);  // the end of the front
  REQUIRE(s.chosen.size() == 3);
  CHECK(s.chosen[2].plan == plans().pareto[0].plan);
  QTest::keyClick(&s.canvas(), Qt::Key_Home);
  CHECK(s.chosen.back().plan == plans().winner()->plan);
}

TEST_CASE("a marked plan is drawn without a signal") {
  Space s;
  const QImage before = s.canvas().grab().toImage();
  s.view.mark(plans().candidates[7]);
  CHECK(s.canvas().grab().toImage() != before);
  CHECK(s.chosen.empty());
}

TEST_CASE("a plan outside the space is marked, too") {
  Space s;
  const Candidate other = priced({{"model", "7b"},
                                  {"cluster", "dgx-h100"},
                                  {"gpus", "16"},
                                  {"tp", "4"},
                                  {"microbatch", "1"},
                                  {"recompute", "full"}})
                              ->candidate;
  REQUIRE_FALSE(s.canvas().pixel_of(other.plan));
  const QImage before = s.canvas().grab().toImage();
  s.view.mark(other);
  const std::optional<QPointF> at = s.canvas().marked_pixel();
  REQUIRE(at);
  CHECK(s.canvas().chart()->plotArea().adjusted(-1, -1, 1, 1).contains(*at));
  CHECK(s.canvas().grab().toImage() != before);
  s.view.mark(*plans().winner());
  CHECK(s.canvas().marked_pixel() == s.canvas().pixel_of(plans().winner()->plan));
}

TEST_CASE("text of the chart hides no point, and no point is cut by its frame") {
  Space s;
  s.view.resize(640, 260);
  s.view.grab();
  const QImage picture = s.canvas().grab().toImage();
  const QRectF area = s.canvas().chart()->plotArea();
  for (const Candidate& candidate : plans().pareto) {
    const QPointF at = *s.canvas().pixel_of(candidate.plan);
    if (area.contains(at)) CHECK(at.y() - area.top() > 4);
  }
  const QRgb grey = s.view.palette().color(QPalette::PlaceholderText).rgb();
  int inside = 0;
  for (int y = static_cast<int>(area.top()); y < area.bottom(); ++y) {
    for (int x = static_cast<int>(area.left()); x < area.right(); ++x) {
      if (picture.pixel(x, y) == grey) ++inside;
    }
  }
  CHECK(inside == 0);
  CHECK(pixels_of(s.canvas(), QColor(grey)) > 0);  // "more plans out of view"
}

TEST_CASE("other metrics can be selected for the axes") {
  Space s;
  const QRectF before = s.canvas().shown_range();
  auto boxes = s.view.findChildren<QComboBox*>();
  REQUIRE(boxes.size() == 2);
  for (QComboBox* box : boxes) {
    for (int i = 0; i < box->count(); ++i) {
      box->setCurrentIndex(i);
      CHECK_FALSE(s.canvas().grab().isNull());
    }
  }
  boxes[0]->setCurrentText("MFU");
  CHECK(s.canvas().shown_range() != before);
}

TEST_CASE(
    "if nothing fits, the nearest infeasible plans are drawn hollow beyond the memory limit") {
  Space s(hopeless_space());
  REQUIRE_FALSE(hopeless_space()->report.nearest_infeasible.empty());
  const Candidate& miss = hopeless_space()->report.nearest_infeasible.front().candidate;
  s.point_at(s.pixel(miss));
  CHECK(s.canvas().hovered_tooltip().contains("is short by"));
  const double usable = hopeless_space()->resolved.request.usable_memory().in(1_GiB);
  CHECK(s.canvas().shown_range().top() <
        usable);  // the limit is visible, the infeasible plans beyond it
  CHECK(s.canvas().shown_range().bottom() > usable);
  CHECK(pixels_of(s.canvas(), s.view.palette().color(QPalette::PlaceholderText)) > 5);
}

TEST_CASE("an empty space shows a hint, and ignores keys and the wheel") {
  Space s{gui::SpaceResultPtr()};
  CHECK(s.view.findChild<gui::EmptyState*>()->message().contains("choose a model"));
  for (const int key : {Qt::Key_F, Qt::Key_Right, Qt::Key_Home, Qt::Key_Plus})
    QTest::keyClick(&s.canvas(), static_cast<Qt::Key>(key));
  s.wheel({50, 50}, 1);
  CHECK(s.chosen.empty());
}
