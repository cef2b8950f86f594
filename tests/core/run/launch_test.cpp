#include "core/run/launch.hpp"

#include <initializer_list>

#include "core/run/host_list.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

std::string hosts_of(const std::string& list) {
  const auto hosts = expand_host_list(list, "LIST", 100);
  if (!hosts) return hosts.error().message();
  std::string all;
  for (const std::string& host : *hosts) all += (all.empty() ? "" : " ") + host;
  return all;
}

TEST_CASE("a Slurm host list expands to its hosts, in order") {
  CHECK(hosts_of("n1") == "n1");
  CHECK(hosts_of("n1,login") == "n1 login");
  CHECK(hosts_of("n[1-3]") == "n1 n2 n3");
  CHECK(hosts_of("n[3,1-2]") == "n3 n1 n2");
  CHECK(hosts_of("gpu-[008-011]") == "gpu-008 gpu-009 gpu-010 gpu-011");
  CHECK(hosts_of("n[9-11]-ib,x[1,3].cluster") == "n9-ib n10-ib n11-ib x1.cluster x3.cluster");
  CHECK(hosts_of("r[1-2]n[01-02]") == "r1n01 r1n02 r2n01 r2n02");
  CHECK(hosts_of("fd00::1,10.0.0.[1-2]") == "fd00::1 10.0.0.1 10.0.0.2");
}

TEST_CASE("an invalid host list is refused with the reason") {
  const std::string expected = "; expected a host list in Slurm's format, such as n[1-4,07],login";
  CHECK(hosts_of("") == "LIST: '', with an empty name" + expected);
  CHECK(hosts_of("a,,b") == "LIST: 'a,,b', with an empty name" + expected);
  CHECK(hosts_of("a,") == "LIST: 'a,', with an empty name" + expected);
  CHECK(hosts_of("n[1-2") == "LIST: 'n[1-2', with a '[' but no ']'" + expected);
  CHECK(hosts_of("n1-2]") == "LIST: 'n1-2]', with a ']' but no '['" + expected);
  CHECK(hosts_of("n[]") == "LIST: 'n[]', where '' is neither a number nor a range" + expected);
  CHECK(hosts_of("n[a]") == "LIST: 'n[a]', where 'a' is neither a number nor a range" + expected);
  CHECK(hosts_of("n[3-1]") ==
        "LIST: 'n[3-1]', where '3-1' is neither a number nor a range" + expected);
  CHECK(hosts_of("n[1-9999999999999]").find("nor a range") != std::string::npos);
  CHECK(hosts_of("n[1-101]") == "LIST: 'n[1-101]', with more hosts than 100" + expected);
}

/// The launcher found, or the error message.
std::string found_in(const Environment& environment) {
  const auto launch = find_launch(environment);
  if (!launch) return launch.error().message();
  return *launch ? (*launch)->by + ": " + describe(**launch) : "no launcher";
}

Environment with(Environment environment, const Environment& more) {
  for (const auto& [name, value] : more) environment.insert_or_assign(name, value);
  return environment;
}

Environment without(Environment environment, std::initializer_list<const char*> names) {
  for (const char* name : names) environment.erase(name);
  return environment;
}

const Environment kTorch{{"RANK", "3"},         {"WORLD_SIZE", "8"},
                         {"LOCAL_RANK", "1"},   {"LOCAL_WORLD_SIZE", "2"},
                         {"MASTER_ADDR", "n1"}, {"MASTER_PORT", "29500"}};
const Environment kSlurm{
    {"SLURM_JOB_ID", "41234"},         {"SLURM_STEP_ID", "0"},      {"SLURM_PROCID", "2"},
    {"SLURM_STEP_NUM_TASKS", "4"},     {"SLURM_NTASKS", "4"},       {"SLURM_LOCALID", "0"},
    {"SLURM_STEP_NODELIST", "n[2-3]"}, {"SLURM_NODELIST", "n[1-3]"}};
const Environment kOpenMpi{{"OMPI_COMM_WORLD_RANK", "1"},
                           {"OMPI_COMM_WORLD_SIZE", "2"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                           {"PMIX_NAMESPACE", "3391225857"}};

TEST_CASE("each launcher is found by its variables") {
  CHECK(found_in({}) == "no launcher");
  CHECK(found_in({{"PATH", "/bin"}, {"MASTER_ADDR", "n1"}, {"RANK", ""}}) == "no launcher");
  CHECK(found_in(kTorch) == "torchrun: rank 3 of 8 (RANK), master n1:29500");
  CHECK(found_in(kSlurm) == "slurm: rank 2 of 4 (SLURM_PROCID), master n2:22340");
  CHECK(found_in(kOpenMpi) == "mpi: rank 1 of 2 (OMPI_COMM_WORLD_RANK), master 127.0.0.1:25857");
  CHECK(found_in({{"PMI_RANK", "1"},
                  {"PMI_SIZE", "4"},
                  {"MASTER_ADDR", "fd00::7"},
                  {"MASTER_PORT", "7000"}}) == "mpi: rank 1 of 4 (PMI_RANK), master fd00::7:7000");
  const Launch torch = find_launch(kTorch).value().value();
  CHECK(torch.local_rank == 1);
  CHECK(torch.local_size == 2);
  const Launch slurm = find_launch(kSlurm).value().value();
  CHECK(slurm.local_rank == 0);
  CHECK_FALSE(slurm.local_size.has_value());
  CHECK(slurm.run == "41234.0");
}

TEST_CASE("an allocation without a step does not count as a launcher") {
  CHECK(found_in({{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "8"}, {"SLURM_JOB_NODELIST", "n1"}}) ==
        "no launcher");
  // A batch script has a task number but no step.
  CHECK(found_in(without(kSlurm, {"SLURM_STEP_NUM_TASKS", "SLURM_STEP_ID"})) == "no launcher");
}

TEST_CASE("steps on one node and single processes need no MASTER_ADDR") {
  CHECK(found_in(with(kSlurm, {{"SLURM_STEP_NODELIST", "n7"}})) ==
        "slurm: rank 2 of 4 (SLURM_PROCID), master 127.0.0.1:22340");
  CHECK(found_in({{"RANK", "0"}, {"WORLD_SIZE", "1"}}) ==
        "torchrun: rank 0 of 1 (RANK), master 127.0.0.1:20000");
  CHECK(found_in(with(kSlurm, {{"MASTER_ADDR", "ib1"}, {"MASTER_PORT", "5000"}})) ==
        "slurm: rank 2 of 4 (SLURM_PROCID), master ib1:5000");
}

TEST_CASE("the port of torchrun's own store is not used") {
  CHECK(found_in(with(kTorch, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}})) ==
        "torchrun: rank 3 of 8 (RANK), master n1:29501");
  CHECK(found_in(with(kTorch, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}})) ==
        "torchrun: rank 3 of 8 (RANK), master n1:29500");
}

TEST_CASE("the innermost of several launchers is used") {
  const Environment inner = with(kTorch, {{"TORCHELASTIC_RUN_ID", "a"}});
  CHECK(found_in(with(kSlurm, inner)) == found_in(kTorch));
  CHECK(found_in(with(kOpenMpi, inner)) == found_in(kTorch));
  CHECK(found_in(with(kSlurm, kOpenMpi)) == found_in(kOpenMpi));
  // srun that also sets PMI's variables, and Hydra with processes started by srun.
  CHECK(found_in(with(kSlurm, {{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}})) == found_in(kSlurm));
  CHECK(found_in(with(
            kSlurm,
            {{"PMI_RANK", "5"}, {"PMI_SIZE", "8"}, {"MASTER_ADDR", "n1"}, {"MASTER_PORT", "1"}})) ==
        "mpi: rank 5 of 8 (PMI_RANK), master n1:1");
  // A script that passes srun's numbers on, and one that starts two processes per task.
  const Environment passed_on = without(kTorch, {"LOCAL_RANK", "LOCAL_WORLD_SIZE"});
  CHECK(found_in(with(with(kSlurm, passed_on), {{"RANK", "2"}, {"WORLD_SIZE", "4"}})) ==
        "torchrun: rank 2 of 4 (RANK), master n1:29500");
  CHECK(found_in(with(kSlurm, kTorch)) == found_in(kTorch));
}

TEST_CASE("contradictory launchers are reported, with both values") {
  CHECK(found_in(with(with(kSlurm, kTorch), {{"RANK", "0"}, {"WORLD_SIZE", "4"}})) ==
        "RANK, WORLD_SIZE: rank 0 of 4; expected rank 2 of 4, as set by srun (SLURM_PROCID); two "
        "launchers disagree: unset RANK WORLD_SIZE, or set them per process");
  CHECK(found_in(with(with(kSlurm, kTorch), {{"RANK", "1"}, {"WORLD_SIZE", "2"}})) ==
        "RANK, WORLD_SIZE: rank 1 of 2; expected rank 2 of 4, as set by srun (SLURM_PROCID); two "
        "launchers disagree: unset RANK WORLD_SIZE, or set them per process");
  const std::string hint = "; set by the launcher of this process; --launcher local ignores it";
  CHECK(found_in(with(kTorch, {{"RANK", "8"}})) ==
        "RANK: '8'; expected a whole number from 0 to 7" + hint);
  CHECK(found_in(with(kTorch, {{"RANK", "-1"}})) ==
        "RANK: '-1'; expected a whole number from 0 to 7" + hint);
  CHECK(found_in(with(kTorch, {{"WORLD_SIZE", "eight"}})) ==
        "WORLD_SIZE: 'eight'; expected a whole number from 1 to 1048576" + hint);
  CHECK(found_in(with(kTorch, {{"LOCAL_RANK", "2"}})) ==
        "LOCAL_RANK: '2'; expected a whole number from 0 to 1" + hint);
  CHECK(found_in(with(kTorch, {{"MASTER_PORT", "70000"}})) ==
        "MASTER_PORT: '70000'; expected a whole number from 1 to 65535" + hint);
  CHECK(found_in(without(kTorch, {"WORLD_SIZE"})) ==
        "RANK: set, but WORLD_SIZE is not; expected both in every process; --launcher local "
        "ignores them");
  CHECK(found_in(without(kTorch, {"MASTER_ADDR"})) ==
        "MASTER_ADDR: not set for rank 3 of 8; expected the host of rank 0; export "
        "MASTER_ADDR=HOST MASTER_PORT=29500");
  CHECK(found_in(without(kTorch, {"MASTER_PORT"})) ==
        "MASTER_PORT: not set for rank 3 of 8; expected a free port of its host; export "
        "MASTER_ADDR=HOST MASTER_PORT=29500");
  CHECK(found_in(with(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", "4"}})) ==
        "MASTER_ADDR: not set for rank 1 of 4; expected the host of rank 0; mpirun -x "
        "MASTER_ADDR=HOST -x MASTER_PORT=29500 ...");
  CHECK(found_in(with(kSlurm, {{"SLURM_STEP_NODELIST", "n[2-"}}))
            .starts_with("SLURM_STEP_NODELIST: 'n[2-', with a '[' but no ']'"));
}

TEST_CASE("a launch has one process per rank of a plan") {
  const Launch launch = find_launch(kTorch).value().value();
  CHECK(check_launch(launch, 8).ok());
  CHECK(check_launch(launch, 4).error().message() ==
        "RANK: rank 3 of 8; expected 4, one process per rank of the plan; start 4 processes, "
        "or plan for 8 GPUs and resume (--replan does both): a checkpoint can be read under any "
        "plan; "
        "--launcher local runs all ranks in one process");
}

TEST_CASE("Open MPI's mpirun before version 5 says when it kills its processes") {
  CHECK_FALSE(time_before_kill({}).has_value());
  CHECK_FALSE(time_before_kill(kOpenMpi).has_value());  // as of version 5
  Environment four = kOpenMpi;
  four["OMPI_MCA_orte_hnp_uri"] = "1011023872.0;tcp://192.0.2.2:40377";
  CHECK(time_before_kill(four) == Seconds{1});
  four["OMPI_MCA_odls_base_sigkill_timeout"] = "30";
  CHECK(time_before_kill(four) == Seconds{30});
  four["OMPI_MCA_odls_base_sigkill_timeout"] = "soon";
  CHECK(time_before_kill(four) == Seconds{1});
}

TEST_CASE("environment entries are split at the first equals sign") {
  const char* const entries[] = {"A=1", "B=x=y", "C=", "nothing", nullptr};
  CHECK(environment_of(entries) == Environment{{"A", "1"}, {"B", "x=y"}, {"C", ""}});
}

}  // namespace
}  // namespace echelon
