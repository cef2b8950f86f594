#include "gui/views/compare_view.hpp"

#include <QClipboard>
#include <QTest>

#include "tests/gui/view_test.hpp"

using namespace echelon;

namespace {

gui::PlanResultPtr with_tp(const char* tp) {
  return priced({{"model", "7b"}, {"cluster", "dgx-h100"}, {"gpus", "16"}, {"tp", tp}});
}

/// The cells of the first row of this name.
QStringList row_of(const gui::CompareView& view, const QString& name) {
  const gui::ComparisonTable& table = view.table();
  for (int i = 0; i < table.topLevelItemCount(); ++i) {
    for (int j = 0; j < table.topLevelItem(i)->childCount(); ++j) {
      const QTreeWidgetItem& item = *table.topLevelItem(i)->child(j);
      if (item.text(0) == name) return {item.text(1), item.text(2), item.text(3)};
    }
  }
  return {};
}

}  // namespace

TEST_CASE("the comparison of two plans shows differences, time, memory and metrics") {
  const gui::PlanResultPtr a = with_tp("2");
  const gui::PlanResultPtr b = with_tp("8");
  gui::CompareView view;
  view.resize(700, 500);
  view.show_pair(a, b);
  CHECK(row_of(view, "tp") == QStringList{"2", "8", ""});
  CHECK(row_of(view, "model").isEmpty());
  const QStringList step = row_of(view, "step");
  REQUIRE(step.size() == 3);
  CHECK(step[0] != step[1]);
  const bool slower = b->candidate.prediction.time.step > a->candidate.prediction.time.step;
  CHECK(step[2].startsWith(slower ? "+" : "-"));
  CHECK(row_of(view, "weights").size() == 3);
  CHECK(row_of(view, "tokens/s").size() == 3);
  CHECK(view.summary().contains(slower ? "A is" : "B is"));
  CHECK_FALSE(view.grab().isNull());
}

TEST_CASE("swapping the plans inverts the signs of all differences") {
  gui::CompareView view;
  view.show_pair(with_tp("2"), with_tp("8"));
  const QString there = row_of(view, "compute")[2];
  view.show_pair(with_tp("8"), with_tp("2"));
  const QString back = row_of(view, "compute")[2];
  CHECK(there.mid(1) == back.mid(1));
  CHECK(there[0] != back[0]);
}

TEST_CASE("a plan compared with itself has no differences") {
  gui::CompareView view;
  const gui::PlanResultPtr a = with_tp("2");
  view.show_pair(a, a);
  CHECK(view.table().topLevelItem(0)->text(0) == "The plans are the same");
  CHECK(view.table().topLevelItem(0)->childCount() == 0);
}

TEST_CASE("the whole comparison is copied as text") {
  gui::CompareView view;
  view.show_pair(with_tp("2"), with_tp("8"));
  auto* table = view.findChild<gui::ComparisonTable*>();
  QTest::keyClick(table, Qt::Key_C, Qt::ControlModifier);
  const QString text = QGuiApplication::clipboard()->text();
  CHECK(text.contains("tp\t2\t8"));
  CHECK(text == view.table().as_text());
}

TEST_CASE("with only one plan the comparison shows a hint") {
  gui::CompareView view;
  const auto* page = view.findChild<gui::EmptyState*>();
  view.show_pair(with_tp("2"), with_tp("8"));
  CHECK(page->shows_content());
  view.show_pair(with_tp("2"), nullptr);
  CHECK_FALSE(page->shows_content());
  CHECK(page->message().contains("Pin"));
}
