// Launch: the rank of this process among those started by an external launcher, from environment
// variables.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "core/base/result.hpp"
#include "core/base/units.hpp"

namespace echelon {

/// Names and values of environment variables, of a process or from a test.
using Environment = std::map<std::string, std::string, std::less<>>;
/// The environment of a process; `entries` is its `environ`.
[[nodiscard]] Environment environment_of(const char* const* entries);

struct Launch {
  std::string by;        ///< "torchrun", "slurm" or "mpi", the names used in reports
  std::string variable;  ///< the variable that contains the rank: "SLURM_PROCID"
  int rank = 0;
  int size = 1;
  std::optional<int> local_rank;  ///< among the processes of this machine
  std::optional<int> local_size;
  std::string master_address;  ///< host on which rank 0 listens: a name or an address
  int master_port = 0;
  std::string run;  ///< identifies this run among others of the launcher; may be empty
  bool operator==(const Launch&) const = default;
};
/// "rank 3 of 8 (SLURM_PROCID), master n1:21234"
[[nodiscard]] std::string describe(const Launch& launch);

/// Finds the launcher of this process. Nothing if none is detected; a Slurm allocation without an
/// srun step does not count, nor does a batch script. If several are detected, the innermost
/// counts:
///
///   RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE           torchrun and compatible launchers
///   OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE    Open MPI's mpirun
///   PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS     Hydra: MPICH, Intel MPI
///   SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID        srun
///
/// The master is MASTER_ADDR and MASTER_PORT. Without them it is derived if every process can
/// derive it: this machine if all processes run on it, or the first host of SLURM_STEP_NODELIST,
/// and a port computed from the job's number. If torchrun's agent keeps its own store at
/// MASTER_PORT (TORCHELASTIC_USE_AGENT_STORE, torch/distributed/rendezvous.py), the next port is
/// used.
///
/// Errors: a rank without a number of processes or out of its range, no master, invalid numbers;
/// RANK and WORLD_SIZE set by hand (no TORCHELASTIC_RUN_ID) that disagree with another launcher,
/// unless each of that launcher's processes may have started several.
[[nodiscard]] Result<std::optional<Launch>> find_launch(const Environment& environment);

/// How long after its own SIGTERM mpirun of Open MPI before version 5 kills the processes it has
/// started: odls_base_sigkill_timeout, one second unless its command line or environment says
/// otherwise. (A file of MCA parameters may; what it says does not reach the processes.) Nothing
/// for other launchers.
[[nodiscard]] std::optional<Seconds> time_before_kill(const Environment& environment);

/// The error if a launcher was requested but none is detected.
[[nodiscard]] Error no_launch_error(std::string where);

/// Checks that the launch has one process per rank of a plan.
[[nodiscard]] Status check_launch(const Launch& launch, int ranks);

}  // namespace echelon
