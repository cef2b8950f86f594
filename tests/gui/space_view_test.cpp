#include "gui/space_view.hpp"

#include <QComboBox>
#include <QTest>
#include <QWheelEvent>
#include <algorithm>

#include "gui/theme.hpp"
#include "tests/gui/shown.hpp"

using namespace echelon;

namespace {

struct Space {
  gui::SpaceView view;
  std::vector<Candidate> chosen;

  explicit Space(const gui::SpaceShown& space = some_space()) {
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

TEST_CASE("slow plans do not squeeze the ones that matter, and F shows them") {
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

TEST_CASE("the pointer over a plan tells it in words, and away from all nothing") {
  Space s;
  const Candidate& winner = *plans().winner();
  s.point_at(s.pixel(winner) + QPoint(4, 3));
  REQUIRE(s.canvas().hovered() != nullptr);
  CHECK(s.canvas().words_of_hovered().contains("the winner"));
  CHECK(s.canvas().words_of_hovered().contains("peak memory"));
  s.point_at({s.canvas().width() / 2, 3});
  CHECK(s.canvas().hovered() == nullptr);
}

TEST_CASE("a click chooses the plan under it, beside all of them none") {
  Space s;
  const Candidate& winner = *plans().winner();
  QTest::mouseClick(s.canvas().viewport(), Qt::LeftButton, {}, s.pixel(winner));
  REQUIRE(s.chosen.size() == 1);
  CHECK(s.chosen[0].plan == winner.plan);
  QTest::mouseClick(s.canvas().viewport(), Qt::LeftButton, {}, {s.canvas().width() / 2, 3});
  CHECK(s.chosen.size() == 1);
}

TEST_CASE("a rubber band zooms, a right click takes it back, F shows all") {
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
  s.view.show_space(some_space());  // a search that goes on keeps what is looked at, if anything
  QTest::mouseClick(s.canvas().viewport(), Qt::RightButton, {}, from);
  CHECK(s.canvas().shown_range() == all);
  s.wheel(from, 3);
  QTest::keyClick(&s.canvas(), Qt::Key_F);
  CHECK(s.canvas().shown_range() == all);
}

TEST_CASE("the wheel zooms about the pointer and stops at the whole space") {
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
  s.wheel(there, 200);  // ends where labels would no longer differ
  CHECK(s.canvas().shown_range().width() > 0);
}

TEST_CASE("arrow keys walk along the front, Home goes to the winner") {
  Space s;
  REQUIRE(plans().pareto.size() > 2);
  QTest::keyClick(&s.canvas(), Qt::Key_Right);
  QTest::keyClick(&s.canvas(), Qt::Key_Right);
  REQUIRE(s.chosen.size() == 2);
  CHECK(s.chosen[0].plan == plans().pareto[0].plan);
  CHECK(s.chosen[1].plan == plans().pareto[1].plan);
  QTest::keyClick(&s.canvas(), Qt::Key_Left);
  QTest::keyClick(&s.canvas(), Qt::Key_Left);  // the end: nothing new
  REQUIRE(s.chosen.size() == 3);
  CHECK(s.chosen[2].plan == plans().pareto[0].plan);
  QTest::keyClick(&s.canvas(), Qt::Key_Home);
  CHECK(s.chosen.back().plan == plans().winner()->plan);
}

TEST_CASE("a mark from outside is drawn and tells nobody") {
  Space s;
  const QImage before = s.canvas().grab().toImage();
  s.view.mark(plans().candidates[7].plan);
  CHECK(s.canvas().grab().toImage() != before);
  CHECK(s.chosen.empty());
}

TEST_CASE("other figures can be laid along the axes") {
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

TEST_CASE("where nothing fits the near misses are drawn hollow beyond the capacity line") {
  Space s(hopeless_space());
  REQUIRE_FALSE(hopeless_space()->report.nearest_infeasible.empty());
  const Candidate& miss = hopeless_space()->report.nearest_infeasible.front().candidate;
  s.point_at(s.pixel(miss));
  CHECK(s.canvas().words_of_hovered().contains("is short by"));
  const double usable = hopeless_space()->asked.request.usable_memory().in(1_GiB);
  CHECK(s.canvas().shown_range().top() < usable);  // the line is in sight, the misses beyond it
  CHECK(s.canvas().shown_range().bottom() > usable);
  CHECK(pixels_of(s.canvas(), s.view.palette().color(QPalette::PlaceholderText)) > 5);
}

TEST_CASE("an empty space says what to do, and no key or wheel harms it") {
  Space s{gui::SpaceShown()};
  CHECK(s.view.findChild<gui::Placeholder*>()->sentence().contains("then search"));
  for (const int key : {Qt::Key_F, Qt::Key_Right, Qt::Key_Home, Qt::Key_Plus})
    QTest::keyClick(&s.canvas(), static_cast<Qt::Key>(key));
  s.wheel({50, 50}, 1);
  CHECK(s.chosen.empty());
}
