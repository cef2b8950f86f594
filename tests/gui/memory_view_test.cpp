#include "gui/memory_view.hpp"

#include <QSignalSpy>
#include <QTest>

#include "gui/notes.hpp"
#include "report/format.hpp"
#include "tests/gui/plans_shown.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

TEST_CASE("an empty view of memory says what to do") {
  gui::MemoryView view;
  view.resize(400, 300);
  CHECK_FALSE(view.grab().isNull());
  CHECK(view.stage() == -1);
  CHECK(view.note_at({200, 150}).isEmpty());
  view.choose(2);
  CHECK(view.stage() == -1);
}

TEST_CASE("bars of memory stand as high as the reserved peaks") {
  gui::MemoryView view;
  view.resize(600, 400);
  const gui::PlanShown plan = small_plan();
  view.show_plan(plan);
  const MemoryPrediction& memory = plan->candidate.prediction.memory;
  CHECK(view.stage() == memory.tightest_stage);
  const QRectF tallest = view.bar_of(memory.tightest_stage);
  for (int stage = 0; stage < 4; ++stage) {
    CHECK(view.bar_of(stage).height() <= tallest.height());
    CHECK(view.bar_of(stage).bottom() == tallest.bottom());
    CHECK(view.rect().contains(view.bar_of(stage).toAlignedRect()));
  }
  CHECK(view.bar_of(1).left() > view.bar_of(0).right());
  CHECK(view.details().contains(QString::fromStdString(with_gib(memory.peak_reserved))));
}

TEST_CASE("keys and clicks choose a stage and say so") {
  gui::MemoryView view;
  view.resize(600, 400);
  view.show_plan(small_plan());
  view.choose(0);
  QSignalSpy chosen(&view, &gui::MemoryView::stage_chosen);
  QTest::keyClick(&view, Qt::Key_Right);
  CHECK(view.stage() == 1);
  QTest::keyClick(&view, Qt::Key_Left);
  QTest::keyClick(&view, Qt::Key_Left);  // there is none before the first
  CHECK(view.stage() == 0);
  QTest::keyClick(&view, Qt::Key_End);
  CHECK(view.stage() == 3);
  QTest::mouseClick(&view, Qt::LeftButton, {}, view.bar_of(2).center().toPoint());
  CHECK(view.stage() == 2);
  CHECK(chosen.count() == 4);
  CHECK(view.details().startsWith("Stage 2 of 4"));
}

TEST_CASE("a tooltip of memory has bytes, share, formula and source") {
  gui::MemoryView view;
  view.resize(600, 400);
  const gui::PlanShown plan = small_plan();
  view.show_plan(plan);
  const QRectF bar = view.bar_of(1);
  const QString note = view.note_at({bar.center().x(), bar.bottom() - 2});
  const MemoryBreakdown& stage = plan->candidate.prediction.memory.stages[1];
  CHECK(note.contains("weights"));
  CHECK(note.contains(QString::fromStdString(with_gib(stage.weights))));
  CHECK(note.contains("%"));
  CHECK(note.contains("1910.02054"));
  CHECK(view.note_at({bar.center().x(), bar.top() - 4}).isEmpty());
}

TEST_CASE("what does not fit is told and hatched") {
  gui::MemoryView view;
  view.resize(600, 400);
  const gui::PlanShown plan = plan_shown({{"model", "llama2-7b"},
                                          {"gpus", "2"},
                                          {"tp", "2"},
                                          {"global-batch", "4"},
                                          {"zero", "0"},
                                          {"max-memory", "20GiB"}});
  REQUIRE_FALSE(plan->candidate.fits);
  view.show_plan(plan);
  CHECK(view.details().contains("too much"));
  CHECK_FALSE(view.grab().isNull());
}

TEST_CASE("every part of memory and time has a formula and a source") {
  for (const MemoryPart& part : parts_of(MemoryBreakdown{})) {
    INFO(part.name);
    REQUIRE(gui::note_of_memory(part.name) != nullptr);
    CHECK_FALSE(gui::note_of_memory(part.name)->source.empty());
  }
  for (const TimePart& part : parts_of(CostBreakdown{})) {
    INFO(part.name);
    REQUIRE(gui::note_of_time(part.name) != nullptr);
    CHECK_FALSE(gui::note_of_time(part.name)->formula.empty());
  }
  CHECK(gui::note_of_memory("reserve") != nullptr);
  CHECK(gui::note_of_time("no such part") == nullptr);
}
