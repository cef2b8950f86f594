#include "cli/commands/next_run_advice.hpp"

#include <fmt/format.h>

#include "cli/commands/command_line.hpp"
#include "cli/flags/plan_settings.hpp"

namespace echelon::cli {
namespace {

/// The flags alone: "--tp 4 --dp 2".
std::string flags_text(const Settings& settings) {
  const std::string command = command_of("predict", settings);
  const std::size_t start = command.find("--");
  return start == std::string::npos ? "" : command.substr(start);
}

}  // namespace

std::optional<NextRunAdvice> next_run_advice(const KnownRates& known,
                                             std::span<const PlanToPrice> runs,
                                             std::span<const RefitRun> names,
                                             std::span<const std::string> plan_files) {
  const std::optional<NextRun> found = next_run(known, runs);
  if (!found) return {};
  const Settings all = settings_of(found->plan);
  Settings changed = all;
  const Settings before = settings_of(runs[found->like].plan);
  for (const auto& [flag, setting] : before.all()) {
    const Setting* now = all.find(flag);
    if (now != nullptr && now->value == setting.value) changed.erase(flag);
  }
  NextRunAdvice out{*found, names[found->like].name, flags_text(changed), flags_text(all), {}};
  if (!plan_files.empty() && !plan_files[found->like].empty()) {
    out.commands = {
        fmt::format("plan predict {} {} -o next.json", plan_files[found->like], out.changes),
        fmt::format("plan run next.json --steps {} --report next-report.json", kStepsOfNextRun)};
  }
  return out;
}

}  // namespace echelon::cli
