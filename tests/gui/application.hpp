// Qt without a display, once per process.
#pragma once

#include <QApplication>

namespace echelon {

/// Never destroyed: what Qt itself keeps until the end of the process may be gone before it.
inline QApplication& application() {
  static int count = 1;
  static char name[] = "gui_tests";
  static char* words[] = {name, nullptr};
  static QApplication* const instance = [] {
    qputenv("QT_QPA_PLATFORM", "offscreen");
    return new QApplication(count, words);
  }();
  return *instance;
}

}  // namespace echelon
