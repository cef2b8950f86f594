// What the window shows between a question and its answer: nothing that looks like the answer.
#include <QLabel>
#include <QSignalSpy>
#include <QStatusBar>
#include <QThread>
#include <set>

#include "gui/memory_view.hpp"
#include "gui/space_view.hpp"
#include "gui/theme.hpp"
#include "tests/gui/opened.hpp"
#include "tests/gui/shown.hpp"

using namespace echelon;

namespace {

QString status_of(gui::Window& window) { return window.statusBar()->findChild<QLabel*>()->text(); }

/// In the panel of the configuration.
bool panel_says(gui::Window& window, const char* words) {
  for (const QLabel* label : window.controls().findChildren<QLabel*>()) {
    if (label->text().contains(words)) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("a new question dims the figures of the one before, and none of them is green") {
  const Opened opened(asking({{"model", "llama3-70b"}, {"gpus", "8"}}));
  gui::Window& window = *opened.window;
  window.resize(1440, 900);
  window.raise_first_views();
  QCoreApplication::processEvents();
  auto& plans = *window.findChild<gui::SpaceView*>();
  auto& memory = *window.findChild<gui::MemoryView*>();
  const QColor good = gui::good_colour(window.palette());
  const QColor star = gui::series_colour(5);
  const QColor gradients = gui::series_colour(1);
  REQUIRE(window.controls().verdict().startsWith("Fits"));
  REQUIRE(pixels_of(window.card(), good) > 0);
  REQUIRE(pixels_of(plans, star) > 0);
  REQUIRE(pixels_of(memory, gradients) > 0);
  REQUIRE(status_of(window).contains("fit"));
  CHECK(status_of(window).contains("too slow by their bounds, the rest invalid"));

  window.desk().ask("model", "llama3.1-405b");  // the 70b's layout is none of the 405b's
  CHECK_FALSE(window.controls().verdict().startsWith("Fits"));
  CHECK(pixels_of(window.card(), good) == 0);
  CHECK(pixels_of(window.controls(), good) == 0);
  CHECK(pixels_of(plans, star) == 0);
  CHECK(pixels_of(memory, gradients) == 0);
  CHECK_FALSE(status_of(window).contains("fit"));
  CHECK(window.card().accessibleDescription().contains("previous question"));
  CHECK_FALSE(window.action("Copy command of the plan")->isEnabled());

  opened.searched();
  CHECK(window.controls().verdict().startsWith("Does not fit"));
  CHECK(status_of(window).startsWith("Nothing fits"));
  window.desk().undo();
  opened.searched();
  CHECK(window.controls().verdict().startsWith("Fits"));
  CHECK(pixels_of(plans, star) > 0);
  CHECK(pixels_of(memory, gradients) > 0);
}

TEST_CASE("what a search still finds after the question changed is nobody's answer") {
  gui::Desk desk;
  desk.open(asking({{"model", "gpt2"}, {"gpus", "8"}, {"global-batch", "64"}}));
  desk.search_now();
  QThread::msleep(3000);  // it ends meanwhile, and its answer waits to be heard
  int wrong = 0;
  QObject::connect(&desk, &gui::Desk::space_found,
                   [&] { wrong += desk.space()->asked.request.job.sequence != 512; });
  desk.ask("seq", "512");
  REQUIRE(QTest::qWaitFor([&] { return !desk.searching(); }, 60'000));
  CHECK(wrong == 0);
  CHECK(desk.plan()->asked.request.job.sequence == 512);
}

TEST_CASE("while a question is searched, the best plan of the one before is not its best") {
  gui::Desk desk;
  desk.open(asking({{"model", "gpt2"}, {"gpus", "8"}, {"global-batch", "64"}}));
  REQUIRE(QTest::qWaitFor([&] { return !desk.searching(); }, 60'000));
  REQUIRE(desk.best() != nullptr);
  desk.ask("seq", "512");
  desk.search_now();
  CHECK(desk.best() == nullptr);
}

TEST_CASE("a question that was wrong for a moment is searched all the same") {
  gui::Desk desk;
  desk.open(asking({{"model", "gpt2"}, {"gpus", "8"}, {"global-batch", "64"}}));
  desk.search_now();
  desk.ask("gpus", "13");
  desk.ask("gpus", "8");
  REQUIRE(QTest::qWaitFor([&] { return !desk.searching(); }, 60'000));
  CHECK(desk.best() != nullptr);
}

TEST_CASE("the first search of a model says that it searches, with no figures of its own") {
  const Opened opened(false);
  gui::Window& window = *opened.window;
  window.desk().open(asking({{"model", "llama3-70b"}, {"gpus", "256"}}));
  CHECK(window.controls().verdict().startsWith("Searching"));
  CHECK(window.card().metrics().empty());
  CHECK(window.card().accessibleDescription().contains("Searching"));
  CHECK(status_of(window).startsWith("Searching"));
  window.desk().cancel_search();
  CHECK_FALSE(window.card().accessibleDescription().contains("Searching"));
}

TEST_CASE("where nothing fits, nothing goes on searching") {
  const Opened opened(asking({{"model", "70b"}, {"gpus", "4"}}));
  REQUIRE(opened.window->controls().verdict().startsWith("Does not fit"));
  CHECK_FALSE(panel_says(*opened.window, "Searching"));
}

TEST_CASE("a plan that both searches find is one plan: what is drawn of it stays") {
  gui::Desk desk;
  std::set<const gui::ShownPlan*> plans;
  QObject::connect(&desk, &gui::Desk::space_found, [&] { plans.insert(desk.plan().get()); });
  desk.open(asking({{"model", "gpt2"}, {"gpus", "8"}, {"global-batch", "64"}}));
  QSignalSpy found(&desk, &gui::Desk::space_found);
  REQUIRE(QTest::qWaitFor([&] { return !desk.searching(); }, 60'000));
  REQUIRE(found.count() == 2);
  CHECK(plans.size() == 1);
}
