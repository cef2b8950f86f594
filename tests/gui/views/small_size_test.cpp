// Views are not clipped in windows of at least 300 x 200.
#include "gui/run/run_view.hpp"
#include "gui/views/candidates_view.hpp"
#include "gui/views/compare_view.hpp"
#include "gui/views/rejected_view.hpp"
#include "gui/views/space_view.hpp"
#include "tests/gui/view_test.hpp"

using namespace echelon;

namespace {

void check_small(QWidget& view, const char* name) {
  INFO(name);
  view.show();
  view.resize(300, 200);
  view.grab();
  view.resize(300, 200);  // a new layout may be smaller
  CHECK(view.minimumSizeHint().width() <= 300);
  CHECK(view.minimumSizeHint().height() <= 200);
  CHECK(view.width() == 300);
  CHECK(view.height() == 200);
}

}  // namespace

TEST_CASE("views of the space and of runs fit into 300 x 200") {
  gui::SpaceView space;
  space.show_space(some_space());
  check_small(space, "space");
  gui::CandidatesView table;
  table.show_space(some_space());
  check_small(table, "table");
  gui::RejectedView rejected;
  rejected.show_space(some_space());
  check_small(rejected, "rejected");
  rejected.show_space(hopeless_space());
  check_small(rejected, "misses");
  gui::CompareView compare;
  const gui::PlanResultPtr a =
      priced({{"model", "7b"}, {"cluster", "dgx-h100"}, {"gpus", "16"}, {"tp", "2"}});
  compare.show_pair(a, a);
  check_small(compare, "compare");
  gui::RunView run;
  check_small(run, "run");
}
