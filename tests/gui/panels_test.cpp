// The question, the controls of a plan, the verdict: what a hand does to them.
#include <QSignalSpy>
#include <QTest>

#include "gui/plan_controls.hpp"
#include "gui/question_panel.hpp"
#include "gui/verdict_card.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

/// A small question with its panels, searched.
struct Panels {
  Panels() {
    gui::Sheet sheet;
    for (const auto& [flag, value] :
         {std::pair("model", "gpt2"), std::pair("gpus", "8"), std::pair("global-batch", "64")}) {
      sheet.question.set(flag, {value, std::string("--") + flag});
    }
    desk.open(sheet);
    question.resize(280, 700);
    controls.resize(300, 700);
    question.show();
    controls.show();
    searched();
  }
  void searched() {
    REQUIRE(QTest::qWaitFor([&] { return !desk.searching(); }, 60'000));
  }
  gui::PlanControl& control(const char* flag) { return *controls.control(flag); }

  gui::Desk desk;
  gui::QuestionPanel question{desk};
  gui::PlanControls controls{desk};
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
    const bool later = (flag.groups & cli::kLater) != 0;
    if ((flag.groups & cli::kLayout) != 0 && !later) {
      REQUIRE(panels.controls.control(name) != nullptr);
    } else if ((flag.groups & cli::kJob) != 0 && !later) {
      const gui::FlagEntry* entry = panels.question.field(name);
      if (name == "global-batch-tokens") continue;  // the same in other words
      REQUIRE(entry != nullptr);
      CHECK(gui::tooltip_of(name).contains(QString::fromStdString("--")));
    }
  }
}

TEST_CASE("what is typed is asked, and what is not set shows what holds") {
  Panels panels;
  gui::FlagEntry& sequence = *panels.question.field("seq");
  CHECK(sequence.text().isEmpty());
  CHECK(sequence.entry().placeholderText() == "1,024");
  type(sequence.entry(), "512");
  CHECK(panels.desk.asked()->request.job.sequence == 512);
  CHECK(sequence.reason().isEmpty());
  type(sequence.entry(), "5x");
  CHECK(panels.desk.question_error());
  QTest::keyClick(&sequence.entry(), Qt::Key_Return);
  CHECK(sequence.reason().contains("5x"));
  CHECK(panels.question.field("gpus")->reason().isEmpty());
  sequence.entry().clear();
  QTest::keyClick(&sequence.entry(), Qt::Key_Backspace);
  type(sequence.entry(), " ");
  CHECK_FALSE(panels.desk.question_error());
}

TEST_CASE("a wrong entry is marked in place, with a border one can see") {
  Panels panels;
  gui::FlagEntry& gpus = *panels.question.field("gpus");
  const QImage before = gpus.grab().toImage();
  type(gpus.entry(), "13");
  QTest::keyClick(&gpus.entry(), Qt::Key_Return);
  CHECK(gpus.reason().contains("16"));
  CHECK(gpus.grab().toImage() != before);
  type(gpus.entry(), "8");
  CHECK(gpus.reason().isEmpty());
}

TEST_CASE("a slider moves through legal values and the plan follows") {
  Panels panels;
  gui::PlanControl& tp = panels.control("tp");
  REQUIRE(tp.slider()->stops().size() == 4);
  tp.slider()->setFocus();
  tp.slider()->setValue(0);
  QTest::keyClick(tp.slider(), Qt::Key_Right);
  CHECK(panels.desk.plan()->candidate.plan.tp == 2);
  CHECK(tp.entry().text() == "2");
  CHECK(panels.control("dp").entry().text() == "4");
  CHECK(panels.controls.verdict().startsWith("Fits"));
}

TEST_CASE("any number can be typed, and an illegal one has its reason beside it") {
  Panels panels;
  gui::PlanControl& tp = panels.control("tp");
  type(tp.entry(), "5");
  CHECK_FALSE(tp.reason().isEmpty());
  CHECK(panels.controls.verdict() == "Invalid configuration");
  CHECK(tp.entry().text() == "5");
  type(tp.entry(), "4");
  CHECK(tp.reason().isEmpty());
  // What breaks another flag's rule is told where the hand is.
  type(panels.control("microbatch").entry(), "7");
  CHECK_FALSE(panels.control("microbatch").reason().isEmpty());
}

TEST_CASE("a lock is clicked, and the best button brings the winner back") {
  Panels panels;
  type(panels.control("tp").entry(), "4");
  QTest::mouseClick(&panels.control("tp").lock(), Qt::LeftButton);
  CHECK(panels.desk.sheet().locked.contains("tp"));
  panels.searched();
  panels.desk.take_best();
  CHECK(panels.desk.plan()->candidate.plan.tp == 4);
  QTest::mouseClick(&panels.control("tp").lock(), Qt::LeftButton);
  panels.searched();
  CHECK(panels.desk.sheet().locked.empty());
  CHECK(panels.desk.plan()->candidate.plan == panels.desk.best()->plan);
}

TEST_CASE("the card shows the figures of the plan, and doubt where they are not those asked for") {
  Panels panels;
  gui::VerdictCard card;
  card.resize(700, card.sizeHint().height());
  CHECK_FALSE(card.grab().isNull());  // the empty state
  card.show_plan(panels.desk.plan(), panels.desk.best(), {});
  REQUIRE(card.metrics().size() == 6);
  const QImage sure = card.grab().toImage();
  card.show_plan(panels.desk.plan(), panels.desk.best(), "not what was asked");
  CHECK(card.grab().toImage() != sure);
}
