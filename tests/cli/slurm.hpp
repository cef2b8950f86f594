// A Slurm cluster of two nodes on this machine: munged, slurmctld and two slurmd that belong to the
// test alone, their files in its sandbox. Without systemd and cgroups; as root or as any user.
#pragma once

#include <arpa/inet.h>

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/cli/background.hpp"
#include "tests/cli/started.hpp"

namespace echelon::test {

class SlurmCluster {
 public:
  /// Why there can be none here; empty if there can.
  [[nodiscard]] static std::string missing() {
    for (const char* program : {"munged", "mungekey", "slurmctld", "slurmd", "srun", "sbatch"}) {
      if (run_shell(std::string(kPath) + "command -v " + program).exit_code != 0) {
        return std::string(program) +
               " is not installed (apt-get install slurmctld slurmd slurm-client munge)";
      }
    }
    return {};
  }

  explicit SlurmCluster(const Runs& runs) : runs_(runs) {
    runs.sandbox.write("slurm/slurm.conf", configuration());
    REQUIRE(runs.sandbox.shell(kPath + "mungekey -c -k slurm/munge.key").exit_code == 0);
    daemon(munged_, "munged -F -f -S " + file("munge.socket") + " --key-file " + file("munge.key") +
                        " --pid-file " + file("munge.pid") + " --seed-file " + file("munge.seed"));
    REQUIRE(within(20, [&] { return std::filesystem::exists(path("munge.socket")); }));
    daemon(slurmctld_, "slurmctld -D");
    for (const int node : {1, 2}) start_node(node);
    const bool is_up = within(60, [&] { return shell("sinfo -h -t idle -o %D").out == "2\n"; });
    INFO(runs.text("slurm/slurmctld.log") << runs.text("slurm/slurmctld.out"));
    REQUIRE(is_up);
  }
  ~SlurmCluster() {
    (void)shell("scancel --user=$(id -un)");
    (void)within(10, [&] { return shell("squeue -h").out.empty(); });
    for (const int node : {1, 2}) kill_all(processes_of(node));
  }
  SlurmCluster(const SlurmCluster&) = delete;
  SlurmCluster& operator=(const SlurmCluster&) = delete;

  /// A command of a user of this cluster, in the sandbox.
  [[nodiscard]] ProcessResult shell(const std::string& command) const {
    return runs_.sandbox.shell(kPath + "SLURM_CONF=" + file("slurm.conf") +
                               "; export SLURM_CONF; " + command);
  }
  void start_node(int node) {
    const std::string name = "n" + std::to_string(node);
    std::filesystem::create_directories(path("spool." + name));
    daemon(slurmd_[node - 1], "slurmd -D -N " + name);
  }
  /// As a loss of power: everything that runs on the node ends at once. Slurm itself needs a
  /// minute to notice; the administrator's health check tells it.
  void kill_node(int node) {
    slurmd_[node - 1].reset();
    kill_all(processes_of(node));
    const std::string name = " NodeName=n" + std::to_string(node);
    REQUIRE(shell("scontrol update" + name + " State=DOWN Reason=power").exit_code == 0);
  }
  void repair_node(int node) {
    start_node(node);
    const std::string name = " NodeName=n" + std::to_string(node);
    REQUIRE(shell("scontrol update" + name + " State=RESUME").exit_code == 0);
  }

 private:
  /// Daemons live where a user's PATH often does not look.
  inline static const std::string kPath = "PATH=$PATH:/usr/sbin:/sbin; ";

  [[nodiscard]] std::string path(const std::string& name) const {
    return runs_.sandbox.file("slurm/" + name);
  }
  [[nodiscard]] std::string file(const std::string& name) const { return shell_word(path(name)); }

  void daemon(std::unique_ptr<Background>& which, const std::string& command) const {
    const std::string name = command.substr(0, command.find(' '));
    which = std::make_unique<Background>(kPath + "SLURM_CONF=" + file("slurm.conf") +
                                         "; export SLURM_CONF; exec " + command + " >" +
                                         file(name + ".out") + " 2>&1");
  }

  /// The tasks of a node, told by their environment, and the slurmstepd above them.
  [[nodiscard]] std::set<pid_t> processes_of(int node) const {
    std::set<pid_t> found;
    const std::string own = "SLURMD_NODENAME=n" + std::to_string(node);
    for (const pid_t each : processes_with("")) {
      const std::string environment = text_of_process(each, "environ");
      if (!lacks(environment, own).empty() || !lacks(environment, path("slurm.conf")).empty()) {
        continue;
      }
      found.insert(each);
      const std::string status = text_of_process(each, "status");
      const std::size_t at = status.find("\nPPid:\t");
      if (at == std::string::npos) continue;
      const auto parent = static_cast<pid_t>(std::stoi(status.substr(at + 7)));
      if (text_of_process(parent, "comm").starts_with("slurmstepd")) found.insert(parent);
    }
    return found;
  }
  static void kill_all(const std::set<pid_t>& processes) {
    for (const pid_t each : processes) kill(each, SIGKILL);
  }

  [[nodiscard]] std::string configuration() const {
    const std::string user = run_shell("id -un | tr -d '\\n'").out;
    const std::string host = run_shell("hostname -s | tr -d '\\n'").out;
    return "ClusterName=echelon\nSlurmctldHost=" + host +
           "(127.0.0.1)\nSlurmctldPort=" + free_port() + "\nSlurmUser=" + user +
           "\nSlurmdUser=" + user +
           "\nAuthType=auth/munge\nAuthInfo=socket=" + path("munge.socket") +
           "\nStateSaveLocation=" + path("state") + "\nSlurmdSpoolDir=" + path("spool.%n") +
           "\nTmpFS=" + path("spool.%n") + "\nSlurmctldPidFile=" + path("slurmctld.pid") +
           "\nSlurmdPidFile=" + path("slurmd.%n.pid") +
           "\nSlurmctldLogFile=" + path("slurmctld.log") +
           "\nSlurmdLogFile=" + path("slurmd.%n.log") +
           "\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\n"
           "JobAcctGatherType=jobacct_gather/none\nSelectType=select/cons_tres\n"
           "SelectTypeParameters=CR_Core\nSlurmdParameters=config_overrides\nReturnToService=2\n"
           "JobRequeue=1\nKillWait=2\nNodeName=n1 NodeHostname=" +
           host + " NodeAddr=127.0.0.1 Port=" + free_port() + kNode +
           "NodeName=n2 NodeHostname=" + host + " NodeAddr=127.0.0.1 Port=" + free_port() + kNode +
           "PartitionName=test Nodes=ALL Default=YES MaxTime=UNLIMITED State=UP\n";
  }
  static constexpr const char* kNode = " CPUs=2 CoresPerSocket=2 RealMemory=500 State=UNKNOWN\n";

  const Runs& runs_;
  std::unique_ptr<Background> munged_, slurmctld_;
  std::unique_ptr<Background> slurmd_[2];
};

}  // namespace echelon::test
