// Qt without a display, once per process.
#pragma once

#include <QApplication>

namespace echelon {

inline QApplication& application() {
  static int count = 1;
  static char name[] = "gui_tests";
  static char* words[] = {name, nullptr};
  static const bool offscreen = qputenv("QT_QPA_PLATFORM", "offscreen");
  static QApplication instance(count, words);
  (void)offscreen;
  return instance;
}

}  // namespace echelon
