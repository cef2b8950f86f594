// Runs on GPUs as plan-run starts them: checkpoints and failures.
#include <cmath>
#include <csignal>

#include "runtime/cuda/backend.hpp"
#include "tests/runtime/cuda/backend/small_cases.hpp"
#include "tests/runtime/cuda/standins/settings.hpp"
#include "tests/runtime/training/whole_runs.hpp"
#include "tests/support/text.hpp"

namespace echelon {
namespace {

using test::lacks;

PlanFile plan_for_gpus(int pp, int dp, int zero, int microbatches = 2) {
  TrainedCase c;
  c.model = with_wide_heads(small_llama(2));
  c.plan = plan_for(c.model, 1, pp, dp);
  c.plan.zero = zero;
  c.plan.shard_group = zero > 0 ? dp : 1;
  c.global_batch = microbatches * dp;
  return plan_file(c);
}

RunSettings on_gpus(std::int64_t steps) {
  RunSettings settings = settings_for(steps);
  settings.backend = "cuda";
  settings.learning_rate = 1e-3;
  return settings;
}

RunContext with_gpus() {
  RunContext context;
  context.cuda = [](RunThreads& run_threads, std::unique_ptr<World> world, const PlanFile& plan) {
    return cuda::open_backend(run_threads, std::move(world), plan);
  };
  return context;
}

standins::Settings gpus(int count) {
  standins::Settings machine;
  machine.devices = count;
  machine.loads_kernels_first = true;
  return machine;
}

TEST_CASE("a run on GPUs in two parts computes the same bits as in one") {
  const TempDir dir;
  const PlanFile plan = plan_for_gpus(1, 2, 3);
  RunSettings whole = on_gpus(4);
  whole.checkpoint_dir = (dir.path() / "whole").string();
  standins::start(gpus(2));
  const Ran at_once = run(plan, whole, with_gpus());
  REQUIRE(at_once.exit_code() == 0);
  CHECK(at_once.report.backend == "cuda");
  CHECK(lacks(at_once.report.environment.at("communicators"), "nccl") == "");
  CHECK(at_once.report.executed_hash == at_once.report.schedule_hash);

  RunSettings parts = on_gpus(2);
  parts.checkpoint_dir = (dir.path() / "parts").string();
  REQUIRE(run(plan, parts, with_gpus()).exit_code() == 0);
  parts.resume = Resume::yes;
  const Ran second = run(plan, parts, with_gpus());
  REQUIRE(second.exit_code() == 0);
  CHECK(second.report.steps.back().loss == at_once.report.steps.back().loss);
  check_same_files((dir.path() / "whole/step_4").string(), (dir.path() / "parts/step_4").string());
  standins::check_nothing_left();
}

TEST_CASE("a run on GPUs that is interrupted ends with a checkpoint from which it goes on") {
  const TempDir dir;
  const PlanFile plan = plan_for_gpus(1, 2, 1);
  RunSettings whole = on_gpus(6);
  whole.checkpoint_dir = (dir.path() / "whole").string();
  standins::start(gpus(2));
  const Ran at_once = run(plan, whole, with_gpus());
  REQUIRE(at_once.exit_code() == 0);

  RunSettings parts = on_gpus(6);
  parts.checkpoint_dir = (dir.path() / "parts").string();
  volatile std::sig_atomic_t interrupted = 0;
  RunContext context = with_gpus();
  context.interrupted = &interrupted;
  context.notify = [&](const RunEvent& event) {
    if (event.kind == RunEvent::Kind::step && event.step.step == 1) interrupted = 1;
  };
  const Ran first = run(plan, parts, context);
  CHECK(first.report.end == RunReport::End::interrupted);
  REQUIRE(first.report.steps.size() == 3);  // step 2 ran when step 1 was reported
  parts.resume = Resume::yes;
  parts.steps = 3;
  const Ran second = run(plan, parts, with_gpus());
  REQUIRE(second.exit_code() == 0);
  CHECK(second.report.steps.front().step == 3);
  for (std::size_t step = 0; step < 6; ++step) {
    const auto& steps = step < 3 ? first.report.steps : second.report.steps;
    CHECK(steps[step % 3].loss == at_once.report.steps[step].loss);
  }
  check_same_files((dir.path() / "whole/step_6").string(), (dir.path() / "parts/step_6").string());
  standins::check_nothing_left();
}

TEST_CASE("a gradient that is NaN is reported with its step, and leaves the weights as they are") {
  const TempDir dir;
  const PlanFile plan = plan_for_gpus(1, 2, 1);
  RunSettings settings = on_gpus(4);
  settings.inject = {{FaultKind::nan, 1, 2}};
  settings.checkpoint_dir = dir.path().string();
  settings.checkpoint_every = 2;
  standins::start(gpus(2));
  const Ran ran = run(plan, settings, with_gpus());
  INFO(ran.report.reason);
  REQUIRE(ran.exit_code() == 0);
  REQUIRE(ran.report.steps.size() == 4);
  for (std::size_t step = 0; step < 4; ++step)
    CHECK(std::isfinite(ran.report.steps[step].gradient_norm) == (step != 2));
  CHECK(ran.report.environment.at("skipped steps") == "1");
  standins::check_nothing_left();
}

TEST_CASE("a GPU too small for the plan is reported before the first step, with the prediction") {
  standins::Settings machine = gpus(1);
  machine.device_bytes = 48 << 20;  // 32 MiB of them are for cuBLASLt
  standins::start(machine);
  PlanFile plan = plan_for_gpus(1, 1, 0);
  plan.job.sequence = 16;
  plan.model.vocab = 400000;
  const Ran ran = run(plan, on_gpus(2), with_gpus());
  CHECK(ran.exit_code() == 5);
  CHECK(ran.report.steps.empty());
  CHECK(lacks(ran.report.reason, "rank 0: no memory for") == "");
  CHECK(lacks(ran.report.reason, "; predicted: ") == "");
  CHECK(ran.report.environment.count("memory available") == 1);
  standins::check_nothing_left();
}

TEST_CASE("a run that fails while its GPUs are opened reports its plan") {
  standins::Settings machine = gpus(2);
  machine.device_bytes = 8 << 20;  // a warm-up of NCCL takes more: all of an embedding's gradients
  standins::start(machine);
  PlanFile plan = plan_for_gpus(1, 2, 3);
  plan.model.vocab = 400000;
  const Ran ran = run(plan, on_gpus(2), with_gpus());
  CHECK(ran.exit_code() == 5);
  CHECK(lacks(ran.report.reason, "memory for a warm-up of NCCL") == "");
  CHECK(ran.report.plan.plan == plan.plan);
  CHECK(ran.report.ranks == 2);
  standins::check_nothing_left();
}

TEST_CASE("a variable with an invalid value ends the run before its first step") {
  for (const char* variable : {"ECHELON_CUDNN", "ECHELON_CUDA_GRAPHS", "ECHELON_DETERMINISTIC",
                               "ECHELON_NCCL_BLOCKING", "ECHELON_NCCL_SPLIT"}) {
    setenv(variable, "nevr", 1);
    standins::start(gpus(1));
    const Ran ran = run(plan_for_gpus(1, 1, 0), on_gpus(2), with_gpus());
    unsetenv(variable);
    CHECK(ran.exit_code() == 2);
    CHECK(lacks(ran.report.reason, std::string(variable) + ": found 'nevr', expected ") == "");
    CHECK(ran.report.steps.empty());
    standins::check_nothing_left();
  }
}

TEST_CASE("a report names the algorithms of products, and whether attention repeats its bits") {
  const auto environment_of = [](const char* deterministic) {
    setenv("ECHELON_DETERMINISTIC", deterministic, 1);
    standins::start(gpus(1));
    const Ran ran = run(plan_for_gpus(1, 1, 0), on_gpus(2), with_gpus());
    unsetenv("ECHELON_DETERMINISTIC");
    standins::check_nothing_left();
    REQUIRE(ran.exit_code() == 0);
    return ran.report.environment;
  };
  const auto first = environment_of("0");
  const auto second = environment_of("1");
  REQUIRE(first.count("gemm algorithms") == 1);
  CHECK(lacks(first.at("gemm algorithms"), "cuBLASLt ") == "");
  CHECK(lacks(first.at("gemm algorithms"), "); ") == "");
  REQUIRE(second.count("gemm algorithms") == 1);
  if (first.at("attention").starts_with("cuDNN")) {
    CHECK(lacks(first.at("attention"), "backward with atomic sums") == "");
    CHECK(lacks(second.at("attention"), "deterministic backward") == "");
  }
}

TEST_CASE("a report counts CUDA graphs, and their memory as CUDA context") {
  const auto with_graphs = [](const char* use) {
    setenv("ECHELON_CUDA_GRAPHS", use, 1);
    standins::start(gpus(1));
    const Ran ran = run(plan_for_gpus(1, 1, 0), on_gpus(5), with_gpus());
    unsetenv("ECHELON_CUDA_GRAPHS");
    standins::check_nothing_left();
    REQUIRE(ran.exit_code() == 0);
    REQUIRE(ran.report.measured.has_value());
    return ran.report;
  };
  const RunReport plain = with_graphs("never");
  const RunReport graphed = with_graphs("always");
  CHECK(plain.environment.count("cuda graphs") == 0);
  REQUIRE(graphed.environment.count("cuda graphs") == 1);
  CHECK(lacks(graphed.environment.at("cuda graphs"), "4 (") == "");
  const Bytes more = graphed.measured->stages[0].context - plain.measured->stages[0].context;
  CHECK(more > 64_KiB);  // a page for each kernel of the four graphs, by the stand-in
  CHECK(more < 4_MiB);
}

/// A run on two GPUs, of which the second fails in the middle.
Ran run_with_failure(standins::Failure::Kind kind, const PlanFile& plan, std::int64_t steps,
                     Seconds deadline) {
  standins::Settings machine = gpus(2);
  machine.failures = {{.kind = kind, .rank = 1, .after = 20, .communicator = {}}};
  standins::start(machine);
  RunSettings settings = on_gpus(steps);
  settings.timeout = deadline;
  RunContext context = with_gpus();
  std::string told;  // before memory is freed, which may never end
  context.gpus_failed = [&](const RunReport& report) { told = report.reason; };
  Ran ran = run(plan, settings, context);
  CHECK(told == ran.report.reason);
  return ran;
}

TEST_CASE("a rank that never joins a collective ends the run with step and instruction") {
  const Ran ran = run_with_failure(standins::Failure::Kind::never_arrives, plan_for_gpus(1, 2, 3),
                                   6, Seconds{3});
  CHECK(ran.exit_code() == 4);
  CHECK(lacks(ran.report.reason, "the GPU has not finished") == "");
  CHECK(lacks(ran.report.reason, "step ") == "");
}

TEST_CASE("a missing rank ends the run even if a step exceeds the capacity of a stream") {
  const Ran ran = run_with_failure(standins::Failure::Kind::never_arrives,
                                   plan_for_gpus(1, 2, 3, 24), 2, Seconds{3});
  INFO(ran.report.reason);
  CHECK(ran.exit_code() == 4);
  CHECK(lacks(ran.report.reason, "the GPU has not finished") == "");
}

TEST_CASE("a rank that NCCL loses ends the run as a lost peer") {
  const Ran ran =
      run_with_failure(standins::Failure::Kind::dies, plan_for_gpus(1, 2, 3), 6, Seconds{20});
  INFO(ran.report.reason);
  CHECK((ran.exit_code() == 7 || ran.exit_code() == 70));
}

TEST_CASE("calls of NCCL that block end with a run that fails, wherever they are") {
  using enum standins::Failure::Kind;
  setenv("ECHELON_NCCL_BLOCKING", "1", 1);
  for (const auto kind : {never_arrives, never_returns, dies}) {
    const Ran ran =
        run_with_failure(kind, plan_for_gpus(1, 2, 3), 6, kind == dies ? Seconds{20} : Seconds{3});
    INFO(ran.report.reason);
    if (kind == dies) {
      CHECK((ran.exit_code() == 7 || ran.exit_code() == 70));
    } else {
      CHECK(ran.exit_code() == 4);
      CHECK(lacks(ran.report.reason, "step ") == "");
    }
  }
  standins::start(gpus(2));
  const Ran good = run(plan_for_gpus(1, 2, 3), on_gpus(3), with_gpus());
  unsetenv("ECHELON_NCCL_BLOCKING");
  CHECK(good.exit_code() == 0);
  standins::check_nothing_left();
}

TEST_CASE("a GPU with too little shared memory for heads of latents is refused by name") {
  standins::Settings machine = gpus(1);
  machine.shared_per_block = 99 * 1024;  // of compute capability 8.6 and 8.9
  PlanFile plan = plan_for_gpus(1, 1, 0);
  plan.model = with_wide_heads(small_deepseek(2));
  setenv("ECHELON_CUDNN", "never", 1);
  standins::start(machine);
  const Ran ran = run(plan, on_gpus(2), with_gpus());
  unsetenv("ECHELON_CUDNN");
  CHECK(ran.exit_code() == 3);
  CHECK(ran.report.steps.empty());
  CHECK(lacks(ran.report.reason, "101376 bytes of shared memory in a block") == "");
  CHECK(lacks(ran.report.reason,
              "own kernels (ECHELON_CUDNN=never) takes 123904 for heads of 192 "
              "for queries and keys and of 128 for values") == "");
  standins::check_nothing_left();
}

TEST_CASE("features that GPUs do not execute are refused by name") {
  standins::start(gpus(1));
  PlanFile plan = plan_for_gpus(1, 1, 0);
  const auto refused = [&] {
    const Result<RunReport> report = run_plan(plan, on_gpus(1), with_gpus());
    return report ? std::string("it ran") : report.error().message();
  };
  plan.model.head_dim = 32;
  CHECK(lacks(refused(), "head_dim 32 (the CUDA backend supports 64 and 128)") == "");
  plan = plan_for_gpus(1, 1, 0);
  plan.job.precision = find_precision("fp32").value();
  CHECK(lacks(refused(), "precision fp32 on GPUs") == "");
}

TEST_CASE("more ranks than GPUs are refused if there are several GPUs") {
  standins::start(gpus(2));
  const Result<RunReport> report = run_plan(plan_for_gpus(2, 2, 0), on_gpus(1), with_gpus());
  REQUIRE_FALSE(report.ok());
  CHECK(report.error().kind == Error::Kind::environment);
  standins::check_nothing_left();
}

}  // namespace
}  // namespace echelon
