#include "gui/memory_view.hpp"
#include "tests/gui/application.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

TEST_CASE("an empty view of memory is drawn") {
  application();
  gui::MemoryView view;
  view.resize(400, 300);
  CHECK_FALSE(view.grab().isNull());
}
