#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>

#include "report/validation.hpp"

namespace echelon {

namespace {

std::string csv_cell(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}
std::string csv_cell(const std::optional<Seconds>& time) {
  return time ? fmt::format("{}", time->in(kSecond)) : std::string();
}
std::string csv_cell(const std::optional<Bytes>& bytes) {
  return bytes ? fmt::format("{:.0f}", bytes->in(kByte)) : std::string();
}
std::string csv_cell(const std::optional<double>& ratio) {
  return ratio ? fmt::format("{}", *ratio) : std::string();
}
std::string csv_cell(const std::optional<bool>& flag) {
  return flag ? std::string(*flag ? "1" : "0") : std::string();
}

std::string names_of(const std::vector<RowQualityFlag>& flags) {
  std::vector<std::string_view> names;
  for (const RowQualityFlag& flag : flags) names.push_back(flag.name);
  return fmt::format("{}", fmt::join(names, "; "));
}

}  // namespace

std::string validation_rows_csv(const ValidationReport& report) {
  std::string out =
      "row_id,source,group,measured_step_seconds,predicted_step_seconds,low_seconds,high_seconds,"
      "time_error,prior_time_error,measured_peak_bytes,predicted_peak_bytes,memory_error,"
      "measured_static_bytes,predicted_static_bytes,static_error,predicted_need_bytes,measured_"
      "fits,"
      "predicted_fits,fits_probability,memory_band,fold,flags,calibration,nearest_calibration,"
      "skipped,inferred";
  for (const StepPart& part : kStepParts)
    fmt::format_to(std::back_inserter(out), ",{}_seconds", part.key);
  out += '\n';
  for (const ValidatedRow& row : report.rows) {
    const bool predicted = row.predicted_step.has_value();
    const auto of_prediction = [&](Seconds time) {
      return csv_cell(predicted ? std::optional(time) : std::nullopt);
    };
    const std::array cells = {csv_cell(row.row_id),
                              csv_cell(row.source),
                              csv_cell(row.group),
                              csv_cell(row.measured_step),
                              csv_cell(row.predicted_step),
                              of_prediction(row.low),
                              of_prediction(row.high),
                              csv_cell(row.time_error),
                              csv_cell(row.prior_time_error),
                              csv_cell(row.measured_peak),
                              csv_cell(row.predicted_peak),
                              csv_cell(row.memory_error),
                              csv_cell(row.measured_static),
                              csv_cell(row.predicted_static),
                              csv_cell(row.static_error),
                              csv_cell(row.predicted_need),
                              csv_cell(row.measured_fits),
                              csv_cell(row.predicted_fits),
                              csv_cell(row.fits_probability),
                              csv_cell(row.fits_probability ? name_of(row.memory_band.kind) : ""),
                              csv_cell(row.fold),
                              csv_cell(names_of(row.flags)),
                              csv_cell(row.calibration),
                              csv_cell(row.nearest),
                              csv_cell(row.skipped),
                              csv_cell(row.inferred_what)};
    out += fmt::format("{}", fmt::join(cells, ","));
    for (const StepPart& part : kStepParts) out += "," + of_prediction(part.of(row.parts));
    out += '\n';
  }
  return out;
}

}  // namespace echelon
