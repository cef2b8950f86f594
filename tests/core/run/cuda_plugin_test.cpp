#include "core/run/cuda_plugin.hpp"

#include "tests/support/text.hpp"

namespace echelon {
namespace {

using test::lacks;

TEST_CASE("a library that the loader does not find is told from its other failures") {
  const auto products = missing_library(
      "libcublasLt.so.13: cannot open shared object file: No such file or directory");
  REQUIRE(products);
  CHECK(products->name == "libcublasLt.so.13");
  CHECK(lacks(products->remedy, "install cuBLAS of CUDA 13, or ") == "");
  CHECK(lacks(products->remedy, "site-packages/nvidia/cu13/lib, to LD_LIBRARY_PATH") == "");
  const auto older = missing_library("libcublasLt.so.12: cannot open shared object file: x");
  REQUIRE(older);
  CHECK(lacks(older->remedy, "site-packages/nvidia/cublas/lib") == "");
  const auto other = missing_library("libfmt.so.9: cannot open shared object file: x");
  REQUIRE(other);
  CHECK(other->remedy == "install libfmt.so.9");
  CHECK_FALSE(missing_library("echelon_cuda.so: undefined symbol: ncclCommSplit"));
}

}  // namespace
}  // namespace echelon
