#include "core/json_io.hpp"
#include "report/fit.hpp"

namespace echelon {

std::string fit_json(const FitTable& fitted) {
  Json out{{"schema", 1}, {"runs", fitted.used}, {"left_out", fitted.left_out}};
  out["calibrations"] = Json::array();
  for (const FittedCalibration& one : fitted.calibrations) {
    Json rates = Json::array();
    for (const FittedRate& rate : one.rates) {
      rates.push_back({{"rate", rate.key},
                       {"prior", rate.prior},
                       {"value", rate.value},
                       {"low", rate.low},
                       {"high", rate.high},
                       {"learned", rate.learned}});
    }
    out["calibrations"].push_back({{"name", one.calibration.name},
                                   {"base", one.base},
                                   {"fitted_to", one.calibration.fitted_to},
                                   {"runs", one.runs},
                                   {"median_error_in_fold", one.median},
                                   {"time_band", one.calibration.time_band},
                                   {"rates", rates}});
  }
  return out.dump(2) + "\n";
}

}  // namespace echelon
