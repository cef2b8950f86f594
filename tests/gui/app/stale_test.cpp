// Stale results between a change of the settings and the end of the search.
#include <QLabel>
#include <QSignalSpy>
#include <QStatusBar>
#include <QThread>
#include <set>

#include "gui/canvas/theme.hpp"
#include "gui/views/memory_view.hpp"
#include "gui/views/space_view.hpp"
#include "tests/gui/view_test.hpp"
#include "tests/gui/window_test_fixture.hpp"

using namespace echelon;

namespace {

QString status_of(gui::Window& window) { return window.statusBar()->findChild<QLabel*>()->text(); }

/// Searches the labels of the configuration panel.
bool panel_shows(gui::Window& window, const char* words) {
  for (const QLabel* label : window.controls().findChildren<QLabel*>()) {
    if (label->text().contains(words)) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("new settings dim the results of the previous ones, and none of them is green") {
  const WindowFixture fixture(query_with({{"model", "llama3-70b"}, {"gpus", "8"}}));
  gui::Window& window = *fixture.window;
  window.resize(1440, 900);
  window.raise_first_views();
  QCoreApplication::processEvents();
  auto& plans = *window.findChild<gui::SpaceView*>();
  auto& memory = *window.findChild<gui::MemoryView*>();
  const QColor good = gui::good_colour(window.palette());
  const QColor star = gui::series_colour(5);
  const QColor gradients = gui::series_colour(1);
  REQUIRE(window.controls().summary().startsWith("Fits"));
  REQUIRE(pixels_of(window.card(), good) > 0);
  REQUIRE(pixels_of(plans, star) > 0);
  REQUIRE(pixels_of(memory, gradients) > 0);
  REQUIRE(status_of(window).contains("fit"));
  CHECK(status_of(window).contains("pruned by their bounds, the rest invalid"));

  window.session().set_request_flag("model",
                                    "llama3.1-405b");  // the 70b's layout is invalid for the 405b
  CHECK_FALSE(window.controls().summary().startsWith("Fits"));
  CHECK(pixels_of(window.card(), good) == 0);
  CHECK(pixels_of(window.controls(), good) == 0);
  CHECK(pixels_of(plans, star) == 0);
  CHECK(pixels_of(memory, gradients) == 0);
  CHECK_FALSE(status_of(window).contains("fit"));
  CHECK(window.card().accessibleDescription().contains("previous settings"));
  CHECK_FALSE(window.action("Copy plan command")->isEnabled());

  fixture.wait_for_search();
  CHECK(window.controls().summary().startsWith("Does not fit"));
  CHECK(status_of(window).startsWith("Nothing fits"));
  window.session().undo();
  fixture.wait_for_search();
  CHECK(window.controls().summary().startsWith("Fits"));
  CHECK(pixels_of(plans, star) > 0);
  CHECK(pixels_of(memory, gradients) > 0);
}

TEST_CASE("exporting stale results shows the reason in the status bar") {
  const WindowFixture fixture;
  gui::Window& window = *fixture.window;
  window.session().set_request_flag("gpus", "13");
  REQUIRE(window.session().plan_is_stale());
  for (const char* action : {"Export plan file …", "Export trace …", "Export table …"}) {
    CAPTURE(action);
    window.statusBar()->findChild<QLabel*>()->clear();
    REQUIRE(window.action(action)->isEnabled());
    fixture.press(action);
    CHECK(status_of(window).contains("previous settings"));
  }
  const WindowFixture empty(false);
  empty.press("Export plan file …");
  CHECK(status_of(*empty.window).contains("there is no plan"));
}

TEST_CASE("the result of a search is dropped after the request has changed") {
  gui::PlanningSession session;
  session.reset(query_with({{"model", "gpt2"}, {"gpus", "8"}, {"global-batch", "64"}}));
  session.search_now();
  QThread::msleep(3000);  // it ends meanwhile, with its result queued
  int wrong = 0;
  QObject::connect(&session, &gui::PlanningSession::space_changed,
                   [&] { wrong += session.space()->resolved.request.job.sequence != 512; });
  session.set_request_flag("seq", "512");
  REQUIRE(QTest::qWaitFor([&] { return !session.searching(); }, 60'000));
  CHECK(wrong == 0);
  CHECK(session.plan()->resolved.request.job.sequence == 512);
}

TEST_CASE("during a search the previous best plan is not reported as the best") {
  gui::PlanningSession session;
  session.reset(query_with({{"model", "gpt2"}, {"gpus", "8"}, {"global-batch", "64"}}));
  REQUIRE(QTest::qWaitFor([&] { return !session.searching(); }, 60'000));
  REQUIRE(session.best() != nullptr);
  session.set_request_flag("seq", "512");
  session.search_now();
  CHECK(session.best() == nullptr);
}

TEST_CASE("a request that was invalid for a moment is searched") {
  gui::PlanningSession session;
  session.reset(query_with({{"model", "gpt2"}, {"gpus", "8"}, {"global-batch", "64"}}));
  session.search_now();
  session.set_request_flag("gpus", "13");
  session.set_request_flag("gpus", "8");
  REQUIRE(QTest::qWaitFor([&] { return !session.searching(); }, 60'000));
  CHECK(session.best() != nullptr);
}

TEST_CASE("during the first search of a model the window shows no results") {
  const WindowFixture fixture(false);
  gui::Window& window = *fixture.window;
  window.session().reset(query_with({{"model", "llama3-70b"}, {"gpus", "256"}}));
  CHECK(window.controls().summary().startsWith("Searching"));
  CHECK(window.card().metrics().empty());
  CHECK(window.card().accessibleDescription().contains("Searching"));
  CHECK(status_of(window).startsWith("Searching"));
  window.session().cancel_search();
  CHECK_FALSE(window.card().accessibleDescription().contains("Searching"));
}

TEST_CASE("if nothing fits, the search ends") {
  const WindowFixture fixture(query_with({{"model", "70b"}, {"gpus", "4"}}));
  REQUIRE(fixture.window->controls().summary().startsWith("Does not fit"));
  CHECK_FALSE(panel_shows(*fixture.window, "Searching"));
}

TEST_CASE("a plan that both searches find keeps its object, so views need not restart") {
  gui::PlanningSession session;
  std::set<const gui::PlanResult*> plans;
  QObject::connect(&session, &gui::PlanningSession::space_changed,
                   [&] { plans.insert(session.plan().get()); });
  session.reset(query_with({{"model", "gpt2"}, {"gpus", "8"}, {"global-batch", "64"}}));
  QSignalSpy found(&session, &gui::PlanningSession::space_changed);
  REQUIRE(QTest::qWaitFor([&] { return !session.searching(); }, 60'000));
  REQUIRE(found.count() == 2);
  CHECK(plans.size() == 1);
}
