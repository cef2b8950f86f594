// One process per rank, started by any launcher, connected by TCP.
#pragma once

#include <memory>
#include <vector>

#include "core/base/result.hpp"
#include "runtime/comm/tcp/rendezvous.hpp"
#include "runtime/comm/world.hpp"

namespace echelon::tcp {

/// The other ranks of the groups in which a rank exchanges data, ascending: those to which it has
/// connections, besides rank 0. The small calls of all ranks (norm, control) go through rank 0.
[[nodiscard]] std::vector<int> data_peers(const ParallelPlan& plan, const ModelSpec& model,
                                          int rank);

/// The local rank is that of the rendezvous; the other processes call the same. `run_threads`
/// outlives the world. It is stopped with RunFailure::peer_lost when another process is lost, and
/// with that process's failure when it reported one. On destruction the world waits for the goodbye
/// messages of the others: up to a minute, or two seconds after a failure, which it reports to
/// them. Errors: those of join_run().
[[nodiscard]] Result<std::unique_ptr<World>> world(RunThreads& run_threads,
                                                   const ParallelPlan& plan, const ModelSpec& model,
                                                   const Rendezvous& rendezvous);

}  // namespace echelon::tcp
