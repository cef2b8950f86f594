#include "gui/views/memory_view.hpp"

#include <QImage>
#include <QSignalSpy>
#include <QTest>

#include "gui/views/part_formulas.hpp"
#include "report/format.hpp"
#include "tests/gui/plan_results.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

TEST_CASE("an empty memory view shows a hint") {
  gui::MemoryView view;
  view.resize(400, 300);
  CHECK_FALSE(view.grab().isNull());
  CHECK(view.stage() == std::nullopt);
  CHECK(view.tooltip_at({200, 150}).isEmpty());
  view.choose(2);
  CHECK(view.stage() == std::nullopt);
}

TEST_CASE("memory bars are as high as the reserved peaks") {
  gui::MemoryView view;
  view.resize(600, 400);
  const gui::PlanResultPtr plan = small_plan();
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

TEST_CASE("keys and clicks select a stage and show its values") {
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

TEST_CASE("a memory tooltip has bytes, share, formula and source") {
  gui::MemoryView view;
  view.resize(600, 400);
  const gui::PlanResultPtr plan = small_plan();
  view.show_plan(plan);
  const QRectF bar = view.bar_of(1);
  const QString note = view.tooltip_at({bar.center().x(), bar.bottom() - 2});
  const MemoryBreakdown& stage = plan->candidate.prediction.memory.stages[1];
  CHECK(note.contains("weights"));
  CHECK(note.contains(QString::fromStdString(with_gib(stage.weights))));
  CHECK(note.contains("%"));
  CHECK(note.contains("1910.02054"));
  CHECK(view.tooltip_at({bar.center().x(), bar.top() - 4}).isEmpty());
}

TEST_CASE("memory over the limit is reported and hatched") {
  gui::MemoryView view;
  view.resize(600, 400);
  const gui::PlanResultPtr plan = plan_result({{"model", "llama2-7b"},
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
    REQUIRE(gui::memory_formula(part.name) != nullptr);
    CHECK_FALSE(gui::memory_formula(part.name)->source.empty());
  }
  for (const TimePart& part : parts_of(CostBreakdown{})) {
    INFO(part.name);
    REQUIRE(gui::time_formula(part.name) != nullptr);
    CHECK_FALSE(gui::time_formula(part.name)->formula.empty());
  }
  CHECK(gui::memory_formula("reserve") != nullptr);
  CHECK(gui::time_formula("no such part") == nullptr);
}

TEST_CASE("the names of the memory limits hide no bar") {
  gui::MemoryView view;
  view.resize(500, 320);
  view.show_plan(small_plan());
  const QImage image = view.grab().toImage();
  for (int stage = 0; stage < 4; ++stage) {
    // No text background within a bar.
    const QRect bar = view.bar_of(stage).toAlignedRect().adjusted(2, 4, -2, -2);
    int base = 0;
    for (int y = bar.top(); y < bar.bottom(); ++y) {
      base += image.pixelColor(bar.right() - 1, y) == view.palette().color(QPalette::Base);
    }
    CHECK(base < bar.height() / 4);
  }
}

TEST_CASE("what is to spare refers to the GPU, and the chance of fitting stands beside it") {
  gui::MemoryView view;
  view.resize(600, 400);
  const gui::PlanResultPtr plan = small_plan();
  view.show_plan(plan);
  const Candidate& candidate = plan->candidate;
  const Bytes spare = plan->resolved.request.capacity() - candidate.prediction.memory.peak_reserved;
  const std::string words =
      with_gib(spare) + " to spare, " + likely_to_fit(*candidate.score.fits_probability);
  CHECK(view.details().contains(QString::fromStdString(words)));
}
