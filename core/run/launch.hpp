// Launch: this process among those that somebody else started, told by environment variables.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "core/base/result.hpp"

namespace echelon {

/// Names and values of variables; of a process, or made up by a test.
using Environment = std::map<std::string, std::string, std::less<>>;
/// That of a process: what `environ` points at.
[[nodiscard]] Environment environment_of(const char* const* entries);

struct Launch {
  std::string by;        ///< "torchrun", "slurm" or "mpi", as reports name launchers
  std::string variable;  ///< the one the rank was read from: "SLURM_PROCID"
  int rank = 0;
  int size = 1;
  std::optional<int> local_rank;  ///< among the processes of this machine
  std::optional<int> local_size;
  std::string master_address;  ///< where rank 0 listens; a name or an address
  int master_port = 0;
  std::string run;  ///< what tells this run from others of its launcher; may be empty
  bool operator==(const Launch&) const = default;
};
/// "rank 3 of 8 (SLURM_PROCID), master n1:21234"
[[nodiscard]] std::string describe(const Launch& launch);

/// Who started this process. Nothing: nobody that can be seen; an allocation of Slurm without a
/// step of srun is nobody, and so is a batch script. Where several are seen, the innermost counts:
///
///   RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE           torchrun and those who do as it does
///   OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE    Open MPI's mpirun
///   PMI_RANK, PMI_SIZE, MPI_LOCALRANKID, MPI_LOCALNRANKS     Hydra: MPICH, Intel MPI
///   SLURM_PROCID, SLURM_STEP_NUM_TASKS, SLURM_LOCALID        srun
///
/// The master is MASTER_ADDR and MASTER_PORT; without them, where everybody can tell: this machine
/// when all processes run on it, the first host of SLURM_STEP_NODELIST, and a port that follows
/// from the job's number. Where torchrun's agent keeps its own store at MASTER_PORT
/// (TORCHELASTIC_USE_AGENT_STORE, torch/distributed/rendezvous.py), the next one is ours.
///
/// Errors: a rank without a number of processes or outside it, no master, numbers that are none;
/// RANK and WORLD_SIZE set by hand (no TORCHELASTIC_RUN_ID) beside another launcher that counts
/// differently, unless each of its processes may have started several.
[[nodiscard]] Result<std::optional<Launch>> find_launch(const Environment& environment);

/// What to do where a launch was asked for and nobody is found.
[[nodiscard]] Error no_launch_error(std::string where);

/// An error when the launch has not one process for each rank of a plan.
[[nodiscard]] Status check_launch(const Launch& launch, int ranks);

}  // namespace echelon
