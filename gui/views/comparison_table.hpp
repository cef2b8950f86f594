// Table of two columns of values in sections: plan versus plan, or measured versus predicted. Bars
// show the sizes; rows can be copied as text.
#pragma once

#include <QString>
#include <QTreeWidget>
#include <QVector>
#include <optional>

#include "report/plan_diff.hpp"
#include "report/terminal_style.hpp"

namespace echelon::gui {

class ComparisonTable : public QTreeWidget {
  Q_OBJECT

 public:
  /// Titles of the two columns and of their difference.
  ComparisonTable(const QString& a, const QString& b, const QString& change, const QString& name,
                  QWidget* parent = nullptr);

  struct Row {
    QString name;
    QString a;
    QString b;
    QString change;
    Paint paint = Paint::plain;  ///< colour of the change
    double size_a = 0;           ///< 1 fills the cell
    double size_b = 0;
    bool sum = false;  ///< shown in bold
    QString tip;
  };
  void add_section(const QString& title, const QString& tip, const QVector<Row>& rows);
  /// All rows as tab-separated text.
  [[nodiscard]] QString as_text() const;

 protected:
  void keyPressEvent(QKeyEvent* event) override;
  void changeEvent(QEvent* event) override;
  void resizeEvent(QResizeEvent* event) override;

 private:
  void paint_changes();
  void fit_columns();
};

}  // namespace echelon::gui
