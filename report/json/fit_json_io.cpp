#include "core/json/json_io.hpp"
#include "report/fit.hpp"
#include "report/json/candidate_json_io.hpp"

namespace echelon {

namespace {

Json rates_json(std::span<const FittedRate> all) {
  Json rates = Json::array();
  for (const FittedRate& rate : all) {
    rates.push_back({{"rate", rate.key},
                     {"prior", rate.prior},
                     {"value", rate.value},
                     {"low", rate.low},
                     {"high", rate.high},
                     {"learned", rate.learned}});
  }
  return rates;
}

const MemoryBand& band_of(const Calibration& calibration) {
  return memory_band_of(calibration, find_framework(calibration.framework).value());
}

Json runs_json(std::span<const RefitRun> all, const char* name) {
  Json runs = Json::array();
  for (const RefitRun& run : all) {
    runs.push_back({{name, run.name},
                    {"measured_seconds", run.measured.in(kSecond)},
                    {"before_seconds", run.before.in(kSecond)},
                    {"error_before", run.before / run.measured - 1},
                    {"after_seconds", run.after.in(kSecond)},
                    {"error_after", run.after / run.measured - 1}});
  }
  return runs;
}

Json next_run_json(const std::optional<NextRunAdvice>& next) {
  if (!next) return nullptr;
  return {{"like", next->like},
          {"changes", next->changes},
          {"flags", next->flags},
          {"steps", kStepsOfNextRun},
          {"step_seconds", next->run.step.in(kSecond)},
          {"uncertainty", next->run.uncertainty},
          {"uncertainty_then", next->run.then},
          {"commands", next->commands}};
}

}  // namespace

std::string site_fit_json(const SiteReport& report) {
  const Calibration& calibration = report.fit.calibration;
  return Json{{"schema", 1},
              {"name", calibration.name},
              {"prior", report.fit.prior},
              {"fitted_to", calibration.fitted_to},
              {"left_out", report.left_out},
              {"doubts", report.doubts},
              {"runs", runs_json(report.fit.runs, "run")},
              {"rates", rates_json(report.fit.rates)},
              {"prior_time_band", report.fit.prior_band},
              {"time_band", calibration.time_band},
              {"next_run", next_run_json(report.next)}}
             .dump(2) +
         "\n";
}

std::string fit_json(const FitTable& fitted) {
  Json out{{"schema", 1}, {"runs", fitted.used}, {"left_out", fitted.left_out}};
  out["calibrations"] = Json::array();
  for (const FittedCalibration& one : fitted.calibrations) {
    out["calibrations"].push_back({{"name", one.calibration.name},
                                   {"base", one.base},
                                   {"fitted_to", one.calibration.fitted_to},
                                   {"runs", one.runs},
                                   {"median_error_in_fold", one.median},
                                   {"time_band", one.calibration.time_band},
                                   {"memory_band", memory_band_json(band_of(one.calibration))},
                                   {"rates", rates_json(one.rates)}});
  }
  return out.dump(2) + "\n";
}

std::string learned_json(std::span<const LearnedRates> all, std::span<const std::string> left_out) {
  Json out{{"schema", 1}, {"left_out", std::vector<std::string>(left_out.begin(), left_out.end())}};
  out["calibrations"] = Json::array();
  for (const LearnedRates& one : all) {
    const Calibration& calibration = one.learned.calibration;
    out["calibrations"].push_back({{"name", calibration.name},
                                   {"cores", one.cores > 0 ? Json(one.cores) : Json(nullptr)},
                                   {"fitted_to", calibration.fitted_to},
                                   {"prior_time_band", one.learned.prior_band},
                                   {"time_band", calibration.time_band},
                                   {"doubts", one.doubts},
                                   {"runs", runs_json(one.learned.runs, "report")},
                                   {"rates", rates_json(one.learned.rates)},
                                   {"next_run", next_run_json(one.next)}});
  }
  return out.dump(2) + "\n";
}

}  // namespace echelon
