// One process per rank, started by whom it may be, connected by TCP.
#pragma once

#include <memory>

#include "core/base/result.hpp"
#include "runtime/tcp/meeting.hpp"
#include "runtime/world.hpp"

namespace echelon::tcp {

/// The local rank is that of the meeting; the other processes call the same. `crew` outlives the
/// world. It ends with RunFailure::peer_lost when another process is gone, and as that one ended
/// when it says why. At its own end the world waits for those of the others: up to a minute, or two
/// seconds after a failure, which it tells them. Errors: those of meet().
[[nodiscard]] Result<std::unique_ptr<World>> world(Crew& crew, const ParallelPlan& plan,
                                                   const ModelSpec& model, const Meeting& meeting);

}  // namespace echelon::tcp
