// The calibrations of single releases used to predict tests/validation/runs.csv.
#pragma once

#include <vector>

#include "evaluation/release_calibrations.hpp"
#include "tests/places.hpp"
#include "tests/support/catch.hpp"

namespace echelon {

inline std::vector<Calibration> releases() {
  auto all = load_release_calibrations(ECHELON_SOURCE_DIR "/tests/validation/calibrations");
  REQUIRE(all.ok());
  return *std::move(all);
}

}  // namespace echelon
