#include "core/plan/process_grid.hpp"

#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

ParallelPlan plan_of(int tp, int cp, int dp, int pp) {
  ParallelPlan plan;
  plan.tp = tp;
  plan.cp = cp;
  plan.dp = dp;
  plan.pp = pp;
  return plan;
}

int along(const Coordinates& at, Axis axis) {
  switch (axis) {
    case Axis::tp: return at.tp;
    case Axis::cp: return at.cp;
    case Axis::dp: return at.dp;
    case Axis::pp: return at.pp;
    case Axis::ep:
    case Axis::etp:
    case Axis::expert_dp: break;
  }
  return -1;
}

const std::vector<Axis> kWithCoordinate = {Axis::tp, Axis::cp, Axis::dp, Axis::pp};

}  // namespace

TEST_CASE("rank and coordinates are a bijection in every order") {
  const auto order = GENERATE(as<std::string>{}, "tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp", "pp-dp-cp-tp",
                              "dp-tp-pp-cp-ep");
  const auto degrees = GENERATE(table<int, int, int, int>(
      {{1, 1, 1, 1}, {2, 1, 1, 1}, {2, 3, 1, 5}, {8, 2, 4, 3}, {1, 1, 7, 1}}));
  const ParallelPlan plan = plan_of(std::get<0>(degrees), std::get<1>(degrees),
                                    std::get<2>(degrees), std::get<3>(degrees));
  const ProcessGrid grid = ProcessGrid::with_order(plan, order).value();
  REQUIRE(grid.ranks() == plan.gpus());
  std::set<std::vector<int>> seen;
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    const Coordinates at = grid.coordinates(rank);
    CHECK(grid.rank(at) == rank);
    for (const Axis axis : kWithCoordinate) {
      CHECK(along(at, axis) >= 0);
      CHECK(along(at, axis) < grid.degree(axis));
    }
    seen.insert({at.tp, at.cp, at.dp, at.pp});
  }
  CHECK(static_cast<int>(seen.size()) == grid.ranks());
}

TEST_CASE("tensor-parallel ranks are neighbours and pipeline stages far apart by default") {
  const ProcessGrid grid(plan_of(4, 1, 2, 3));
  CHECK(grid.group(Axis::tp, 5) == std::vector<int>{4, 5, 6, 7});
  CHECK(grid.group(Axis::dp, 5) == std::vector<int>{1, 5});
  CHECK(grid.group(Axis::pp, 5) == std::vector<int>{5, 13, 21});
  CHECK(grid.group(Axis::cp, 5) == std::vector<int>{5});
}

TEST_CASE("the default order is tp-cp-ep-dp-pp") {
  const ParallelPlan plan = plan_of(2, 3, 4, 5);
  const ProcessGrid grid(plan);
  const ProcessGrid spelled = ProcessGrid::with_order(plan, "tp-cp-ep-dp-pp").value();
  for (const Axis axis : kWithCoordinate) CHECK(grid.group(axis) == spelled.group(axis));
}

TEST_CASE("pipeline may be placed inside data parallelism") {
  const ProcessGrid grid = ProcessGrid::with_order(plan_of(2, 1, 2, 2), "tp-cp-ep-pp-dp").value();
  CHECK(grid.group(Axis::pp, 0) == std::vector<int>{0, 2});
  CHECK(grid.group(Axis::dp, 0) == std::vector<int>{0, 4});
}

TEST_CASE("the groups of an axis split the ranks without overlap") {
  const ProcessGrid grid(plan_of(2, 2, 3, 2));
  for (const Axis axis : kWithCoordinate) {
    std::multiset<int> members;
    for (int rank = 0; rank < grid.ranks(); ++rank) {
      const std::vector<int> group = grid.group(axis, rank);
      REQUIRE(static_cast<int>(group.size()) == grid.degree(axis));
      if (group.front() == rank) members.insert(group.begin(), group.end());
      for (std::size_t i = 0; i < group.size(); ++i) {
        CHECK(along(grid.coordinates(group[i]), axis) == static_cast<int>(i));
        CHECK(grid.group(axis, group[i]) == group);
      }
    }
    CHECK(static_cast<int>(members.size()) == grid.ranks());
    CHECK(std::set<int>(members.begin(), members.end()).size() == members.size());
  }
}

TEST_CASE("a rank order that does not name every axis once is refused") {
  const auto order = GENERATE(as<std::string>{}, "", "tp", "tp-cp-ep-dp", "tp-cp-dp-pp-xx",
                              "tp-tp-cp-dp-pp", "tp-cp-ep-ep-dp-pp", "tp,cp,dp,pp", "TP-CP-DP-PP",
                              "tp--cp-dp-pp", "-tp-cp-dp-pp", "tp-cp-dp-pp-");
  INFO("'" << order << "'");
  const Result<ProcessGrid> grid = ProcessGrid::with_order(plan_of(2, 1, 2, 1), order);
  REQUIRE_FALSE(grid.ok());
  CHECK(grid.error().where == "--rank-order");
}

TEST_CASE("a refused rank order names the axis") {
  const auto error = [](const char* order) {
    return ProcessGrid::with_order(plan_of(1, 1, 1, 1), order).error().found;
  };
  CHECK(error("tp-cp-ep-dp") == "no axis 'pp'");
  CHECK(error("tp-cp-xp-dp-pp") == "unknown axis 'xp'");
  CHECK(error("tp-cp-cp-dp-pp") == "axis 'cp' twice");
}

TEST_CASE("expert groups partition the ranks of every stage") {
  ParallelPlan plan = plan_of(2, 1, 8, 2);
  plan.ep = 4;
  plan.etp = 2;
  plan.rank_order = GENERATE(RankOrder::dp_inside_pp, RankOrder::pp_inside_dp);
  const ProcessGrid grid(plan);
  std::set<int> seen;
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    const std::vector<int> group = grid.group(Axis::ep, rank);
    REQUIRE(group.size() == 4);
    CHECK(std::set<int>(group.begin(), group.end()).size() == 4);
    CHECK(std::set<int>(group.begin(), group.end()).contains(rank));
    for (const int member : group) {
      CHECK(grid.group(Axis::ep, member) == group);
      CHECK(grid.coordinates(member).pp == grid.coordinates(rank).pp);
    }
    seen.insert(group.front());
  }
  CHECK(static_cast<int>(seen.size()) == grid.ranks() / 4);
}

TEST_CASE("experts without tensor parallelism go to neighbouring ranks") {
  ParallelPlan plan = plan_of(4, 1, 4, 1);
  plan.ep = 8;
  CHECK(ProcessGrid(plan).group(Axis::ep, 9) == std::vector<int>{8, 9, 10, 11, 12, 13, 14, 15});
  plan.ep = 2;
  plan.etp = 4;
  CHECK(ProcessGrid(plan).group(Axis::ep, 9) == std::vector<int>{9, 13});
}

TEST_CASE("groups in closed form are the groups that lie in every rank's list") {
  // ep·etp fills the replica, or pp is outermost: members are then at equal distances.
  ParallelPlan plan = plan_of(4, 2, 6, 3);
  const auto stretch = [](const std::vector<int>& members) {
    for (std::size_t i = 2; i < members.size(); ++i) {
      CHECK(members[i] - members[i - 1] == members[1] - members[0]);
    }
    const int stride = members.size() > 1 ? members[1] - members[0] : 1;
    return RankGroup{static_cast<int>(members.size()), stride};
  };
  for (const auto& [ep, etp, order] :
       {std::tuple{8, 1, RankOrder::pp_inside_dp}, std::tuple{2, 4, RankOrder::pp_inside_dp},
        std::tuple{1, 8, RankOrder::pp_inside_dp}, std::tuple{8, 1, RankOrder::dp_inside_pp},
        std::tuple{16, 1, RankOrder::dp_inside_pp}, std::tuple{6, 2, RankOrder::dp_inside_pp}}) {
    plan.ep = ep;
    plan.etp = etp;
    plan.rank_order = order;
    const ProcessGrid grid(plan);
    INFO("ep " << ep << " etp " << etp);
    for (const Axis axis : kAxes) {
      INFO(name_of(axis));
      CHECK(grid.evenly_spaced(axis));
      CHECK(grid.group(axis) == stretch(grid.group(axis, 0)));
      CHECK(grid.group(axis).ranks == grid.degree(axis));
    }
    // Those that hold rank 0's experts: no member of its own ep or etp group, all of its stage.
    std::vector<int> same;
    std::set<int> taken;
    for (int rank = 0; rank < grid.ranks(); ++rank) {
      if (grid.coordinates(rank).pp != 0 || taken.contains(rank)) continue;
      same.push_back(rank);
      for (const int beside : grid.group(Axis::etp, rank)) {
        for (const int member : grid.group(Axis::ep, beside)) taken.insert(member);
      }
    }
    CHECK(grid.group(Axis::expert_dp, 0) == same);
    CHECK(static_cast<int>(same.size()) == plan.expert_dp());
  }
}

TEST_CASE("experts that fill several replicas are strided over the stages between those") {
  ParallelPlan plan = plan_of(2, 1, 8, 4);
  plan.ep = 4;
  plan.etp = 2;
  plan.rank_order = RankOrder::pp_inside_dp;
  const ProcessGrid grid(plan);
  CHECK(grid.group(Axis::ep) == RankGroup{4, 8});
  CHECK(grid.group(Axis::ep, 1) == std::vector<int>{1, 9, 17, 25});
  CHECK(grid.group(Axis::etp) == RankGroup{2, 1});
  CHECK(grid.group(Axis::expert_dp) == RankGroup{2, 32});
}

TEST_CASE("data-parallel ranks are cut into shard groups of consecutive members") {
  const RankGroup data = ProcessGrid(plan_of(4, 2, 6, 3)).data_group();
  CHECK(data == RankGroup{12, 4});
  CHECK(data.part(3) == RankGroup{3, 4});
  CHECK(data.across(3) == RankGroup{4, 12});
}

TEST_CASE("the data-parallel ranks of a rank are listed with cp innermost") {
  const ProcessGrid grid(plan_of(2, 2, 3, 2));
  CHECK(grid.data_group(1) == std::vector<int>{1, 3, 5, 7, 9, 11});
  CHECK(grid.data_group(15) == std::vector<int>{13, 15, 17, 19, 21, 23});
  CHECK(grid.world() == RankGroup{24, 1});
}

TEST_CASE("a group at unequal distances is listed and has no stride") {
  // Experts of four neighbours in a stage of replicas of two, the other stages in between.
  ParallelPlan plan = plan_of(2, 1, 4, 2);
  plan.ep = 4;
  plan.rank_order = RankOrder::pp_inside_dp;
  const ProcessGrid grid(plan);
  CHECK(grid.group(Axis::ep, 0) == std::vector<int>{0, 1, 4, 5});
  CHECK_FALSE(grid.evenly_spaced(Axis::ep));
  CHECK(grid.evenly_spaced(Axis::expert_dp));
  CHECK(grid.group(Axis::expert_dp, 0) == std::vector<int>{0, 8});
  CHECK(grid.group(Axis::expert_dp) == RankGroup{2, 8});
}

TEST_CASE("whether a group is evenly spaced is what its members' list shows") {
  int uneven = 0;
  for (const RankOrder order : {RankOrder::dp_inside_pp, RankOrder::pp_inside_dp}) {
    for (const int ep : {1, 2, 3, 4, 6, 12, 24}) {
      for (const int etp : {1, 2, 4}) {
        ParallelPlan plan = plan_of(2, 2, 6, 3);
        if (24 % (ep * etp) != 0) continue;
        plan.ep = ep;
        plan.etp = etp;
        plan.rank_order = order;
        const ProcessGrid grid(plan);
        for (const Axis axis : kAxes) {
          bool even = true;
          for (int rank = 0; rank < grid.ranks(); ++rank) {
            const std::vector<int> members = grid.group(axis, rank);
            for (std::size_t i = 2; i < members.size(); ++i) {
              even = even && members[i] - members[i - 1] == members[1] - members[0];
            }
          }
          INFO(name_of(axis) << " ep " << ep << " etp " << etp << " " << name_of(order));
          // Groups of two are even by themselves, but not all as far apart.
          if (grid.degree(axis) > 2) CHECK(grid.evenly_spaced(axis) == even);
          uneven += grid.evenly_spaced(axis) ? 0 : 1;
        }
      }
    }
  }
  CHECK(uneven > 5);
}
