// One small plan, really trained, under ThreadSanitizer: eight ranks, all queues. A missing
// synchronisation between kernels, communicators or states is reported as a race. Built from the
// sources themselves (tests/CMakeLists.txt), without OpenMP, whose library is not instrumented, and
// as on a machine without oneDNN and MPI: Eigen multiplies, and mpi::start reports the missing MPI.
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>

#include "runtime/comm/mpi/processes.hpp"
#include "tests/runtime/race/small_run.hpp"

int main(int count, char** arguments) {
  using namespace echelon;
  const auto say = [](const std::string& what) {
    std::printf("%s\n", what.c_str());
    return 1;
  };
  if (count != 2) return say("race_training SCHEDULE");
  std::ifstream file(arguments[1]);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const Result<Schedule> schedule = parse_schedule_text(text, arguments[1]);
  if (!schedule) return say(schedule.error().message());
  const Result<mpi::Place> place = mpi::start();
  if (place || place.error().hint.empty()) return say("MPI is said to be there");
  try {
    const std::vector<double> losses = losses_of_small_run(*schedule);
    int wrong = losses.size() == std::size(kLossesOfSmallRun) ? 0 : 1;
    for (std::size_t i = 0; i < losses.size() && i < std::size(kLossesOfSmallRun); ++i) {
      std::printf("step %zu: loss %.7f, expected %.7f\n", i, losses[i], kLossesOfSmallRun[i]);
      wrong += std::abs(losses[i] - kLossesOfSmallRun[i]) < kRoundingOfSmallRun ? 0 : 1;
    }
    return wrong == 0 ? 0 : 1;
  } catch (const RunFailure& failure) {
    return say(failure.what());
  }
}
