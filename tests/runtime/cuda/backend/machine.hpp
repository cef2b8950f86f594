// The machine that the tests of the whole backend run on: pretended GPUs, or those that are there.
#pragma once

#include <cstdint>

namespace echelon {

/// Whether there are so many GPUs now. `seed`: of the order in which pretended ones do what they
/// may do.
bool start_gpus(int count, std::uint64_t seed);
/// Fails the test when something was not given back, where that can be known.
void end_gpus();

}  // namespace echelon
