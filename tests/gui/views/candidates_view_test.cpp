#include "gui/views/candidates_view.hpp"

#include <QAbstractItemModelTester>
#include <QClipboard>
#include <QHeaderView>
#include <QLabel>
#include <QLineEdit>
#include <QSignalSpy>
#include <QTableView>
#include <QTest>
#include <algorithm>

#include "gui/canvas/theme.hpp"
#include "report/format.hpp"
#include "tests/gui/view_test.hpp"
#include "tests/support/temp_dir.hpp"

using namespace echelon;

namespace {

struct Table {
  gui::CandidatesView view;
  QTableView& table;
  QLineEdit& filter;
  std::vector<Candidate> chosen;

  Table() : table(*view.findChild<QTableView*>()), filter(*view.findChild<QLineEdit*>()) {
    view.resize(1000, 500);
    QObject::connect(&view, &gui::CandidatesView::chosen,
                     [this](const Candidate& candidate) { chosen.push_back(candidate); });
    view.show_space(some_space());
    view.show();
  }
  [[nodiscard]] int rows() const { return table.model()->rowCount(); }
  [[nodiscard]] int column(const QString& title) const {
    for (int i = 0; i < table.model()->columnCount(); ++i) {
      if (table.model()->headerData(i, Qt::Horizontal).toString() == title) return i;
    }
    return -1;
  }
  [[nodiscard]] QString cell(int row, const QString& title) const {
    return table.model()->index(row, column(title)).data().toString();
  }
  [[nodiscard]] double value(int row, const QString& title) const {
    return table.model()
        ->index(row, column(title))
        .data(gui::CandidatesModel::kValueRole)
        .toDouble();
  }
  [[nodiscard]] QString count_text() const { return view.findChild<QLabel*>("count")->text(); }
  [[nodiscard]] QLabel& reason() const { return *view.findChild<QLabel*>("reason"); }
};

}  // namespace

TEST_CASE("the table model keeps Qt's rules while spaces change") {
  gui::CandidatesModel model;
  gui::FilteredCandidates shown(model);
  const QAbstractItemModelTester rules(&model,
                                       QAbstractItemModelTester::FailureReportingMode::Fatal);
  const QAbstractItemModelTester more(&shown,
                                      QAbstractItemModelTester::FailureReportingMode::Fatal);
  for (const gui::SpaceResultPtr& space : {some_space(), hopeless_space(), gui::SpaceResultPtr()}) {
    model.show_space(space);
    shown.sort(2, Qt::DescendingOrder);
    model.mark(some_space()->report.candidates[3].plan);
    shown.set_filter(cli::PlanFilter::parse("pp>1", "filter").value());
    shown.set_filter({});
  }
  CHECK(model.rowCount() == 0);
}

TEST_CASE("every plan of a search is a row, the winner first") {
  const Table t;
  CHECK(t.rows() >= static_cast<int>(some_space()->report.candidates.size()));
  CHECK(t.cell(0, "rank").startsWith("1 ★"));
  CHECK(t.cell(0, "slower") == "0.0 %");
  const Candidate& winner = *some_space()->report.winner();
  CHECK(t.value(0, "step") == winner.prediction.time.step.in(kSecond));
  CHECK(t.cell(0, "tp") == QString::number(winner.plan.tp));
  CHECK(t.cell(0, "GPUs") == "16");
}

TEST_CASE("each row tells the probability that the plan fits, and which plan is the fastest") {
  const Table t;
  const Candidate& winner = *some_space()->report.winner();
  CHECK(t.value(0, "fits") == winner.score.fits_probability);
  CHECK(t.cell(0, "fits").toStdString() == probability(*winner.score.fits_probability));
  int fastest = 0;
  for (int row = 0; row < t.rows(); ++row) fastest += t.cell(row, "rank").endsWith("»") ? 1 : 0;
  CHECK(fastest == 1);
  t.filter.setText("fits>=99%");
  CHECK(t.rows() > 0);
  for (int row = 0; row < t.rows(); ++row) CHECK(t.value(row, "fits") >= 0.99);
}

TEST_CASE("a line above the table names the drawbacks of the fastest plan, and loads it") {
  Table t;
  const gui::SpaceResultPtr space =
      search_result({{"model", "13b"}, {"cluster", "dgx-h100"}, {"gpus", "16"}});
  REQUIRE(space->report.fastest);
  const Candidate& fastest = *space->report.fastest;
  t.view.show_space(space);
  QLabel& line = *t.view.findChild<QLabel*>("fastest");
  CHECK(line.isVisibleTo(&t.view));
  CHECK(line.text().contains("likely to fit"));
  Q_EMIT line.linkActivated("#");
  REQUIRE(t.chosen.size() == 1);
  CHECK(t.chosen[0].plan == fastest.plan);
  gui::SpaceResult alone = *space;
  alone.report.fastest.reset();
  t.view.show_space(std::make_shared<const gui::SpaceResult>(alone));
  CHECK_FALSE(line.isVisibleTo(&t.view));
}

TEST_CASE("columns are sorted by value, with unknown values last in both orders") {
  const Table t;
  const int memory = t.column("reserved");
  for (const auto order : {Qt::AscendingOrder, Qt::DescendingOrder}) {
    t.table.sortByColumn(memory, order);
    for (int row = 1; row < t.rows(); ++row) {
      const double before = t.value(row - 1, "reserved");
      const double now = t.value(row, "reserved");
      CHECK((order == Qt::AscendingOrder ? before <= now : before >= now));
    }
    t.table.sortByColumn(t.column("rank"), order);
    const bool unranked = t.rows() > static_cast<int>(some_space()->report.candidates.size());
    CHECK(t.cell(t.rows() - 1, "rank").startsWith("–") == unranked);
  }
}

TEST_CASE("a column header shows the formula of its metric") {
  const Table t;
  const auto tip = [&](const char* title) {
    return t.table.model()
        ->headerData(t.column(title), Qt::Horizontal, Qt::ToolTipRole)
        .toString()
        .toStdString();
  };
  CHECK(tip("MFU").find("model FLOPs / (step") != std::string::npos);
  CHECK(tip("tokens/s").find("global batch") != std::string::npos);
  CHECK(tip("tp").find("tensor-parallel") != std::string::npos);
  for (int column = 0; column < t.table.model()->columnCount(); ++column) {
    INFO(column);
    CHECK_FALSE(
        t.table.model()->headerData(column, Qt::Horizontal, Qt::ToolTipRole).toString().isEmpty());
  }
}

TEST_CASE("degrees that are 1 in all plans are hidden") {
  const Table t;
  CHECK(t.table.isColumnHidden(t.column("ep")));
  CHECK_FALSE(t.table.isColumnHidden(t.column("dp")));
  const QHeaderView& header = *t.table.horizontalHeader();
  CHECK(header.visualIndex(t.column("tp")) < header.visualIndex(t.column("USD/step")));
}

TEST_CASE("the filter keeps matching plans and shows their number") {
  Table t;
  const int all = t.rows();
  QTest::keyClicks(&t.filter, "pp=1 fits");
  CHECK(t.rows() > 0);
  CHECK(t.rows() < all);
  for (int row = 0; row < t.rows(); ++row) CHECK(t.cell(row, "pp") == "1");
  CHECK(t.count_text() == QString("%1 of %2 plans").arg(t.rows()).arg(all));
}

TEST_CASE("an invalid filter is marked with its error, and the last valid one stays") {
  Table t;
  t.filter.setText("pp=1");
  const int kept = t.rows();
  t.filter.setText("pq=1");
  CHECK(t.rows() == kept);
  CHECK(t.reason().isVisible());
  CHECK(t.reason().text().contains("unknown name 'pq'"));
  CHECK(t.filter.palette().color(QPalette::Text) == gui::error_colour(t.view.palette()));
  t.filter.clear();
  CHECK_FALSE(t.reason().isVisible());
  CHECK(t.rows() > kept);
  CHECK(t.filter.palette().color(QPalette::Text) == t.view.palette().color(QPalette::Text));
}

TEST_CASE("a click and the arrow keys choose a plan, marking a plan chooses none") {
  Table t;
  const QRect row = t.table.visualRect(t.table.model()->index(2, t.column("step")));
  QTest::mouseClick(t.table.viewport(), Qt::LeftButton, {}, row.center());
  REQUIRE(t.chosen.size() == 1);
  CHECK(t.chosen.back().plan == some_space()->report.candidates[2].plan);
  QTest::keyClick(&t.table, Qt::Key_Down);
  REQUIRE(t.chosen.size() == 2);
  CHECK(t.chosen.back().plan == some_space()->report.candidates[3].plan);
  t.view.mark(some_space()->report.candidates[5]);
  CHECK(t.chosen.size() == 2);
  CHECK(t.table.currentIndex().row() == 5);
  CHECK(t.table.model()->index(5, 1).data(Qt::FontRole).value<QFont>().bold());
  t.view.show_space(some_space());  // the selection is cleared, no plan is chosen
  t.filter.setText("tp=7");
  CHECK(t.chosen.size() == 2);
}

TEST_CASE("selected rows are copied as tab-separated text") {
  Table t;
  t.table.selectRow(0);
  t.table.setFocus();
  QTest::keyClick(&t.table, Qt::Key_C, Qt::ControlModifier);
  const QStringList lines = QGuiApplication::clipboard()->text().split('\n', Qt::SkipEmptyParts);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].split('\t').contains("reserved"));
  CHECK(lines[0].count('\t') == lines[1].count('\t'));
  CHECK(lines[1].startsWith("1 ★"));
}

TEST_CASE("the filtered plans are saved as CSV in table order") {
  Table t;
  t.filter.setText("pp=1");
  t.table.sortByColumn(t.column("step"), Qt::DescendingOrder);
  const TempDir folder;
  const std::string path = (folder.path() / "plans.csv").string();
  REQUIRE(t.view.save_csv(QString::fromStdString(path)).ok());
  const std::string text = slurp(path);
  CHECK(text == t.view.csv());
  CHECK(std::count(text.begin(), text.end(), '\n') == t.rows() + 1);
  const Status failed = t.view.save_csv("/nowhere/plans.csv");
  REQUIRE_FALSE(failed.ok());
  CHECK(failed.error().message().find("/nowhere") != std::string::npos);
}

TEST_CASE("without plans the table shows a hint") {
  gui::CandidatesView view;
  const auto* page = view.findChild<gui::EmptyState*>();
  CHECK_FALSE(page->shows_content());
  CHECK(page->message().contains("choose a model"));
  view.show_space(hopeless_space());
  CHECK(page->message().contains("Nothing fits"));
  CHECK(view.selected_rows().isEmpty());
}
