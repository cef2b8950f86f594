// The clock of everything that is measured.
#pragma once

#include <chrono>

#include "core/base/units.hpp"

namespace echelon {

/// Time of the system's steady clock, which threads and processes of one machine share.
[[nodiscard]] inline Seconds steady_now() {
  return Seconds{
      std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count()};
}

}  // namespace echelon
