#include "planner/search/findings.hpp"

#include "tests/planner/requests.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

TEST_CASE("the front keeps what no plan found is both faster and smaller than") {
  StepMemoryFront front;
  CHECK_FALSE(front.dominates(9_s, 99_GiB));
  front.add(2_s, 10_GiB);
  CHECK(front.dominates(2_s, 10_GiB));
  CHECK_FALSE(front.dominates(1_s, 20_GiB));
  CHECK_FALSE(front.dominates(3_s, 9_GiB));
  front.add(3_s, 5_GiB);
  CHECK(front.dominates(3_s, 9_GiB));
  front.add(1_s, 4_GiB);
  CHECK(front.dominates(1_s, 4_GiB));
  CHECK_FALSE(front.dominates(1_s, 3_GiB));
}

TEST_CASE("the closest of the points that do not fit is the example of the rejection") {
  const PlanRequest request = request_for("7b", "dgx-h100", 8);
  const SearchContext context(request);
  Findings found(context);
  SearchPoint point;
  for (const int tp : {1, 2, 4}) {
    point.sharding.tp = tp;
    found.too_large({(5 - tp) * 1_GiB, point});
    found.too_large({9_GiB, point});
  }
  found.reject({RejectionReason::rank_order, "an example"}, 7);
  REQUIRE(found.closest().size() == 3);
  CHECK(found.closest().front().point.sharding.tp == 4);
  CHECK(found.counts().points == 13);
  const std::vector<RejectionCount> rejections = found.rejections();
  REQUIRE(rejections.size() == 2);
  CHECK(rejections[0].count == 7);
  CHECK(rejections[1].reason == RejectionReason::memory);
  CHECK(rejections[1].count == 6);
  CHECK(rejections[1].nearest.find("short by 1.00 GiB") != std::string::npos);
}

TEST_CASE("the closest point is named with all that its memory depends on") {
  const PlanRequest request = request_for("mixtral-8x7b", "dgx-h100", 64);
  const SearchContext context(request);
  const auto named = [&](const SearchPoint& point) {
    Findings found(context);
    found.too_large({1_GiB, point});
    return found.rejections().back().nearest;
  };
  SearchPoint point;
  point.sharding.cp = 2;
  point.dp = 4;
  point.zero = 3;
  point.shard_group = 8;
  point.recompute = Recompute::full;
  CHECK(named(point) ==
        "tp 1 cp 2 pp 1 dp 4 microbatch 1 zero 3, all layers recomputed: short by 1.00 GiB");
  point.shard_group = 4;
  CHECK(named(point).starts_with("tp 1 cp 2 pp 1 dp 4 microbatch 1 zero 3 over 4 ranks, all"));
  point.sharding.ep = 8;
  point.sharding.etp = 2;
  point.pp = 4;
  point.vpp = 3;
  point.offload_optimizer = 0.4;
  point.sharding.overlap_ep = true;  // which full recomputation excludes
  point.recompute = RecomputePolicy{Recompute::selective, RecomputeModules{RecomputeModule::mlp}};
  CHECK(
      named(point).starts_with("tp 1 cp 2 ep 8 etp 2 pp 4 vpp 3 dp 4 microbatch 1 zero 3 over 4 "
                               "ranks, 40 % of the optimizer offloaded, overlap of ep, recompute "
                               "selective:mlp: short by"));
  point.recompute = Recompute::none;
  CHECK(named(point).find("overlap of ep, nothing recomputed: short by") != std::string::npos);
}

TEST_CASE("parts of a space counted one by one keep the first example, as if counted at once") {
  RejectionTally first;
  first.add({RejectionReason::heads_not_divisible, "in the first part"}, 2);
  RejectionTally second;
  second.add({RejectionReason::heads_not_divisible, "in the second part"}, 3);
  second.add({RejectionReason::rank_order, "there alone"});
  first.add(second);
  CHECK(first.points() == 6);
  const std::vector<RejectionCount> all = first.all();
  REQUIRE(all.size() == 2);
  const auto& heads = all[all[0].reason == RejectionReason::heads_not_divisible ? 0 : 1];
  CHECK(heads.count == 5);
  CHECK(heads.nearest == "in the first part");
}
