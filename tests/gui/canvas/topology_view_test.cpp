#include "gui/canvas/topology_view.hpp"

#include <QSignalSpy>
#include <QTest>
#include <QWheelEvent>
#include <algorithm>
#include <numeric>

#include "tests/gui/plan_results.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

/// tp 2, pp 4, dp 4 on four nodes of eight, 900 x 600.
struct ShownTopology {
  ShownTopology() {
    view.resize(900, 600);
    view.show_plan(small_plan());
    view.show();
  }
  void hover(int rank) { QTest::mouseMove(&view, view.box_of(rank).center().toPoint()); }
  gui::TopologyView view;
};

const gui::SceneLink& link_of(const gui::TopologyScene& scene, gui::SceneLink::Kind kind) {
  const auto found = std::ranges::find(scene.links, kind, &gui::SceneLink::kind);
  REQUIRE(found != scene.links.end());
  return *found;
}

}  // namespace

TEST_CASE("an empty topology shows a hint") {
  gui::TopologyView view;
  view.resize(300, 200);
  CHECK_FALSE(view.grab().isNull());
  CHECK(view.tooltip_at({150, 100}).isEmpty());
  CHECK(view.highlighted_ranks().empty());
  QTest::keyClick(&view, Qt::Key_D);
  QTest::keyClick(&view, Qt::Key_W);
}

TEST_CASE("every rank of a small cluster is drawn once, visible and without overlap") {
  ShownTopology shown;
  const gui::TopologyScene& scene = shown.view.scene();
  CHECK(scene.nodes == 4);
  CHECK(scene.more_nodes == 0);
  REQUIRE(scene.gpus.size() == 32);
  for (std::size_t i = 0; i < scene.gpus.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      CHECK_FALSE(scene.gpus[i].box.intersects(scene.gpus[j].box));
    }
    CHECK(QRectF(shown.view.rect()).contains(shown.view.box_of(scene.gpus[i].rank)));
    CHECK(scene.gpus[i].node == scene.gpus[i].rank / 8);
  }
}

TEST_CASE("keys select the axis of the colours, and hovering highlights a group") {
  ShownTopology shown;
  QSignalSpy changed(&shown.view, &gui::TopologyView::axis_changed);
  shown.hover(5);
  CHECK(shown.view.highlighted_ranks() == std::vector<int>{4, 5});
  QTest::keyClick(&shown.view, Qt::Key_D);
  CHECK(shown.view.highlighted_ranks() == std::vector<int>{1, 3, 5, 7});
  QTest::keyClick(&shown.view, Qt::Key_P);
  CHECK(shown.view.highlighted_ranks() == std::vector<int>{5, 13, 21, 29});
  QTest::keyClick(&shown.view, Qt::Key_E);
  CHECK(shown.view.highlighted_ranks() == std::vector<int>{5});
  QTest::keyClick(&shown.view, Qt::Key_C);
  QTest::keyClick(&shown.view, Qt::Key_T);
  CHECK(shown.view.axis() == Axis::tp);
  CHECK(changed.count() == 5);
  CHECK(shown.view.tooltip_at(shown.view.box_of(5).center()).contains("rank 5 on node 0"));
}

TEST_CASE("a click keeps a rank highlighted") {
  ShownTopology shown;
  QTest::mouseClick(&shown.view, Qt::LeftButton, {}, shown.view.box_of(20).center().toPoint());
  QTest::mouseMove(&shown.view, QPoint(2, 2));
  CHECK(shown.view.highlighted_ranks() == std::vector<int>{20, 21});
  QTest::keyClick(&shown.view, Qt::Key_Period);
  QTest::keyClick(&shown.view, Qt::Key_Period);
  CHECK(shown.view.highlighted_ranks() == std::vector<int>{22, 23});
  QTest::keyClick(&shown.view, Qt::Key_Comma);
  CHECK(shown.view.highlighted_ranks() == std::vector<int>{20, 21});
}

TEST_CASE("the tooltip of a link shows its traffic") {
  ShownTopology shown;
  const gui::TopologyScene& scene = shown.view.scene();
  const QString inside =
      shown.view.tooltip_at(shown.view.place_of(link_of(scene, gui::SceneLink::Kind::gpu)));
  CHECK(inside.contains("GB/s per direction"));
  CHECK(inside.contains("tp: "));
  const QString outside = shown.view.tooltip_at(
      shown.view.place_of(link_of(scene, gui::SceneLink::Kind::node_network)));
  CHECK(outside.contains("network card"));
  CHECK(outside.contains("pp: "));
  CHECK(outside.contains("of the step"));
  CHECK_FALSE(outside.contains("tp: "));  // never leaves its node
}

TEST_CASE("keys and the wheel zoom, dragging pans, F fits the topology") {
  ShownTopology shown;
  const double fitting = shown.view.scale();
  QTest::keyClick(&shown.view, Qt::Key_W);
  CHECK(shown.view.scale() == Approx(fitting / 0.8));
  const QPointF at = shown.view.box_of(9).center();
  QWheelEvent wheel(at, shown.view.mapToGlobal(at), {}, {0, 120}, Qt::NoButton, Qt::ControlModifier,
                    Qt::NoScrollPhase, false);
  QApplication::sendEvent(&shown.view, &wheel);
  CHECK(shown.view.scale() == Approx(fitting / 0.64));
  CHECK(shown.view.box_of(9).center().x() == Approx(at.x()));
  const QPoint from = at.toPoint();
  const QPointF before = shown.view.box_of(9).center();
  QTest::mousePress(&shown.view, Qt::LeftButton, {}, from);
  QTest::mouseMove(&shown.view, from + QPoint(30, 20));
  QTest::mouseRelease(&shown.view, Qt::LeftButton, {}, from + QPoint(30, 20));
  CHECK(shown.view.box_of(9).center().x() == Approx(before.x() + 30));
  QTest::keyClick(&shown.view, Qt::Key_F);
  CHECK(shown.view.scale() == Approx(fitting));
}

TEST_CASE("of a large cluster the nodes of the groups are drawn and the others counted") {
  gui::TopologyView view;
  view.resize(900, 700);
  view.show_plan(plan_result({{"model", "llama2-7b"},
                              {"gpus", "4096"},
                              {"global-batch", "4096"},
                              {"tp", "8"},
                              {"pp", "4"}}));
  const gui::TopologyScene& scene = view.scene();
  CHECK(scene.nodes + scene.more_nodes == 512);
  CHECK(scene.nodes <= 32);
  view.colour_by(Axis::pp);
  for (const int rank : view.highlighted_ranks()) CHECK(scene.gpu_of(rank) != nullptr);
  view.colour_by(Axis::dp);  // 128 members on 128 nodes, more than are drawn
  const auto members = std::ranges::count_if(
      view.highlighted_ranks(), [&](int rank) { return scene.gpu_of(rank) != nullptr; });
  CHECK(members == scene.nodes);
  CHECK_FALSE(view.grab().isNull());
}

TEST_CASE("NVLink domains of several nodes and machines without network cards are drawn") {
  gui::TopologyView view;
  view.resize(900, 700);
  view.show_plan(plan_result({{"model", "llama2-7b"},
                              {"cluster", "gb200-nvl72"},
                              {"gpus", "72"},
                              {"global-batch", "144"},
                              {"tp", "4"}}));
  const gui::TopologyScene& rack = view.scene();
  CHECK(rack.nodes == 18);
  (void)link_of(rack, gui::SceneLink::Kind::nvlink);
  CHECK_FALSE(view.grab().isNull());
  view.show_plan(plan_result(
      {{"model", "gpt2"}, {"cluster", "rtx-4090"}, {"gpus", "1"}, {"global-batch", "4"}}));
  CHECK(view.scene().gpus.size() == 1);
  CHECK_FALSE(view.grab().isNull());
}

TEST_CASE("racks that a job uses in part are drawn with the nodes in use") {
  const ClusterTopology cluster = ClusterTopology::load("gb200-nvl72", 128).value();
  std::vector<int> nodes(32);
  std::iota(nodes.begin(), nodes.end(), 0);
  const gui::TopologyScene scene = gui::scene_of(cluster, nodes);
  const auto is_rack = [](const gui::SceneBox& box) {
    return box.kind == gui::SceneBox::Kind::nvlink_tier;
  };
  CHECK(std::ranges::count_if(scene.boxes, is_rack) == 2);  // 16 of 18 nodes in each
}
