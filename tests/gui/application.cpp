// Starts Qt without a display before any test runs.
#include <QApplication>

namespace {

/// Never destroyed, because Qt's own static objects may be destroyed first.
[[maybe_unused]] const QApplication* const started = [] {
  static int count = 1;
  static char name[] = "gui_tests";
  static char* words[] = {name, nullptr};
  qputenv("QT_QPA_PLATFORM", "offscreen");
  return new QApplication(count, words);
}();

}  // namespace
