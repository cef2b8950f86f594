// libFuzzer: one program per entry of tests/fuzz/entries.hpp, named by ECHELON_FUZZ_ENTRY.
//
//   cmake -B build/fuzz -G Ninja -DCMAKE_CXX_COMPILER=clang++ -DECHELON_FUZZ=ON
//         -DECHELON_SANITIZE=fuzzer-no-link,address,undefined
//   cmake --build build/fuzz --target fuzz_plan_file
//   build/fuzz/tests/fuzz_plan_file -max_total_time=60 NEW-INPUTS tests/fuzz/corpus/plan_file
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "tests/fuzz/entries.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::string wrong = echelon::fuzz::ECHELON_FUZZ_ENTRY(input);
  if (wrong.empty()) return 0;
  std::fprintf(stderr, "%s\n", wrong.c_str());
  std::abort();
}
