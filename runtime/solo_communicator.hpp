// The communicator of a rank that is alone in its group.
#pragma once

#include <memory>

#include "runtime/communicator.hpp"

namespace echelon {

/// Reductions and broadcasts leave the data alone, the others copy where in and out differ; there
/// is nobody to send to.
[[nodiscard]] std::unique_ptr<Communicator> solo_communicator();

}  // namespace echelon
