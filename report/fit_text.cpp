#include <fmt/format.h>

#include "report/fit.hpp"
#include "report/table.hpp"
#include "report/words.hpp"

namespace echelon {

namespace {

/// Below it the runs said next to nothing of a rate.
constexpr double kWorthShowing = 0.1;

std::string rate_text(double value) { return fmt::format("{:.4g}", value); }

}  // namespace

std::string fit_text(const FitTable& fitted, const TextStyle& style) {
  std::string out = fmt::format("{} used", counted(fitted.used, "run"));
  for (const std::string& why : fitted.left_out) out += ", " + why;
  out += "\n";
  if (fitted.calibrations.empty()) {
    return out + "Nothing to fit: no GPU family has four usable runs under one stack.\n";
  }
  Table list({{"calibration", Table::Align::left}, {"runs"}, {"median error, in fold"}, {"band"}});
  for (const FittedCalibration& one : fitted.calibrations) {
    list.add({one.calibration.name, fmt::format("{}", one.runs),
              fmt::format("{:.1f} %", 100 * one.median),
              fmt::format("±{:.0f} %", 100 * one.calibration.time_band)});
  }
  out += "\n" + list.text(style);
  for (const FittedCalibration& one : fitted.calibrations) {
    Table rates({{one.calibration.name, Table::Align::left},
                 {"prior"},
                 {"fitted"},
                 {"one sigma"},
                 {"learned"}});
    for (const FittedRate& rate : one.rates) {
      if (rate.learned < kWorthShowing) continue;
      rates.add({rate.key, rate_text(rate.prior), rate_text(rate.value),
                 rate_text(rate.low) + " .. " + rate_text(rate.high),
                 fmt::format("{:.0f} %", 100 * rate.learned)});
    }
    if (!rates.empty()) out += "\n" + rates.text(style);
  }
  return out;
}

}  // namespace echelon
