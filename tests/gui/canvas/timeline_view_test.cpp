#include "gui/canvas/timeline_view.hpp"

#include <QSignalSpy>
#include <QTest>
#include <QWheelEvent>

#include "gui/canvas/theme.hpp"
#include "planner/explain/plan_detail.hpp"
#include "report/format.hpp"
#include "tests/gui/plan_results.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

/// A small pipeline, simulated at once, 800 x 500.
struct ShownTimeline {
  ShownTimeline() {
    view.resize(800, 500);
    view.show_plan(small_plan());
    view.show();
  }
  [[nodiscard]] double span() const { return view.window().to - view.window().from; }
  gui::TimelineView view;
};

void turn_wheel(QWidget& view, const QPointF& at, int notches, Qt::KeyboardModifiers modifiers) {
  QWheelEvent event(at, view.mapToGlobal(at), {}, {0, 120 * notches}, Qt::NoButton, modifiers,
                    Qt::NoScrollPhase, false);
  QApplication::sendEvent(&view, &event);
}

}  // namespace

TEST_CASE("an empty timeline shows a hint") {
  gui::TimelineView view;
  view.resize(300, 200);
  view.show();
  CHECK_FALSE(view.grab().isNull());
  CHECK(view.gantt() == nullptr);
  CHECK(view.tooltip_at({150, 100}).isEmpty());
  QTest::keyClick(&view, Qt::Key_W);  // zooming an empty timeline
}

TEST_CASE("the rows of the timeline contain every instruction that takes time") {
  ShownTimeline shown;
  REQUIRE(shown.view.gantt() != nullptr);
  const gui::Gantt& gantt = *shown.view.gantt();
  std::size_t bars = 0;
  for (const gui::GanttRow& row : gantt.rows) {
    for (std::size_t i = 1; i < row.bars.size(); ++i) {
      CHECK(row.bars[i].start >= row.bars[i - 1].end);
    }
    bars += row.bars.size();
  }
  std::size_t spans = 0;
  for (const Span& span : gantt.step.timeline.spans) spans += span.end > span.start ? 1 : 0;
  CHECK(bars == spans);
  CHECK(shown.view.title().contains("fill/drain"));
  CHECK(shown.view.title().contains("imbalance"));
}

TEST_CASE("the timeline states the predicted step, and what of it is not simulated") {
  gui::TimelineView view;
  view.resize(800, 500);
  const gui::PlanResultPtr plan = plan_result({{"model", "gpt2"},
                                               {"cluster", "dgx-h100"},
                                               {"gpus", "16"},
                                               {"pp", "2"},
                                               {"dp", "8"},
                                               {"global-batch", "64"}});
  view.show_plan(plan);
  view.show();
  REQUIRE(view.gantt() != nullptr);
  const TimePrediction& time = plan->candidate.prediction.time;
  REQUIRE(view.gantt()->step.timeline.makespan < time.step);
  CHECK(view.title().contains("Step " + QString::fromStdString(duration(time.step))));
  CHECK(view.title().contains("without slowest node"));
}

TEST_CASE("a timeline is simulated only while it is visible") {
  gui::TimelineView view;
  view.resize(800, 500);
  view.show_plan(small_plan());
  CHECK(view.gantt() == nullptr);
  QSignalSpy simulated(&view, &gui::TimelineView::simulated);
  view.show();
  CHECK(view.gantt() != nullptr);
  CHECK(simulated.count() == 1);
}

TEST_CASE("a long timeline is simulated in the background, for the newest plan") {
  gui::TimelineView view;
  view.resize(800, 500);
  view.show();
  const auto long_plan = [](const char* batch) {
    return plan_result({{"model", "llama2-7b"},
                        {"gpus", "32"},
                        {"global-batch", batch},
                        {"pp", "8"},
                        {"tp", "4"},
                        {"microbatch", "1"}});
  };
  view.show_plan(long_plan("512"));
  CHECK(view.gantt() == nullptr);
  QSignalSpy simulated(&view, &gui::TimelineView::simulated);
  view.show_plan(long_plan("256"));
  QTRY_VERIFY(simulated.count() > 0);
  CHECK(simulated.count() == 1);
  REQUIRE(view.gantt() != nullptr);
  CHECK(view.gantt()->step.schedule.microbatches == 256);
}

TEST_CASE("keys zoom, pan and fit the timeline") {
  ShownTimeline shown;
  const double whole = shown.span();
  QTest::keyClick(&shown.view, Qt::Key_W);
  CHECK(shown.span() == Approx(0.75 * whole));
  QTest::keyClick(&shown.view, Qt::Key_Plus);
  CHECK(shown.span() == Approx(0.75 * 0.75 * whole));
  const double from = shown.view.window().from;
  QTest::keyClick(&shown.view, Qt::Key_D);
  CHECK(shown.view.window().from == Approx(from + 0.1 * shown.span()));
  QTest::keyClick(&shown.view, Qt::Key_Left);
  CHECK(shown.view.window().from == Approx(from));
  QTest::keyClick(&shown.view, Qt::Key_S);
  CHECK(shown.span() == Approx(0.75 * whole));
  QTest::keyClick(&shown.view, Qt::Key_F);
  CHECK(shown.span() == Approx(whole));
  QTest::keyClick(&shown.view, Qt::Key_Minus);  // limited to the step
  CHECK(shown.span() == Approx(whole));
}

TEST_CASE("the wheel with Ctrl zooms at the cursor") {
  ShownTimeline shown;
  const QRectF plot = shown.view.plot();
  const QPointF at(plot.left() + 0.25 * plot.width(), plot.center().y());
  const double before = shown.view.window().seconds(at.x() - plot.left());
  turn_wheel(shown.view, at, 3, Qt::ControlModifier);
  CHECK(shown.view.window().seconds(at.x() - plot.left()) == Approx(before));
  const double from = shown.view.window().from;
  turn_wheel(shown.view, at, 1, Qt::ShiftModifier);
  CHECK(shown.view.window().from < from);
}

TEST_CASE("Ctrl+Shift+wheel increases the row height, then the rows scroll") {
  ShownTimeline shown;
  const QPointF at = shown.view.plot().center();
  const double height = shown.view.window().per_unit;
  turn_wheel(shown.view, at, 4, Qt::ControlModifier | Qt::ShiftModifier);
  CHECK(shown.view.window().per_unit > height);
  const double scroll = shown.view.window().scroll;
  turn_wheel(shown.view, at, 1, Qt::NoModifier);
  CHECK(shown.view.window().scroll < scroll);
  QTest::keyClick(&shown.view, Qt::Key_F);
  CHECK(shown.view.window().per_unit == Approx(height));
}

TEST_CASE("the tooltip of a bar describes it, and a click pins it") {
  ShownTimeline shown;
  const QPointF first = shown.view.bar_rect(0, 0).center();
  const QString note = shown.view.tooltip_at(first);
  CHECK(note.contains("pipeline rank 0"));
  CHECK(note.contains("forward"));
  CHECK(note.contains("microbatch 0"));
  CHECK(shown.view.pinned().isEmpty());
  QTest::mouseClick(&shown.view, Qt::LeftButton, {}, first.toPoint());
  CHECK(shown.view.pinned().contains("microbatch 0"));
  QTest::keyClick(&shown.view, Qt::Key_Escape);
  CHECK(shown.view.pinned().isEmpty());
  const gui::Gantt& gantt = *shown.view.gantt();
  for (std::size_t row = 0; row < gantt.rows.size(); ++row) {
    if (gantt.rows[row].queue == Queue::compute) continue;
    const QString message =
        shown.view.tooltip_at(shown.view.bar_rect(static_cast<int>(row), 0).center());
    CHECK(message.contains("bytes"));
    CHECK(message.contains("waits for"));
    break;
  }
}

TEST_CASE("keys move from bar to bar and from row to row, and the view follows") {
  ShownTimeline shown;
  QTest::keyClick(&shown.view, Qt::Key_Period);
  CHECK(shown.view.pinned().contains("rank 0"));
  CHECK(shown.view.pinned().contains("microbatch 0"));
  QTest::keyClick(&shown.view, Qt::Key_Period);
  CHECK(shown.view.pinned().contains("microbatch 1"));
  QTest::keyClick(&shown.view, Qt::Key_Comma);
  QTest::keyClick(&shown.view, Qt::Key_Comma);  // there is none before the first
  CHECK(shown.view.pinned().contains("microbatch 0"));
  QTest::keyClick(&shown.view, Qt::Key_Down, Qt::ControlModifier);
  CHECK(shown.view.pinned().contains("p2p forward"));
  for (int i = 0; i < 12; ++i) QTest::keyClick(&shown.view, Qt::Key_W);
  for (int i = 0; i < 5; ++i) QTest::keyClick(&shown.view, Qt::Key_Period);
  const gui::GanttRow& row = shown.view.gantt()->rows[1];
  const double start = row.bars[5].start;
  CHECK(shown.view.window().from <= start);
  CHECK(shown.view.window().to >= start);
}

TEST_CASE("an image of the timeline is drawn at its own resolution") {
  ShownTimeline shown;
  (void)shown.view.grab();
  QImage large(QSize(1600, 1000), QImage::Format_RGB32);
  large.setDevicePixelRatio(2);
  shown.view.render(&large);
  // The bubble before the last rank's first forward has a stripe every seven pixels of the
  // image, not of the screen.
  const auto& rows = shown.view.gantt()->rows;
  int last = static_cast<int>(rows.size()) - 1;
  while (rows[static_cast<std::size_t>(last)].queue != Queue::compute) --last;
  const QRectF first = shown.view.bar_rect(last, 0);
  const int y = static_cast<int>(2 * first.center().y());
  const int end = static_cast<int>(2 * first.left()) - 4;
  int changes = 0;
  for (int x = end - 70; x < end; ++x) {
    changes += large.pixel(x, y) != large.pixel(x + 1, y) ? 1 : 0;
  }
  CHECK(changes == 20);
}

TEST_CASE("dragging pans, Shift+drag measures") {
  ShownTimeline shown;
  QTest::keyClick(&shown.view, Qt::Key_W);
  const QPoint at = shown.view.plot().center().toPoint();
  const double from = shown.view.window().from;
  const double span = shown.span();
  const double width = shown.view.plot().width();
  QTest::mousePress(&shown.view, Qt::LeftButton, {}, at);
  QTest::mouseMove(&shown.view, at + QPoint(-50, 0));
  QTest::mouseRelease(&shown.view, Qt::LeftButton, {}, at + QPoint(-50, 0));
  CHECK(shown.view.window().from == Approx(from + 50 / width * span));
  CHECK(shown.view.pinned().isEmpty());
  QTest::mousePress(&shown.view, Qt::LeftButton, Qt::ShiftModifier, at);
  QTest::mouseMove(&shown.view, at + QPoint(100, 0));
  QTest::mouseRelease(&shown.view, Qt::LeftButton, Qt::ShiftModifier, at + QPoint(100, 0));
  REQUIRE(shown.view.measured());
  CHECK(*shown.view.measured() == Approx(100 / width * span));
  CHECK_FALSE(shown.view.grab().isNull());
}

TEST_CASE("hit testing takes the nearest bar within the slack") {
  gui::GanttRow row;
  row.bars = {{.start = 1, .end = 2}, {.start = 4, .end = 5}};
  CHECK(gui::bar_near(row, 1.5, 0) == &row.bars[0]);
  CHECK(gui::bar_near(row, 3.0, 0.5) == nullptr);
  CHECK(gui::bar_near(row, 3.8, 0.5) == &row.bars[1]);
  CHECK(gui::bar_near(row, 2.2, 0.5) == &row.bars[0]);
  CHECK(gui::bar_near(row, 9.0, 0.5) == nullptr);
  CHECK(gui::bar_near(gui::GanttRow{}, 9.0, 0.5) == nullptr);
}

TEST_CASE("bars narrower than a pixel are blended by their coverage") {
  SimulatedStep step;
  step.schedule.programs.resize(1);
  step.costs = ScheduleCosts::uniform(1, 1, {});
  auto& list = step.schedule.programs[0].instructions;
  for (std::uint32_t i = 0; i < 1000; ++i) {  // half forward, half idle
    Instruction& made = list.emplace_back();
    made.id = i;
    made.chunk = 0;
    made.microbatch = 0;
    step.timeline.spans.push_back(
        {0, i, Queue::compute, Seconds{0.001 * i}, Seconds{0.001 * i + 0.0005}});
  }
  step.timeline.makespan = Seconds{1};
  const gui::GanttPtr gantt = gui::gantt_of(std::move(step));
  CHECK(gantt->idle == Approx(0.5));
  QPalette palette;
  palette.setColor(QPalette::Base, Qt::white);
  const gui::GanttWindow window{
      .from = 0, .to = 1, .scroll = 0, .per_unit = 5, .size = QSizeF(50, 30)};
  QImage image;
  gui::paint(*gantt, window, palette, 1, image);
  const QColor blue = gui::series_colour(gui::series_of(gui::BarKind::forward));
  const QColor seen = image.pixelColor(25, 5);
  CHECK(seen.red() == Approx((blue.red() + 255) / 2.0).margin(3));
  CHECK(seen.blue() == Approx((blue.blue() + 255) / 2.0).margin(3));
  CHECK(image.pixelColor(25, 25) == QColor(Qt::white));
}

TEST_CASE("kinds that share a pixel are stacked in the colours of the legend") {
  SimulatedStep step;
  step.schedule.programs.resize(1);
  step.costs = ScheduleCosts::uniform(1, 1, {});
  auto& list = step.schedule.programs[0].instructions;
  for (std::uint32_t i = 0; i < 1000; ++i) {  // a quarter forward, the rest backward
    Instruction& made = list.emplace_back();
    made.id = i;
    made.op = i % 2 == 0 ? Op::forward : Op::backward;
    made.chunk = 0;
    made.microbatch = 0;
    const double start = 0.002 * (i / 2);
    step.timeline.spans.push_back({0, i, Queue::compute,
                                   Seconds{i % 2 == 0 ? start : start + 0.0005},
                                   Seconds{i % 2 == 0 ? start + 0.0005 : start + 0.002}});
  }
  step.timeline.makespan = Seconds{1};
  const gui::GanttPtr gantt = gui::gantt_of(std::move(step));
  const gui::GanttWindow window{
      .from = 0, .to = 1, .scroll = 0, .per_unit = 10, .size = QSizeF(50, 60)};
  QImage image;
  gui::paint(*gantt, window, QPalette(), 1, image);
  const QColor forward = gui::series_colour(gui::series_of(gui::BarKind::forward));
  const QColor backward = gui::series_colour(gui::series_of(gui::BarKind::backward));
  int forwards = 0, backwards = 0;
  for (int y = 0; y < 39; ++y) {
    forwards += image.pixelColor(25, y) == forward ? 1 : 0;
    backwards += image.pixelColor(25, y) == backward ? 1 : 0;
  }
  CHECK(forwards + backwards == 39);
  CHECK(forwards == Approx(39 / 4.0).margin(1));
}
