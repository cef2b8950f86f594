// Every test finds Qt started, also one that runs alone.
#include "tests/gui/application.hpp"

namespace {

[[maybe_unused]] const QApplication& started = echelon::application();

}  // namespace
