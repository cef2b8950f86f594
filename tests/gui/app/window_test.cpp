// The window as a whole: views, files, shortcuts, themes, layout.
#include "gui/app/window.hpp"

#include <QClipboard>
#include <QDialog>
#include <QDropEvent>
#include <QMimeData>
#include <QSettings>
#include <QSignalSpy>
#include <QTest>
#include <QTextCursor>
#include <QTextEdit>
#include <QTimer>
#include <QUrl>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>

#include "core/model/model_io.hpp"
#include "core/plan/plan_file.hpp"
#include "gui/app/screenshots.hpp"
#include "gui/app/session_io.hpp"
#include "gui/views/answer_view.hpp"
#include "gui/views/scaling_view.hpp"
#include "tests/gui/window_test_fixture.hpp"
#include "tests/places.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/process.hpp"
#include "tests/support/text.hpp"

using namespace echelon;
using echelon::test::lacks;

namespace {

/// Waits for the file of export_plan() or export_trace().
void wait_for_file(gui::Window& window) {
  REQUIRE(QTest::qWaitFor([&] { return !window.writer().busy(); }, 60'000));
}

}  // namespace

TEST_CASE("an empty window shows hints and draws every view") {
  const WindowFixture fixture(false);
  for (const auto& view_entry : fixture.window->views()) {
    CAPTURE(view_entry.name.toStdString());
    fixture.window->raise_view(view_entry.name);
    CHECK_FALSE(view_entry.view->grab().isNull());
    CHECK_FALSE(view_entry.view->accessibleName().isEmpty());
  }
}

TEST_CASE("every view shows the plan once it is raised") {
  const WindowFixture fixture;
  for (auto& view_entry : fixture.window->views()) {
    CAPTURE(view_entry.name.toStdString());
    fixture.window->raise_view(view_entry.name);
    REQUIRE(view_entry.view->isVisible());
    CHECK_FALSE(view_entry.stale);
    CHECK_FALSE(view_entry.view->grab().isNull());
  }
}

TEST_CASE("every action has a shortcut or a menu, and no shortcut is used twice") {
  const WindowFixture fixture(false);
  std::set<QString> seen;
  for (const QAction* action : fixture.window->findChildren<QAction*>()) {
    for (const QKeySequence& keys : action->shortcuts()) {
      INFO(keys.toString().toStdString());
      CHECK(seen.insert(keys.toString()).second);
    }
  }
  CHECK(seen.contains("Ctrl+Z"));
  CHECK(seen.contains("?"));
  for (const auto& view_entry : fixture.window->views()) {
    CHECK_FALSE(fixture.window->action(view_entry.name)->shortcut().isEmpty());
  }
}

TEST_CASE("shortcuts trigger their actions: undo, redo, best plan, theme, list of shortcuts") {
  const WindowFixture fixture;
  gui::Window& window = *fixture.window;
  gui::PlanningSession& session = window.session();
  QApplication::setActiveWindow(&window);
  const ParallelPlan best = session.plan()->candidate.plan;
  session.set_plan_flag("tp", "4");
  QTest::keyClick(&window, Qt::Key_Z, Qt::ControlModifier);
  CHECK(session.plan()->candidate.plan == best);
  QTest::keyClick(&window, Qt::Key_Y, Qt::ControlModifier);
  CHECK(session.plan()->candidate.plan.tp == 4);
  QTest::keyClick(&window, Qt::Key_B);
  CHECK(session.plan()->candidate.plan == best);
  const gui::Theme theme = window.theme();
  QTest::keyClick(&window, Qt::Key_T, Qt::ControlModifier);
  CHECK(window.theme() != theme);
  bool listed = false;
  QTimer::singleShot(0, [&] {
    for (QWidget* each : QApplication::topLevelWidgets()) {
      auto* dialog = qobject_cast<QDialog*>(each);
      if (dialog == nullptr || dialog->objectName() != "keys") continue;
      listed = true;
      dialog->close();
    }
  });
  fixture.press("Keyboard shortcuts");
  CHECK(listed);
}

TEST_CASE("a session is saved and opened again") {
  const WindowFixture fixture;
  gui::Window& window = *fixture.window;
  window.session().set_plan_flag("tp", "4");
  window.session().lock("tp", true);
  const gui::Query query = window.session().query();
  REQUIRE(window.save_session(fixture.file("s.json")).ok());
  window.session().set_request_flag("gpus", "16");
  CHECK(window.open_file(fixture.file("s.json")));
  CHECK(window.session().query() == query);
  CHECK(window.session().can_undo());
  CHECK_FALSE(window.save_session("/no/such/folder/s.json").ok());
}

TEST_CASE("a session keeps the pinned plan, of another job too") {
  const WindowFixture fixture;
  gui::Window& window = *fixture.window;
  window.session().set_plan_flag("tp", "4");
  window.pin_plan();
  REQUIRE(window.pinned());
  const Candidate before = window.pinned()->candidate;
  window.session().set_request_flag("gpus", "16");
  fixture.wait_for_search();
  REQUIRE(window.save_session(fixture.file("s.json")).ok());

  gui::Window again;
  CHECK(again.pinned() == nullptr);
  REQUIRE(again.open_file(fixture.file("s.json")));
  REQUIRE(again.pinned());
  CHECK(again.pinned()->candidate.plan == before.plan);
  CHECK(again.pinned()->candidate.prediction.time.step == before.prediction.time.step);
  CHECK(again.pinned()->resolved.request.cluster.gpus() == 8);
  CHECK(again.session().resolved()->request.cluster.gpus() == 16);
  // Another session's plan, then one that can be priced no more.
  REQUIRE(again.save_session(fixture.file("again.json")).ok());
  CHECK(slurp(fixture.file("again.json").toStdString()) ==
        slurp(fixture.file("s.json").toStdString()));
  std::string text = slurp(fixture.file("s.json").toStdString());
  const std::size_t at = text.find("gpt2", text.find("pinned"));
  REQUIRE(at != std::string::npos);
  text.replace(at, 4, "gone");
  std::ofstream(fixture.file("gone.json").toStdString()) << text;
  gui::Window third;
  CHECK(third.open_file(fixture.file("gone.json")));
  CHECK(third.pinned() == nullptr);
}

TEST_CASE("an exported plan file holds the current plan and opens as it") {
  const WindowFixture fixture;
  gui::Window& window = *fixture.window;
  window.session().set_plan_flag("tp", "4");
  const PlanFile before = [&] {
    REQUIRE(window.export_plan(fixture.file("plan.json")).ok());
    wait_for_file(window);
    return read_plan_file(fixture.file("plan.json").toStdString()).value();
  }();
  CHECK(before.plan == window.session().plan()->candidate.plan);
  window.session().follow_best();
  CHECK(window.open_file(fixture.file("plan.json")));
  CHECK(window.session().plan()->candidate.plan == before.plan);
  CHECK(window.session().resolved()->request.model.name == "gpt2");
}

TEST_CASE("a plan file of a model outside the catalog contains its model") {
  const WindowFixture fixture;
  ModelSpec model = load_model("gpt2").value();
  model.name = "mine";
  model.layers = 10;
  std::ofstream(fixture.file("mine.json").toStdString()) << model_to_json(model);
  CHECK(fixture.window->open_file(fixture.file("mine.json")));
  fixture.wait_for_search();
  REQUIRE(fixture.window->export_plan(fixture.file("plan.json")).ok());
  wait_for_file(*fixture.window);
  std::filesystem::remove(fixture.file("mine.json").toStdString());
  CHECK(fixture.window->open_file(fixture.file("plan.json")));
  REQUIRE(fixture.window->session().resolved());
  CHECK(fixture.window->session().resolved()->request.model == model);
}

TEST_CASE("table, trace and images are exported, or the reason is reported") {
  const WindowFixture fixture;
  gui::Window& window = *fixture.window;
  REQUIRE(window.export_table(fixture.file("t.csv")).ok());
  CHECK(lacks(slurp(fixture.file("t.csv").toStdString()), "tp") == "");
  REQUIRE(window.export_trace(fixture.file("trace.json")).ok());
  wait_for_file(window);
  CHECK(lacks(slurp(fixture.file("trace.json").toStdString()), "traceEvents") == "");
  REQUIRE(window.export_view(fixture.file("v.svg")).ok());
  CHECK(lacks(slurp(fixture.file("v.svg").toStdString()), "<svg") == "");
  CHECK_FALSE(window.export_view(fixture.file("v.txt")).ok());
  const WindowFixture empty(false);
  CHECK_FALSE(empty.window->export_plan(fixture.file("none.json")).ok());
  CHECK_FALSE(empty.window->export_trace(fixture.file("none.json")).ok());
  CHECK_FALSE(empty.window->export_table(fixture.file("none.csv")).ok());
}

TEST_CASE("a file dropped on the window is opened according to its kind") {
  const WindowFixture fixture;
  gui::Window& window = *fixture.window;
  std::ofstream(fixture.file("config.json").toStdString())
      << model_to_json(load_model("gpt2-medium").value());
  const auto drop = [&](const QString& path) {
    QMimeData data;
    data.setUrls({QUrl::fromLocalFile(path)});
    QDragEnterEvent enter(QPoint(50, 50), Qt::CopyAction, &data, Qt::LeftButton, Qt::NoModifier);
    QApplication::sendEvent(&window, &enter);
    CHECK(enter.isAccepted());
    QDropEvent event(QPointF(50, 50), Qt::CopyAction, &data, Qt::LeftButton, Qt::NoModifier);
    QApplication::sendEvent(&window, &event);
  };
  drop(fixture.file("config.json"));
  CHECK(window.session().resolved()->request.model.name == "gpt2-medium");
  std::ofstream(fixture.file("other.json").toStdString()) << "{}";
  const gui::Query before = window.session().query();
  drop(fixture.file("other.json"));
  CHECK(window.session().query() == before);
  CHECK_FALSE(window.open_file(fixture.file("absent.json")));
}

TEST_CASE("the copied command reproduces the current plan") {
  const WindowFixture fixture;
  fixture.window->session().set_plan_flag("microbatch", "2");
  fixture.press("Copy plan command");
  const std::string command = QGuiApplication::clipboard()->text().toStdString();
  CHECK(command == fixture.window->session().command_of_plan());
  CHECK(lacks(command, "--microbatch 2") == "");
}

TEST_CASE("a point of the scaling curve opens its plan") {
  const WindowFixture fixture;
  auto* scaling = fixture.window->findChild<gui::ScalingView*>();
  REQUIRE(scaling != nullptr);
  const ParallelPlan plan = fixture.window->session().plan()->candidate.plan;
  Candidate half = fixture.window->session().plan()->candidate;
  half.plan.dp /= 2;
  half.plan.shard_group = half.plan.dp;
  Q_EMIT scaling->chosen(static_cast<int>(plan.gpus() / 2), half);
  CHECK_FALSE(fixture.window->session().plan_error());
  CHECK(fixture.window->session().plan()->candidate.plan.gpus() == plan.gpus() / 2);
}

TEST_CASE("Esc and closing the window stop the scaling curve, too") {
  const WindowFixture fixture;
  auto* scaling = fixture.window->findChild<gui::ScalingView*>();
  for (const bool close : {false, true}) {
    fixture.window->session().set_plan_flag("microbatch", close ? "2" : "1");
    fixture.window->raise_view("Scaling");
    REQUIRE(QTest::qWaitFor([&] { return scaling->searching(); }, 10'000));
    if (close) {
      fixture.window->close();
    } else {
      CHECK(fixture.window->action("Stop")->isEnabled());
      fixture.press("Stop");
    }
    CHECK_FALSE(scaling->searching());
  }
}

TEST_CASE("text answers stay legible when the theme changes") {
  gui::AnswerView view("Answer", "Ask", "Ask");
  view.resize(400, 300);
  view.show();
  view.prepare([](const Progress&) -> Result<gui::AnswerView::Text> {
    return gui::AnswerView::Text{[](const TextStyle&) { return std::string("an answer"); }};
  });
  view.start();
  REQUIRE(QTest::qWaitFor([&] { return view.text() == "an answer"; }, 60'000));
  const auto* page = view.findChild<QTextEdit*>();
  for (const gui::Theme theme : {gui::Theme::dark, gui::Theme::light}) {
    gui::apply_theme(*qApp, theme);
    QCoreApplication::processEvents();
    QTextCursor cursor(page->document());
    cursor.movePosition(QTextCursor::NextCharacter);
    const int ink = cursor.charFormat().foreground().color().lightness();
    const int ground = page->palette().color(QPalette::Base).lightness();
    CHECK(std::abs(ink - ground) > 100);
  }
}

TEST_CASE("an explanation is computed in the background, shown and stopped") {
  const WindowFixture fixture;
  gui::Window& window = *fixture.window;
  window.explain();
  CHECK(window.explanation().busy());
  REQUIRE(QTest::qWaitFor([&] { return !window.explanation().busy(); }, 60'000));
  CHECK(window.explanation().text().contains("One GPU"));
  window.explain();
  window.explanation().cancel();
  CHECK_FALSE(window.explanation().busy());
  window.raise_view("Sensitivity");
  window.sensitivity().start();
  REQUIRE(QTest::qWaitFor([&] { return !window.sensitivity().busy(); }, 60'000));
  CHECK(window.sensitivity().text().contains("memory"));
}

TEST_CASE("layout and theme are restored in the next window") {
  WindowFixture fixture(false);
  fixture.window->set_theme(gui::Theme::dark);
  fixture.window->resize(1111, 777);
  fixture.window->close();
  fixture.window = std::make_unique<gui::Window>();
  CHECK(fixture.window->theme() == gui::Theme::dark);
  CHECK(fixture.window->size() == QSize(1111, 777));
  fixture.window->set_theme(gui::Theme::light);
}

TEST_CASE("screenshots of every view are drawn without a display") {
  const WindowFixture fixture;
  const std::string pictures = fixture.file("pictures").toStdString();
  REQUIRE(gui::save_screenshots(*fixture.window, pictures).ok());
  for (const char* name : {"window-1280x800-light.png", "window-2560x1440-dark.png",
                           "memory-light.png", "timeline-dark.png", "plans-light.png"}) {
    CAPTURE(name);
    CHECK(std::filesystem::file_size(std::filesystem::path(pictures) / name) > 1000);
  }
  std::ofstream(fixture.file("file").toStdString()) << "x";
  CHECK_FALSE(gui::save_screenshots(*fixture.window, fixture.file("file").toStdString()).ok());
}

TEST_CASE("the program reports errors in one line, with an exit code") {
  const TempDir folder;
  const std::string program =
      "env -i PATH=\"$PATH\" HOME=" + folder.path().string() + " " ECHELON_PLAN_GUI " ";
  const auto run = [&](const std::string& arguments) {
    return run_shell(program + arguments, folder.path());
  };
  const ProcessResult blind = run("--model gpt2");
  CHECK(blind.exit_code == 3);
  CHECK(lacks(blind.err, "no display") == "");
  CHECK(std::count(blind.err.begin(), blind.err.end(), '\n') == 1);
  std::ofstream(folder.path() / "none.conf") << "<fontconfig></fontconfig>";
  const ProcessResult mute =
      run_shell("FONTCONFIG_FILE=\"$PWD/none.conf\" QT_QPA_PLATFORM=offscreen " ECHELON_PLAN_GUI
                " --model gpt2 --gpus 8 --screenshot pictures",
                folder.path());
  CHECK(mute.exit_code == 3);
  CHECK(lacks(mute.err, "there are no fonts") == "");
  const ProcessResult misspelt = run("--modle gpt2");
  CHECK(misspelt.exit_code == 2);
  CHECK(lacks(misspelt.err, "did you mean '--model'") == "");
  const ProcessResult wrong = run("--model gpt2 --gpus 13");
  CHECK(wrong.exit_code == 2);
  CHECK(lacks(wrong.err, "--gpus") == "");
  CHECK(run("--json").exit_code == 2);
  CHECK(run("--help").exit_code == 0);
  CHECK(run("--version").out.starts_with("plan-gui "));
  CHECK(run("--screenshot p absent.json").exit_code == 2);
  const ProcessResult drawn = run("--screenshot p --model gpt2-tiny --gpus 2");
  CHECK(drawn.exit_code == 0);
  CHECK(drawn.err.empty());
}
