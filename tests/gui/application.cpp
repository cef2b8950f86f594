// Qt without a display, before any test runs: also one that runs alone.
#include <QApplication>

namespace {

/// Never destroyed: what Qt itself keeps until the end of the process may be gone before it.
[[maybe_unused]] const QApplication* const started = [] {
  static int count = 1;
  static char name[] = "gui_tests";
  static char* words[] = {name, nullptr};
  qputenv("QT_QPA_PLATFORM", "offscreen");
  return new QApplication(count, words);
}();

}  // namespace
