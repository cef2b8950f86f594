#include <map>
#include <utility>

#include "core/json/json_io.hpp"
#include "core/plan/plan_json_io.hpp"
#include "report/json/candidate_json_io.hpp"
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

Json flags_json(const std::vector<RowQualityFlag>& flags) {
  Json names = Json::array();
  for (const RowQualityFlag& flag : flags) names.push_back(std::string(flag.name));
  return names;
}

Json row_json(const ValidatedRow& row) {
  return Json{{"row_id", row.row_id},
              {"source", row.source},
              {"predicted_step_seconds", seconds_or_null(row.predicted_step)},
              {"measured_step_seconds", seconds_or_null(row.measured_step)},
              {"time_error", or_null(row.time_error)},
              {"prior_time_error", or_null(row.prior_time_error)},
              {"predicted_peak_bytes", bytes_or_null(row.predicted_peak)},
              {"measured_peak_bytes", bytes_or_null(row.measured_peak)},
              {"memory_error", or_null(row.memory_error)},
              {"predicted_fits", or_null(row.predicted_fits)},
              {"fits_probability", or_null(row.fits_probability)},
              {"measured_fits", or_null(row.measured_fits)},
              {"low_seconds", row.predicted_step ? seconds_or_null(row.low) : Json(nullptr)},
              {"high_seconds", row.predicted_step ? seconds_or_null(row.high) : Json(nullptr)},
              {"fold", row.fold},
              {"flags", flags_json(row.flags)},
              {"calibration", row.calibration.empty() ? Json(nullptr) : Json(row.calibration)},
              {"nearest_calibration", row.nearest.empty() ? Json(nullptr) : Json(row.nearest)},
              {"inferred", row.inferred ? Json(row.inferred_what) : Json(nullptr)},
              {"skipped", row.skipped.empty() ? Json(nullptr) : Json(row.skipped)}};
}

Json interval_json(const Interval& interval) { return Json::array({interval.low, interval.high}); }

Json errors_json(const ErrorSummary& errors) {
  return Json{{"rows", errors.rows},
              {"mean_abs_error", finite(errors.mean_abs, "a mean error")},
              {"median_abs_error", errors.median_abs},
              {"p90_abs_error", errors.p90_abs},
              {"bias", errors.bias},
              {"mean_abs_error_80", interval_json(errors.mean_80)},
              {"mean_abs_error_95", interval_json(errors.mean_95)},
              {"share_in_band", or_null(errors.in_band)}};
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

Json ranking_summary_json(const std::vector<Ranking>& ranking) {
  const RankingSummary all = summarize_ranking(ranking);
  return Json{{"groups", all.groups},
              {"regret_mean", finite(all.regret_mean, "a regret")},
              {"regret_median", finite(all.regret_median, "a regret")},
              {"regret3_mean", finite(all.regret3_mean, "a regret")},
              {"regret3_median", finite(all.regret3_median, "a regret")},
              {"spearman_mean", finite(all.spearman_mean, "a rank correlation")}};
}

Json fits_json(const FitsSummary& fits) {
  Json bins = Json::array();
  for (const SpareBin& bin : fits.bins) {
    bins.push_back({{"spare_from", bin.from == kSpareBins.front() ? Json(nullptr) : Json(bin.from)},
                    {"rows", bin.rows},
                    {"ran", bin.ran},
                    {"fits_probability", bin.probability}});
  }
  return Json{{"rows", fits.rows},
              {"ran", fits.ran},
              {"false_fits", fits.false_fits},
              {"false_ooms", fits.false_ooms},
              {"brier", fits.brier},
              {"brier_of_hard_limit", fits.hard_brier()},
              {"bins", std::move(bins)}};
}

Json frameworks_json(const std::map<std::string, FrameworkFits>& frameworks) {
  Json out = Json::object();
  for (const auto& [name, one] : frameworks) {
    out[name] = {{"memory_band", memory_band_json(one.band)}, {"fits", fits_json(one.fits)}};
  }
  return out;
}

Json summary_json(const ValidationSummary& summary) {
  return Json{{"time", errors_json(summary.time)},
              {"prior_time", errors_json(summary.prior_time)},
              {"memory", errors_json(summary.memory)},
              {"fits", fits_json(summary.fits)},
              {"ranking", ranking_json(summary.ranking)},
              {"ranking_summary", ranking_summary_json(summary.ranking)}};
}

Json pair_json(const ValidationPair& pair) {
  Json out = summary_json(pair);
  out["without_flagged"] = summary_json(pair.unflagged);
  return out;
}

Json pairs_json(const std::map<std::string, ValidationPair>& pairs) {
  Json out = Json::object();
  for (const auto& [name, pair] : pairs) out[name] = pair_json(pair);
  return out;
}

Json noise_json(const std::map<std::string, NoiseFloor>& noise) {
  Json out = Json::object();
  for (const auto& [source, floor] : noise) {
    out[source] = {{"groups", floor.groups},
                   {"rows", floor.rows},
                   {"mean", floor.mean},
                   {"median", floor.median},
                   {"largest", floor.largest}};
  }
  return out;
}

Json first_runs_errors_json(const std::vector<FirstRunsErrors>& all, const char* counted) {
  Json out = Json::array();
  for (const FirstRunsErrors& each : all) {
    const bool any = each.rows > 0;
    out.push_back({{"runs", each.runs},
                   {counted, each.rows},
                   {"mean_abs_error_before", any ? Json(each.before) : Json(nullptr)},
                   {"mean_abs_error_after", any ? Json(each.after) : Json(nullptr)},
                   {"share_in_band", any ? Json(each.in_band) : Json(nullptr)}});
  }
  return out;
}

Json first_runs_json(const FirstRuns& all) {
  Json sources = Json::object();
  for (const FirstRunsSource& each : all.sources) {
    sources[each.source] = {{"rows", each.rows},
                            {"after", first_runs_errors_json(each.errors, "rows")}};
  }
  return {{"by_source", std::move(sources)},
          {"means", first_runs_errors_json(all.means, "sources")}};
}

}  // namespace

std::string validation_json(const ValidationReport& report) {
  Json document = pair_json(report);
  Json rows = Json::array();
  for (const ValidatedRow& row : report.rows) rows.push_back(row_json(row));
  document["rows"] = std::move(rows);
  document["by_source"] = pairs_json(report.by_source);
  document["by_part"] = pairs_json(report.by_part);
  document["by_left_out"] = pairs_json(report.by_left_out);
  document["by_framework"] = frameworks_json(report.by_framework);
  document["noise_floor"] = noise_json(report.noise);
  if (report.first_runs) document["first_runs"] = first_runs_json(*report.first_runs);
  return document.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace echelon
