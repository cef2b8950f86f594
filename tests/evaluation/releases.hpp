// The calibrations of single releases that tests/validation/runs.csv is predicted with.
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
