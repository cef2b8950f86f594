#include "runtime/training/run.hpp"

namespace echelon {

int exit_code_of(const RunReport& report) {
  constexpr int kInterrupted = 130;  // 128 + SIGINT, as shells have it
  const auto failure = report.environment.find("failure");
  if (failure == report.environment.end())
    return report.end == RunReport::End::completed ? 0 : kInterrupted;
  using enum RunFailure::Kind;
  for (const RunFailure::Kind kind :
       {stopped, input, environment, hang, out_of_memory, diverged, peer_lost}) {
    if (failure->second == name_of(kind)) return exit_code_of(kind);
  }
  return exit_code_of(defect);
}

}  // namespace echelon
