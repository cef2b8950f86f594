#include "gui/views/rejected_view.hpp"

#include <QSignalSpy>
#include <QTest>

#include "report/format.hpp"
#include "report/text/text.hpp"
#include "tests/gui/view_test.hpp"

using namespace echelon;

TEST_CASE("every outcome of a search is listed with its count and its nearest example") {
  gui::RejectedView view;
  view.resize(800, 500);
  view.show_space(some_space());
  const SearchOutcome& report = some_space()->report;
  CHECK(view.reasons().topLevelItemCount() == static_cast<int>(report.rejected.size()) + 2);
  CHECK(view.reasons().topLevelItem(0)->text(1).toStdString() == grouped(report.counts.fitting));
  CHECK(view.proof().contains("Best of all"));
  double shares = 0;
  for (const RejectionCount& rejected : report.rejected) {
    const QString name = QString::fromStdString(std::string(name_of(rejected.reason)));
    const auto found = view.reasons().findItems(name, Qt::MatchExactly);
    REQUIRE(found.size() == 1);
    CHECK(found[0]->text(1).toStdString() == grouped(rejected.count));
    CHECK(found[0]->text(3).toStdString() == rejected.nearest);
    CHECK_FALSE(found[0]->toolTip(0).isEmpty());
  }
  for (int row = 0; row < view.reasons().topLevelItemCount(); ++row) {
    shares += view.reasons().topLevelItem(row)->text(2).split(' ')[0].toDouble();
  }
  CHECK(std::abs(shares - 100) < 1);  // every combination has one outcome
  CHECK_FALSE(view.grab().isNull());
  view.show_space(
      search_result({{"model", "7b"}, {"cluster", "dgx-h100"}, {"gpus", "16"}, {"pp", "1"}}));
  CHECK(view.proof().contains("Proved best"));
}

TEST_CASE("if nothing fits, the nearest infeasible plans show what would help and can be chosen") {
  gui::RejectedView view;
  view.resize(800, 500);
  view.show_space(hopeless_space());
  const std::vector<NearestInfeasible>& misses = hopeless_space()->report.nearest_infeasible;
  REQUIRE_FALSE(misses.empty());
  REQUIRE(view.misses().topLevelItemCount() == static_cast<int>(misses.size()));
  CHECK(view.proof().contains("Nothing fits"));
  CHECK(view.misses().topLevelItem(0)->text(3).toStdString() == fixes_text(misses[0]));
  std::vector<Candidate> chosen;
  QObject::connect(&view, &gui::RejectedView::chosen,
                   [&](const Candidate& candidate) { chosen.push_back(candidate); });
  auto* list = view.findChild<QTreeWidget*>("misses");
  list->setCurrentItem(list->topLevelItem(0));
  QTest::keyClick(list, Qt::Key_Return);
  REQUIRE(chosen.size() == 1);
  CHECK(chosen[0].plan == misses[0].candidate.plan);
}

TEST_CASE("before a search the rejected view shows a hint") {
  gui::RejectedView view;
  CHECK(view.findChild<gui::EmptyState*>()->message().contains("No search yet"));
  view.show_space(some_space());
  view.show_space(nullptr);
  CHECK_FALSE(view.findChild<gui::EmptyState*>()->shows_content());
}
