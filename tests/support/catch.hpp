// Catch2 v2 and v3 behind one include.
#pragma once

#ifdef ECHELON_CATCH2_V2
#include <catch2/catch.hpp>
#else
#include <catch2/catch_all.hpp>
using Catch::Approx;
#endif
