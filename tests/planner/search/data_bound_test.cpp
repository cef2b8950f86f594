// A search where reading the tokens of a step takes longer than computing it.
#include "planner/search/search.hpp"
#include "tests/planner/requests.hpp"
#include "tests/support/catch.hpp"
#include "topologies/description/description.hpp"

using namespace echelon;

TEST_CASE("a search finds the best plan where reading data binds, as pricing all plans does") {
  for (const double storage : {1e6, 1e7, 5e7}) {
    CAPTURE(storage);
    PlanRequest r = request_for("gpt2", "dgx-h100", 16);
    r.job.sequence = 1024;
    r.job.global_batch = 512;
    MachineDescription machine = r.cluster.machine();
    machine.node.storage = BytesPerSecond{storage};
    r.cluster = ClusterTopology::of(machine, 16).value();
    const Result<SearchOutcome> pruned = search(r);
    r.exhaustive = true;
    const Result<SearchOutcome> all = search(r);
    REQUIRE(pruned.ok());
    REQUIRE(all.ok());
    const TimePrediction& time = pruned->winner()->prediction.time;
    CHECK(time.step >= time.data_load);
    CHECK(pruned->winner()->expected().in(kSecond) ==
          Approx(all->winner()->expected().in(kSecond)));
    if (storage == 1e6) CHECK(time.parts.data > Seconds{});
  }
}
