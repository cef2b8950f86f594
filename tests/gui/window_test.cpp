// The window as a whole: every view hosted, files in and out, keys, themes, layout.
#include "gui/window.hpp"

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
#include "gui/answer_view.hpp"
#include "gui/screenshots.hpp"
#include "gui/session_io.hpp"
#include "tests/gui/opened.hpp"
#include "tests/places.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/process.hpp"
#include "tests/support/text.hpp"

using namespace echelon;
using echelon::test::lacks;

namespace {

/// What export_plan() and export_trace() begin.
void wait_for_file(gui::Window& window) {
  REQUIRE(QTest::qWaitFor([&] { return !window.writer().busy(); }, 60'000));
}

}  // namespace

TEST_CASE("an empty window says what to do and draws every view") {
  const Opened opened(false);
  for (const auto& hosted : opened.window->views()) {
    CAPTURE(hosted.name.toStdString());
    opened.window->raise_view(hosted.name);
    CHECK_FALSE(hosted.view->grab().isNull());
    CHECK_FALSE(hosted.view->accessibleName().isEmpty());
  }
}

TEST_CASE("every view shows the plan once it is raised") {
  const Opened opened;
  for (auto& hosted : opened.window->views()) {
    CAPTURE(hosted.name.toStdString());
    opened.window->raise_view(hosted.name);
    REQUIRE(hosted.view->isVisible());
    CHECK_FALSE(hosted.behind);
    CHECK_FALSE(hosted.view->grab().isNull());
  }
}

TEST_CASE("every action has a key or a place, and no key twice") {
  const Opened opened(false);
  std::set<QString> seen;
  for (const QAction* action : opened.window->findChildren<QAction*>()) {
    for (const QKeySequence& keys : action->shortcuts()) {
      INFO(keys.toString().toStdString());
      CHECK(seen.insert(keys.toString()).second);
    }
  }
  CHECK(seen.contains("Ctrl+Z"));
  CHECK(seen.contains("?"));
  for (const auto& hosted : opened.window->views()) {
    CHECK_FALSE(opened.window->action(hosted.name)->shortcut().isEmpty());
  }
}

TEST_CASE("keys reach their actions: undo, redo, best, colours, the list of keys") {
  const Opened opened;
  gui::Window& window = *opened.window;
  gui::Desk& desk = window.desk();
  QApplication::setActiveWindow(&window);
  const ParallelPlan best = desk.plan()->candidate.plan;
  desk.change("tp", "4");
  QTest::keyClick(&window, Qt::Key_Z, Qt::ControlModifier);
  CHECK(desk.plan()->candidate.plan == best);
  QTest::keyClick(&window, Qt::Key_Y, Qt::ControlModifier);
  CHECK(desk.plan()->candidate.plan.tp == 4);
  QTest::keyClick(&window, Qt::Key_B);
  CHECK(desk.plan()->candidate.plan == best);
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
  opened.press("Keyboard shortcuts");
  CHECK(listed);
}

TEST_CASE("a session is saved and opened again") {
  const Opened opened;
  gui::Window& window = *opened.window;
  window.desk().change("tp", "4");
  window.desk().lock("tp", true);
  const gui::Sheet sheet = window.desk().sheet();
  REQUIRE(window.save_session(opened.file("s.json")).ok());
  window.desk().ask("gpus", "16");
  CHECK(window.open_file(opened.file("s.json")));
  CHECK(window.desk().sheet() == sheet);
  CHECK(window.desk().can_undo());
  CHECK_FALSE(window.save_session("/no/such/folder/s.json").ok());
}

TEST_CASE("a plan file that is exported is the plan, and opens as it") {
  const Opened opened;
  gui::Window& window = *opened.window;
  window.desk().change("tp", "4");
  const PlanFile before = [&] {
    REQUIRE(window.export_plan(opened.file("plan.json")).ok());
    wait_for_file(window);
    return read_plan_file(opened.file("plan.json").toStdString()).value();
  }();
  CHECK(before.plan == window.desk().plan()->candidate.plan);
  window.desk().take_best();
  CHECK(window.open_file(opened.file("plan.json")));
  CHECK(window.desk().plan()->candidate.plan == before.plan);
  CHECK(window.desk().asked()->request.model.name == "gpt2");
}

TEST_CASE("a plan file of a model that no catalog has brings its model along") {
  const Opened opened;
  ModelSpec model = load_model("gpt2").value();
  model.name = "mine";
  model.layers = 10;
  std::ofstream(opened.file("mine.json").toStdString()) << model_to_json(model);
  CHECK(opened.window->open_file(opened.file("mine.json")));
  opened.searched();
  REQUIRE(opened.window->export_plan(opened.file("plan.json")).ok());
  wait_for_file(*opened.window);
  std::filesystem::remove(opened.file("mine.json").toStdString());
  CHECK(opened.window->open_file(opened.file("plan.json")));
  REQUIRE(opened.window->desk().asked());
  CHECK(opened.window->desk().asked()->request.model == model);
}

TEST_CASE("table, trace and pictures are exported, or it is said why not") {
  const Opened opened;
  gui::Window& window = *opened.window;
  REQUIRE(window.export_table(opened.file("t.csv")).ok());
  CHECK(lacks(slurp(opened.file("t.csv").toStdString()), "tp") == "");
  REQUIRE(window.export_trace(opened.file("trace.json")).ok());
  wait_for_file(window);
  CHECK(lacks(slurp(opened.file("trace.json").toStdString()), "traceEvents") == "");
  REQUIRE(window.export_view(opened.file("v.svg")).ok());
  CHECK(lacks(slurp(opened.file("v.svg").toStdString()), "<svg") == "");
  CHECK_FALSE(window.export_view(opened.file("v.txt")).ok());
  const Opened empty(false);
  CHECK_FALSE(empty.window->export_plan(opened.file("none.json")).ok());
  CHECK_FALSE(empty.window->export_trace(opened.file("none.json")).ok());
  CHECK_FALSE(empty.window->export_table(opened.file("none.csv")).ok());
}

TEST_CASE("a file dropped on the window is opened for what it is") {
  const Opened opened;
  gui::Window& window = *opened.window;
  std::ofstream(opened.file("config.json").toStdString())
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
  drop(opened.file("config.json"));
  CHECK(window.desk().asked()->request.model.name == "gpt2-medium");
  std::ofstream(opened.file("other.json").toStdString()) << "{}";
  const gui::Sheet before = window.desk().sheet();
  drop(opened.file("other.json"));
  CHECK(window.desk().sheet() == before);
  CHECK_FALSE(window.open_file(opened.file("absent.json")));
}

TEST_CASE("the command that is copied gives the plan that is shown") {
  const Opened opened;
  opened.window->desk().change("microbatch", "2");
  opened.press("Copy command of the plan");
  const std::string command = QGuiApplication::clipboard()->text().toStdString();
  CHECK(command == opened.window->desk().command_of_plan());
  CHECK(lacks(command, "--microbatch 2") == "");
}

TEST_CASE("answers stay legible when the colours change") {
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

TEST_CASE("an explanation is worked out beside the window, told and stopped") {
  const Opened opened;
  gui::Window& window = *opened.window;
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

TEST_CASE("layout and colours come back in the next window") {
  Opened opened(false);
  opened.window->set_theme(gui::Theme::dark);
  opened.window->resize(1111, 777);
  opened.window->close();
  opened.window = std::make_unique<gui::Window>();
  CHECK(opened.window->theme() == gui::Theme::dark);
  CHECK(opened.window->size() == QSize(1111, 777));
  opened.window->set_theme(gui::Theme::light);
}

TEST_CASE("pictures of every view are drawn without a display") {
  const Opened opened;
  const std::string pictures = opened.file("pictures").toStdString();
  REQUIRE(gui::take_pictures(*opened.window, pictures).ok());
  for (const char* name : {"window-1280x800-light.png", "window-2560x1440-dark.png",
                           "memory-light.png", "timeline-dark.png", "plans-light.png"}) {
    CAPTURE(name);
    CHECK(std::filesystem::file_size(std::filesystem::path(pictures) / name) > 1000);
  }
  std::ofstream(opened.file("file").toStdString()) << "x";
  CHECK_FALSE(gui::take_pictures(*opened.window, opened.file("file").toStdString()).ok());
}

TEST_CASE("the program says in one line what is wrong, with its code") {
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
