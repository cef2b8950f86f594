// libFuzzer: any bytes are refused or mean exactly themselves, and the checker takes what is read.
//
//   cmake -B build/fuzz -G Ninja -DCMAKE_CXX_COMPILER=clang++ -DECHELON_FUZZ=ON
//         -DECHELON_SANITIZE=fuzzer-no-link,address,undefined
//   cmake --build build/fuzz --target schedule_text_fuzz
//   build/fuzz/tests/schedule_text_fuzz -max_total_time=60
#include <cstddef>
#include <cstdint>

#include "core/schedule_check.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto schedule = echelon::parse_schedule_text(text, "input");
  if (!schedule.ok()) return 0;
  EXPECTS(echelon::to_text(*schedule) == text, "a schedule has one text");
  (void)echelon::check_schedule(*schedule);
  return 0;
}
