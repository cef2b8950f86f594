// Whole runs: resume, damage, interruption, failures that name their cause, weights in and out.
#include <cstring>
#include <filesystem>
#include <thread>

#include "runtime/comm/call_communicator.hpp"
#include "tests/runtime/training/whole_runs.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/support/text.hpp"

using namespace echelon;
using echelon::test::lacks;

namespace {

namespace fs = std::filesystem;

TrainedCase case_of(int tp, int pp, int dp, int zero, const char* precision = "fp32") {
  TrainedCase c;
  c.model = small_gpt2();
  c.plan = plan_for(c.model, tp, pp, dp);
  c.plan.zero = zero;
  c.plan.shard_group = zero > 0 ? dp : 1;
  c.precision = precision;
  return c;
}

std::string refusal(const PlanFile& plan, const RunSettings& settings) {
  const Result<RunReport> report = run_plan(plan, settings, {});
  return report ? "it ran" : report.error().message();
}

void flip_a_byte(const fs::path& file) {
  std::string content = slurp(file);
  content[content.size() / 2] = static_cast<char>(content[content.size() / 2] ^ 1);
  std::ofstream(file, std::ios::binary) << content;
}

std::string token_file(std::int32_t count, std::uint16_t token) {
  std::vector<std::int32_t> head(256);
  head[0] = 20240520;
  head[1] = 1;
  head[2] = count;
  const std::vector<std::uint16_t> tokens(static_cast<std::size_t>(count), token);
  std::string raw(1024 + 2 * tokens.size(), '\0');
  std::memcpy(raw.data(), head.data(), 1024);
  std::memcpy(raw.data() + 1024, tokens.data(), 2 * tokens.size());
  return raw;
}

/// A member that never joins: waits until the run stops.
class Absent final : public CallCommunicator {
 public:
  explicit Absent(RunThreads& run_threads, int rank, int size)
      : run_threads_(run_threads), rank_(rank), size_(size) {}
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] Seconds transfer_began() const override { return {}; }

 private:
  void carry_out(const Call&, const void*, void*, const PartCounts&) override {
    while (!run_threads_.stopping()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    throw RunFailure(RunFailure::Kind::stopped, "the run has stopped");
  }
  RunThreads& run_threads_;
  int rank_;
  int size_;
};

/// All ranks are threads, but one never joins one of its groups.
class HangingWorld final : public World {
 public:
  HangingWorld(RunThreads& run_threads, std::unique_ptr<World> inner, int rank, GroupRole role)
      : inner_(std::move(inner)), rank_(rank), role_(role) {
    const Communicator& real = inner_->at(rank, role);
    absent_ = std::make_unique<Absent>(run_threads, real.rank(), real.size());
  }
  [[nodiscard]] int ranks() const override { return inner_->ranks(); }
  [[nodiscard]] int ranks_on_this_machine() const override {
    return inner_->ranks_on_this_machine();
  }
  [[nodiscard]] const std::vector<int>& local_ranks() const override {
    return inner_->local_ranks();
  }
  [[nodiscard]] Communicator& at(int rank, GroupRole role) override {
    if (rank == rank_ && role == role_) return *absent_;
    return inner_->at(rank, role);
  }
  [[nodiscard]] StatusLink* status_link() override { return inner_->status_link(); }

 private:
  std::unique_ptr<World> inner_;
  std::unique_ptr<Absent> absent_;
  int rank_;
  GroupRole role_;
};

}  // namespace

TEST_CASE("a run in two parts computes the same bits as in one") {
  for (const char* precision : {"fp32", "bf16"}) {
    for (const TrainedCase& c : {case_of(1, 1, 1, 0, precision), case_of(2, 2, 2, 0, precision),
                                 case_of(2, 2, 2, 1, precision), case_of(2, 2, 2, 3, precision)}) {
      INFO(precision << ", " << c.plan.gpus() << " ranks, ZeRO " << c.plan.zero);
      const PlanFile plan = plan_file(c);
      const TempDir folder;
      RunSettings settings = settings_for(6);
      settings.checkpoint_dir = (folder.path() / "whole").string();
      const Ran whole = run(plan, settings);
      REQUIRE(whole.exit_code() == 0);
      CHECK(whole.report.executed_hash == whole.report.schedule_hash);
      settings.checkpoint_dir = (folder.path() / "parts").string();
      settings.steps = 3;
      const Ran first = run(plan, settings);
      settings.resume = Resume::yes;
      const Ran second = run(plan, settings);
      REQUIRE(first.report.steps.size() == 3);
      REQUIRE(second.report.steps.size() == 3);
      CHECK(lacks(second.notes(), "resuming from " + settings.checkpoint_dir + "/step_3") == "");
      for (std::size_t i = 0; i < 6; ++i) {
        const RunStep& part = i < 3 ? first.report.steps[i] : second.report.steps[i - 3];
        CHECK(part.step == static_cast<std::int64_t>(i));
        CHECK(part.loss == whole.report.steps[i].loss);
        CHECK(part.gradient_norm == whole.report.steps[i].gradient_norm);
        CHECK(part.learning_rate == whole.report.steps[i].learning_rate);
      }
      check_same_files(folder.path() / "whole/step_6", folder.path() / "parts/step_6");
    }
  }
}

TEST_CASE("one rank has no communication, and a plan without a pipeline has no bubble") {
  struct Case {
    int tp, dp, zero;
  };
  for (const Case& each : {Case{1, 1, 0}, Case{1, 2, 0}, Case{1, 2, 1}, Case{1, 2, 2},
                           Case{1, 2, 3}, Case{2, 1, 0}, Case{2, 2, 3}}) {
    CAPTURE(each.tp, each.dp, each.zero);
    const Ran ran = run(plan_file(case_of(each.tp, 1, each.dp, each.zero)), settings_for(5));
    REQUIRE(ran.report.measured.has_value());
    const CostBreakdown& parts = ran.report.measured->time;
    CHECK(parts.bubble() == Seconds{});
    CHECK(parts.exposed[Axis::pp] == Seconds{});
    CHECK((parts.exposed[Axis::dp] > Seconds{}) == (each.dp > 1));
    if (each.tp == 1) CHECK(parts.exposed[Axis::tp] == Seconds{});
    CHECK(parts.optimizer > Seconds{});
  }
}

TEST_CASE("a run can resume under another plan, and reports it") {
  const PlanFile eight = plan_file(case_of(2, 2, 2, 3));
  const PlanFile one = plan_file(case_of(1, 1, 1, 0));
  const TempDir folder;
  RunSettings settings = settings_for(6);
  const Ran whole = run(one, settings);
  settings.steps = 3;
  settings.checkpoint_dir = folder.path().string();
  (void)run(eight, settings);
  settings.resume = Resume::yes;
  const Ran rest = run(one, settings);
  CHECK(lacks(rest.notes(), "written under another plan (tp 2, pp 2, vpp 1, dp 2") == "");
  REQUIRE(rest.report.steps.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(rest.report.steps[i].loss ==
          Approx(whole.report.steps[i + 3].loss).epsilon(1e-4));  // other orders of sums in fp32
  }
}

TEST_CASE("a damaged latest checkpoint is skipped for the one before it") {
  const PlanFile plan = plan_file(case_of(1, 1, 2, 1));
  const TempDir folder;
  RunSettings settings = settings_for(6);
  settings.checkpoint_dir = folder.path().string();
  settings.checkpoint_every = 2;
  const Ran whole = run(plan, settings);
  // The two newest are kept.
  CHECK_FALSE(fs::exists(folder.path() / "step_2"));
  CHECK(fs::exists(folder.path() / "step_4"));
  flip_a_byte(folder.path() / "step_6/exp_avg.safetensors");
  settings.resume = Resume::yes;
  settings.steps = 2;
  const Ran reread = run(plan, settings);
  CHECK(lacks(reread.notes(), "skipped a damaged checkpoint") == "");
  CHECK(lacks(reread.notes(), "step_6/exp_avg.safetensors") == "");
  const std::string start = reread.report.environment.at("start");  // also with --quiet
  CHECK(lacks(start, "step_6/exp_avg.safetensors") == "");
  CHECK(lacks(start, "resuming from " + settings.checkpoint_dir + "/step_4 after 4 steps") == "");
  REQUIRE(reread.report.steps.size() == 2);
  CHECK(reread.report.steps.front().step == 4);
  CHECK(reread.report.steps.back().loss == whole.report.steps.back().loss);
  // A complete checkpoint has replaced the damaged one.
  settings.steps = 1;
  CHECK(run(plan, settings).report.steps.front().step == 6);

  for (const char* step : {"step_6", "step_7"}) {
    flip_a_byte(folder.path() / step / "weights.safetensors");
  }
  CHECK(lacks(refusal(plan, settings), "no intact checkpoint") == "");
}

TEST_CASE("a new run keeps the checkpoints of an earlier one") {
  const PlanFile plan = plan_file(case_of(1, 1, 1, 0));
  const TempDir folder;
  RunSettings settings = settings_for(2);
  settings.checkpoint_dir = folder.path().string();
  (void)run(plan, settings);
  const std::string reported = refusal(plan, settings);
  CHECK(lacks(reported, "holds checkpoints of an earlier run, the latest at step 2") == "");
  CHECK(lacks(reported, "--resume continues from there") == "");
  settings.checkpoint_dir = (folder.path() / "none").string();
  settings.resume = Resume::yes;
  CHECK(lacks(refusal(plan, settings), "--resume: no checkpoint in") == "");
  settings.checkpoint_dir = folder.path().string();
  settings.seed = 9;
  CHECK(lacks(refusal(plan, settings), "--seed: 9; expected 1, that of the checkpoint") == "");
}

TEST_CASE("an interrupted run ends after its step with a checkpoint") {
  const PlanFile plan = plan_file(case_of(1, 2, 2, 1));
  const TempDir folder;
  RunSettings settings = settings_for(1000);
  settings.checkpoint_dir = folder.path().string();
  volatile std::sig_atomic_t interrupted = 0;
  RunContext context;
  context.interrupted = &interrupted;
  context.notify = [&](const RunEvent& event) {
    if (event.kind == RunEvent::Kind::step && event.step.step == 3) interrupted = 1;
  };
  const Ran ended = run(plan, settings, context);
  CHECK(ended.report.end == RunReport::End::interrupted);
  CHECK(ended.exit_code() == 130);
  CHECK(ended.report.steps.size() == 4);
  CHECK(ended.report.measured.has_value());
  CHECK(fs::exists(folder.path() / "step_4/manifest.json"));
}

TEST_CASE("a diverged run names the step and writes no checkpoint of it") {
  const TempDir folder;
  for (const TrainedCase& c : {case_of(1, 1, 1, 0), case_of(1, 2, 2, 1)}) {
    RunSettings settings = settings_for(6);
    settings.learning_rate = 1e30;
    settings.max_skipped_steps = 0;
    settings.checkpoint_dir = folder.path().string();
    const Ran ended = run(plan_file(c), settings);
    CHECK(ended.exit_code() == 6);
    INFO(ended.report.reason);
    CHECK(lacks(ended.report.reason, "step 1: the loss is") == "");
    CHECK(ended.report.steps.size() == 2);
    for (const auto& entry : fs::directory_iterator(folder.path()))
      CHECK_FALSE(entry.path().filename().string().starts_with("step_"));
  }
}

TEST_CASE("a missing peer ends the run with the waiting ranks and their operations") {
  struct Case {
    int tp, pp, dp;
    GroupRole role;
    std::string reported;
  };
  for (const Case& each :
       {Case{2, 1, 1, GroupRole::tp, "rank 1 compute: step 0 #3 F c0 m0"},
        Case{1, 2, 1, GroupRole::forward, "rank 1 p2p_forward: step 0 #3 recv_f c0 m0"},
        Case{1, 1, 2, GroupRole::dp_reduce, "rank 1 reduce: step 0 #13 reduce c0 u0"},
        Case{1, 1, 2, GroupRole::control, "rank 1 host: step 0 is over on this queue"}}) {
    RunSettings settings = settings_for(3);
    settings.timeout = Seconds{1};
    RunContext context;
    context.connect = [&](RunThreads& run_threads, const ParallelPlan& plan,
                          const ModelSpec& model) {
      return Result<std::unique_ptr<World>>(std::make_unique<HangingWorld>(
          run_threads, thread_world(run_threads, plan, model), 1, each.role));
    };
    const auto start = std::chrono::steady_clock::now();
    const Ran ended = run(plan_file(case_of(each.tp, each.pp, each.dp, 0)), settings, context);
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(30));
    INFO(ended.report.reason);
    CHECK(ended.exit_code() == 4);
    CHECK(lacks(ended.report.reason, "no progress within the deadline of rank ") == "");
    CHECK(lacks(ended.report.reason, each.reported) == "");
    CHECK(lacks(ended.report.reason, "\n  rank 0 ") == "");  // the operation of every rank
  }
}

TEST_CASE("features that are not executed are refused by name") {
  const PlanFile good = plan_file(case_of(1, 1, 1, 0));
  const auto changed = [&](auto change) {
    PlanFile plan = good;
    change(plan);
    return refusal(plan, settings_for(1));
  };
  CHECK(lacks(changed([](PlanFile& p) { p.plan.cp = 2, p.plan.cp_comm = CpComm::all_gather; }),
              "cp 2 by all_gather") == "");
  CHECK(lacks(changed([](PlanFile& p) { p.plan.ep = 2; }), "ep 2; expected ep 1") == "");
  CHECK(lacks(changed([](PlanFile& p) {
                p.model.moe = {.experts = 8, .experts_per_token = 2, .expert_bias = true};
              }),
              "biases inside the experts") == "");
  CHECK(lacks(changed([](PlanFile& p) { p.model.heads = 3, p.plan.tp = 2; }),
              "3 heads over tp 2") == "");
  CHECK(lacks(changed([](PlanFile& p) { p.plan.offload_optimizer = 1; }), "offload") == "");
  CHECK(lacks(changed([](PlanFile& p) { p.job.precision = find_precision("fp8").value(); }),
              "precision fp8") == "");
  CHECK(lacks(changed([](PlanFile& p) { p.job.sequence = 17; }),
              "at most 16, the learned positions") == "");
  CHECK(lacks(changed([](PlanFile& p) { p.program = "nonsense"; }), "nonsense") == "");
  CHECK(lacks(changed([](PlanFile& p) { p.plan.pp = 2; }), "program") == "");
}

TEST_CASE("data that cannot be trained on is an input error with its place") {
  const PlanFile plan = plan_file(case_of(1, 1, 2, 0));
  const TempDir folder;
  RunSettings settings = settings_for(3);
  const auto with = [&](const char* name, const std::string& content) {
    settings.data = folder.write(name, content).string();
    return refusal(plan, settings);
  };
  const std::string tokens = token_file(200, 7);
  CHECK(lacks(with("cut.bin", tokens.substr(0, tokens.size() - 2)), "cut off or damaged") == "");
  CHECK(lacks(with("text.txt", "to be or not to be"), "text for a vocabulary of 50") == "");
  CHECK(lacks(with("empty.txt", ""), "the file is empty") == "");
  CHECK(lacks(with("short.bin", token_file(8, 7)), "8 tokens; expected at least 9") == "");
  settings.data = (folder.path() / "missing").string();
  CHECK(lacks(refusal(plan, settings), "missing") == "");
  // Faults that no header shows are found during the run.
  settings.data = folder.write("beyond.bin", token_file(200, 50)).string();
  const Ran ended = run(plan, settings);
  CHECK(ended.exit_code() == 2);
  INFO(ended.report.reason);
  CHECK(lacks(ended.report.reason, "beyond.bin") == "");
  CHECK(lacks(ended.report.reason, "50") == "");
  settings.data = folder.write("fine.bin", token_file(200, 49)).string();
  const Ran fine = run(plan, settings);
  CHECK(fine.exit_code() == 0);
  REQUIRE(fine.report.measured.has_value());
  // The step may not have waited for it at all; its duration is measured nevertheless.
  const Schedule program = parse_schedule_text(plan.program, "the plan").value();
  Seconds loading;
  for (const ExecutedSpan& span : fine.report.spans) {
    const Instruction& i = program.programs.at(0).instructions.at(span.instruction);
    if (i.op == Op::load_batch) loading += span.end - span.start;
  }
  CHECK(loading > Seconds{});
}

TEST_CASE("another run starts from exported weights where this one ended") {
  for (const char* precision : {"fp32", "bf16"}) {
    for (const ModelSpec& model : {small_gpt2(), small_llama()}) {
      INFO(precision << ", " << model.name);
      TrainedCase c = case_of(2, 2, 2, 1, precision);
      c.model = model;
      const PlanFile plan = plan_file(c);
      const TempDir folder;
      RunSettings settings = settings_for(4);
      settings.data = "synthetic:9";  // one sample: every step sees the same
      const Ran longer = run(plan, settings);
      settings.steps = 3;
      settings.export_to = (folder.path() / "weights").string();
      CHECK(run(plan, settings).exit_code() == 0);
      CHECK(fs::exists(folder.path() / "weights/config.json"));
      CHECK_FALSE(fs::exists(folder.path() / "weights.checkpoint"));
      settings.init_from = settings.export_to;
      settings.export_to.clear();
      settings.steps = 1;
      settings.seed = 77;
      CHECK(run(plan, settings).report.steps.front().loss == longer.report.steps.back().loss);
      // Another model, and weights that lack a tensor.
      PlanFile other = plan;
      other.model.vocab = 51;
      CHECK(lacks(refusal(other, settings), "vocab") == "");
      const fs::path tensors = folder.path() / "weights/model.safetensors";
      std::string content = slurp(tensors);
      const std::size_t name = content.find("layernorm.weight") != std::string::npos
                                   ? content.find("layernorm.weight")
                                   : content.find("ln_1.weight");
      REQUIRE(name != std::string::npos);
      content[name] = 'x';
      std::ofstream(tensors, std::ios::binary) << content;
      const std::string reported = refusal(plan, settings);
      INFO(reported);
      CHECK(lacks(reported, model.name == "small-gpt2" ? "ln_1.weight" : "layernorm.weight") == "");
    }
  }
}

TEST_CASE("a folder that cannot be written ends the run with an environment error") {
  const PlanFile plan = plan_file(case_of(1, 1, 2, 0));
  const TempDir folder;
  RunSettings settings = settings_for(2);
  settings.checkpoint_dir = (folder.write("file", "") / "inside").string();
  const Result<RunReport> report = run_plan(plan, settings, {});
  if (report) {
    CHECK(exit_code_of(*report) == 3);
    CHECK(lacks(report->reason, "not a directory") == "");
  } else {
    CHECK(report.error().kind == Error::Kind::environment);
  }
}
