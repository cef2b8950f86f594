// Views fit into small windows: nothing is cut off from 300 by 200 up.
#include "gui/candidates_view.hpp"
#include "gui/compare_view.hpp"
#include "gui/rejected_view.hpp"
#include "gui/run_view.hpp"
#include "gui/space_view.hpp"
#include "tests/gui/shown.hpp"

using namespace echelon;

namespace {

void check_small(QWidget& view, const char* name) {
  INFO(name);
  view.show();
  view.resize(300, 200);
  view.grab();
  view.resize(300, 200);  // what it lays out anew may need less
  CHECK(view.minimumSizeHint().width() <= 300);
  CHECK(view.minimumSizeHint().height() <= 200);
  CHECK(view.width() == 300);
  CHECK(view.height() == 200);
}

}  // namespace

TEST_CASE("views of the space and of runs fit into 300 by 200") {
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
  const gui::PlanShown a =
      priced({{"model", "7b"}, {"cluster", "dgx-h100"}, {"gpus", "16"}, {"tp", "2"}});
  compare.show_pair(a, a);
  check_small(compare, "compare");
  gui::RunView run;
  check_small(run, "run");
}
