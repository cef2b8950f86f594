#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

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

/// The steps of runs before and after a fit.
std::string runs_table(std::span<const RefitRun> all, const TextStyle& style) {
  Table runs({{"run", Table::Align::left},
              {"measured"},
              {"predicted before"},
              {"error"},
              {"after"},
              {"error"}});
  for (const RefitRun& run : all) {
    runs.add({run.name, duration(run.measured), duration(run.before),
              signed_percent(run.before / run.measured - 1), duration(run.after),
              signed_percent(run.after / run.measured - 1)});
  }
  return runs.text(style);
}

/// "a, b, c": the rates of which runs tell nearly nothing.
std::string unknown_rates(std::span<const FittedRate> all) {
  std::string out;
  for (const FittedRate& rate : all) {
    if (rate.learned < kWorthShowing) out += (out.empty() ? "" : ", ") + rate.key;
  }
  return out;
}

/// How far the rates moved, what is still unknown, and the band.
std::string knowledge_text(std::span<const FittedRate> all, double prior_band, double band,
                           const TextStyle& style) {
  constexpr double kHalfPercent = 0.005;
  Table moved({{"moved", Table::Align::left}, {"by"}, {"known to"}, {"learned"}});
  double farthest = 0;
  for (const FittedRate& rate : all) {
    if (rate.prior == 0) continue;
    const double by = rate.value / rate.prior - 1;
    farthest = std::max(farthest, std::abs(by));
    if (rate.learned < kWorthShowing || std::abs(by) < kHalfPercent) continue;
    moved.add({rate.key, signed_percent(by),
               fmt::format("±{}", percent((rate.high - rate.low) / 2 / rate.value)),
               fmt::format("{:.0f} %", 100 * rate.learned)});
  }
  std::string out = "\n" + moved.text(style);
  if (moved.empty()) {
    out = farthest < kHalfPercent
              ? "\nNo rate moved by half a percent.\n"
              : fmt::format("\nRates moved by up to {}, though the runs tell little of any one.\n",
                            percent(farthest));
  }
  if (const std::string unknown = unknown_rates(all); !unknown.empty()) {
    out += "\n" + folded("Still unknown, as before: " + unknown + ".", "", style);
  }
  return out + fmt::format("\n80 % band of a step: ±{:.1f} %, before ±{:.1f} %.\n", 100 * band,
                           100 * prior_band);
}

std::string next_run_text(const std::optional<NextRunAdvice>& next, const TextStyle& style) {
  if (!next) return "No neighbouring plan is legal and fits: no next run to advise.\n";
  std::string out = folded(
      fmt::format("Next run that would tell most, {} steps of about {}: as {}, with {}. The rates' "
                  "part of the uncertainty of a step falls from ±{:.1f} % to ±{:.1f} %.",
                  kStepsOfNextRun, duration(next->run.step), next->like, next->changes,
                  100 * next->run.uncertainty, 100 * next->run.then),
      "", style);
  for (const std::string& command : next->commands) out += "  " + command + "\n";
  if (next->commands.empty()) {
    out += folded("Flags of its plan: " + next->flags, "  ", style);
  }
  return out;
}

}  // namespace

std::string site_fit_text(const SiteReport& report, const TextStyle& style) {
  const SiteFit& fit = report.fit;
  std::string out;
  for (const std::string& why : report.left_out) out += "left out: " + why + "\n";
  out += fmt::format("Rates of a site after {}, starting from {}\n\n",
                     counted(std::ssize(fit.runs), "run"), fit.prior);
  out += runs_table(fit.runs, style);
  for (const std::string& doubt : report.doubts) out += "\n" + folded(doubt, "", style);
  return out + knowledge_text(fit.rates, fit.prior_band, fit.calibration.time_band, style) +
         next_run_text(report.next, style);
}

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
    out += (out.empty() ? "" : "\n") + runs_table(one.learned.runs, style);
    for (const std::string& doubt : one.doubts) out += "\n" + folded(doubt, "", style);
    out += rates_table(whose, one.learned.rates, style) +
           knowledge_text(one.learned.rates, one.learned.prior_band,
                          one.learned.calibration.time_band, style) +
           next_run_text(one.next, style);
  }
  return out;
}

}  // namespace echelon
