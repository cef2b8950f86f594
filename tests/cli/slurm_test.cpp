// plan run on two nodes of a real Slurm, on this machine.
#include "tests/cli/slurm.hpp"

#include "tests/cli/documented.hpp"
#include "tests/support/skip.hpp"

using namespace echelon;
using echelon::test::between_marks;
using echelon::test::documented_training;
using echelon::test::DocumentedSite;
using echelon::test::lacks;
using echelon::test::losses_of;
using echelon::test::Runs;
using echelon::test::SlurmCluster;
using echelon::test::with_replaced;
using echelon::test::within;

namespace {

// The nodes' names are of this test, so nobody resolves them.
constexpr const char* kMaster = "MASTER_ADDR=127.0.0.1 ";

/// plan, from any node, with the sandbox as its home.
std::string program_of(const Runs& runs) {
  return "env HOME=" + shell_word(runs.sandbox.file("")) +
         " TMPDIR=" + shell_word(runs.sandbox.file("")) + " " + shell_word(ECHELON_PLAN);
}

/// Steps, losses and launcher of the run that this report is of.
RunReport report_of(const Runs& runs, const std::string& name) {
  const Result<RunReport> report = read_run_report(runs.sandbox.file(name));
  INFO((report ? std::string() : report.error().message()));
  REQUIRE(report);
  return report.value();
}

}  // namespace

TEST_CASE("srun runs a plan on two nodes with the numbers of one process") {
  if (const std::string why = SlurmCluster::missing(); !why.empty()) return skip(why);
  const Runs runs;
  runs.plan("plan.json", 2, "--dp 2 --tp 1");
  REQUIRE(runs.run("plan.json --steps 3 --report local.json").exit_code == 0);
  const SlurmCluster slurm(runs);
  const ProcessResult result =
      slurm.shell(std::string(kMaster) + "timeout 60 srun -N 2 -n 2 --cpu-bind=none " +
                  program_of(runs) + " run plan.json --steps 3 --quiet --report slurm.json");
  INFO(result.out << result.err);
  REQUIRE(result.exit_code == 0);
  const RunReport report = report_of(runs, "slurm.json");
  CHECK(report.launcher == "slurm");
  CHECK(losses_of(report) == losses_of(report_of(runs, "local.json")));
}

TEST_CASE("a job of Slurm goes on from its checkpoint after it has lost a node") {
  if (const std::string why = SlurmCluster::missing(); !why.empty()) return skip(why);
  const Runs runs;
  const DocumentedSite site(runs);
  constexpr int kSteps = 160;
  const std::string training =
      with_replaced(documented_training(), {{"--steps 24", "--steps " + std::to_string(kSteps)},
                                            {"--checkpoint-every 4", "--checkpoint-every 10"}});
  const std::string whole_training =
      with_replaced(training, {{"kept", "undisturbed"}, {"report.json", "whole.json"}});
  REQUIRE(run_shell(site.command(whole_training)).exit_code == 0);
  // The script of docs/run.md.
  constexpr const char* kBegin = "#!/bin/bash\n#SBATCH";
  runs.sandbox.write("train.sh",
                     kBegin + with_replaced(between_marks(kBegin, "```"),
                                            {{"--ntasks-per-node=4", "--ntasks-per-node=1"}}));
  SlurmCluster slurm(runs);
  const std::string folder = std::filesystem::path(ECHELON_PLAN).parent_path().string();
  const ProcessResult submitted = slurm.shell(
      "PATH=" + shell_word(folder) + ":$PATH HOME=$PWD TMPDIR=$PWD " + kMaster +
      "TRAIN=" + shell_word(training) + " sbatch --parsable -o job.log train.sh | tr -d '\\n'");
  REQUIRE(submitted.exit_code == 0);
  const std::string& job = submitted.out;
  REQUIRE(within(60, [&] { return std::filesystem::exists(runs.sandbox.file("kept/step_20")); }));
  slurm.kill_node(2);
  REQUIRE(within(60, [&] { return lacks(slurm.shell("squeue -h -o %T").out, "PENDING") == ""; }));
  slurm.repair_node(2);
  // A node refuses credentials of the second in which it revoked the job's.
  std::this_thread::sleep_for(std::chrono::seconds(2));
  // Slurm waits two minutes before it starts a job again.
  const bool is_done = within(100, [&] {
    (void)slurm.shell("scontrol update JobId=" + job + " StartTime=now");
    return site.has("kept/step_" + std::to_string(kSteps) + "/manifest.json") &&
           slurm.shell("squeue -h").out.empty();
  });
  INFO(runs.text("job.log") << runs.text("slurm/slurmctld.log"));
  REQUIRE(is_done);
  const RunReport report = report_of(runs, "report.json");
  const std::vector<double> whole = losses_of(report_of(runs, "whole.json"));
  const std::vector<double> rest = losses_of(report);
  REQUIRE(report.steps.size() < kSteps);
  CHECK(rest == std::vector<double>(whole.end() - std::ssize(rest), whole.end()));
}
