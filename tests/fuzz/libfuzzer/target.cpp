// One program for clang's libFuzzer. Its first argument names the entry of tests/fuzz/entries.hpp
// that is fuzzed; the other arguments are libFuzzer's.
//
//   cmake --preset fuzz              # clang, libclang-rt-dev and libomp-dev
//   cmake --build build/fuzz
//   build/fuzz/tests/fuzz/fuzz       # lists the entries and the folders of their inputs
//   mkdir new-inputs
//   build/fuzz/tests/fuzz/fuzz plan_file -max_total_time=60 new-inputs tests/fuzz/corpus/plan_file
//
// scripts/fuzz.sh does this for every entry, for a few seconds each.
#include <stdlib.h>  // setenv

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "tests/fuzz/entries.hpp"

namespace {

using echelon::fuzz::Entry;

constexpr const char* kVariable = "ECHELON_FUZZ_ENTRY";  ///< for processes that libFuzzer starts
const Entry* fuzzed = nullptr;

const Entry* entry_of(std::string_view name) {
  const auto all = echelon::fuzz::entries();
  const auto found = std::ranges::find(all, name, &Entry::name);
  return found == all.end() ? nullptr : &*found;
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* count, char*** arguments) {
  if (*count > 1 && (fuzzed = entry_of((*arguments)[1])) != nullptr) {
    setenv(kVariable, (*arguments)[1], 1);
    std::rotate(*arguments + 1, *arguments + 2, *arguments + *count);
    --*count;
    return 0;
  }
  if (const char* name = std::getenv(kVariable)) fuzzed = entry_of(name);
  if (fuzzed != nullptr) return 0;
  for (const Entry& entry : echelon::fuzz::entries()) {
    std::printf("%s %s%s%s\n", entry.name.data(), entry.corpus.data(),
                entry.more.empty() ? "" : " ", entry.more.data());
  }
  std::exit(*count > 1 ? 2 : 0);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::string wrong = fuzzed->run(input);
  if (wrong.empty()) return 0;
  std::fprintf(stderr, "%s\n", wrong.c_str());
  std::abort();
}
