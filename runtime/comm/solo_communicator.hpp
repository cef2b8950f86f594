// The communicator of a rank that is alone in its group.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "runtime/comm/communicator.hpp"

namespace echelon {

/// Copies data from one place to another, distinct one; at least one byte.
using Copy = std::function<void(const void* from, void* to, std::int64_t bytes)>;

/// Reductions and broadcasts leave the data alone, the others copy if in and out differ; there is
/// no member to send to. In host memory unless `copy` is given.
[[nodiscard]] std::unique_ptr<Communicator> solo_communicator(Copy copy = {});

}  // namespace echelon
