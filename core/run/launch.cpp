#include "core/run/launch.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <limits>
#include <string_view>
#include <utility>

#include "core/base/text.hpp"
#include "core/run/host_list.hpp"

namespace echelon {
namespace {

/// The environment variables of one launcher; null: the launcher does not set one.
struct LaunchNames {
  const char* by;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
  const char* run;  ///< identifies the run
  const char* command;
};
constexpr std::array<LaunchNames, 4> kLaunchers = {{
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID",
     "torchrun"},
    {"mpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", "PMIX_NAMESPACE", "mpirun"},
    {"mpi", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", nullptr, "mpiexec"},
    {"slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", nullptr, "SLURM_STEP_ID",
     "srun"},
}};
constexpr int kMaxRanks = 1 << 20;
/// Derived ports are below Linux's ephemeral ports (32768 and above).
constexpr int kFirstPort = 20'000;
constexpr int kDerivedPorts = 10'000;

const std::string* find_variable(const Environment& environment, const char* name) {
  const auto at = name == nullptr ? environment.end() : environment.find(name);
  return at == environment.end() || at->second.empty() ? nullptr : &at->second;
}

Result<int> number_in(const Environment& environment, const char* name, int min, int max) {
  const std::string& text = *find_variable(environment, name);
  int value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  if (read.ec == std::errc() && read.ptr == text.data() + text.size() && value >= min &&
      value <= max) {
    return value;
  }
  return input_error(name, in_quotes(text), fmt::format("a whole number from {} to {}", min, max),
                     "set by the launcher of this process; --launcher local ignores it");
}

/// Nothing if this launcher did not start the process.
Result<std::optional<Launch>> launch_by(const LaunchNames& names, const Environment& environment) {
  const bool has_rank = find_variable(environment, names.rank) != nullptr;
  const bool has_size = find_variable(environment, names.size) != nullptr;
  // Slurm also sets ranks for batch scripts and shells of an allocation.
  if (!has_size && (!has_rank || names.by == std::string_view("slurm"))) {
    return std::optional<Launch>();
  }
  if (!has_rank || !has_size) {
    return input_error(has_rank ? names.rank : names.size,
                       fmt::format("set, but {} is not", has_rank ? names.size : names.rank),
                       "both in every process", "--launcher local ignores them");
  }
  Launch launch;
  launch.by = names.by;
  launch.variable = names.rank;
  const Result<int> size = number_in(environment, names.size, 1, kMaxRanks);
  if (!size) return size.error();
  const Result<int> rank = number_in(environment, names.rank, 0, *size - 1);
  if (!rank) return rank.error();
  launch.size = *size;
  launch.rank = *rank;
  if (find_variable(environment, names.local_size) != nullptr) {
    const Result<int> local = number_in(environment, names.local_size, 1, *size);
    if (!local) return local.error();
    launch.local_size = *local;
  }
  if (find_variable(environment, names.local_rank) != nullptr) {
    const int last = launch.local_size.value_or(*size) - 1;
    const Result<int> local = number_in(environment, names.local_rank, 0, last);
    if (!local) return local.error();
    launch.local_rank = *local;
  }
  if (const std::string* run = find_variable(environment, names.run)) launch.run = *run;
  if (names.by == std::string_view("slurm")) {
    if (const std::string* job = find_variable(environment, "SLURM_JOB_ID")) {
      launch.run = *job + "." + launch.run;
    }
  }
  return std::optional<Launch>(std::move(launch));
}

/// A port that every process derives from the same text: its digits modulo the number of derived
/// ports.
int port_from(std::string_view text) {
  std::uint64_t number = 0;
  for (const char c : text) {
    if (c >= '0' && c <= '9') number = 10 * number + static_cast<std::uint64_t>(c - '0');
  }
  return kFirstPort + static_cast<int>(number % kDerivedPorts);
}

bool same_rank_and_size(const Launch& one, const Launch& other) {
  return one.rank == other.rank && one.size == other.size;
}

Error no_master(const Launch& launch, const char* missing) {
  const char* hint = launch.by == "mpi"     ? "mpirun -x MASTER_ADDR=HOST -x MASTER_PORT=29500 ..."
                     : launch.by == "slurm" ? "export MASTER_ADDR=HOST before srun"
                                            : "export MASTER_ADDR=HOST MASTER_PORT=29500";
  return input_error(
      missing, fmt::format("not set for rank {} of {}", launch.rank, launch.size),
      missing == std::string_view("MASTER_ADDR") ? "the host of rank 0" : "a free port of its host",
      hint);
}

/// The host of rank 0.
Result<std::string> master_address(const Launch& launch, const Environment& environment) {
  if (const std::string* given = find_variable(environment, "MASTER_ADDR")) return *given;
  const std::string here = "127.0.0.1";
  if (launch.size == 1 || (launch.by == "mpi" && launch.local_size == launch.size)) return here;
  if (launch.by == "slurm") {
    for (const char* name : {"SLURM_STEP_NODELIST", "SLURM_NODELIST", "SLURM_JOB_NODELIST"}) {
      const std::string* list = find_variable(environment, name);
      if (list == nullptr) continue;
      const auto hosts = expand_host_list(*list, name);
      if (!hosts) return hosts.error();
      return hosts->size() == 1 ? here : hosts->front();
    }
  }
  return no_master(launch, "MASTER_ADDR");
}

Result<int> master_port(const Launch& launch, const Environment& environment) {
  constexpr int kMaxPorts = 65'535;
  if (find_variable(environment, "MASTER_PORT") != nullptr) {
    const std::string* agent = find_variable(environment, "TORCHELASTIC_USE_AGENT_STORE");
    const int ours = agent != nullptr && *agent == "True" ? 1 : 0;
    const Result<int> port = number_in(environment, "MASTER_PORT", 1, kMaxPorts - ours);
    if (!port) return port.error();
    return *port + ours;
  }
  if (launch.by != "torchrun" && !launch.run.empty()) return port_from(launch.run);
  if (launch.size == 1) return kFirstPort;
  return no_master(launch, "MASTER_PORT");
}

/// Compares RANK and WORLD_SIZE set without torchrun with another launcher's variables.
Status check_agreement(const Launch& by_hand, const Launch& other, const char* command) {
  if (same_rank_and_size(by_hand, other) || other.size < by_hand.size) return Done{};
  return input_error("RANK, WORLD_SIZE", fmt::format("rank {} of {}", by_hand.rank, by_hand.size),
                     fmt::format("rank {} of {}, as set by {} ({})", other.rank, other.size,
                                 command, other.variable),
                     "two launchers disagree: unset RANK WORLD_SIZE, or set them per process");
}

}  // namespace

Environment environment_of(const char* const* entries) {
  Environment environment;
  for (; entries != nullptr && *entries != nullptr; ++entries) {
    const std::string_view entry(*entries);
    const std::size_t equals = entry.find('=');
    if (equals == std::string_view::npos) continue;
    environment.emplace(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return environment;
}

std::string describe(const Launch& launch) {
  return fmt::format("rank {} of {} ({}), master {}:{}", launch.rank, launch.size, launch.variable,
                     launch.master_address, launch.master_port);
}

Result<std::optional<Launch>> find_launch(const Environment& environment) {
  std::optional<Launch> found;
  const bool from_torchrun = find_variable(environment, "TORCHELASTIC_RUN_ID") != nullptr;
  for (const LaunchNames& names : kLaunchers) {
    const bool by_hand = found && found->by == "torchrun" && !from_torchrun;
    const bool perhaps_srun = found && found->variable == std::string_view("PMI_RANK");
    if (found && !by_hand && !perhaps_srun) break;
    const Result<std::optional<Launch>> here = launch_by(names, environment);
    if (!here) return here.error();
    if (!*here) continue;
    if (!found || (perhaps_srun && same_rank_and_size(*found, **here))) {
      found = *here;  // srun also sets PMI's variables, and more of its own
    } else if (!by_hand) {
      break;
    } else if (const Status ok = check_agreement(*found, **here, names.command); !ok) {
      return ok.error();
    }
  }
  if (!found) return std::optional<Launch>();
  const Result<std::string> address = master_address(*found, environment);
  if (!address) return address.error();
  const Result<int> port = master_port(*found, environment);
  if (!port) return port.error();
  found->master_address = *address;
  found->master_port = *port;
  return found;
}

std::optional<Seconds> time_before_kill(const Environment& environment) {
  constexpr Seconds kDefault{1};
  // Version 5 has another runtime, PRRTE, without this variable.
  if (find_variable(environment, "OMPI_MCA_orte_hnp_uri") == nullptr) return std::nullopt;
  const char* const kName = "OMPI_MCA_odls_base_sigkill_timeout";
  if (find_variable(environment, kName) == nullptr) return kDefault;
  constexpr int kLongest = std::numeric_limits<int>::max();
  const Result<int> seconds = number_in(environment, kName, 0, kLongest);
  return seconds ? Seconds{static_cast<double>(*seconds)} : kDefault;
}

Error no_launch_error(std::string where) {
  return input_error(std::move(where), "no launcher in the environment",
                     "RANK and WORLD_SIZE (torchrun), SLURM_PROCID and SLURM_STEP_NUM_TASKS "
                     "(srun), OMPI_COMM_WORLD_RANK (mpirun) or PMI_RANK (mpiexec)",
                     "start one process per rank of the plan with one of them");
}

Status check_launch(const Launch& launch, int ranks) {
  if (launch.size == ranks) return Done{};
  return input_error(
      launch.variable, fmt::format("rank {} of {}", launch.rank, launch.size),
      fmt::format("{}, one process per rank of the plan", ranks),
      fmt::format(
          "start {} processes, or plan for {} and resume (--replan does both): a checkpoint "
          "can be read under any plan; --launcher local runs all ranks in one process",
          ranks, launch.size == 1 ? "1 GPU" : fmt::format("{} GPUs", launch.size)));
}

}  // namespace echelon
