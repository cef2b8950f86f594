// The job panel, the controls of a plan and the summary card.
#include <QSignalSpy>
#include <QTest>

#include "core/plan/job.hpp"
#include "gui/canvas/theme.hpp"
#include "gui/query/job_panel.hpp"
#include "gui/query/plan_controls.hpp"
#include "gui/views/summary_card.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

/// The panels with a small request that is searched.
struct Panels {
  Panels() {
    gui::Query query;
    for (const auto& [flag, value] :
         {std::pair("model", "gpt2"), std::pair("gpus", "8"), std::pair("global-batch", "64")}) {
      query.request.set(flag, {value, std::string("--") + flag});
    }
    session.reset(query);
    job.resize(280, 700);
    controls.resize(300, 700);
    job.show();
    controls.show();
    wait_for_search();
  }
  void wait_for_search() {
    REQUIRE(QTest::qWaitFor([&] { return !session.searching(); }, 60'000));
  }
  gui::PlanControl& control(const char* flag) { return *controls.control(flag); }

  gui::PlanningSession session;
  gui::JobPanel job{session};
  gui::PlanControls controls{session};
};

void type(QLineEdit& entry, const char* text) {
  entry.selectAll();
  QTest::keyClicks(&entry, QString::fromUtf8(text));
}

}  // namespace

TEST_CASE("every flag of a job and of a plan has an entry with help") {
  Panels panels;
  for (const cli::Flag& flag : cli::flags()) {
    CAPTURE(flag.name);
    const std::string name(flag.name);
    if ((flag.groups & cli::kLayout) != 0) {
      REQUIRE(panels.controls.control(name) != nullptr);
    } else if ((flag.groups & (cli::kJob | cli::kSearch)) != 0) {
      const gui::FlagEntry* entry = panels.job.field(name);
      if (name == "global-batch-tokens") continue;  // another unit of the batch size
      REQUIRE(entry != nullptr);
      CHECK(gui::tooltip_of(name).contains(QString::fromStdString("--")));
    }
  }
}

TEST_CASE("a typed value changes the request, and an empty entry shows its default") {
  Panels panels;
  gui::FlagEntry& sequence = *panels.job.field("seq");
  CHECK(sequence.text().isEmpty());
  CHECK(sequence.entry().placeholderText() == "1,024");
  type(sequence.entry(), "512");
  CHECK(panels.session.resolved()->request.job.sequence == 512);
  CHECK(sequence.reason().isEmpty());
  type(sequence.entry(), "5x");
  CHECK(panels.session.request_error());
  QTest::keyClick(&sequence.entry(), Qt::Key_Return);
  CHECK(sequence.reason().contains("5x"));
  CHECK(panels.job.field("gpus")->reason().isEmpty());
  sequence.entry().clear();
  QTest::keyClick(&sequence.entry(), Qt::Key_Backspace);
  type(sequence.entry(), " ");
  CHECK_FALSE(panels.session.request_error());
}

TEST_CASE("the default of flash attention is that of the framework and the GPU") {
  Panels panels;
  gui::FlagEntry& flash = *panels.job.field("flash-attention");
  for (const auto& [cluster, has] : {std::pair("dgx-h100", true), std::pair("dgx-v100", false)}) {
    panels.session.set_request_flag("cluster", cluster);
    REQUIRE(panels.session.resolved());
    CHECK(panels.session.resolved()->request.job.flash_attention == has);
    CHECK(flash.entry().placeholderText() == (has ? "true" : "false"));
  }
}

TEST_CASE("the precisions offered are valid, and searches over states are among them") {
  Panels panels;
  const auto* list = panels.job.field("precision")->findChild<QComboBox*>();
  REQUIRE(list != nullptr);
  for (const char* expected : {"bf16", "fp8", "mxfp8", "nvfp4", "fp64", "bf16:any", "fp8:any"}) {
    CAPTURE(expected);
    CHECK(list->findText(expected) >= 0);
  }
  for (int i = 0; i < list->count(); ++i) {
    CAPTURE(list->itemText(i).toStdString());
    CHECK(list->findText(list->itemText(i)) == i);  // once
    if (!list->itemText(i).endsWith(":any")) {
      CHECK(find_precision(list->itemText(i).toStdString()).ok());
    }
  }
}

TEST_CASE("errors follow a change of the theme") {
  Panels panels;
  type(panels.job.field("gpus")->entry(), "13");
  QTest::keyClick(&panels.job.field("gpus")->entry(), Qt::Key_Return);
  const auto* error = panels.job.field("gpus")->findChild<gui::ErrorLabel*>();
  REQUIRE(error != nullptr);
  for (const gui::Theme theme : {gui::Theme::dark, gui::Theme::light}) {
    gui::apply_theme(*qApp, theme);
    QApplication::processEvents();
    CHECK(error->palette().color(QPalette::WindowText) ==
          gui::error_colour(QApplication::palette()));
  }
}

TEST_CASE("an invalid entry has an error and a visible border") {
  Panels panels;
  gui::FlagEntry& gpus = *panels.job.field("gpus");
  const QImage before = gpus.grab().toImage();
  type(gpus.entry(), "13");
  QTest::keyClick(&gpus.entry(), Qt::Key_Return);
  CHECK(gpus.reason().contains("16"));
  CHECK(gpus.grab().toImage() != before);
  type(gpus.entry(), "8");
  CHECK(gpus.reason().isEmpty());
}

TEST_CASE("a slider moves through legal values and changes the plan") {
  Panels panels;
  gui::PlanControl& tp = panels.control("tp");
  REQUIRE(tp.slider()->stops().size() == 4);
  tp.slider()->setFocus();
  tp.slider()->setValue(0);
  QTest::keyClick(tp.slider(), Qt::Key_Right);
  CHECK(panels.session.plan()->candidate.plan.tp == 2);
  CHECK(tp.entry().text() == "2");
  CHECK(panels.control("dp").entry().text() == "4");
  CHECK(panels.controls.summary().startsWith("Fits"));
}

TEST_CASE("any number can be typed, and an illegal one shows the reason next to it") {
  Panels panels;
  gui::PlanControl& tp = panels.control("tp");
  type(tp.entry(), "5");
  CHECK_FALSE(tp.reason().isEmpty());
  CHECK(panels.controls.summary() == "Invalid configuration");
  CHECK(tp.entry().text() == "5");
  type(tp.entry(), "4");
  CHECK(tp.reason().isEmpty());
  // A violated rule of another flag is shown at the control edited last.
  type(panels.control("microbatch").entry(), "7");
  CHECK_FALSE(panels.control("microbatch").reason().isEmpty());
  CHECK_FALSE(panels.control("microbatch").reason().startsWith("--"));  // it is at its control
}

TEST_CASE("the lock keeps a value, and the Best button loads the winner") {
  Panels panels;
  type(panels.control("tp").entry(), "4");
  QTest::mouseClick(&panels.control("tp").lock(), Qt::LeftButton);
  CHECK(panels.session.query().locked.contains("tp"));
  panels.wait_for_search();
  panels.session.follow_best();
  CHECK(panels.session.plan()->candidate.plan.tp == 4);
  QTest::mouseClick(&panels.control("tp").lock(), Qt::LeftButton);
  panels.wait_for_search();
  CHECK(panels.session.query().locked.empty());
  CHECK(panels.session.plan()->candidate.plan == panels.session.best()->plan);
}

TEST_CASE("the intent of a search is chosen next to its objective") {
  Panels panels;
  gui::FlagEntry* prefer = panels.job.field("prefer");
  REQUIRE(prefer != nullptr);
  CHECK(prefer->entry().placeholderText() == "balanced");
  panels.session.set_request_flag("prefer", "fastest");
  REQUIRE(panels.session.resolved());
  CHECK(panels.session.resolved()->request.preference == Preference::fastest);
  panels.session.set_request_flag("prefer", "safest");
  REQUIRE(panels.session.request_error());
  CHECK(panels.session.request_error()->message().find("robust") != std::string::npos);
}

TEST_CASE("the summary shows the metrics of the plan, and the reason if they are stale") {
  Panels panels;
  gui::SummaryCard card;
  card.resize(700, card.sizeHint().height());
  CHECK_FALSE(card.grab().isNull());  // the empty state
  card.show_plan(panels.session.plan(), panels.session.best(), {});
  REQUIRE(card.metrics().size() == 6);
  const QImage current = card.grab().toImage();
  card.show_plan(panels.session.plan(), panels.session.best(), "stale");
  CHECK(card.grab().toImage() != current);
}
