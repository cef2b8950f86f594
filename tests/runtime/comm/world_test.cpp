#include "runtime/comm/world.hpp"

#include <fmt/format.h>

#include <set>

#include "tests/support/catch.hpp"

namespace echelon {
namespace {

ParallelPlan plan_of(int tp, int dp, int pp, int shard_group) {
  ParallelPlan plan;
  plan.tp = tp;
  plan.dp = dp;
  plan.pp = pp;
  plan.shard_group = shard_group;
  return plan;
}

ModelSpec model_of(int kv_heads, bool tied) {
  ModelSpec model;
  model.kv_heads = kv_heads;
  model.tied_embeddings = tied;
  return model;
}

std::string text_of(GroupRole role, const ParallelPlan& plan, const ModelSpec& model) {
  std::string text;
  for (const Group& group : groups_of(role, plan, model)) {
    text += fmt::format("{{{}}}", fmt::join(group.ranks, ","));
  }
  return text;
}

TEST_CASE("the groups of a plan with all axes") {
  const ParallelPlan plan = plan_of(2, 4, 2, 2);
  const ModelSpec model = model_of(1, true);
  CHECK(text_of(GroupRole::tp, plan, model) == "{0,1}{2,3}{4,5}{6,7}{8,9}{10,11}{12,13}{14,15}");
  CHECK(text_of(GroupRole::kv_replicas, plan, model) == text_of(GroupRole::tp, plan, model));
  CHECK(text_of(GroupRole::dp_reduce, plan, model) == "{0,2,4,6}{1,3,5,7}{8,10,12,14}{9,11,13,15}");
  CHECK(text_of(GroupRole::shard_gather, plan, model) ==
        "{0,2}{1,3}{4,6}{5,7}{8,10}{9,11}{12,14}{13,15}");
  CHECK(text_of(GroupRole::replica_reduce, plan, model) ==
        "{0,4}{1,5}{2,6}{3,7}{8,12}{9,13}{10,14}{11,15}");
  CHECK(text_of(GroupRole::forward, plan, model) ==
        "{0,8}{1,9}{2,10}{3,11}{4,12}{5,13}{6,14}{7,15}");
  CHECK(text_of(GroupRole::tied, plan, model) == text_of(GroupRole::backward, plan, model));
  CHECK(text_of(GroupRole::norm, plan, model) == "{0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15}");
  CHECK(groups_of(GroupRole::dp_reduce, plan, model).front().name == "dp (reduce)");
}

TEST_CASE("ranks that share experts, and those with the same ones") {
  ParallelPlan plan = plan_of(2, 4, 1, 4);
  const ModelSpec model = model_of(8, false);
  const auto text = [&](GroupRole role) { return text_of(role, plan, model); };
  const std::string alone = "{0}{1}{2}{3}{4}{5}{6}{7}";
  for (const GroupRole role : {GroupRole::ep, GroupRole::expert_dp_gather,
                               GroupRole::expert_shard_reduce, GroupRole::expert_replica_reduce}) {
    CHECK(text(role) == alone);
    CHECK_FALSE(is_used(role, plan));
  }
  plan.ep = plan.etp = 2;
  CHECK(text(GroupRole::ep) == "{0,2}{1,3}{4,6}{5,7}");
  CHECK(text(GroupRole::expert_dp_gather) == "{0,4}{1,5}{2,6}{3,7}");
  CHECK(text(GroupRole::expert_replica_reduce) == text(GroupRole::expert_dp_gather));  // ZeRO-0
  CHECK(text(GroupRole::expert_shard_reduce) == alone);
  CHECK(is_used(GroupRole::ep, plan));
  CHECK(is_used(GroupRole::expert_replica_reduce, plan));
  CHECK_FALSE(is_used(GroupRole::expert_shard_gather, plan));
  plan.zero = 1;
  CHECK(text(GroupRole::expert_shard_gather) == text(GroupRole::expert_dp_gather));
  CHECK(text(GroupRole::expert_replica_gather) == alone);
  CHECK(is_used(GroupRole::expert_shard_gather, plan));
  plan.shard_group = 2;  // each of two copies of the states has the experts once
  CHECK(text(GroupRole::expert_shard_reduce) == alone);
  CHECK(text(GroupRole::expert_replica_reduce) == text(GroupRole::expert_dp_gather));
}

TEST_CASE("a rank without peers has groups of one") {
  CHECK(text_of(GroupRole::kv_replicas, plan_of(4, 1, 1, 1), model_of(8, false)) == "{0}{1}{2}{3}");
  CHECK(text_of(GroupRole::kv_replicas, plan_of(4, 1, 1, 1), model_of(2, false)) == "{0,1}{2,3}");
  CHECK(text_of(GroupRole::tied, plan_of(1, 1, 4, 1), model_of(8, true)) == "{0,3}{1}{2}");
  CHECK(text_of(GroupRole::tied, plan_of(1, 1, 4, 1), model_of(8, false)) == "{0}{1}{2}{3}");
  CHECK(text_of(GroupRole::tied, plan_of(1, 2, 1, 1), model_of(8, true)) == "{0}{1}");
  CHECK(text_of(GroupRole::replica_reduce, plan_of(1, 4, 1, 4), model_of(8, true)) ==
        "{0}{1}{2}{3}");
}

TEST_CASE("groups follow the order of ranks and count context-parallel ranks as data") {
  ParallelPlan plan = plan_of(1, 2, 2, 2);
  plan.cp = 2;
  const ModelSpec model = model_of(8, false);
  CHECK(text_of(GroupRole::dp_reduce, plan, model) == "{0,1,2,3}{4,5,6,7}");
  CHECK(text_of(GroupRole::shard_reduce, plan, model) == "{0,1}{2,3}{4,5}{6,7}");
  CHECK(text_of(GroupRole::cp, plan, model) == "{0,1}{2,3}{4,5}{6,7}");
  plan.rank_order = RankOrder::pp_inside_dp;
  CHECK(text_of(GroupRole::dp_reduce, plan, model) == "{0,1,4,5}{2,3,6,7}");
  CHECK(text_of(GroupRole::forward, plan, model) == "{0,2}{1,3}{4,6}{5,7}");
}

TEST_CASE("in every role of every plan each rank has one group") {
  for (const int tp : {1, 2, 4}) {
    for (const int dp : {1, 2, 4}) {
      for (const int pp : {1, 2, 3}) {
        const ParallelPlan plan = plan_of(tp, dp, pp, dp == 4 ? 2 : dp);
        for (int role = 0; role < kGroupRoles; ++role) {
          std::multiset<int> seen;
          for (const Group& group :
               groups_of(static_cast<GroupRole>(role), plan, model_of(2, true))) {
            seen.insert(group.ranks.begin(), group.ranks.end());
          }
          REQUIRE(seen.size() == static_cast<std::size_t>(plan.gpus()));
          REQUIRE(std::set<int>(seen.begin(), seen.end()).size() == seen.size());
        }
      }
    }
  }
}

TEST_CASE("roles that a plan does not use are distinguished from those it does") {
  const auto used = [](int zero, int dp, int shard_group) {
    ParallelPlan plan = plan_of(2, dp, 2, shard_group);
    plan.zero = zero;
    std::string text;
    for (int role = 0; role < kGroupRoles; ++role) {
      const std::string_view name = name_of(static_cast<GroupRole>(role));
      const bool data =
          name.starts_with("dp") || name.starts_with("shard") || name.starts_with("replica");
      if (name == "ep" || name.starts_with("expert")) continue;
      if (!data) CHECK(is_used(static_cast<GroupRole>(role), plan));
      if (data && is_used(static_cast<GroupRole>(role), plan)) text += std::string(name) + ", ";
    }
    return text;
  };
  const std::string shards = "shard (reduce), shard (gather), ";
  CHECK(used(0, 4, 1) == "dp (reduce), ");
  CHECK(used(1, 4, 4) == shards + "replica (reduce), ");
  CHECK(used(3, 4, 2) == "shard (compute), " + shards + "replica (reduce), ");
  CHECK(used(3, 1, 1) == "dp (reduce), shard (compute), " + shards);
}

TEST_CASE("roles of one rank are separate communicators, used concurrently") {
  const ParallelPlan plan = plan_of(1, 2, 2, 2);
  RunThreads run_threads(Seconds{20});
  const auto world = thread_world(run_threads, plan, model_of(8, true));
  REQUIRE(world->ranks() == 4);
  CHECK(world->local_ranks() == std::vector<int>{0, 1, 2, 3});
  std::vector<float> sums(8, 0);
  std::vector<float> passed(4, 0);
  for (const int rank : world->local_ranks()) {
    const auto position = static_cast<std::size_t>(rank);
    run_threads.add("reduce", [&, rank, position] {
      sums[position] = static_cast<float>(rank);
      world->at(rank, GroupRole::dp_reduce)
          .all_reduce(&sums[position], 1, Element::f32, Reduction::sum);
    });
    run_threads.add("gather", [&, rank, position] {
      sums[4 + position] = static_cast<float>(rank);
      world->at(rank, GroupRole::norm)
          .all_reduce(&sums[4 + position], 1, Element::f32, Reduction::sum);
    });
    run_threads.add("forward", [&, rank, position] {
      Communicator& comm = world->at(rank, GroupRole::forward);
      const float own = static_cast<float>(rank);
      comm.rank() == 0 ? comm.send(&own, 1, Element::f32, 1)
                       : comm.receive(&passed[position], 1, Element::f32, 0);
    });
  }
  run_threads.run();
  CHECK(sums == std::vector<float>{1, 1, 5, 5, 6, 6, 6, 6});
  CHECK(passed == std::vector<float>{0, 0, 0, 1});
}

}  // namespace
}  // namespace echelon
