// The command lines of docs/run.md that start, survive and restart.
#include "tests/cli/documented.hpp"

#include "tests/cli/started.hpp"
#include "tests/support/skip.hpp"

using namespace echelon;
using echelon::test::Background;
using echelon::test::between_marks;
using echelon::test::documented_training;
using echelon::test::DocumentedSite;
using echelon::test::free_port;
using echelon::test::lacks;
using echelon::test::processes_with;
using echelon::test::Runs;
using echelon::test::smaller_training;
using echelon::test::with_replaced;
using echelon::test::within;

namespace {

/// torchrun as far as the command line of the page uses it, for all nodes at once: starts a process
/// per rank with its variables, and all of them again when one has failed.
constexpr const char* kTorchrun = R"(nodes=1 each=1 restarts=0
while [[ $1 == --* ]]; do
  case $1 in
  --no-python) shift; continue ;;
  --nnodes) nodes=$2 ;;
  --nproc-per-node) each=$2 ;;
  --max-restarts) restarts=$2 ;;
  --rdzv-backend | --rdzv-endpoint) ;;
  *) exit 2 ;;
  esac
  shift 2
done
size=$((nodes * each))
for ((start = 0; start <= restarts; start++)); do
  pids=()
  for ((rank = 0; rank < size; rank++)); do
    RANK=$rank WORLD_SIZE=$size LOCAL_RANK=$((rank % each)) LOCAL_WORLD_SIZE=$each \
      MASTER_ADDR=127.0.0.1 TORCHELASTIC_RESTART_COUNT=$start "$@" &
    pids+=($!)
  done
  failed=0
  for pid in "${pids[@]}"; do wait $pid || failed=1; done
  [ $failed = 0 ] && exit 0
done
exit 1)";

/// Kills one plan-run when a checkpoint is there.
void kill_one(const Runs& runs, const DocumentedSite& site) {
  REQUIRE(within(120, [&] { return site.has("kept/step_4/manifest.json"); }));
  const auto all = processes_with(runs.sandbox.file("plan-run-"));
  for (const pid_t each : all) {
    if (lacks(echelon::test::text_of_process(each, "comm"), "plan-run").empty()) {
      kill(each, SIGKILL);
      return;
    }
  }
}

}  // namespace

TEST_CASE("the documented loops restart a run with threads and under mpirun") {
  const Runs runs;
  const DocumentedSite site(runs);
  const std::vector<double> whole = site.whole();
  const bool has_mpi = run_shell("command -v mpirun").exit_code == 0;
  const std::string loops = between_marks("are worth another try.\n\n```sh\n", "```");
  const std::size_t second = loops.find('\n') + 1;
  const std::string with_threads = loops.substr(0, second);
  const std::string with_mpirun = with_replaced(
      loops.substr(second),
      {{"-n 8", "-n 2"}, {"MASTER_ADDR=n1", "MASTER_ADDR=127.0.0.1"}, {"29500", free_port()}});
  for (const std::string& loop : {with_threads, with_mpirun}) {
    if (loop == with_mpirun && !has_mpi) continue;
    INFO(loop);
    std::filesystem::remove_all(runs.sandbox.file("kept"));
    Background run(site.command("bash -c " +
                                shell_word("TRAIN=\"" + documented_training() + "\"\n" + loop) +
                                " >out 2>err"));
    kill_one(runs, site);
    CHECK(run.exit_code_within(120) == 0);
    INFO(runs.text("err"));
    site.check_resumed(whole);
    CHECK(runs.nobody_is_left());
  }
}

TEST_CASE("the documented line of torchrun goes on after a rank was killed") {
  const Runs runs;
  const DocumentedSite site(runs);
  const std::vector<double> whole = site.whole();
  site.script("torchrun", kTorchrun);
  const std::string line =
      with_replaced(between_marks("starts all processes again when one ends:\n\n```sh\n", "```"),
                    {{"--nproc-per-node 4", "--nproc-per-node 1"}});
  Background run(site.command(
      "bash -c " + shell_word("TRAIN=\"" + documented_training() + "\"\n" + line) + " >out 2>err",
      "MASTER_PORT=" + free_port()));
  kill_one(runs, site);
  CHECK(run.exit_code_within(120) == 0);
  INFO(runs.text("err"));
  site.check_resumed(whole);
  CHECK(runs.nobody_is_left());
}

TEST_CASE("the container's command of the documented JobSet goes on when the set starts anew") {
  const Runs runs;
  const DocumentedSite site(runs);
  const std::vector<double> whole = site.whole();
  std::string args = between_marks("              args:\n              - ", "            volumes:");
  for (std::size_t at = 0; (at = args.find('\n')) != std::string::npos;)
    args.replace(at, args.find_first_not_of(" \n", at) - at, " ");  // as YAML folds them
  auto parts = smaller_training();
  parts.insert(parts.end(), {{"WORLD_SIZE=8", "WORLD_SIZE=2"},
                             {"train-workers-0-0.train", "127.0.0.1"},
                             {"29500", free_port()}});
  const std::string command = "bash -c " + shell_word(with_replaced(args, parts));
  // command: [bash, -c]; an Indexed job sets JOB_COMPLETION_INDEX.
  const auto pod = [&](int index) {
    const std::string number = std::to_string(index);
    return std::make_unique<Background>(site.command(command + " >out" + number + " 2>err" + number,
                                                     "JOB_COMPLETION_INDEX=" + number));
  };
  {
    const auto first = pod(0);
    const auto second = pod(1);
    kill_one(runs, site);
    CHECK(first->exit_code_within(60) > 0);  // a pod that fails ends its job
    CHECK(second->exit_code_within(60) > 0);
  }
  const auto first = pod(0);
  const auto second = pod(1);
  CHECK(first->exit_code_within(60) == 0);
  CHECK(second->exit_code_within(60) == 0);
  INFO(runs.text("err0") << runs.text("err1"));
  site.check_resumed(whole);
  CHECK(runs.nobody_is_left());
}
