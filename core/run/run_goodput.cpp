#include "core/run/run_goodput.hpp"

#include <algorithm>
#include <array>

namespace echelon {

bool RunStart::failed() const {
  // The others: done, asked for, or certain to come again with the same input.
  constexpr std::array<std::string_view, 6> kNoFailures = {
      "completed", "interrupted", "stopped", "wrong input", "out of memory", "diverged"};
  return std::find(kNoFailures.begin(), kNoFailures.end(), end) == kNoFailures.end();
}

std::optional<Seconds> MeasuredGoodput::time_between_failures() const {
  if (failures == 0 || running <= Seconds{}) return std::nullopt;
  return running / static_cast<double>(failures);
}

MeasuredGoodput goodput_of_starts(const std::vector<RunStart>& starts) {
  MeasuredGoodput out;
  std::vector<double> restarts;
  const RunStart* failed = nullptr;  // the last one, if none came to its first step since
  for (const RunStart& start : starts) {
    ++out.starts;
    out.running += Seconds{std::max(0.0, start.last_seen - start.began)};
    if (failed != nullptr && start.computes) {
      restarts.push_back(std::max(0.0, *start.computes - failed->last_seen));
    }
    if (start.computes) failed = nullptr;
    if (start.failed()) {
      ++out.failures;
      if (failed == nullptr) failed = &start;
    } else {
      failed = nullptr;  // what follows was started when somebody wanted it
    }
  }
  out.restarts = std::ssize(restarts);
  if (restarts.empty()) return out;
  std::sort(restarts.begin(), restarts.end());
  const std::size_t middle = restarts.size() / 2;
  const bool odd = restarts.size() % 2 == 1;
  out.restart = Seconds{odd ? restarts[middle] : (restarts[middle - 1] + restarts[middle]) / 2};
  return out;
}

}  // namespace echelon
