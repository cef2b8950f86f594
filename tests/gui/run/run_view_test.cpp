#include "gui/run/run_view.hpp"

#include <signal.h>

#include <QFile>
#include <QPushButton>
#include <QSignalSpy>
#include <QTabWidget>
#include <QTest>
#include <filesystem>

#include "gui/canvas/theme.hpp"
#include "tests/gui/view_test.hpp"
#include "tests/places.hpp"
#include "tests/support/temp_dir.hpp"

using namespace echelon;

namespace {

constexpr int kLongest = 60'000;  ///< milliseconds; a time limit, not a duration

QString tiny_plan() { return QString(ECHELON_SOURCE_DIR) + "/examples/gpt2-tiny.json"; }

/// A run view with the built plan program.
struct Run {
  gui::RunView view;
  QSignalSpy ended;

  Run() : view(nullptr), ended(&view, &gui::RunView::ended) {
    view.use_program(ECHELON_PLAN);
    view.resize(1000, 700);
    view.show();
  }
  [[nodiscard]] bool wait_for_end() { return ended.count() > 0 || ended.wait(kLongest); }
  [[nodiscard]] bool wait_for_steps(int count) {
    return QTest::qWaitFor(
        [&] {
          view.findChild<gui::RunCharts*>()->draw();
          return view.findChild<gui::RunCharts*>()->loss().series().count() >= count;
        },
        kLongest);
  }
  [[nodiscard]] QPushButton* button(const QString& text) {
    for (auto* each : view.findChildren<QPushButton*>()) {
      if (each->text() == text) return each;
    }
    return nullptr;
  }
};

bool runs(qint64 process) { return ::kill(static_cast<pid_t>(process), 0) == 0; }

/// True if some process has this argument.
bool anyone_with(const std::string& word) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    std::ifstream in(entry.path() / "cmdline");
    std::string line;
    std::getline(in, line);
    if (line.find(word) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("a run is followed step by step and ends with measured versus predicted") {
  Run run;
  run.view.start(tiny_plan(), {"--steps", "4"});
  CHECK(run.view.running());
  CHECK_FALSE(run.button("Run")->isEnabled());
  REQUIRE(run.wait_for_end());
  INFO(run.view.status().toStdString());
  REQUIRE(run.view.report());
  CHECK(run.view.report()->steps.size() == 4);
  CHECK(run.view.report()->end == RunReport::End::completed);
  CHECK(run.view.findChild<gui::RunCharts*>()->loss().series().count() == 4);
  CHECK(run.view.findChild<gui::RunCharts*>()->speed().series().at(0).y() > 0);
  CHECK(run.view.findChild<QProgressBar*>()->value() == 4);
  const auto* measured = run.view.findChild<gui::MeasuredView*>();
  CHECK(measured->summary().startsWith("run completed"));
  CHECK(measured->table().topLevelItemCount() == 3);  // time, two stages
  CHECK(measured->table().as_text().contains("compute\t"));
  CHECK(run.view.status() == "Completed.");
  CHECK(run.button("Run")->isEnabled());
  CHECK_FALSE(run.button("Stop")->isEnabled());
  CHECK_FALSE(run.view.grab().isNull());
}

TEST_CASE("a stopped run ends after its step with a checkpoint and a report") {
  const TempDir folder;
  const QString checkpoints = QString::fromStdString((folder.path() / "checkpoints").string());
  Run run;
  run.view.start(tiny_plan(), {"--steps", "100000", "--checkpoint-dir", checkpoints});
  REQUIRE(run.wait_for_steps(2));
  QTest::mouseClick(run.button("Stop"), Qt::LeftButton);
  CHECK(run.button("Stop at once") != nullptr);
  REQUIRE(run.wait_for_end());
  INFO(run.view.status().toStdString());
  REQUIRE(run.view.report());
  CHECK(run.view.report()->end == RunReport::End::interrupted);
  CHECK_FALSE(std::filesystem::is_empty(checkpoints.toStdString()));
  CHECK_FALSE(run.view.running());

  const auto steps = static_cast<int>(run.view.report()->steps.size());
  run.ended.clear();
  run.view.start(tiny_plan(), {"--steps", "2", "--checkpoint-dir", checkpoints, "--resume"});
  REQUIRE(run.wait_for_end());
  REQUIRE(run.view.report());
  CHECK(run.view.report()->steps.front().step == steps);
  CHECK(run.view.findChild<QProgressBar*>()->value() == 2);
}

TEST_CASE("closing the window ends all processes of a run") {
  const TempDir folder;
  const std::string report = (folder.path() / "of-a-closed-window.json").string();
  qint64 process = 0;
  {
    Run run;
    run.view.start(tiny_plan(), {"--steps", "100000", "--report", QString::fromStdString(report)});
    REQUIRE(run.wait_for_steps(1));
    process = run.view.process().process();
    REQUIRE(runs(process));
    REQUIRE(anyone_with("of-a-closed-window"));
  }
  CHECK_FALSE(runs(process));
  CHECK(QTest::qWaitFor([] { return !anyone_with("of-a-closed-window"); }, kLongest));
}

TEST_CASE("an invalid setting is marked at its field with the reason") {
  Run run;
  run.view.start(tiny_plan(), {"--steps", "some"});
  REQUIRE(run.wait_for_end());
  CHECK(run.view.status().contains("'some' is not a number"));
  CHECK_FALSE(run.view.report());
  const QLineEdit* steps = run.view.form().field("steps");
  CHECK(steps->palette().color(QPalette::Text) == gui::error_colour(run.view.palette()));
  CHECK(steps->toolTip().contains("'some'"));
  run.ended.clear();
  run.view.start(tiny_plan(), {"--steps", "1"});
  REQUIRE(run.wait_for_end());
  CHECK(steps->palette().color(QPalette::Text) == run.view.palette().color(QPalette::Text));
}

TEST_CASE("a missing plan and a missing program are reported") {
  Run run;
  run.view.start("/nowhere/plan.json", {});
  REQUIRE(run.wait_for_end());
  CHECK(run.view.status().contains("/nowhere/plan.json"));
  run.ended.clear();
  run.view.use_program("/nowhere/plan");
  run.view.start(tiny_plan(), {});
  REQUIRE(run.wait_for_end());
  CHECK(run.view.status().contains("built and installed next to"));
  CHECK_FALSE(run.view.running());
}

TEST_CASE("only one run is possible at a time") {
  Run run;
  run.view.start(tiny_plan(), {"--steps", "100000"});
  run.view.start(tiny_plan(), {"--steps", "1"});
  CHECK(run.view.status().contains("stop it first"));
  run.view.stop();
  run.view.stop();
  REQUIRE(run.wait_for_end());
}

TEST_CASE("a report from elsewhere is opened, another file rejected with the reason") {
  const TempDir folder;
  const QString report = QString::fromStdString((folder.path() / "r.json").string());
  Run first;
  first.view.start(tiny_plan(), {"--steps", "3", "--report", report});
  REQUIRE(first.wait_for_end());
  REQUIRE(first.view.report());

  Run other;
  other.view.open_report(report);
  REQUIRE(other.view.report());
  CHECK(run_report_to_json(*other.view.report()) == run_report_to_json(*first.view.report()));
  CHECK(other.view.findChild<gui::RunCharts*>()->loss().series().count() == 3);
  other.view.open_report(tiny_plan());
  CHECK(other.view.status().contains("gpt2-tiny.json"));
  CHECK(other.view.status().contains("expected"));
  other.view.open_report("/nowhere/r.json");
  CHECK(other.view.status().contains("/nowhere/r.json"));
}

TEST_CASE("fields of the form become flags, and flags fields") {
  gui::RunForm form;
  form.set_plan("my plan.json");
  const QStringList flags = {"--steps",  "5",         "--data",       "a b.txt",
                             "--resume", "--cluster", "this-machine", "--max-grad-norm",
                             "0.5"};
  form.set_flags(flags);
  CHECK(form.flags() == flags);
  CHECK(form.field("steps")->text() == "5");
  CHECK(form.tick("cluster")->isChecked());
  CHECK(form.resume()->currentText() == "continue from the latest one");
  CHECK(form.command() ==
        "plan run 'my plan.json' --steps 5 --data 'a b.txt' --resume --cluster this-machine "
        "--max-grad-norm 0.5");
  form.field("steps")->clear();
  CHECK_FALSE(form.command().contains("--steps"));
  form.set_flags({"--resume", "auto", "--seed", "2"});
  CHECK(form.resume()->currentText() == "start anew, or continue");
  CHECK(form.command() == "plan run 'my plan.json' --seed 2 --resume auto");
  form.resume()->setCurrentIndex(0);
  CHECK(form.command() == "plan run 'my plan.json' --seed 2");
  form.set_flags({"--resume"});
  CHECK(form.flags() == QStringList{"--resume"});
  for (auto* field : form.findChildren<QLineEdit*>()) {
    CHECK_FALSE(field->toolTip().isEmpty());
    CHECK_FALSE(field->accessibleName().isEmpty());
  }
}

TEST_CASE("a curve keeps a bounded number of points, including the first and the last") {
  gui::CurveView curve("loss", 0, [](double y) { return QString::number(y); });
  for (int step = 0; step < 12345; ++step) curve.add(step, 1.0 / (1 + step));
  curve.draw();
  CHECK(curve.series().count() <= gui::CurveView::kMaxPoints + 1);
  CHECK(curve.series().count() >= gui::CurveView::kMaxPoints / 2);
  CHECK(curve.series().at(0) == QPointF(0, 1));
  CHECK(curve.series().at(curve.series().count() - 1).x() == 12344);
  curve.add(12345, std::nan(""));
  curve.clear();
  CHECK(curve.series().count() == 0);
}

TEST_CASE("before a run the view shows a hint") {
  Run run;
  for (const auto* page : run.view.findChildren<gui::EmptyState*>()) {
    CHECK_FALSE(page->shows_content());
    CHECK(page->message().contains("No run yet"));
  }
  CHECK_FALSE(run.button("Run")->isEnabled());
  run.view.set_plan(tiny_plan());
  CHECK(run.button("Run")->isEnabled());
  CHECK_FALSE(run.view.running());
}

TEST_CASE("a program that ignores signals is killed with its children") {
  gui::RunProcess process(nullptr, 50);
  QSignalSpy lines(&process, &gui::RunProcess::line_received);
  QSignalSpy ended(&process, &gui::RunProcess::ended);
  process.start("/bin/sh", {"-c", "trap '' INT; echo ready; sleep 61.25; echo over"});
  REQUIRE(QTest::qWaitFor([&] { return lines.count() == 1; }, kLongest));
  process.stop();
  process.stop();
  REQUIRE((ended.count() > 0 || ended.wait(kLongest)));
  CHECK(ended[0][0].value<std::optional<int>>() == std::nullopt);
  CHECK(QTest::qWaitFor([] { return !anyone_with("61.25"); }, kLongest));
}

TEST_CASE("lines that are not events are passed on, also the last one without a newline") {
  gui::RunProcess process;
  QStringList lines;
  QStringList event_received;
  QObject::connect(
      &process, &gui::RunProcess::line_received,
      [&](const QString& line, bool complaint) { lines << (complaint ? "! " : "") + line; });
  QObject::connect(&process, &gui::RunProcess::event_received, [&](const RunEvent& event) {
    event_received << QString::fromStdString(event.text);
  });
  QSignalSpy ended(&process, &gui::RunProcess::ended);
  process.start("/bin/sh", {"-c",
                            "echo '{\"event\":\"note\",\"text\":\"a\"}'; echo '{broken'; "
                            "printf plain; echo wrong >&2; exit 3"});
  REQUIRE((ended.count() > 0 || ended.wait(kLongest)));
  lines.sort();
  CHECK(lines == QStringList{"! wrong", "plain", "{broken"});
  CHECK(event_received == QStringList{"a"});
  CHECK(ended[0][0].value<std::optional<int>>() == 3);
}

TEST_CASE("in a narrow window the settings of a run are a tab, in a wide one a panel") {
  Run run;
  auto* tabs = run.view.findChild<QTabWidget*>();
  CHECK(tabs->count() == 2);
  run.view.resize(300, 200);
  CHECK(tabs->count() == 3);
  CHECK(tabs->tabText(0) == "Settings");
  CHECK(run.view.form().isVisible());
  run.view.resize(1000, 700);
  CHECK(tabs->count() == 2);
  CHECK(run.view.form().isVisible());
}
