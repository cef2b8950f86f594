// Reads a log of one gigabyte: bench_import_log [MEGABYTES]. Target: 15 s and 200 MB of memory.
#include <fmt/format.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "interop/logs/imported_log.hpp"

namespace {

constexpr std::int64_t kMegabyte = 1'000'000;

/// Lines as 8 ranks of a node print them: a step of Megatron-LM, and 7 lines that are no steps.
void write_log(const std::string& path, std::int64_t bytes) {
  std::ofstream out(path, std::ios::binary);
  out << "  num_layers ...................................... 24\n"
         "  seq_length ...................................... 4096\n";
  for (std::int64_t step = 1, size = 0; size < bytes; ++step) {
    std::string block = fmt::format(
        " [2025-03-{:02} {:02}:{:02}:{:02}] iteration {:8}/ 9999999 | consumed samples: {:12} | "
        "elapsed "
        "time per iteration (ms): {}.8 | throughput per GPU (TFLOP/s/GPU): 134.0 | learning rate: "
        "8.000000E-06 | global batch size:  1008 | lm loss: 6.258318E+00 | loss scale: 1.0 | grad "
        "norm: 1.520 | number of skipped iterations:   0 | number of nan iterations:   0 |\n",
        1 + step / 86400 % 28, step / 3600 % 24, step / 60 % 60, step % 60, step, step * 1008,
        1000 + step % 7);
    for (int rank = 0; rank < 7; ++rank) {
      block += fmt::format(
          "[node{}:{}]:2025-03-31 05:54:07,123 INFO data_loader.py:88 prefetched batch {} of shard "
          "{} in 0.031 s, queue length 12, tokens 4128768\n",
          rank, rank, step, step % 512);
    }
    out << block;
    size += static_cast<std::int64_t>(block.size());
  }
}

/// What the process held at most, in bytes.
double peak_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return 1024.0 * static_cast<double>(usage.ru_maxrss);
}

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t megabytes = argc > 1 ? std::atoll(argv[1]) : 1000;
  const std::string path =
      (std::filesystem::temp_directory_path() / "echelon_bench_import.log").string();
  write_log(path, megabytes * kMegabyte);
  const auto begin = std::chrono::steady_clock::now();
  const auto imported = echelon::import_log(path, {});
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
  std::filesystem::remove(path);
  if (!imported) {
    fmt::print("{}\n", imported.error().message());
    return 1;
  }
  fmt::print("{} MB in {:.2f} s ({:.0f} MB/s), peak memory {:.0f} MB; {} steps, {:.4g} s each\n",
             megabytes, passed.count(), static_cast<double>(megabytes) / passed.count(),
             peak_bytes() / kMegabyte, imported->steps.printed,
             imported->steps.step ? imported->steps.step->in(echelon::kSecond) : 0);
  return 0;
}
