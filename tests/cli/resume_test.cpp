// One command line that starts a run, survives the death of its processes and goes on, under every
// launcher.
#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/started.hpp"
#include "tests/places.hpp"
#include "tests/support/skip.hpp"

using namespace echelon;
using echelon::test::Background;
using echelon::test::complaint;
using echelon::test::free_port;
using echelon::test::kill_rank;
using echelon::test::lacks;
using echelon::test::losses_of;
using echelon::test::processes_with;
using echelon::test::Runs;
using echelon::test::Started;
using echelon::test::within;

namespace {

namespace fs = std::filesystem;

constexpr const char* kFlags =
    "plan.json --steps 30 --checkpoint-every 3 --resume auto --report report.json ";

void kill_every_process(const Runs& runs) {
  for (const pid_t each : processes_with(runs.sandbox.file("plan-run-"))) kill(each, SIGKILL);
}

RunReport report_in(const Runs& runs) {
  return read_run_report(runs.sandbox.file("report.json")).value();
}

/// The steps of the report end with those of the undisturbed run.
void check_rest(const RunReport& rest, const RunReport& whole) {
  const std::vector<double> all = losses_of(whole);
  const std::vector<double> last = losses_of(rest);
  REQUIRE(!last.empty());
  REQUIRE(last.size() <= all.size());
  CHECK(std::equal(last.begin(), last.end(), all.end() - std::ptrdiff_t(last.size())));
}

}  // namespace

TEST_CASE("one command line starts a run and goes on with it, whatever launcher starts it again") {
  const Runs runs;
  runs.plan("plan.json", 2, "--pp 2 --tp 1");
  REQUIRE(runs.run(std::string(kFlags) + "--checkpoint-dir whole").exit_code == 0);
  const RunReport whole = report_in(runs);
  REQUIRE(losses_of(whole).size() == 30);
  const std::string weights = slurp(runs.sandbox.file("whole/step_30/weights.safetensors"));
  const bool has_mpi = run_shell("command -v mpirun").exit_code == 0;
  for (const std::string launcher : {"local", "mpi"}) {
    if (launcher == "mpi" && !has_mpi) continue;
    CAPTURE(launcher);
    const std::string command =
        kFlags + ("--checkpoint-dir " + launcher) + " --launcher " + launcher;
    {
      Background run(runs.exec(command));
      REQUIRE(within(
          60, [&] { return fs::exists(runs.sandbox.file(launcher + "/step_3/manifest.json")); }));
      kill_every_process(runs);
      CHECK(run.exit_code_within(60) != 0);
    }
    CHECK(runs.nobody_is_left());
    const ProcessResult rest = runs.run(command);
    INFO(rest.out << rest.err);
    CHECK(rest.exit_code == 0);
    check_rest(report_in(runs), whole);
    CHECK(slurp(runs.sandbox.file(launcher + "/step_30/weights.safetensors")) == weights);
    const ProcessResult again = runs.run(command);  // a launcher that restarts what is complete
    CHECK(again.exit_code == 0);
    CHECK(lacks(again.out, "0 steps; all 30 steps were done before") == "");
  }
  const std::string command = std::string(kFlags) + "--quiet --checkpoint-dir env";
  {
    Started run(runs, 2, command);
    REQUIRE(within(60, [&] { return fs::exists(runs.sandbox.file("env/step_3/manifest.json")); }));
    kill_rank(runs, 1);
    CHECK(run.exit_code(0, 20) == 7);
    CHECK(run.exit_code(1, 20) == 3);
  }
  Started run(runs, 2, command);
  CHECK(run.exit_code(0) == 0);
  CHECK(run.exit_code(1) == 0);
  check_rest(report_in(runs), whole);
  CHECK(slurp(runs.sandbox.file("env/step_30/weights.safetensors")) == weights);
}

TEST_CASE("two runs do not write checkpoints into one folder at once") {
  const Runs runs;
  runs.plan("plan.json", 2, "--dp 2 --tp 1");
  const std::string flags = "plan.json --checkpoint-dir kept --checkpoint-every 3 ";
  const auto step_3_is_there = [&] {
    return fs::exists(runs.sandbox.file("kept/step_3/manifest.json"));
  };
  Background first(runs.exec(flags + "--keep-last 0 --steps 1000000"));
  REQUIRE(within(60, step_3_is_there));
  for (const char* resume : {"--resume auto", ""}) {
    CAPTURE(resume);
    const ProcessResult second = runs.run(flags + "--steps 9 " + resume);
    INFO(second.out << second.err);
    CHECK(second.exit_code == 3);
    CHECK(lacks(second.err,
                "--checkpoint-dir: kept: another run writes its checkpoints there: process ") ==
          "");
  }
  first.signal(SIGINT);
  CHECK(first.exit_code_within(60) == 130);
  const RunReport rest = [&] {
    const ProcessResult third = runs.run(flags + "--steps 1 --resume --report report.json");
    INFO(third.out << third.err);
    CHECK(third.exit_code == 0);
    return report_in(runs);
  }();
  // Counted from the last step of the first run: nothing of it was lost.
  std::int64_t newest = 0;
  for (const auto& entry : fs::directory_iterator(runs.sandbox.file("kept"))) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("step_"))
      newest = std::max(newest, std::int64_t{std::stoll(name.substr(5))});
  }
  REQUIRE(rest.steps.size() == 1);
  CHECK(newest == rest.steps.front().step + 1);
}

namespace {

/// The numbers of the report's line about what was read: all bytes, and the most by one process.
std::vector<double> bytes_read(const Runs& runs) {
  const std::string line = report_in(runs).environment.at("read at the start");
  std::vector<double> numbers;
  for (const std::string& word : {std::string(), std::string(" at most ")}) {
    const std::size_t at = line.find(word);
    if (at != std::string::npos) numbers.push_back(std::stod(line.substr(at + word.size())));
  }
  return numbers;
}

}  // namespace

TEST_CASE("replicas read a checkpoint once, and a damaged one is found, over every transport") {
  const Runs runs;
  runs.plan("plan.json", 4, "--dp 4 --tp 1 --zero 1");
  REQUIRE(runs.run("plan.json --steps 2 --checkpoint-dir saved").exit_code == 0);
  double size = 0;
  for (const auto& entry : fs::directory_iterator(runs.sandbox.file("saved/step_2")))
    size += static_cast<double>(entry.file_size());
  const bool has_mpi = run_shell("command -v mpirun").exit_code == 0;
  for (const std::string launcher : {"local", "env", "mpi"}) {
    if (launcher == "mpi" && !has_mpi) continue;
    CAPTURE(launcher);
    fs::copy(runs.sandbox.file("saved"), runs.sandbox.file(launcher), fs::copy_options::recursive);
    const std::string flags = "plan.json --steps 1 --resume --report report.json --launcher " +
                              launcher + " --checkpoint-dir " + launcher;
    // How the run ends, and what it says.
    const auto ends = [&]() -> std::pair<int, std::string> {
      if (launcher != "env") {
        const ProcessResult result = runs.run(flags);
        return {result.exit_code, result.out + result.err};
      }
      Started run(runs, 4, "--quiet " + flags);
      int code = 0;
      for (int rank = 0; rank < 4; ++rank) code = std::max(code, run.exit_code(rank));
      return {code, run.out(0) + run.err(0)};
    };
    const auto [code, said] = ends();
    INFO(said);
    REQUIRE(code == 0);
    const std::vector<double> read = bytes_read(runs);
    CHECK(read.front() > 0.95 * size);
    CHECK(read.front() < 1.1 * size);
    if (launcher != "local") CHECK(read.at(1) < 0.3 * size);
    fs::remove_all(runs.sandbox.file(launcher + "/step_3"));
    std::string weights = slurp(runs.sandbox.file(launcher + "/step_2/weights.safetensors"));
    weights[weights.size() / 2] ^= 1;
    runs.sandbox.write(launcher + "/step_2/weights.safetensors", weights);
    const auto [refused, why] = ends();
    CHECK(refused == 2);
    CHECK(lacks(why, "step_2/weights.safetensors: checksum mismatch in the 16 MiB piece at byte") ==
          "");
  }
}

TEST_CASE("a world that shrank is told what to do, and goes on under another plan") {
  const Runs runs;
  runs.plan("plan.json", 2, "--dp 2 --tp 1");
  runs.plan("one.json", 1, "--dp 1 --tp 1");
  const std::string flags = " --resume auto --checkpoint-dir steps --steps ";
  REQUIRE(runs.run("plan.json" + flags + "3").exit_code == 0);
  const ProcessResult fewer =
      runs.sandbox.shell(runs.sandbox.program("RANK=0 WORLD_SIZE=1") +
                         " run plan.json --launcher env --quiet" + flags + "5");
  CHECK(fewer.exit_code == 2);
  CHECK(lacks(fewer.err,
              "RANK: rank 0 of 1; expected 2, one process per rank of the plan; start 2 "
              "processes, or plan for 1 GPU and resume (--replan does both)") == "");
  CHECK(fs::exists(runs.sandbox.file("steps/step_3/manifest.json")));
  const ProcessResult rest = runs.run("one.json" + flags + "5 --json");
  CHECK(rest.exit_code == 0);
  CHECK(lacks(rest.out, "\"step\":4") == "");
}

TEST_CASE("with --replan a run that lost ranks goes on with the best plan for the rest") {
  const Runs runs;
  runs.plan("plan.json", 4, "--tp 2 --dp 2 --precision fp64");
  REQUIRE(runs.run(std::string(kFlags) + "--checkpoint-dir whole").exit_code == 0);
  const std::vector<double> whole = losses_of(report_in(runs));
  const std::string command = std::string(kFlags) + "--replan --checkpoint-dir steps";
  {
    Started run(runs, 4, command);
    REQUIRE(
        within(60, [&] { return fs::exists(runs.sandbox.file("steps/step_3/manifest.json")); }));
    kill_rank(runs, 3);
    CHECK(run.exit_code(0, 20) == 7);
    for (const int rank : {1, 2, 3}) CHECK(run.exit_code(rank, 20) != 0);
    CHECK_FALSE(fs::exists(runs.sandbox.file("steps/plan-4-ranks.json")));
  }
  Started run(runs, 2, command);
  CHECK(run.exit_code(1) == 0);
  REQUIRE(run.exit_code(0) == 0);
  const PlanFile plan = read_plan_file(runs.sandbox.file("steps/plan-2-ranks.json")).value();
  CHECK(plan.plan.gpus() == 2);
  CHECK(plan.job.global_batch == 8);
  CHECK(lacks(run.err(0),
              "plan.json is for 4 ranks, and there are 2: goes on with the best plan "
              "for 2, tp ") == "");
  CHECK(lacks(run.err(0), "per step predicted (") == "");
  CHECK(lacks(run.err(0), "it is in steps/plan-2-ranks.json") == "");
  CHECK(lacks(run.err(0), "resuming from steps/step_") == "");
  CHECK(lacks(run.err(1), "plan.json is for 4 ranks") != "");  // rank 0 alone says so

  const RunReport rest = report_in(runs);
  CHECK(rest.plan_path == "steps/plan-2-ranks.json");
  CHECK(rest.plan.plan == plan.plan);
  REQUIRE(!rest.steps.empty());
  CHECK(rest.steps.front().step >= 3);
  CHECK(rest.steps.back().step == 29);
  for (const RunStep& step : rest.steps) {
    CHECK(std::abs(step.loss - whole[static_cast<std::size_t>(step.step)]) < 1e-12);
  }
  const auto samples = [&](const std::string& folder) {
    const auto manifest =
        nlohmann::json::parse(slurp(runs.sandbox.file(folder + "/step_30/manifest.json")));
    return manifest.at("samples").get<std::int64_t>();
  };
  CHECK(samples("steps") == samples("whole"));
  CHECK(samples("steps") == 30 * 8);
}

TEST_CASE("the plan of --replan is the best that a search for as many ranks finds") {
  const Runs runs;
  runs.plan("plan.json", 4, "--tp 2 --dp 2");
  const ProcessResult one = runs.sandbox.shell(
      runs.sandbox.program("RANK=0 WORLD_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=" + free_port()) +
      " run plan.json --replan --checkpoint-dir one --steps 1 --quiet");
  INFO(one.err);
  CHECK(one.exit_code == 0);
  CHECK(lacks(one.out, "gpt2-tiny, 1 rank, 1 step") == "");
  REQUIRE(runs.run("plan.json --replan --gpus 3 --checkpoint-dir three --steps 1").exit_code == 0);
  for (const auto& [file, ranks] :
       {std::pair("one/plan-1-rank.json", "1"), std::pair("three/plan-3-ranks.json", "3")}) {
    CAPTURE(file);
    const ProcessResult best = runs.sandbox.plan(
        std::string("--model gpt2-tiny --cluster this-machine --seq 32 --global-batch 8 --gpus ") +
        ranks + " -o best.json --quiet");
    REQUIRE(best.exit_code == 0);
    const PlanFile now = read_plan_file(runs.sandbox.file(file)).value();
    const PlanFile searched = read_plan_file(runs.sandbox.file("best.json")).value();
    CHECK(now.plan == searched.plan);
    CHECK(now.framework == "echelon");
  }
}

TEST_CASE("ranks that --replan finds no plan for are refused with what to do") {
  const Runs runs;
  runs.plan("plan.json", 2, "--dp 2 --tp 1");
  CHECK(lacks(complaint(runs.run("plan.json --gpus 1"), 2),
              "--gpus: '1'; expected --replan with it") == "");
  CHECK(lacks(complaint(runs.run("plan.json --replan"), 2),
              "--replan: no --checkpoint-dir; expected --checkpoint-dir DIR") == "");
  // 37 divides neither the batch of 8 nor the layers and heads of the model.
  const ProcessResult many = runs.run("plan.json --replan --checkpoint-dir steps --gpus 37");
  CHECK(lacks(complaint(many, 2),
              "--replan: no legal configuration of 37 ranks; expected degrees that divide") == "");
  CHECK_FALSE(fs::exists(runs.sandbox.file("steps/plan-37-ranks.json")));
  // Two machines of two ranks each: half a machine more is no plan's number, and one rank alone
  // has too little memory for the model.
  runs.sandbox.write("machines.json", R"({"schema": 1, "name": "two-servers", "gpus": 4,
    "gpu": {"name": "cpu", "memory": "70 MiB", "hbm": "200 GB/s", "fp32": "320 GFLOP/s",
            "fp64": "160 GFLOP/s", "bf16": "320 GFLOP/s", "sms": 1, "boost": "2500 MHz",
            "l2": "1 MB", "launch": "0.01 us"},
    "node": {"gpus": 2, "cores": 2, "interconnect": {"kind": "pcie", "latency": "5 us"},
             "pcie": {"gpu_link": "50 GB/s"}, "cpu_memory": "256 GB",
             "nics": {"count": 1, "rate": "25 Gbps", "latency": "20 us"}}})");
  runs.plan("machines-plan.json", 4, "--zero 3 --recompute full --tp 2 --dp 2", "machines.json");
  const std::string flags = "machines-plan.json --replan --checkpoint-dir steps --gpus ";
  CHECK(lacks(complaint(runs.run(flags + "3"), 2),
              "--replan: 3; expected at most 2 or a multiple of 2; nearest: 2 or 4") == "");
  CHECK(lacks(complaint(runs.run(flags + "1"), 5), "plan run: 1 rank that need") == "");
  CHECK_FALSE(fs::exists(runs.sandbox.file("steps")));
}
