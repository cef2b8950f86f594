#include <utility>

#include "core/json_io.hpp"
#include "core/plan_json_io.hpp"
#include "report/validation.hpp"

namespace echelon {

namespace {

Json seconds_or_null(const std::optional<Seconds>& time) {
  return time ? Json(finite(time->in(kSecond), "a step time")) : Json(nullptr);
}
Json bytes_or_null(const std::optional<Bytes>& bytes) {
  return bytes ? Json(whole_bytes(*bytes)) : Json(nullptr);
}
template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json row_json(const ValidatedRow& row) {
  return Json{{"row_id", row.row_id},
              {"source", row.source},
              {"predicted_step_seconds", seconds_or_null(row.predicted_step)},
              {"measured_step_seconds", seconds_or_null(row.measured_step)},
              {"time_error", or_null(row.time_error)},
              {"predicted_peak_bytes", bytes_or_null(row.predicted_peak)},
              {"measured_peak_bytes", bytes_or_null(row.measured_peak)},
              {"memory_error", or_null(row.memory_error)},
              {"predicted_fits", or_null(row.predicted_fits)},
              {"measured_fits", or_null(row.measured_fits)},
              {"inferred", row.inferred ? Json(row.inferred_what) : Json(nullptr)},
              {"skipped", row.skipped.empty() ? Json(nullptr) : Json(row.skipped)}};
}

Json errors_json(const ErrorSummary& errors) {
  return Json{{"rows", errors.rows},
              {"mean_abs_error", finite(errors.mean_abs, "a mean error")},
              {"median_abs_error", errors.median_abs},
              {"p90_abs_error", errors.p90_abs},
              {"bias", errors.bias}};
}

Json ranking_json(const std::vector<Ranking>& ranking) {
  Json list = Json::array();
  for (const Ranking& group : ranking) {
    list.push_back({{"group", group.group},
                    {"rows", group.rows},
                    {"regret", finite(group.regret, "a regret")},
                    {"regret3", finite(group.regret3, "a regret")},
                    {"spearman", finite(group.spearman, "a rank correlation")}});
  }
  return list;
}

Json fits_json(const FitsSummary& fits) {
  return Json{
      {"rows", fits.rows}, {"false_fits", fits.false_fits}, {"false_ooms", fits.false_ooms}};
}

}  // namespace

std::string validation_json(const ValidationReport& report) {
  Json rows = Json::array();
  for (const ValidatedRow& row : report.rows) rows.push_back(row_json(row));
  Json sources = Json::object();
  for (const auto& [source, summary] : report.by_source) {
    sources[source] = Json{{"time", errors_json(summary.time)},
                           {"memory", errors_json(summary.memory)},
                           {"fits", fits_json(summary.fits)},
                           {"ranking", ranking_json(summary.ranking)}};
  }
  const Json document{{"rows", std::move(rows)},
                      {"time", errors_json(report.time)},
                      {"memory", errors_json(report.memory)},
                      {"fits", fits_json(report.fits)},
                      {"ranking", ranking_json(report.ranking)},
                      {"by_source", std::move(sources)}};
  return document.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace echelon
