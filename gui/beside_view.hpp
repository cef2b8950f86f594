// Values of two sides beside each other, in sections: a plan and another, a measurement and its
// prediction. Bars show their sizes; rows are copied as text.
#pragma once

#include <QString>
#include <QTreeWidget>
#include <QVector>
#include <optional>

#include "report/plan_diff.hpp"
#include "report/terminal_style.hpp"

namespace echelon::gui {

class BesideView : public QTreeWidget {
  Q_OBJECT

 public:
  /// What stands over the two sides and over what tells them apart.
  BesideView(const QString& a, const QString& b, const QString& change, const QString& name,
             QWidget* parent = nullptr);

  struct Row {
    QString name;
    QString a;
    QString b;
    QString change;
    Paint paint = Paint::plain;  ///< of the change
    double size_a = 0;           ///< 1 fills the cell
    double size_b = 0;
    bool sum = false;  ///< told in bold
    QString tip;
  };
  void add_section(const QString& title, const QString& tip, const QVector<Row>& rows);
  /// All rows, with tabs between the cells.
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
