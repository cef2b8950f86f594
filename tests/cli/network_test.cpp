// plan run on two machines, with a slow network between them.
#include <memory>

#include "tests/cli/network.hpp"
#include "tests/cli/started.hpp"
#include "tests/support/skip.hpp"

using namespace echelon;
using echelon::test::Background;
using echelon::test::Runs;
using echelon::test::TwoMachines;

namespace {

/// Two machines of one core each, which have this network.
std::string described(int megabits) {
  return R"({"schema": 1, "name": "two-cores", "gpus": 2,
  "gpu": {"name": "cpu", "memory": "4 GB", "hbm": "50 GB/s", "fp32": "100 GFLOP/s",
          "fp64": "50 GFLOP/s", "bf16": "100 GFLOP/s", "sms": 1, "boost": "2500 MHz", "l2": "1 MB",
          "launch": "0.01 us"},
  "node": {"gpus": 1, "cores": 1, "interconnect": {"kind": "pcie", "latency": "5 us"},
           "pcie": {"gpu_link": "50 GB/s"}, "cpu_memory": "8 GB",
           "nics": {"count": 1, "rate": ")" +
         std::to_string(megabits) + R"( Mbps", "latency": "50 us"}}})";
}

/// Where the time of a step of gradient averaging over that network goes.
struct Times {
  CostBreakdown measured, predicted;
};

Times times_with(int megabits) {
  const Runs runs;
  runs.sandbox.write("cores.json", described(megabits));
  runs.plan("plan.json", 2, "--dp 2 --tp 1 --framework echelon", "cores.json");
  const TwoMachines machines(megabits);
  REQUIRE(machines.failure().empty());
  std::vector<std::unique_ptr<Background>> ranks;
  for (const int rank : {1, 0}) {
    const std::string number = std::to_string(rank);
    ranks.push_back(std::make_unique<Background>(
        "cd " + shell_word(runs.sandbox.file("")) + "; " + TwoMachines::on(rank) +
        runs.sandbox.program(
            "RANK=" + number + " WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 " +
            "OMP_NUM_THREADS=1 MASTER_PORT=29500 MASTER_ADDR=" + TwoMachines::address(0)) +
        " run plan.json --steps 6 --quiet --report report.json >out" + number + " 2>err" + number));
  }
  for (const auto& rank : ranks) {
    const int exit_code = rank->exit_code_within(60);
    INFO(runs.text("err0") << runs.text("err1"));
    REQUIRE(exit_code == 0);
  }
  const RunReport report = read_run_report(runs.sandbox.file("report.json")).value();
  REQUIRE(report.measured.has_value());
  return {report.measured->time, report.plan.predicted.time};
}

}  // namespace

TEST_CASE("a slow network between two machines is predicted, and measured") {
  if (const std::string why = TwoMachines::missing(); !why.empty()) return skip(why);
  const Times slow = times_with(50), fast = times_with(500);
  for (const auto of : {&Times::measured, &Times::predicted}) {
    const Seconds waiting = (slow.*of).exposed[Axis::dp], less = (fast.*of).exposed[Axis::dp];
    INFO("slow " << waiting.in(1_ms) << " ms, fast " << less.in(1_ms) << " ms");
    CHECK(less > Seconds{});
    CHECK(waiting > 3 * less);
    for (const Axis axis : kStepAxes) CHECK(waiting >= (slow.*of).exposed[axis]);
  }
}
