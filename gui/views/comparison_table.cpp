#include "gui/views/comparison_table.hpp"

#include <QClipboard>
#include <QGuiApplication>
#include <QHeaderView>
#include <QKeyEvent>
#include <algorithm>

#include "gui/canvas/bar_delegate.hpp"
#include "gui/canvas/theme.hpp"

namespace echelon::gui {
namespace {

constexpr int kPaintRole = Qt::UserRole + 3;
enum ComparisonColumn { kName, kA, kB, kChange, kColumns };

}  // namespace

ComparisonTable::ComparisonTable(const QString& a, const QString& b, const QString& change,
                                 const QString& name, QWidget* parent)
    : QTreeWidget(parent) {
  setAccessibleName(name);
  setColumnCount(kColumns);
  setHeaderLabels({"", a, b, change});
  for (const int column : {kA, kB, kChange})
    headerItem()->setTextAlignment(column, Qt::AlignRight | Qt::AlignVCenter);
  setItemDelegate(new BarDelegate(this));
  setRootIsDecorated(true);
  setUniformRowHeights(true);
  setSelectionMode(ExtendedSelection);
  setFrameShape(NoFrame);
  header()->setSectionResizeMode(QHeaderView::Interactive);
  header()->setStretchLastSection(true);
  header()->setMinimumSectionSize(40);
  setHorizontalScrollBarPolicy(Qt::ScrollBarAsNeeded);
  setTextElideMode(Qt::ElideRight);
}

void ComparisonTable::add_section(const QString& title, const QString& tip,
                                  const QVector<Row>& rows) {
  auto* section = new QTreeWidgetItem(this, {title});
  QFont bold = font();
  bold.setBold(true);
  section->setFont(kName, bold);
  section->setToolTip(kName, tip);
  section->setFirstColumnSpanned(true);
  for (const Row& row : rows) {
    auto* item = new QTreeWidgetItem(section, {row.name, row.a, row.b, row.change});
    item->setData(kChange, kPaintRole, static_cast<int>(row.paint));
    for (const auto& [column, size, colour] :
         {std::tuple{kA, row.size_a, 0}, std::tuple{kB, row.size_b, 1}}) {
      item->setTextAlignment(column, Qt::AlignRight | Qt::AlignVCenter);
      if (size <= 0) continue;
      item->setData(column, BarDelegate::kShareRole, size);
      item->setData(column, BarDelegate::kColourRole, series_colour(colour));
    }
    item->setTextAlignment(kChange, Qt::AlignRight | Qt::AlignVCenter);
    for (int column = 0; column < kColumns; ++column) {
      item->setToolTip(column, row.tip.isEmpty() ? tip : row.tip);
      if (row.sum) item->setFont(column, bold);
    }
  }
  section->setExpanded(true);
  paint_changes();
  fit_columns();
}

void ComparisonTable::paint_changes() {
  for (int i = 0; i < topLevelItemCount(); ++i) {
    for (int j = 0; j < topLevelItem(i)->childCount(); ++j) {
      QTreeWidgetItem& item = *topLevelItem(i)->child(j);
      QColor colour = palette().color(QPalette::Text);
      switch (static_cast<Paint>(item.data(kChange, kPaintRole).toInt())) {
        case Paint::good: colour = good_colour(palette()); break;
        case Paint::warning: colour = warning_colour(palette()); break;
        case Paint::bad: colour = error_colour(palette()); break;
        case Paint::dim: colour = palette().color(QPalette::PlaceholderText); break;
        default: break;
      }
      item.setForeground(kChange, colour);
    }
  }
}

/// Full names if there is space, the rest shared equally.
void ComparisonTable::fit_columns() {
  const int width = viewport()->width();
  const int name = std::min(std::max(sizeHintForColumn(kName), 90), width * 2 / 5);
  setColumnWidth(kName, name);
  const int rest = (width - name) / (kColumns - 1);
  for (const int column : {kA, kB})
    setColumnWidth(column, std::max(rest, sizeHintForColumn(column) + 4));
}

void ComparisonTable::resizeEvent(QResizeEvent* event) {
  QTreeWidget::resizeEvent(event);
  fit_columns();
}

QString ComparisonTable::as_text() const {
  QString text;
  const auto add = [&](const QTreeWidgetItem& item) {
    QStringList cells;
    for (int column = 0; column < kColumns; ++column) cells << item.text(column);
    while (!cells.isEmpty() && cells.back().isEmpty()) cells.removeLast();
    text += cells.join('\t') + '\n';
  };
  add(*headerItem());
  for (int i = 0; i < topLevelItemCount(); ++i) {
    add(*topLevelItem(i));
    for (int j = 0; j < topLevelItem(i)->childCount(); ++j) add(*topLevelItem(i)->child(j));
  }
  return text;
}

void ComparisonTable::keyPressEvent(QKeyEvent* event) {
  if (event->matches(QKeySequence::Copy)) {
    QGuiApplication::clipboard()->setText(as_text());
    return;
  }
  QTreeWidget::keyPressEvent(event);
}

void ComparisonTable::changeEvent(QEvent* event) {
  QTreeWidget::changeEvent(event);
  if (event->type() == QEvent::PaletteChange) paint_changes();
}

}  // namespace echelon::gui
