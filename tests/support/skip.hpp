// Skips a test with a visible reason, with Catch2 v2 and v3.
//
//   if (!std::filesystem::exists("/dev/full")) return skip("this system has no /dev/full");
//
// ctest shows the test as skipped (by the line printed here), ./test lists it with its reason at
// the end, and .ci/run fails unless tests/known_skips.txt names it.
#pragma once

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <string_view>

#include "tests/support/catch.hpp"

namespace echelon {

/// Records that the test of this name is skipped.
inline void skip_as(const std::string& name, std::string_view reason) {
  const std::string line = name + ": " + std::string(reason);
  std::cout << "\nSKIPPED: " << line << std::endl;
  if (const char* log = std::getenv("ECHELON_SKIP_LOG"))
    std::ofstream(log, std::ios::app) << line + '\n';
}

/// Records that the running test is skipped; the caller returns from it.
inline void skip(std::string_view reason) {
  skip_as(Catch::getResultCapture().getCurrentTestName(), reason);
}

}  // namespace echelon
