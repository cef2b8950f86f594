#include <fmt/format.h>

#include "report/fit.hpp"
#include "report/format.hpp"
#include "report/text/table.hpp"

namespace echelon {

namespace {

/// Below it the runs hardly determine a rate.
constexpr double kWorthShowing = 0.1;

std::string rate_text(double value) { return fmt::format("{:.4g}", value); }

/// The rates that the runs determine, and a warning for each at its bound; empty if there are none.
std::string rates_table(const std::string& title, std::span<const FittedRate> all,
                        const TextStyle& style) {
  Table rates({{title, Table::Align::left}, {"prior"}, {"fitted"}, {"one sigma"}, {"learned"}});
  for (const FittedRate& rate : all) {
    if (rate.learned < kWorthShowing) continue;
    rates.add({rate.key, rate_text(rate.prior), rate_text(rate.value),
               rate_text(rate.low) + " .. " + rate_text(rate.high),
               fmt::format("{:.0f} %", 100 * rate.learned)});
  }
  std::string out = rates.empty() ? "" : "\n" + rates.text(style);
  for (const FittedRate& rate : all) {
    if (!rate.at_bound || rate.learned < kWorthShowing) continue;
    out += fmt::format(
        "warning: {} of {} lies at its bound, {}: the fit failed, a term of the model is missing\n",
        rate.key, title, rate_text(rate.value));
  }
  return out;
}

}  // namespace

std::string fit_text(const FitTable& fitted, const TextStyle& style) {
  std::string out = fmt::format("{} used", counted(fitted.used, "run"));
  for (const std::string& why : fitted.left_out) out += ", " + why;
  out += "\n";
  if (fitted.calibrations.empty()) {
    return out + "Nothing to fit: no GPU family has four usable runs under one framework.\n";
  }
  Table list({{"calibration", Table::Align::left},
              {"runs"},
              {"median error, in fold"},
              {"band"},
              {"memory band", Table::Align::left}});
  for (const FittedCalibration& one : fitted.calibrations) {
    list.add({one.calibration.name, fmt::format("{}", one.runs),
              fmt::format("{:.1f} %", 100 * one.median),
              fmt::format("±{:.0f} %", 100 * one.calibration.time_band),
              words_of(memory_band_of(one.calibration,
                                      find_framework(one.calibration.framework).value()))});
  }
  out += "\n" + list.text(style);
  for (const FittedCalibration& one : fitted.calibrations) {
    out += rates_table(one.calibration.name, one.rates, style);
  }
  return out;
}

std::string learned_text(std::span<const LearnedRates> all, std::span<const std::string> left_out,
                         const TextStyle& style) {
  std::string out;
  for (const std::string& why : left_out) out += "left out: " + why + "\n";
  if (all.empty()) return out + "Nothing to learn from: no report of a run that measured a step.\n";
  for (const LearnedRates& one : all) {
    const std::string whose =
        one.learned.calibration.name +
        (one.cores > 0 ? ", ranks of " + counted(one.cores, "core") : std::string());
    Table runs({{"run", Table::Align::left},
                {"measured"},
                {"predicted before"},
                {"error"},
                {"after"},
                {"error"}});
    for (const RefitRun& run : one.learned.runs) {
      runs.add({run.name, duration(run.measured), duration(run.before),
                signed_percent(run.before / run.measured - 1), duration(run.after),
                signed_percent(run.after / run.measured - 1)});
    }
    out += (out.empty() ? "" : "\n") + runs.text(style);
    out += rates_table(whose, one.learned.rates, style);
  }
  return out;
}

}  // namespace echelon
