#include "gui/canvas/theme.hpp"

#include <QAbstractAxis>
#include <QLegend>
#include <QStyleFactory>
#include <array>

namespace echelon::gui {
namespace {

QPalette light_palette() {
  QPalette p(QColor(0xf3, 0xf4, 0xf6));
  p.setColor(QPalette::Base, QColor(0xff, 0xff, 0xff));
  p.setColor(QPalette::PlaceholderText, QColor(0x63, 0x68, 0x72));
  p.setColor(QPalette::AlternateBase, QColor(0xf7, 0xf8, 0xfa));
  p.setColor(QPalette::Highlight, QColor(0x00, 0x72, 0xb2));
  p.setColor(QPalette::HighlightedText, Qt::white);
  p.setColor(QPalette::Link, QColor(0x00, 0x5a, 0x9c));
  return p;
}

QPalette dark_palette() {
  const QColor text(0xe4, 0xe6, 0xea);
  QPalette p(QColor(0x2b, 0x2e, 0x34), QColor(0x24, 0x26, 0x2b));
  p.setColor(QPalette::Base, QColor(0x1b, 0x1d, 0x21));
  p.setColor(QPalette::AlternateBase, QColor(0x21, 0x24, 0x28));
  for (const auto role : {QPalette::WindowText, QPalette::Text, QPalette::ButtonText,
                          QPalette::ToolTipText, QPalette::BrightText}) {
    p.setColor(role, text);
  }
  p.setColor(QPalette::ToolTipBase, QColor(0x33, 0x36, 0x3d));
  p.setColor(QPalette::PlaceholderText, QColor(0x8b, 0x90, 0x99));
  p.setColor(QPalette::Highlight, QColor(0x22, 0x76, 0xb3));
  p.setColor(QPalette::HighlightedText, Qt::white);
  p.setColor(QPalette::Link, QColor(0x6c, 0xb8, 0xee));
  for (const auto role : {QPalette::WindowText, QPalette::Text, QPalette::ButtonText})
    p.setColor(QPalette::Disabled, role, QColor(0x8d, 0x92, 0x9b));
  return p;
}

}  // namespace

QString theme_name(Theme theme) {
  return theme == Theme::light  ? QStringLiteral("light")
         : theme == Theme::dark ? QStringLiteral("dark")
                                : QStringLiteral("system");
}

void apply_theme(QApplication& application, Theme theme) {
  static const bool system_is_dark = is_dark(QApplication::palette());  // before the first change
  QApplication::setStyle(QStyleFactory::create("Fusion"));
  if (theme == Theme::system) theme = system_is_dark ? Theme::dark : Theme::light;
  application.setPalette(theme == Theme::dark ? dark_palette() : light_palette());
}

bool is_dark(const QPalette& palette) {
  return palette.color(QPalette::Window).lightness() <
         palette.color(QPalette::WindowText).lightness();
}

QColor series_colour(int index) {
  static constexpr std::array<QRgb, 8> kColours = {0x0072b2, 0xe69f00, 0x009e73, 0xcc79a7,
                                                   0x56b4e9, 0xd55e00, 0xb8a900, 0x7f8790};
  const QColor base(kColours[static_cast<std::size_t>(index) % kColours.size()]);
  const int again = index / static_cast<int>(kColours.size());
  return again % 2 == 0 ? base : base.lighter(150);
}

QColor text_on(const QColor& fill) {
  const double luminance =
      0.299 * fill.redF() + 0.587 * fill.greenF() + 0.114 * fill.blueF();  // ITU-R BT.601
  return luminance > 0.55 ? QColor(0x14, 0x16, 0x1a) : QColor(Qt::white);
}

QColor good_colour(const QPalette& palette) {
  return is_dark(palette) ? QColor(0x4c, 0xc9, 0x9a) : QColor(0x00, 0x7a, 0x58);
}
QColor warning_colour(const QPalette& palette) {
  return is_dark(palette) ? QColor(0xf0, 0xb4, 0x3c) : QColor(0x9a, 0x63, 0x00);
}
QColor error_colour(const QPalette& palette) {
  return is_dark(palette) ? QColor(0xff, 0x8a, 0x65) : QColor(0xb5, 0x3a, 0x00);
}

void style_chart(QChart& chart, const QPalette& palette) {
  const QColor text = palette.color(QPalette::WindowText);
  QColor grid = text;
  grid.setAlphaF(0.15F);
  chart.setBackgroundBrush(palette.color(QPalette::Base));
  chart.setBackgroundRoundness(0);
  chart.setTitleBrush(text);
  chart.legend()->setLabelColor(text);
  for (QAbstractAxis* axis : chart.axes()) {
    axis->setLabelsColor(text);
    axis->setTitleBrush(text);
    axis->setLinePenColor(grid);
    axis->setGridLineColor(grid);
  }
}

}  // namespace echelon::gui
