#include "runtime/world.hpp"

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

std::string text_of(Line line, const ParallelPlan& plan, const ModelSpec& model) {
  std::string text;
  for (const Group& group : groups_of(line, plan, model)) {
    text += fmt::format("{{{}}}", fmt::join(group.ranks, ","));
  }
  return text;
}

TEST_CASE("the groups of a plan with all axes") {
  const ParallelPlan plan = plan_of(2, 4, 2, 2);
  const ModelSpec model = model_of(1, true);
  CHECK(text_of(Line::tp, plan, model) == "{0,1}{2,3}{4,5}{6,7}{8,9}{10,11}{12,13}{14,15}");
  CHECK(text_of(Line::kv_replicas, plan, model) == text_of(Line::tp, plan, model));
  CHECK(text_of(Line::dp_reduce, plan, model) == "{0,2,4,6}{1,3,5,7}{8,10,12,14}{9,11,13,15}");
  CHECK(text_of(Line::shard_gather, plan, model) ==
        "{0,2}{1,3}{4,6}{5,7}{8,10}{9,11}{12,14}{13,15}");
  CHECK(text_of(Line::replica_reduce, plan, model) ==
        "{0,4}{1,5}{2,6}{3,7}{8,12}{9,13}{10,14}{11,15}");
  CHECK(text_of(Line::forward, plan, model) == "{0,8}{1,9}{2,10}{3,11}{4,12}{5,13}{6,14}{7,15}");
  CHECK(text_of(Line::tied, plan, model) == text_of(Line::backward, plan, model));
  CHECK(text_of(Line::norm, plan, model) == "{0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15}");
  CHECK(groups_of(Line::dp_reduce, plan, model).front().name == "dp (reduce)");
}

TEST_CASE("who talks to nobody is alone") {
  CHECK(text_of(Line::kv_replicas, plan_of(4, 1, 1, 1), model_of(8, false)) == "{0}{1}{2}{3}");
  CHECK(text_of(Line::kv_replicas, plan_of(4, 1, 1, 1), model_of(2, false)) == "{0,1}{2,3}");
  CHECK(text_of(Line::tied, plan_of(1, 1, 4, 1), model_of(8, true)) == "{0,3}{1}{2}");
  CHECK(text_of(Line::tied, plan_of(1, 1, 4, 1), model_of(8, false)) == "{0}{1}{2}{3}");
  CHECK(text_of(Line::tied, plan_of(1, 2, 1, 1), model_of(8, true)) == "{0}{1}");
  CHECK(text_of(Line::replica_reduce, plan_of(1, 4, 1, 4), model_of(8, true)) == "{0}{1}{2}{3}");
}

TEST_CASE("groups follow the order of ranks and count context-parallel ranks as data") {
  ParallelPlan plan = plan_of(1, 2, 2, 2);
  plan.cp = 2;
  const ModelSpec model = model_of(8, false);
  CHECK(text_of(Line::dp_reduce, plan, model) == "{0,1,2,3}{4,5,6,7}");
  CHECK(text_of(Line::shard_reduce, plan, model) == "{0,1}{2,3}{4,5}{6,7}");
  plan.rank_order = RankOrder::pp_inside_dp;
  CHECK(text_of(Line::dp_reduce, plan, model) == "{0,1,4,5}{2,3,6,7}");
  CHECK(text_of(Line::forward, plan, model) == "{0,2}{1,3}{4,6}{5,7}");
}

TEST_CASE("in every line of every plan each rank has one group") {
  for (const int tp : {1, 2, 4}) {
    for (const int dp : {1, 2, 4}) {
      for (const int pp : {1, 2, 3}) {
        const ParallelPlan plan = plan_of(tp, dp, pp, dp == 4 ? 2 : dp);
        for (int line = 0; line < kLines; ++line) {
          std::multiset<int> seen;
          for (const Group& group : groups_of(static_cast<Line>(line), plan, model_of(2, true))) {
            seen.insert(group.ranks.begin(), group.ranks.end());
          }
          REQUIRE(seen.size() == static_cast<std::size_t>(plan.gpus()));
          REQUIRE(std::set<int>(seen.begin(), seen.end()).size() == seen.size());
        }
      }
    }
  }
}

TEST_CASE("lines that a plan does not use are told from those it does") {
  const auto used = [](int zero, int dp, int shard_group) {
    ParallelPlan plan = plan_of(2, dp, 2, shard_group);
    plan.zero = zero;
    std::string text;
    for (int line = 0; line < kLines; ++line) {
      const std::string_view name = name_of(static_cast<Line>(line));
      const bool data =
          name.starts_with("dp") || name.starts_with("shard") || name.starts_with("replica");
      if (!data) CHECK(is_used(static_cast<Line>(line), plan));
      if (data && is_used(static_cast<Line>(line), plan)) text += std::string(name) + ", ";
    }
    return text;
  };
  const std::string shards = "shard (compute), shard (reduce), shard (gather), ";
  CHECK(used(0, 4, 1) == "dp (reduce), ");
  CHECK(used(1, 4, 4) == shards + "replica (reduce), ");
  CHECK(used(3, 4, 2) == shards + "replica (reduce), ");
  CHECK(used(3, 1, 1) == "dp (reduce), " + shards);
}

TEST_CASE("lines of one rank are communicators of their own, used side by side") {
  const ParallelPlan plan = plan_of(1, 2, 2, 2);
  Crew crew(Seconds{20});
  const auto world = thread_world(crew, plan, model_of(8, true));
  REQUIRE(world->ranks() == 4);
  CHECK(world->local_ranks() == std::vector<int>{0, 1, 2, 3});
  std::vector<float> sums(8, 0);
  std::vector<float> passed(4, 0);
  for (const int rank : world->local_ranks()) {
    const auto slot = static_cast<std::size_t>(rank);
    crew.add("reduce", [&, rank, slot] {
      sums[slot] = static_cast<float>(rank);
      world->at(rank, Line::dp_reduce).all_reduce(&sums[slot], 1, Element::f32, Reduction::sum);
    });
    crew.add("gather", [&, rank, slot] {
      sums[4 + slot] = static_cast<float>(rank);
      world->at(rank, Line::norm).all_reduce(&sums[4 + slot], 1, Element::f32, Reduction::sum);
    });
    crew.add("forward", [&, rank, slot] {
      Communicator& line = world->at(rank, Line::forward);
      const float own = static_cast<float>(rank);
      line.rank() == 0 ? line.send(&own, 1, Element::f32, 1)
                       : line.receive(&passed[slot], 1, Element::f32, 0);
    });
  }
  crew.run();
  CHECK(sums == std::vector<float>{1, 1, 5, 5, 6, 6, 6, 6});
  CHECK(passed == std::vector<float>{0, 0, 0, 1});
}

}  // namespace
}  // namespace echelon
