// Files and the window: opening loses nothing, writing freezes nothing, quitting asks.
#include <QFileInfo>
#include <QLabel>
#include <QProgressBar>
#include <QStatusBar>
#include <fstream>

#include "core/model/model_io.hpp"
#include "core/plan/plan_file.hpp"
#include "gui/run_view.hpp"
#include "tests/gui/opened.hpp"
#include "tests/places.hpp"

using namespace echelon;

namespace {

QString said(gui::Window& window) { return window.statusBar()->findChild<QLabel*>()->text(); }

/// A plan whose file takes a while to make: 64 stages, 256 microbatches.
gui::Sheet long_plan() {
  gui::Sheet sheet =
      asking({{"model", "megatron-1t"}, {"gpus", "512"}, {"global-batch", "256"}, {"seq", "2048"}});
  for (const auto& [flag, value] : {std::pair("tp", "8"), std::pair("pp", "64"),
                                    std::pair("microbatch", "1"), std::pair("recompute", "full")}) {
    sheet.plan.set(flag, {value, std::string("--") + flag});
  }
  sheet.follows_best = false;
  return sheet;
}

/// Chooses this file in the next dialog that asks for one.
NextDialog<QFileDialog> choosing(const QString& path) {
  return NextDialog<QFileDialog>([path](QFileDialog& dialog) {
    dialog.selectFile(path);
    QMetaObject::invokeMethod(&dialog, "accept");
  });
}

}  // namespace

TEST_CASE("opening a file is a step that can be undone, and the title says which file it is") {
  const Opened opened;
  gui::Window& window = *opened.window;
  gui::Desk& desk = window.desk();
  desk.change("tp", "4");
  REQUIRE(window.save_session(opened.file("s.json")).ok());
  CHECK(window.windowFilePath() == opened.file("s.json"));
  CHECK(window.windowTitle().startsWith("s.json"));
  CHECK_FALSE(window.isWindowModified());
  desk.change("tp", "2");
  CHECK(window.isWindowModified());
  REQUIRE(desk.plan()->candidate.plan.tp == 2);

  CHECK(window.open_file(QString(ECHELON_SOURCE_DIR) + "/examples/gpt2-tiny.json"));
  CHECK(desk.asked()->request.model.name == "gpt2-tiny");
  CHECK(window.windowTitle().startsWith("gpt2-tiny.json"));
  CHECK_FALSE(window.isWindowModified());
  REQUIRE(desk.can_undo());
  desk.undo();
  CHECK(desk.asked()->request.model.name == "gpt2");
  CHECK(desk.plan()->candidate.plan.tp == 2);
  CHECK(window.windowTitle().startsWith("s.json"));
  CHECK(window.isWindowModified());
  desk.undo();
  CHECK(desk.plan()->candidate.plan.tp == 4);
  CHECK_FALSE(window.isWindowModified());
  desk.redo();
  desk.redo();
  CHECK(window.windowTitle().startsWith("gpt2-tiny.json"));
}

TEST_CASE("saving after a plan file was opened asks for a name: the session before stays") {
  const Opened opened;
  gui::Window& window = *opened.window;
  REQUIRE(window.save_session(opened.file("s.json")).ok());
  const std::string before = slurp(opened.file("s.json").toStdString());
  CHECK(window.open_file(QString(ECHELON_SOURCE_DIR) + "/examples/gpt2-tiny.json"));
  NextDialog<QFileDialog> dialog = choosing(opened.file("other.json"));
  opened.press("Save session");
  CHECK(dialog.came());
  CHECK(QFileInfo::exists(opened.file("other.json")));
  CHECK(slurp(opened.file("s.json").toStdString()) == before);
}

TEST_CASE("what follows the best plan is not changed by finding it") {
  const Opened opened;
  CHECK_FALSE(opened.window->isWindowModified());
  opened.window->desk().ask("seq", "512");
  CHECK(opened.window->isWindowModified());
  REQUIRE(opened.window->save_session(opened.file("s.json")).ok());
  opened.searched();
  CHECK_FALSE(opened.window->isWindowModified());
}

TEST_CASE("quitting asks before it ends a run") {
  const Opened opened(false);
  gui::Window& window = *opened.window;
  window.run().use_program(ECHELON_PLAN);
  window.run().start(QString(ECHELON_SOURCE_DIR) + "/examples/gpt2-tiny.json",
                     {"--steps", "100000"});
  REQUIRE(window.run().running());
  {
    NextDialog<QMessageBox> asked(pressing("Cancel"));
    CHECK_FALSE(window.close());
    CHECK(asked.came());
    CHECK(window.isVisible());
    CHECK(window.run().running());
  }
  NextDialog<QMessageBox> asked(pressing("Stop it and quit"));
  CHECK(window.close());
  CHECK(asked.came());
}

TEST_CASE("quitting asks before it loses what was changed in a session") {
  const Opened opened;
  gui::Window& window = *opened.window;
  REQUIRE(window.save_session(opened.file("s.json")).ok());
  window.desk().change("tp", "4");
  {
    NextDialog<QMessageBox> asked(pressing("Cancel"));
    CHECK_FALSE(window.close());
    CHECK(asked.came());
  }
  NextDialog<QMessageBox> asked(pressing("Save"));
  CHECK(window.close());
  CHECK(asked.came());
  const Opened again(false);
  CHECK(again.window->open_file(opened.file("s.json")));
  CHECK(again.window->desk().plan()->candidate.plan.tp == 4);
}

TEST_CASE("a report that was not kept is not dropped for another without a question") {
  const Opened opened(false);
  gui::Window& window = *opened.window;
  const QString plan = QString(ECHELON_SOURCE_DIR) + "/examples/gpt2-tiny.json";
  window.run().use_program(ECHELON_PLAN);
  window.run().start(plan, {"--steps", "3", "--report", opened.file("kept.json")});
  REQUIRE(QTest::qWaitFor([&] { return !window.run().running(); }, 60'000));
  REQUIRE(window.run().report());
  window.run().form().field("report")->clear();
  window.run().start(plan, {"--steps", "4"});
  REQUIRE(QTest::qWaitFor([&] { return !window.run().running(); }, 60'000));
  REQUIRE(window.run().report()->steps.size() == 4);
  {
    NextDialog<QMessageBox> asked(pressing("Cancel"));
    CHECK_FALSE(window.open_file(opened.file("kept.json")));
    CHECK(asked.came());
    CHECK(window.run().report()->steps.size() == 4);
  }
  NextDialog<QMessageBox> asked(pressing("Discard"));
  CHECK(window.open_file(opened.file("kept.json")));
  CHECK(asked.came());
  CHECK(window.run().report()->steps.size() == 3);
}

TEST_CASE("a plan file is written beside the window, which goes on meanwhile") {
  const Opened opened(false);
  gui::Window& window = *opened.window;
  gui::Desk& desk = window.desk();
  desk.open(long_plan());
  desk.cancel_search();
  REQUIRE(desk.plan());
  const QString path = opened.file("plan.json");
  {
    NextDialog<QFileDialog> dialog = choosing(path);
    opened.press("Export plan file …");
    REQUIRE(dialog.came());
  }
  CHECK_FALSE(QFileInfo::exists(path));  // the key is over before the file is made
  CHECK_FALSE(window.action("Export trace …")->isEnabled());
  desk.change("microbatch", "2");  // of another plan than the one being written
  CHECK(desk.plan()->candidate.plan.microbatch == 2);
  REQUIRE(QTest::qWaitFor([&] { return said(window).startsWith("Wrote"); }, 120'000));
  CHECK(window.action("Export trace …")->isEnabled());
  const Result<PlanFile> written = read_plan_file(path.toStdString());
  REQUIRE(written.ok());
  CHECK(written->plan.microbatch == 1);
  CHECK(written->plan.pp == 64);
}

TEST_CASE("a file that is being written can be cancelled, and nothing of it is left") {
  const Opened opened(false);
  gui::Window& window = *opened.window;
  window.desk().open(long_plan());
  window.desk().cancel_search();
  const QString path = opened.file("trace.json");
  REQUIRE(window.export_trace(path).ok());
  CHECK(window.writer().busy());
  CHECK_FALSE(window.export_plan(path).ok());
  {
    NextDialog<QMessageBox> asked(pressing("Cancel"));
    CHECK_FALSE(window.close());
    CHECK(asked.came());
  }
  opened.press("Stop");
  CHECK_FALSE(window.writer().busy());
  // The next one waits for the thread of the one before.
  REQUIRE(window.export_plan(opened.file("plan.json")).ok());
  REQUIRE(QTest::qWaitFor([&] { return !window.writer().busy(); }, 120'000));
  CHECK(QFileInfo::exists(opened.file("plan.json")));
  CHECK_FALSE(QFileInfo::exists(path));
}

TEST_CASE("a broken file is told with its line") {
  const Opened opened(false);
  std::ofstream(opened.file("broken.json").toStdString()) << "{\n  \"format\": \"echelon-plan\",\n";
  CHECK_FALSE(opened.window->open_file(opened.file("broken.json")));
  CHECK(said(*opened.window).contains("line 3"));
}
