#include "report/text/plan_economics_text.hpp"

#include <fmt/format.h>

#include "core/base/parse_quantity.hpp"
#include "core/base/text.hpp"
#include "planner/economics.hpp"
#include "report/format.hpp"
#include "report/text/text.hpp"
#include "report/trade_offs.hpp"

namespace echelon {

namespace {

/// "812.5 kWh", "1.4 MWh", "27.0 GWh".
std::string energy_text(Joules energy) {
  const double kwh = energy.in(kKilowattHour);
  if (kwh >= 1e6) return fmt::format("{:.1f} GWh", kwh / 1e6);
  return kwh >= 1e3 ? fmt::format("{:.1f} MWh", kwh / 1e3) : fmt::format("{:.1f} kWh", kwh);
}

}  // namespace

std::string economics_line(const PlanRequest& request, const Candidate& candidate) {
  const Economics money = economics_of(request, candidate.prediction.time);
  if (!money.time_for_budget) return {};
  std::string line = fmt::format("{} tokens in {}", human_count(*request.job.token_budget),
                                 duration(*money.time_for_budget));
  if (money.token_factor > 1) {
    line +=
        fmt::format(" ({:.2f} times as many tokens, for the batch is {:.2g} of the critical one)",
                    money.token_factor, money.token_factor - 1);
  }
  if (money.expected_time)
    line += fmt::format(", {} with failures", duration(*money.expected_time));
  if (money.for_budget) {
    line += fmt::format(", {} USD at {:.2f} USD per GPU hour",
                        human_count(money.expected_dollars.value_or(*money.for_budget).in(kDollar)),
                        price_per_gpu_hour(request)->in(kDollar));
  }
  if (money.energy && money.energy->for_budget) {
    line += fmt::format(", about {} in GPU boards (shares of their power assumed)",
                        energy_text(*money.energy->for_budget));
  }
  return line;
}

std::string failures_line(const PlanRequest& request, Seconds step) {
  if (!shows_goodput(request)) return {};
  const std::optional<Goodput> failures = goodput_of(request);
  if (!failures) return {};
  std::string line = fmt::format(
      "{} of the time is useful with a checkpoint every {}, {} ({}): a failure every {} ({}), a "
      "checkpoint of {} takes {}",
      percent(failures->fraction), duration(failures->interval),
      counted(steps_between_checkpoints(failures->interval, step), "step"),
      name_of(failures->evidence()), duration(failures->mtbf), name_of(failures->of_mtbf),
      with_gib(failures->checkpoint), duration(failures->write));
  if (failures->stall < failures->write)
    line += fmt::format(" and stops the job for {}", duration(failures->stall));
  return line + fmt::format(" ({}), a restart {} ({})", name_of(failures->of_checkpoint),
                            duration(failures->restart), name_of(failures->of_restart));
}

}  // namespace echelon
