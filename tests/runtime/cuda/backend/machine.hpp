// The machine of the tests of the whole backend: emulated GPUs, or the real ones.
#pragma once

#include <cstdint>

namespace echelon {

/// Whether there are that many GPUs now. `seed`: of the order in which emulated ones run their
/// pending operations.
bool start_gpus(int count, std::uint64_t seed);
/// Fails the test if something was not freed, where that can be detected.
void end_gpus();

}  // namespace echelon
