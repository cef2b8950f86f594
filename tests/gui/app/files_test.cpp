// Opening, writing and saving files.
#include <QFileInfo>
#include <QLabel>
#include <QLineEdit>
#include <QProgressBar>
#include <QStatusBar>
#include <fstream>

#include "core/model/model_io.hpp"
#include "core/plan/plan_file.hpp"
#include "gui/run/run_view.hpp"
#include "tests/gui/window_test_fixture.hpp"
#include "tests/places.hpp"

using namespace echelon;

namespace {

QString status_text(gui::Window& window) {
  return window.statusBar()->findChild<QLabel*>()->text();
}

/// A plan whose file takes a while to generate: 64 stages, 256 microbatches.
gui::Query long_plan() {
  gui::Query query = query_with(
      {{"model", "megatron-1t"}, {"gpus", "512"}, {"global-batch", "256"}, {"seq", "2048"}});
  for (const auto& [flag, value] : {std::pair("tp", "8"), std::pair("pp", "64"),
                                    std::pair("microbatch", "1"), std::pair("recompute", "full")}) {
    query.plan.set(flag, {value, std::string("--") + flag});
  }
  query.follows_best = false;
  return query;
}

/// Types this file into the next file dialog. QFileDialog::selectFile() would leave a name in the
/// line for it that has the focus, which it gets some time after the dialog appears.
NextDialog<QFileDialog> choosing(const QString& path) {
  return NextDialog<QFileDialog>([path](QFileDialog& dialog) {
    dialog.findChild<QLineEdit*>()->setText(path);
    QMetaObject::invokeMethod(&dialog, "accept");
  });
}

}  // namespace

TEST_CASE("opening a file is one undo step, and the title shows the file") {
  const WindowFixture fixture;
  gui::Window& window = *fixture.window;
  gui::PlanningSession& session = window.session();
  session.set_plan_flag("tp", "4");
  REQUIRE(window.save_session(fixture.file("s.json")).ok());
  CHECK(window.windowFilePath() == fixture.file("s.json"));
  CHECK(window.windowTitle().startsWith("s.json"));
  CHECK_FALSE(window.isWindowModified());
  session.set_plan_flag("tp", "2");
  CHECK(window.isWindowModified());
  REQUIRE(session.plan()->candidate.plan.tp == 2);

  CHECK(window.open_file(QString(ECHELON_SOURCE_DIR) + "/examples/gpt2-tiny.json"));
  CHECK(session.resolved()->request.model.name == "gpt2-tiny");
  CHECK(window.windowTitle().startsWith("gpt2-tiny.json"));
  CHECK_FALSE(window.isWindowModified());
  REQUIRE(session.can_undo());
  session.undo();
  CHECK(session.resolved()->request.model.name == "gpt2");
  CHECK(session.plan()->candidate.plan.tp == 2);
  CHECK(window.windowTitle().startsWith("s.json"));
  CHECK(window.isWindowModified());
  session.undo();
  CHECK(session.plan()->candidate.plan.tp == 4);
  CHECK_FALSE(window.isWindowModified());
  session.redo();
  session.redo();
  CHECK(window.windowTitle().startsWith("gpt2-tiny.json"));
}

TEST_CASE("saving after opening a plan file asks for a name and keeps the previous session") {
  const WindowFixture fixture;
  gui::Window& window = *fixture.window;
  REQUIRE(window.save_session(fixture.file("s.json")).ok());
  const std::string before = slurp(fixture.file("s.json").toStdString());
  CHECK(window.open_file(QString(ECHELON_SOURCE_DIR) + "/examples/gpt2-tiny.json"));
  NextDialog<QFileDialog> dialog = choosing(fixture.file("other.json"));
  fixture.press("Save session");
  CHECK(dialog.appeared());
  CHECK(QFileInfo::exists(fixture.file("other.json")));
  CHECK(slurp(fixture.file("s.json").toStdString()) == before);
}

TEST_CASE("a session that follows the best plan is not modified by finding it") {
  const WindowFixture fixture;
  CHECK_FALSE(fixture.window->isWindowModified());
  fixture.window->session().set_request_flag("seq", "512");
  CHECK(fixture.window->isWindowModified());
  REQUIRE(fixture.window->save_session(fixture.file("s.json")).ok());
  fixture.wait_for_search();
  CHECK_FALSE(fixture.window->isWindowModified());
}

TEST_CASE("quitting during a run asks for confirmation") {
  const WindowFixture fixture(false);
  gui::Window& window = *fixture.window;
  window.run().use_program(ECHELON_PLAN);
  window.run().start(QString(ECHELON_SOURCE_DIR) + "/examples/gpt2-tiny.json",
                     {"--steps", "100000"});
  REQUIRE(window.run().running());
  {
    NextDialog<QMessageBox> dialog(click_button("Cancel"));
    CHECK_FALSE(window.close());
    CHECK(dialog.appeared());
    CHECK(window.isVisible());
    CHECK(window.run().running());
  }
  NextDialog<QMessageBox> dialog(click_button("Stop and quit"));
  CHECK(window.close());
  CHECK(dialog.appeared());
}

TEST_CASE("quitting with an unsaved session asks for confirmation") {
  const WindowFixture fixture;
  gui::Window& window = *fixture.window;
  REQUIRE(window.save_session(fixture.file("s.json")).ok());
  window.session().set_plan_flag("tp", "4");
  {
    NextDialog<QMessageBox> dialog(click_button("Cancel"));
    CHECK_FALSE(window.close());
    CHECK(dialog.appeared());
  }
  NextDialog<QMessageBox> dialog(click_button("Save"));
  CHECK(window.close());
  CHECK(dialog.appeared());
  const WindowFixture again(false);
  CHECK(again.window->open_file(fixture.file("s.json")));
  CHECK(again.window->session().plan()->candidate.plan.tp == 4);
}

TEST_CASE("opening a report asks before an unsaved one is dropped") {
  const WindowFixture fixture(false);
  gui::Window& window = *fixture.window;
  const QString plan = QString(ECHELON_SOURCE_DIR) + "/examples/gpt2-tiny.json";
  window.run().use_program(ECHELON_PLAN);
  window.run().start(plan, {"--steps", "3", "--report", fixture.file("kept.json")});
  REQUIRE(QTest::qWaitFor([&] { return !window.run().running(); }, 60'000));
  REQUIRE(window.run().report());
  window.run().form().field("report")->clear();
  window.run().start(plan, {"--steps", "4"});
  REQUIRE(QTest::qWaitFor([&] { return !window.run().running(); }, 60'000));
  REQUIRE(window.run().report()->steps.size() == 4);
  {
    NextDialog<QMessageBox> dialog(click_button("Cancel"));
    CHECK_FALSE(window.open_file(fixture.file("kept.json")));
    CHECK(dialog.appeared());
    CHECK(window.run().report()->steps.size() == 4);
  }
  NextDialog<QMessageBox> dialog(click_button("Discard"));
  CHECK(window.open_file(fixture.file("kept.json")));
  CHECK(dialog.appeared());
  CHECK(window.run().report()->steps.size() == 3);
}

TEST_CASE("a plan file is written in the background") {
  const WindowFixture fixture(false);
  gui::Window& window = *fixture.window;
  gui::PlanningSession& session = window.session();
  session.reset(long_plan());
  session.cancel_search();
  REQUIRE(session.plan());
  const QString path = fixture.file("plan.json");
  {
    NextDialog<QFileDialog> dialog = choosing(path);
    fixture.press("Export plan file …");
    REQUIRE(dialog.appeared());
  }
  CHECK_FALSE(QFileInfo::exists(path));  // the action returns before the file exists
  CHECK_FALSE(window.action("Export trace …")->isEnabled());
  session.set_plan_flag("microbatch", "2");  // not the plan being written
  CHECK(session.plan()->candidate.plan.microbatch == 2);
  REQUIRE(QTest::qWaitFor([&] { return status_text(window).startsWith("Wrote"); }, 120'000));
  CHECK(window.action("Export trace …")->isEnabled());
  const Result<PlanFile> written = read_plan_file(path.toStdString());
  REQUIRE(written.ok());
  CHECK(written->plan.microbatch == 1);
  CHECK(written->plan.pp == 64);
}

TEST_CASE("writing a file can be cancelled and leaves nothing behind") {
  const WindowFixture fixture(false);
  gui::Window& window = *fixture.window;
  window.session().reset(long_plan());
  window.session().cancel_search();
  const QString path = fixture.file("trace.json");
  REQUIRE(window.export_trace(path).ok());
  CHECK(window.writer().busy());
  CHECK_FALSE(window.export_plan(path).ok());
  {
    NextDialog<QMessageBox> dialog(click_button("Cancel"));
    CHECK_FALSE(window.close());
    CHECK(dialog.appeared());
  }
  fixture.press("Stop");
  CHECK_FALSE(window.writer().busy());
  // The next file waits for the worker thread.
  REQUIRE(window.export_plan(fixture.file("plan.json")).ok());
  REQUIRE(QTest::qWaitFor([&] { return !window.writer().busy(); }, 120'000));
  CHECK(QFileInfo::exists(fixture.file("plan.json")));
  CHECK_FALSE(QFileInfo::exists(path));
}

TEST_CASE("an invalid file is reported with its line") {
  const WindowFixture fixture(false);
  std::ofstream(fixture.file("broken.json").toStdString())
      << "{\n  \"format\": \"echelon-plan\",\n";
  CHECK_FALSE(fixture.window->open_file(fixture.file("broken.json")));
  CHECK(status_text(*fixture.window).contains("line 3"));
}
