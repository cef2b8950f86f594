#include "runtime/training/run_messages.hpp"

#include <fmt/format.h>

#include <string>

#include "runtime/backend/memory.hpp"

namespace echelon {

std::string started_text(const RunReport& report) {
  const auto threads = report.environment.find(kThreadsPerRank);
  std::string text = fmt::format("{} on {} ranks", report.plan.model.name, report.ranks);
  if (threads != report.environment.end()) text += ", " + threads->second + " threads each";
  return text;
}

void report_failure(const RunFailure& failure, const PlanFile& plan, RunReport& report) {
  using End = RunReport::End;
  report.end = failure.kind() == RunFailure::Kind::stopped ? End::interrupted : End::failed;
  report.reason = failure.what();
  if (const auto* lack = dynamic_cast<const OutOfMemory*>(&failure)) {
    MemoryBreakdown largest;  // of any stage: which one it was is in the reason
    for (const MemoryBreakdown& stage : plan.predicted.stages) {
      if (stage.total() > largest.total()) largest = stage;
    }
    report.reason += fmt::format("; predicted: {:.1f} MiB of it, {:.1f} MiB in total",
                                 (largest.*lack->part()).in(1_MiB), largest.total().in(1_MiB));
    if (lack->available()) {
      report.reason += fmt::format(", available: {:.1f} MiB", lack->available()->in(1_MiB));
      report.environment["memory available"] = fmt::format("{:.0f}", lack->available()->in(kByte));
    }
  }
  report.environment["failure"] = name_of(failure.kind());
}

std::string how_ended(const RunReport& report, bool orphaned) {
  if (report.end == RunReport::End::failed) return report.environment.at("failure");
  if (report.end == RunReport::End::interrupted && orphaned) return "plan was killed";
  return std::string(name_of(report.end));
}

}  // namespace echelon
