// plan run as users run it: launchers, signals, messages and the files that remain.
#include <string>
#include <vector>

#include "core/run/run_event.hpp"
#include "core/schedule/schedule.hpp"
#include "tests/cli/runs.hpp"
#include "tests/places.hpp"
#include "tests/support/skip.hpp"

using namespace echelon;
using echelon::test::Background;
using echelon::test::complaint;
using echelon::test::document;
using echelon::test::lacks;
using echelon::test::losses_of;
using echelon::test::processes_with;
using echelon::test::Runs;
using echelon::test::within;

namespace {

namespace fs = std::filesystem;

/// "", or the reason why mpirun cannot start runs here.
std::string no_mpi(const Runs& runs) {
  if (run_shell("command -v mpirun").exit_code != 0) return "mpirun is not installed";
  runs.plan("one.json", 1, "--tp 1");
  const ProcessResult tried = runs.run("one.json --steps 1 --launcher mpi");
  if (tried.err.find("built without MPI") != std::string::npos) return "built without MPI";
  return "";
}

std::vector<std::string> launchers(const Runs& runs) {
  if (!no_mpi(runs).empty()) return {"local"};
  return {"local", "mpi"};
}

}  // namespace

TEST_CASE("processes compute the bits that threads compute") {
  const Runs runs;
  if (const std::string why = no_mpi(runs); !why.empty()) return skip(why);
  const std::vector<std::pair<int, std::string>> plans = {
      {2, "--tp 2"},
      {2, "--pp 2 --tp 1"},
      {4, "--tp 2 --pp 2"},
      {4, "--dp 4 --tp 1 --zero 3"},
      {4, "--tp 2 --dp 2 --zero 3 --lora 8"},
      {4, "--cp 2 --cp-comm a2a --tp 2 --sequence-parallel"},
      {4, "--cp 4 --cp-comm p2p"}};
  for (const auto& [ranks, degrees] : plans) {
    INFO(degrees);
    runs.plan("plan.json", ranks, degrees);
    const ProcessResult local =
        runs.run("plan.json --steps 5 --report local.json --checkpoint-dir local");
    const ProcessResult mpi =
        runs.run("plan.json --steps 5 --report mpi.json --checkpoint-dir mpi --launcher mpi");
    INFO(local.err << mpi.out << mpi.err);
    REQUIRE(local.exit_code == 0);
    REQUIRE(mpi.exit_code == 0);
    CHECK(mpi.err.empty());
    const RunReport one = read_run_report(runs.sandbox.file("local.json")).value();
    const RunReport other = read_run_report(runs.sandbox.file("mpi.json")).value();
    CHECK(losses_of(one).size() == 5);
    CHECK(losses_of(one) == losses_of(other));
    CHECK(slurp(runs.sandbox.file("local/step_5/weights.safetensors")) ==
          slurp(runs.sandbox.file("mpi/step_5/weights.safetensors")));
    CHECK(other.launcher == "mpi");
    CHECK(other.executed_hash == other.schedule_hash);
    CHECK(other.executed_hash == one.executed_hash);
    CHECK(other.spans.size() == one.spans.size());
    REQUIRE(other.measured.has_value());
    CHECK(other.measured->time.compute > Seconds{});
    CHECK(other.measured->peak == one.measured->peak);
    fs::remove_all(runs.sandbox.file("local"));
    fs::remove_all(runs.sandbox.file("mpi"));
  }
  CHECK(runs.nobody_is_left());
}

TEST_CASE("Ctrl-C ends a run after its step, with a checkpoint and a report") {
  const Runs runs;
  for (const std::string& launcher : launchers(runs)) {
    INFO(launcher);
    runs.plan("plan.json", 2, "--pp 2 --tp 1");
    Background run(runs.exec("plan.json --steps 1000000 --report report.json --checkpoint-dir " +
                             launcher + " --launcher " + launcher));
    REQUIRE(within(60, [&] { return runs.has_stepped(3); }));
    run.signal(SIGINT);
    CHECK(run.exit_code_within(60) == 130);
    INFO(runs.text("err"));
    CHECK(runs.text("err").empty());
    CHECK(lacks(runs.text("out"), "run interrupted") == "");
    const RunReport report = read_run_report(runs.sandbox.file("report.json")).value();
    CHECK(report.end == RunReport::End::interrupted);
    CHECK(fs::exists(runs.sandbox.file(launcher + "/step_" + std::to_string(report.steps.size()) +
                                       "/manifest.json")));
    CHECK(runs.nobody_is_left());
    const ProcessResult rest = runs.run("plan.json --steps 2 --resume --checkpoint-dir " +
                                        launcher + " --launcher " + launcher + " --json");
    CHECK(document(rest)["steps"][0]["step"] == report.steps.size());
    fs::remove(runs.sandbox.file("events"));
  }
}

TEST_CASE(
    "one termination request that arrives twice, as from timeout, ends a run after its step") {
  const Runs runs;
  runs.plan("plan.json", 2, "--pp 2 --tp 1");
  Background run(runs.exec("plan.json --steps 1000000 --checkpoint-dir kept"));
  REQUIRE(within(60, [&] { return runs.has_stepped(3); }));
  run.signal(SIGINT);
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  run.signal(SIGINT);
  CHECK(run.exit_code_within(60) == 130);
  CHECK(lacks(runs.text("out"), "run interrupted") == "");
  CHECK(fs::exists(runs.sandbox.file("kept")));
}

TEST_CASE("a second Ctrl-C ends a run at once, and so does the end of plan") {
  const Runs runs;
  for (const std::string& launcher : launchers(runs)) {
    INFO(launcher);
    const ProcessResult made = runs.sandbox.plan(
        "--model gpt2-tiny --cluster this-machine --gpus 2 --dp 2 --tp 1 --seq 128 "
        "--global-batch 65536 --microbatch 4 -o long.json --quiet");
    INFO(made.err);
    REQUIRE(made.exit_code == 0);
    {
      Background run(runs.exec("long.json --launcher " + launcher));
      REQUIRE(within(60, [&] { return lacks(runs.text("events"), "started").empty(); }));
      run.signal(SIGINT);
      CHECK(run.exit_code_within(0.5) == -1);  // its step takes minutes
      run.signal(SIGINT);
      CHECK(run.exit_code_within(10) == 130);
      CHECK(runs.nobody_is_left());
      fs::remove(runs.sandbox.file("events"));
    }
    runs.plan("plan.json", 2, "--dp 2 --tp 1");
    Background run(runs.exec("plan.json --steps 1000000 --launcher " + launcher));
    REQUIRE(within(60, [&] { return runs.has_stepped(1); }));
    CHECK_FALSE(processes_with(runs.sandbox.file("plan-run-")).empty());
    run.signal(SIGKILL);
    CHECK(run.exit_code_within(10) == 128 + SIGKILL);
    CHECK(runs.nobody_is_left());
    fs::remove(runs.sandbox.file("events"));
  }
}

TEST_CASE("a process that is lost ends the run, with its rank") {
  const Runs runs;
  if (const std::string why = no_mpi(runs); !why.empty()) return skip(why);
  runs.plan("plan.json", 2, "--dp 2 --tp 1");
  Background run(runs.exec("plan.json --steps 1000000 --launcher mpi"));
  REQUIRE(within(60, [&] { return runs.has_stepped(1); }));
  const std::string program = fs::path(ECHELON_PLAN).parent_path().string() + "/plan-run";
  pid_t last = 0;
  for (const pid_t each : processes_with(runs.sandbox.file("plan-run-"))) {
    std::error_code ignored;
    if (fs::read_symlink("/proc/" + std::to_string(each) + "/exe", ignored) == program)
      last = std::max(last, each);
  }
  REQUIRE(last > 0);
  kill(last, SIGKILL);
  const int exit_code = run.exit_code_within(60);
  INFO(runs.text("out") << runs.text("err"));
  CHECK(exit_code == 7);
  CHECK(lacks(runs.text("out") + runs.text("err"), "is gone") == "");
  CHECK(runs.nobody_is_left());
}

TEST_CASE("errors of a run under mpirun are reported once, with their exit code") {
  const Runs runs;
  if (const std::string why = no_mpi(runs); !why.empty()) return skip(why);
  runs.plan("plan.json", 2, "--dp 2 --tp 1");
  const ProcessResult none =
      runs.run("plan.json --launcher mpi --resume --checkpoint-dir empty --steps 2");
  INFO(none.out << none.err);
  CHECK(none.exit_code == 2);
  CHECK(none.out.empty());
  CHECK(std::count(none.err.begin(), none.err.end(), '\n') == 1);
  CHECK(lacks(none.err, "--resume: no checkpoint in empty") == "");
  CHECK(runs.nobody_is_left());
}

TEST_CASE("NaN ends a run with exit code 6 and the step") {
  const Runs runs;
  runs.plan("plan.json", 2, "--dp 2 --tp 1");
  REQUIRE(runs.run("plan.json --steps 1 --export weights").exit_code == 0);
  std::string weights = slurp(runs.sandbox.file("weights/model.safetensors"));
  std::fill(weights.end() - 64, weights.end(), '\xff');  // NaN in any format
  runs.sandbox.write("weights/model.safetensors", weights);
  for (const std::string& launcher : launchers(runs)) {
    INFO(launcher);
    const ProcessResult result = runs.run(
        "plan.json --steps 9 --max-skipped-steps 0 --init-from weights --report nan.json "
        "--launcher " +
        launcher);
    INFO(result.err << result.out);
    CHECK(result.exit_code == 6);
    CHECK(lacks(result.out, "step 0: the loss is NaN") == "");
    CHECK(lacks(result.out, "run failed") == "");
    CHECK(read_run_report(runs.sandbox.file("nan.json")).value().end == RunReport::End::failed);
    CHECK(runs.nobody_is_left());
  }
}

TEST_CASE("a run that diverges ends with exit code 6, names the step and keeps its report") {
  const Runs runs;
  runs.plan("plan.json", 2, "--dp 2 --tp 1");
  for (const std::string& launcher : launchers(runs)) {
    INFO(launcher);
    const ProcessResult result = runs.sandbox.shell(
        runs.program() +
        " run plan.json --steps 60 --learning-rate 50 --max-grad-norm 0 --report away.json " +
        "--quiet --events 3 --launcher " + launcher + " 3>events");
    INFO(result.err << result.out);
    CHECK(result.exit_code == 6);
    const RunReport report = read_run_report(runs.sandbox.file("away.json")).value();
    CHECK(report.end == RunReport::End::failed);
    REQUIRE(!report.steps.empty());
    const std::string step = "step " + std::to_string(report.steps.back().step) + ": the loss is ";
    CHECK(lacks(report.reason, step) == "");
    CHECK(lacks(result.out, step) == "");
    CHECK(result.err.find("plan-run printed") ==
          std::string::npos);  // an event that cannot be read
    CHECK(runs.nobody_is_left());
  }
}

TEST_CASE("a run prints its events line by line, and one document with --json") {
  const Runs runs;
  runs.plan("plan.json", 2, "--tp 2");
  for (const std::string& launcher : launchers(runs)) {
    INFO(launcher);
    const ProcessResult result = runs.sandbox.shell(
        runs.program() + " run plan.json --steps 4 --checkpoint-dir " + launcher +
        " --checkpoint-every 2 --json --events 3 --launcher " + launcher + " 3>events");
    const auto report = document(result);
    CHECK(report["format"] == "echelon-run");
    CHECK(report["steps"].size() == 4);
    std::istringstream lines(runs.text("events"));
    std::string kinds;
    for (std::string line; std::getline(lines, line);) {
      const Result<RunEvent> event = parse_run_event(line, "events");
      INFO(line);
      REQUIRE(event.ok());
      switch (event->kind) {
        case RunEvent::Kind::started: kinds += "("; break;
        case RunEvent::Kind::step: kinds += std::to_string(event->step.step); break;
        case RunEvent::Kind::checkpoint: kinds += "c"; break;
        case RunEvent::Kind::note: kinds += "n"; break;
        case RunEvent::Kind::ended: kinds += ")"; break;
      }
    }
    CHECK(kinds == "(01c23c)");
  }
}

TEST_CASE("an unwritable path for results is reported before the run") {
  const Runs runs;
  runs.plan("plan.json", 1, "--tp 1");
  runs.sandbox.write("file", "");
  runs.sandbox.write("folder/inside", "");
  struct Case {
    std::string flags, says;
  };
  for (const Case& each : {
           Case{"--report missing/report.json", "--report: missing/report.json: cannot be written"},
           Case{"--report folder", "--report: folder: is a directory"},
           Case{"--trace file/trace.json", "--trace: file/trace.json: cannot be written"},
           Case{"--export file", "--export: file: "},
           Case{"--checkpoint-dir file/inside", "--checkpoint-dir: file/inside: "},
           Case{"--report /proc/report.json", "--report: /proc/report.json: cannot be written"},
       }) {
    INFO(each.flags);
    const std::string told = complaint(runs.run("plan.json --steps 1000000 " + each.flags), 3);
    CHECK(lacks(told, each.says) == "");
  }
}

TEST_CASE("errors for invalid input to a run give the cause, the place and the correction") {
  const Runs runs;
  runs.plan("plan.json", 1, "--tp 1");
  runs.plan("h100.json", 8, "--dp 4", "dgx-h100");
  runs.plan("scores.json", 8, "--dp 4 --no-flash-attention", "dgx-h100");
  runs.sandbox.write("other.json", "{\"schema\": 1}");
  runs.sandbox.write("text.json", "hello");
  runs.sandbox.write("folder/inside", "");
  struct Case {
    std::string arguments;
    int exit_code;
    std::vector<std::string> says;
  };
  const std::vector<Case> cases = {
      {"", 2, {"PLAN.json", "plan run"}},
      {"missing.json", 2, {"missing.json", "no such file"}},
      {"folder", 2, {"folder", "is a directory"}},
      {"text.json", 2, {"text.json"}},
      {"other.json", 2, {"other.json", "not a plan file"}},
      {"h100.json",
       2,
       {"a plan for dgx-h100 (8 GPUs)", "plan run h100.json --cluster this-machine"}},
      {"scores.json --cluster this-machine",
       2,
       {"the plan file", "no flash attention with echelon",
        "plan predict FILE --flash-attention -o NEW"}},
      {"plan.json --steps 0", 2, {"--steps", "at least 1"}},
      {"plan.json --steps many", 2, {"--steps"}},
      {"plan.json --backend cuda", 2, {"plan.json", "a plan for processor cores"}},
      {"h100.json --backend cuda --cluster this-machine", 2, {"--cluster", "a plan for GPUs"}},
      {"h100.json --backend cuda --precision fp32", 2, {"precision fp32", "bf16:adam-fp32-master"}},
      {"plan.json --launcher slurm", 2, {"--launcher", "one of local, mpi, env"}},
      {"plan.json --seed 0 --warmup-steps 0 --data synthetic:3", 2, {"--data", "3 tokens"}},
      {"plan.json --data missing.txt", 2, {"--data", "missing.txt"}},
      {"plan.json --init-from nowhere", 2, {"--init-from", "nowhere"}},
      {"plan.json --resume", 2, {"--resume: no --checkpoint-dir"}},
      {"plan.json --checkpoint-every 5", 2, {"--checkpoint-every: no --checkpoint-dir"}},
      {"plan.json --resume auto", 2, {"--resume: no --checkpoint-dir"}},
      {"plan.json --resume=auto", 2, {"--resume: no --checkpoint-dir"}},
      {"plan.json --resume never", 2, {"plan run", "stray word 'never'"}},
      {"plan.json --keep-last 5", 2, {"--keep-last: no --checkpoint-dir"}},
      {"plan.json --keep-every 0 --checkpoint-dir c", 2, {"--keep-every", "at least 1"}},
      {"plan.json --async-checkpoints", 2, {"--async-checkpoints: no --checkpoint-dir"}},
      {"plan.json --events 9", 2, {"--events", "open file descriptor"}},
      {"plan.json --learning-rate -1", 2, {"--learning-rate"}},
      {"plan.json --learning-rate 1e-3 --min-lr 1e-2",
       2,
       {"--min-lr: '1e-2' is above the peak learning rate, 0.001"}},
      {"plan.json --min-lr 1e-3", 2, {"--min-lr", "above the peak learning rate, 0.0003"}},
      {"plan.json --cores 100000", 2, {"--cores: 100000 of the ", "expected at most "}},
      {"plan.json --timeout soon", 2, {"--timeout", "90s"}},
      {"plan.json --warmup-steps -1", 2, {"--warmup-steps", "at least 0"}},
      {"plan.json --cluster dgx-h100", 2, {"--cluster: 'dgx-h100'; expected this-machine"}},
      {"plan.json --precision fp8", 2, {"--precision", "fp8"}},
      {"plan.json other.json", 2, {"stray word 'other.json'"}},
      {"plan.json --setps 3", 2, {"did you mean '--steps'?"}},
  };
  for (const Case& each : cases) {
    CAPTURE(each.arguments);
    const ProcessResult result = runs.run(each.arguments);
    INFO(result.out << result.err);
    CHECK(result.exit_code == each.exit_code);
    CHECK(result.out.empty());
    CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);  // plan's or plan-run's
    for (const std::string& part : each.says) CHECK(lacks(result.err, part) == "");
  }
}

TEST_CASE("a model too large for this machine is refused before the first step") {
  const Runs runs;
  const ProcessResult made = runs.sandbox.plan(
      "--model llama3-70b --cluster dgx-h100 --gpus 64 --tp 8 --pp 8 -o large.json --quiet");
  INFO(made.err);
  REQUIRE(made.exit_code == 0);
  const std::string told = complaint(runs.run("large.json --cluster this-machine"), 5);
  CHECK(lacks(told, "64 ranks that need up to") == "");
  CHECK(lacks(told, " each") == "");
}

TEST_CASE("a failed memory allocation is reported with the rank and the block") {
  const Runs runs;
  const ProcessResult made = runs.sandbox.plan(
      "--model gpt2 --cluster this-machine --gpus 1 --seq 32 --global-batch 1 -o gpt2.json "
      "--quiet");
  REQUIRE(made.exit_code == 0);
  const ProcessResult result = runs.sandbox.shell("ulimit -v 800000; " + runs.program() +
                                                  " run gpt2.json --steps 2 --quiet");
  INFO(result.out << result.err);
  CHECK(result.exit_code == 5);
  CHECK(lacks(result.out + result.err, "no memory for") == "");
}

TEST_CASE("a run reduces gradients in its plan's buckets, with unchanged losses") {
  const Runs runs;
  std::vector<double> losses;
  // Four layers of 0.8 MB of gradients.
  for (const auto& [degrees, buckets] :
       {std::pair("--dp 2", 1), std::pair("--dp 2 --bucket 1kB", 4),
        std::pair("--dp 2 --bucket 1.7MB", 2), std::pair("--dp 2 --bucket 1GB", 1),
        std::pair("--dp 2 --zero 0 --bucket 1kB", 4)}) {
    CAPTURE(degrees);
    runs.plan("plan.json", 2, degrees);
    const ProcessResult ended = runs.run("plan.json --steps 3 --report report.json");
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    const RunReport report = read_run_report(runs.sandbox.file("report.json")).value();
    const Schedule program = parse_schedule_text(report.plan.program, "the program").value();
    std::vector<int> executed(2, 0);
    for (const ExecutedSpan& span : report.spans) {
      const Instruction& i = program.programs[0].instructions[span.instruction];
      if (i.op == Op::reduce_gradients) ++executed[static_cast<std::size_t>(span.rank)];
    }
    CHECK(executed == std::vector<int>(2, buckets));
    CHECK(program.units == buckets);
    if (losses.empty()) losses = losses_of(report);
    CHECK(losses_of(report) == losses);
  }
}
