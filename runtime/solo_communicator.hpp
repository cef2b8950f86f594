// The communicator of a rank that is alone in its group.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "runtime/communicator.hpp"

namespace echelon {

/// What carries data from one place to another; The places differ, and there are some bytes.
using Copy = std::function<void(const void* from, void* to, std::int64_t bytes)>;

/// Reductions and broadcasts leave the data alone, the others copy where in and out differ; there
/// is nobody to send to. In host memory, unless `copy` says how.
[[nodiscard]] std::unique_ptr<Communicator> solo_communicator(Copy copy = {});

}  // namespace echelon
