// What runs measure of checkpoints, failures and restarts flows back into plans.
#include <nlohmann/json.hpp>
#include <string>

#include "tests/cli/runs.hpp"

using namespace echelon;
using echelon::test::lacks;
using echelon::test::Runs;
using Json = nlohmann::ordered_json;

namespace {

constexpr const char* kRepeated =
    "plan.json --steps 40 --checkpoint-dir kept --checkpoint-every 4 --resume auto ";
constexpr const char* kPlanned =
    "--model gpt2-tiny --cluster this-machine --gpus 2 --seq 32 --global-batch 8 --microbatch 1 "
    "--dp 2 --precision fp32 --objective goodput --goodput-from last.json ";

}  // namespace

TEST_CASE("after kills and restarts a plan takes failures, checkpoints and restarts as measured") {
  const Runs runs;
  runs.plan("plan.json", 2, "--dp 2 --tp 1");
  for (const char* fault : {"--inject kill@0:10", "--inject kill@1:22"}) {
    const ProcessResult killed = runs.run(std::string(kRepeated) + fault);
    INFO(killed.out << killed.err);
    CHECK(killed.exit_code == 3);
  }
  const ProcessResult ended = runs.sandbox.shell("timeout 60 " + runs.program() + " run " +
                                                 kRepeated + "--report last.json");
  INFO(ended.out << ended.err);
  REQUIRE(ended.exit_code == 0);
  const MeasuredGoodput run = read_run_report(runs.sandbox.file("last.json")).value().goodput;
  CHECK(run.starts == 3);
  CHECK(run.failures == 2);
  CHECK(run.restarts == 2);
  CHECK(run.restart > Seconds{});
  CHECK(run.running > Seconds{});
  CHECK(run.checkpoints == 5);  // steps 24 to 40
  CHECK(run.stall > Seconds{});
  CHECK(run.write >= run.stall);
  CHECK(lacks(ended.out, "Checkpoints and failures") == "");
  CHECK(lacks(ended.out, "5 checkpoints of ") == "");
  CHECK(lacks(ended.out, "3 starts, 2 failures in ") == "");
  CHECK(lacks(ended.out, "At this rate a checkpoint every ") == "");

  const ProcessResult planned = runs.sandbox.plan(std::string(kPlanned) + "--json");
  INFO(planned.out << planned.err);
  REQUIRE(planned.exit_code == 0);
  const Json economics = Json::parse(planned.out)["winner"]["economics"];
  CHECK(economics["goodput_kind"] == "measured");
  CHECK(economics["mtbf_seconds"].get<double>() == Approx(run.running.in(kSecond) / 2));
  CHECK(economics["restart_seconds"].get<double>() == Approx(run.restart.in(kSecond)));
  // The files' bytes and the model's differ by rounding alone.
  CHECK(economics["checkpoint_seconds"].get<double>() ==
        Approx(run.write.in(kSecond)).epsilon(0.02));
  CHECK(economics["checkpoint_interval_steps"].get<int>() >= 1);
  const ProcessResult text = runs.sandbox.plan(kPlanned, "COLUMNS=1000");
  CHECK(lacks(text.out, " of the time is useful with a checkpoint every ") == "");
  CHECK(lacks(text.out, " (measured): a failure every ") == "");
  CHECK(lacks(text.out, "2 failures in ") == "");
  const ProcessResult other = runs.sandbox.plan(std::string(kPlanned) + "--mtbf 1000h --json");
  CHECK(Json::parse(other.out)["winner"]["economics"]["goodput_kind"] == "calibrated");
}

TEST_CASE("a report without checkpoints has no goodput to plan from") {
  const Runs runs;
  runs.plan("plan.json", 2, "--dp 2 --tp 1");
  REQUIRE(runs.run("plan.json --steps 2 --report last.json").exit_code == 0);
  const ProcessResult refused = runs.sandbox.plan(kPlanned);
  CHECK(refused.exit_code == 2);
  CHECK(lacks(refused.err, "--goodput-from") == "");
  CHECK(lacks(refused.err, "the report of a run with --checkpoint-dir") == "");
}
