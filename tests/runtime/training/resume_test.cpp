// Resuming whole runs: with one command line, the data and the learning rate where they were, under
// any plan, and checkpoints that are slow, asynchronous or without space.
#include <chrono>
#include <cmath>
#include <filesystem>
#include <thread>

#include "runtime/io/weights/checkpoint.hpp"
#include "runtime/training/folder_lock.hpp"
#include "runtime/training/run_history.hpp"
#include "tests/runtime/training/whole_runs.hpp"
#include "tests/support/text.hpp"

namespace echelon {
namespace {

namespace fs = std::filesystem;
using echelon::test::lacks;

TrainedCase small_case(int tp, int pp, int dp, int zero, const char* precision = "fp32",
                       std::int64_t global_batch = 8, int cp = 1,
                       const ModelSpec& model = small_gpt2()) {
  TrainedCase c;
  c.model = model;
  c.plan = plan_for(c.model, tp, pp, dp);
  c.plan.cp = cp;
  if (cp > 1) c.plan.cp_comm = CpComm::all_to_all;
  c.plan.zero = zero;
  c.plan.shard_group = zero > 0 ? dp * cp : 1;
  c.precision = precision;
  c.global_batch = global_batch;
  return c;
}

/// In fp64, which the cluster that prices the program has no units for.
PlanFile exact_plan(int tp, int pp, int dp, int zero, std::int64_t global_batch = 8, int cp = 1,
                    const ModelSpec& model = small_gpt2()) {
  PlanFile plan = plan_file(small_case(tp, pp, dp, zero, "bf16", global_batch, cp, model));
  plan.job.precision = find_precision("fp64").value();
  return plan;
}

std::string error_of(const PlanFile& plan, const RunSettings& settings,
                     const RunContext& context = {}) {
  const Result<RunReport> report = run_plan(plan, settings, context);
  return report ? "it ran" : report.error().message();
}

/// Whatever is there, but for the flight recorder's folder, the starts and the lock.
std::vector<std::string> steps_in(const fs::path& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (name != "flight" && name != RunHistory::kFile && name != FolderLock::kFile)
      names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

TEST_CASE("a run with --resume auto starts, goes on and ends with one and the same command line") {
  const PlanFile plan = plan_file(small_case(1, 2, 2, 1));
  const TempDir folder;
  RunSettings settings = settings_for(7);
  settings.lr_decay_steps = 0;  // the last step of the whole training
  settings.checkpoint_dir = (folder.path() / "whole").string();
  const Ran whole = run(plan, settings);
  settings.checkpoint_dir = (folder.path() / "parts").string();
  settings.checkpoint_every = 2;
  settings.resume = Resume::automatic;
  std::vector<RunStep> steps;
  for (const std::int64_t stop : {1, 4, 100}) {  // interrupted twice
    volatile std::sig_atomic_t interrupted = 0;
    RunContext context;
    context.interrupted = &interrupted;
    context.notify = [&](const RunEvent& event) {
      if (event.kind == RunEvent::Kind::step && event.step.step == stop) interrupted = 1;
    };
    const Ran part = run(plan, settings, context);
    steps.insert(steps.end(), part.report.steps.begin(), part.report.steps.end());
    CHECK(part.exit_code() == (stop == 100 ? 0 : 130));
  }
  REQUIRE(steps.size() == 7);
  for (std::size_t i = 0; i < 7; ++i) {
    CHECK(steps[i].step == static_cast<std::int64_t>(i));
    CHECK(steps[i].loss == whole.report.steps[i].loss);
    CHECK(steps[i].learning_rate == whole.report.steps[i].learning_rate);
  }
  check_same_files(folder.path() / "whole/step_7", folder.path() / "parts/step_7");
  // Once more: nothing is left to do, except for the export that a killed process may have missed.
  settings.export_to = (folder.path() / "weights").string();
  const Ran again = run(plan, settings);
  CHECK(again.exit_code() == 0);
  CHECK(again.report.steps.empty());
  CHECK(lacks(again.notes(), "all 7 steps were done before") == "");
  CHECK(fs::exists(folder.path() / "weights/config.json"));
  CHECK(fs::exists(folder.path() / "parts/step_7"));
}

TEST_CASE("a resumed run with another global batch reads the samples that follow") {
  // 3 steps of 8 samples, then of 4: as a run of 4 whose step 6 begins with sample 24.
  const TempDir folder;
  RunSettings settings = settings_for(3);
  settings.lr_decay_steps = 0;
  settings.checkpoint_dir = folder.path().string();
  (void)run(exact_plan(1, 1, 2, 1, 8), settings);
  settings.resume = Resume::yes;
  settings.steps = 2;
  const Ran four = run(exact_plan(1, 1, 2, 1, 4), settings);
  CHECK(lacks(four.notes(),
              "written with a global batch of 8, now 4: data and learning rate go on "
              "after 24 samples") == "");
  REQUIRE(four.report.steps.size() == 2);
  CHECK(four.report.steps[0].step == 3);
  // The same samples as one step of 8 that begins there: the mean of both losses at first order of
  // a rate that is nearly 0.
  settings.checkpoint_dir.clear();
  settings.resume = Resume::no;
  RunSettings frozen = settings_for(4);
  frozen.learning_rate = 1e-12;
  frozen.min_lr = 1e-13;
  frozen.checkpoint_dir = (folder.path() / "frozen").string();
  frozen.steps = 3;
  const PlanFile eight = exact_plan(1, 1, 1, 0, 8);
  (void)run(eight, frozen);
  RunSettings rest = frozen;
  rest.steps = 1;
  rest.resume = Resume::yes;
  rest.keep_last = 0;
  const double one_step = run(eight, rest).report.steps.front().loss;
  fs::remove_all(folder.path() / "frozen/step_4");
  rest.steps = 2;
  const Ran two = run(exact_plan(1, 1, 1, 0, 4), rest);
  const double mean = (two.report.steps[0].loss + two.report.steps[1].loss) / 2;
  CHECK(mean == Approx(one_step).epsilon(1e-9));
  CHECK(two.report.steps[0].loss != Approx(one_step).epsilon(1e-6));
}

/// Every pair of these plans: one saves, the other goes on.
void check_resumed(const std::vector<PlanFile>& plans) {
  RunSettings settings = settings_for(4);
  const Ran whole = run(plans.front(), settings);
  const TempDir folder;
  for (std::size_t from = 0; from < plans.size(); ++from) {
    const fs::path saved = folder.path() / std::to_string(from);
    RunSettings first = settings_for(2);
    first.checkpoint_dir = saved.string();
    (void)run(plans[from], first);
    for (std::size_t to = 0; to < plans.size(); ++to) {
      CAPTURE(from, to);
      const fs::path copy = folder.path() / "copy";
      fs::copy(saved, copy, fs::copy_options::recursive);
      RunSettings rest = settings_for(2);
      rest.checkpoint_dir = copy.string();
      rest.resume = Resume::yes;
      const Ran ran = run(plans[to], rest);
      REQUIRE(ran.report.steps.size() == 2);
      for (std::size_t i = 0; i < 2; ++i) {
        const double expected = whole.report.steps[i + 2].loss;
        CHECK(std::abs(ran.report.steps[i].loss - expected) < 1e-12);
        CHECK(std::abs(ran.report.steps[i].gradient_norm / whole.report.steps[i + 2].gradient_norm -
                       1) < 1e-11);
      }
      fs::remove_all(copy);
    }
  }
}

TEST_CASE("a model with shared experts and a corrected router goes on under any other plan") {
  const auto plan_of = [](int tp, int dp, int ep, int zero) {
    TrainedCase c;
    c.model = small_glm4_moe();
    c.plan = plan_for(c.model, tp, 1, dp);
    c.plan.ep = ep;
    c.plan.zero = zero;
    c.plan.shard_group = zero > 0 ? dp : 1;
    c.precision = "bf16";
    PlanFile plan = plan_file(c);
    plan.job.precision = find_precision("fp64").value();
    return plan;
  };
  check_resumed_by_next({plan_of(1, 1, 1, 0), plan_of(2, 2, 2, 1), plan_of(1, 4, 2, 3)});
}

TEST_CASE("saved under any plan, a run goes on under any other within rounding") {
  std::vector<PlanFile> plans;
  for (const auto& [tp, pp, dp, zero] : std::vector<std::array<int, 4>>{
           {1, 1, 1, 0}, {2, 2, 1, 0}, {1, 1, 4, 3}, {2, 1, 2, 1}, {1, 4, 1, 0}, {1, 2, 2, 2}})
    plans.push_back(exact_plan(tp, pp, dp, zero));
  plans.push_back(exact_plan(1, 1, 2, 3, 8, 2));  // cp 2
  plans.push_back(plans.back());
  plans.back().plan.cp_comm = CpComm::ring;
  check_resumed(plans);
}

TEST_CASE("a run with latent attention, saved under any plan, goes on under any other") {
  std::vector<PlanFile> plans;
  for (const auto& [tp, pp, dp, zero] :
       std::vector<std::array<int, 4>>{{1, 1, 1, 0}, {4, 1, 1, 0}, {2, 2, 2, 3}})
    plans.push_back(exact_plan(tp, pp, dp, zero, 8, 1, small_deepseek_lite()));
  check_resumed(plans);
}

TEST_CASE("a checkpoint or export that takes longer than the deadline is no hang") {
  const PlanFile plan = plan_file(small_case(1, 2, 2, 1));
  const TempDir folder;
  RunSettings settings = settings_for(2);
  settings.timeout = Seconds{1};
  settings.checkpoint_dir = (folder.path() / "steps").string();
  settings.export_to = (folder.path() / "weights").string();
  RunContext context;
  context.disk = Disk([](std::string_view what, const std::string& path) {
    const bool slow =
        path.ends_with("step_2.tmp/manifest.json") || path.ends_with("model.safetensors.tmp");
    if (what == "create" && slow) std::this_thread::sleep_for(std::chrono::milliseconds(1300));
    return 0;
  });
  const Ran ran = run(plan, settings, context);
  INFO(ran.report.reason);
  CHECK(ran.exit_code() == 0);
  CHECK(fs::exists(folder.path() / "steps/step_2/manifest.json"));
  CHECK(fs::exists(folder.path() / "weights/config.json"));
}

TEST_CASE("asynchronous checkpoints are those of a run that waits for them, and are counted") {
  for (const auto& [tp, pp, dp, zero] :
       std::vector<std::array<int, 4>>{{1, 1, 1, 0}, {2, 2, 1, 0}, {1, 1, 4, 3}}) {
    CAPTURE(tp, pp, dp, zero);
    const PlanFile plan = plan_file(small_case(tp, pp, dp, zero, "bf16"));
    const TempDir folder;
    RunSettings settings = settings_for(9);
    settings.checkpoint_every = 2;
    settings.keep_last = 0;
    settings.checkpoint_dir = (folder.path() / "waits").string();
    const Ran waits = run(plan, settings);
    CHECK(waits.report.checkpoint_copy == Bytes{});
    settings.async_checkpoints = true;
    settings.checkpoint_dir = (folder.path() / "async").string();
    const Ran async = run(plan, settings);
    for (std::size_t i = 0; i < 9; ++i)
      CHECK(async.report.steps[i].loss == waits.report.steps[i].loss);
    CHECK(steps_in(folder.path() / "async") ==
          std::vector<std::string>{"step_2", "step_4", "step_6", "step_8", "step_9"});
    for (const char* step : {"step_2", "step_4", "step_6", "step_8", "step_9"})
      check_same_files(folder.path() / "waits" / step, folder.path() / "async" / step);
    // At most one copy of the largest rank's part of the state: 2 + 3 · 4 bytes a parameter.
    const double bytes = async.report.checkpoint_copy.in(kByte);
    const StateFormat format{Element::bf16, Element::f32, Element::f32};
    const auto once = static_cast<double>(checkpoint_bytes(plan.model, format));
    CHECK(bytes > 0.9 * once / (tp * pp * dp) - 4096);
    CHECK(bytes < 2 * once / (tp * pp * dp));
  }
}

TEST_CASE("the newest checkpoints and those of every Nth step stay") {
  const PlanFile plan = plan_file(small_case(1, 1, 1, 0));
  const TempDir folder;
  RunSettings settings = settings_for(7);
  settings.checkpoint_every = 1;
  settings.keep_last = 1;
  settings.keep_every = 3;
  settings.checkpoint_dir = folder.path().string();
  (void)run(plan, settings);
  CHECK(steps_in(folder.path()) == std::vector<std::string>{"step_3", "step_6", "step_7"});
}

TEST_CASE("a disk without space for the run's checkpoints is reported before the first step") {
  PlanFile plan = plan_file(small_case(1, 1, 1, 0));
  const TempDir folder;
  RunSettings settings = settings_for(100);
  settings.checkpoint_dir = (folder.path() / "steps").string();
  settings.checkpoint_every = 10;
  settings.keep_last = 4;
  plan.model.ffn_hidden = 1 << 30;  // a model whose state no disk holds
  plan.model.hidden = 1 << 14;
  plan.model.heads = plan.model.kv_heads = 1 << 12;
  const Result<RunReport> report = run_plan(plan, settings, {});
  REQUIRE(!report.ok());
  CHECK(report.error().kind == Error::Kind::environment);
  const std::string told = report.error().message();
  CHECK(lacks(told, "--checkpoint-dir: " + settings.checkpoint_dir +
                        ": 5 checkpoints at a time of ") == "");
  CHECK(lacks(told, " GB more on the disk, ") == "");
  CHECK(lacks(told, " are free; free some, keep fewer checkpoints (--keep-last)") == "");
  settings.checkpoint_dir.clear();
  settings.export_to = (folder.path() / "weights").string();
  CHECK(lacks(error_of(plan, settings), "--export: " + settings.export_to) == "");
}

TEST_CASE("a folder that cannot be made is reported before the first step") {
  const PlanFile plan = plan_file(small_case(1, 1, 1, 0));
  RunSettings settings = settings_for(2);
  settings.checkpoint_dir = "/proc/checkpoints";  // where not even root can make one
  const std::string told = error_of(plan, settings);
  CHECK(lacks(told, "--checkpoint-dir: /proc/checkpoints: cannot be made: ") == "");
}

TEST_CASE("a checkpoint of another precision or model is refused and stays") {
  const TempDir folder;
  RunSettings settings = settings_for(2);
  settings.checkpoint_dir = folder.path().string();
  (void)run(plan_file(small_case(1, 1, 1, 0, "fp32")), settings);
  for (const Resume how : {Resume::yes, Resume::automatic}) {
    settings.resume = how;
    CHECK(lacks(error_of(plan_file(small_case(1, 1, 1, 0, "bf16")), settings),
                "a checkpoint in another precision: F32 weights and F32 moments; expected BF16 "
                "weights with F32 masters and F32 moments") == "");
    PlanFile other = plan_file(small_case(1, 1, 1, 0, "fp32"));
    other.model.vocab = 51;
    CHECK(lacks(error_of(other, settings), "a checkpoint of another model: vocab is 50") == "");
  }
  CHECK(fs::exists(folder.path() / "step_2/manifest.json"));
}

}  // namespace
}  // namespace echelon
