// Growth of a search's time and memory with the number of GPUs. Each search runs in its own
// process, so that its memory can be measured; times are CPU times, the best of three.
//
//   bench_scaling [MODEL...]
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "bench/requests.hpp"
#include "planner/search/search.hpp"

namespace {

using namespace echelon;

struct Measured {
  double seconds = 0;
  std::int64_t points = 0;
  std::int64_t fitting = 0;
  double mebibytes = 0;  ///< largest resident set of the whole process
};

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

Measured search_here(const PlanRequest& request) {
  constexpr int kTries = 3;
  Measured best;
  for (int i = 0; i < kTries; ++i) {
    const double start = processor_seconds();
    const Result<SearchOutcome> report = search(request);
    const double seconds = processor_seconds() - start;
    if (!report) continue;
    if (i == 0 || seconds < best.seconds) best.seconds = seconds;
    best.points = report->counts.points;
    best.fitting = report->counts.fitting;
  }
  return best;
}

Measured measured(const PlanRequest& request) {
  int ends[2];
  if (::pipe(ends) != 0) std::abort();
  const pid_t child = ::fork();
  if (child == 0) {
    const Measured found = search_here(request);
    std::_Exit(::write(ends[1], &found, sizeof found) == sizeof found ? 0 : 1);
  }
  Measured out;
  const bool complete = ::read(ends[0], &out, sizeof out) == sizeof out;
  ::close(ends[0]);
  ::close(ends[1]);
  int status = 0;
  rusage usage{};
  if (::wait4(child, &status, 0, &usage) != child || status != 0 || !complete) std::abort();
  out.mebibytes = static_cast<double>(usage.ru_maxrss) / 1024;  // Linux: KiB
  return out;
}

void print_row(const std::string& model, int gpus, const Measured& m) {
  fmt::print("| {} | {} | {} | {} | {:.3f} | {:.0f} |\n", model, gpus, m.points, m.fitting,
             m.seconds, m.mebibytes);
  std::fflush(stdout);
}

void print_head() {
  fmt::print("| model | GPUs | points | fit | seconds | MiB |\n|---|---|---|---|---|---|\n");
}

/// Least squares of log y = a + exponent·log x.
double exponent_of(const std::vector<double>& x, const std::vector<double>& y) {
  const double n = static_cast<double>(x.size());
  double sx = 0, sy = 0, sxx = 0, sxy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double u = std::log(x[i]);
    const double v = std::log(y[i]);
    sx += u;
    sy += v;
    sxx += u * u;
    sxy += u * v;
  }
  return (n * sxy - sx * sy) / (n * sxx - sx * sx);
}

/// One sequence per GPU and step, so that every number of GPUs has a legal batch.
void growth(const std::string& model) {
  std::vector<double> gpus;
  std::vector<double> seconds;
  for (const int count :
       {64, 256, 1024, 4096, 8192, 12288, 16384, 24576, 32768, 49152, 65536, 98304, 100000}) {
    PlanRequest request = request_for(model.c_str(), count);
    request.job.global_batch = count;
    const Measured m = measured(request);
    print_row(model, count, m);
    gpus.push_back(count);
    seconds.push_back(m.seconds);
  }
  fmt::print("\n{}: time grows as GPUs^{:.2f}; {} times the GPUs take {:.1f} times as long\n\n",
             model, exponent_of(gpus, seconds), gpus.back() / gpus.front(),
             seconds.back() / seconds.front());
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> models(argv + 1, argv + argc);
  if (models.empty()) {
    fmt::print("Searches of bench_search\n\n");
    print_head();
    print_row("7b", 64, measured(request_for("7b", 64)));
    print_row("gpt3-175b", 1024, measured(request_for("gpt3-175b", 1024)));
    print_row("405b", 16384, measured(request_for("405b", 16384)));
    print_row("deepseek-v3", 2048, measured(request_for("deepseek-v3", 2048)));
    fmt::print("\n");
  }
  fmt::print("Batch: one sequence per GPU\n\n");
  print_head();
  const std::vector<std::string> defaults = {"7b", "gpt3-175b", "405b", "deepseek-v3"};
  for (const std::string& model : models.empty() ? defaults : models) growth(model);
}
