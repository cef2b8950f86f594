// Communicators between threads of one process.
#pragma once

#include <memory>
#include <vector>

#include "runtime/call.hpp"
#include "runtime/crew.hpp"

namespace echelon {

/// One end per member, in member order; each is used by one member of the crew at a time, all of
/// them within the life of the crew. The last member to arrive begins the work of a call, piece by
/// piece; those who wait for it take pieces as well.
[[nodiscard]] std::vector<std::unique_ptr<Communicator>> thread_communicators(Crew& crew,
                                                                              const Group& group);

}  // namespace echelon
