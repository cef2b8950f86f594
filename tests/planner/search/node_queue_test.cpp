#include "planner/search/node_queue.hpp"

#include <algorithm>
#include <vector>

#include "planner/search/enumerate.hpp"
#include "tests/planner/requests.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

/// Bounds of all nodes with a schedule, in their order.
std::vector<Seconds> all_bounds(const SearchContext& context, std::vector<DegreeNode> nodes) {
  std::vector<Seconds> out;
  for (DegreeNode& node : nodes) {
    const Seconds quick = node.least;
    if (!bound_node(context, node)) continue;
    CHECK(quick <= node.proved);
    CHECK(node.proved <= node.least);
    out.push_back(node.least);
  }
  std::ranges::sort(out);
  return out;
}

}  // namespace

TEST_CASE("degrees come in the order of their bounds as if all had been bounded before") {
  for (const char* model : {"llama3-8b", "mixtral-8x7b", "deepseek-v2-lite"}) {
    for (const char* framework : {"megatron-core", "torchtitan", "echelon"}) {
      const PlanRequest request = request_for(model, "dgx-h100", 32, framework);
      INFO(model << " " << framework);
      const SearchContext context(request);
      Findings found(context);
      const DegreeSpace space = enumerate_degrees(context, found);
      const std::vector<Seconds> expected = all_bounds(context, space.nodes);
      NodeQueue queue(context, space.nodes);
      std::vector<Seconds> taken;
      for (; queue.front() != nullptr; queue.pop()) taken.push_back(queue.front()->least);
      CHECK(taken == expected);
      CHECK(queue.taken() == taken.size());
      CHECK_FALSE(queue.least_proved().has_value());
    }
  }
}

TEST_CASE("the front node is known before most others are bounded") {
  const PlanRequest request = request_for("mixtral-8x7b", "dgx-h100", 256);
  const SearchContext context(request);
  Findings found(context);
  const DegreeSpace space = enumerate_degrees(context, found);
  NodeQueue queue(context, space.nodes);
  REQUIRE(queue.front() != nullptr);
  // What the rest needs at least is known, too: some of several stages are not bounded yet.
  REQUIRE(queue.least_proved().has_value());
  Seconds least = space.nodes.front().least;
  for (const DegreeNode& node : space.nodes) least = std::min(least, node.least);
  CHECK(*queue.least_proved() >= least);
}
