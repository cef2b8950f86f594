// Writes tables of measured runs: RFC 4180, the columns that measured_runs_csv_io.cpp reads.
#include <fmt/format.h>

#include "evaluation/measured_runs_csv_io.hpp"

namespace echelon {

namespace {

std::string quoted_if_needed(const std::string& text) {
  const bool blank_end = !text.empty() && (text.front() == ' ' || text.back() == ' ');
  if (!blank_end && text.find_first_of(",\"\r\n\t") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

}  // namespace

std::string cell_text(const RunColumn& column, const MeasuredRun& row) {
  if (const auto* text = std::get_if<std::string MeasuredRun::*>(&column.field)) {
    return row.*(*text);
  }
  if (const auto* flag = std::get_if<FlagCell MeasuredRun::*>(&column.field)) {
    const FlagCell& cell = row.*(*flag);
    return !cell ? "" : *cell ? "1" : "0";
  }
  if (const auto* whole = std::get_if<WholeCell MeasuredRun::*>(&column.field)) {
    const WholeCell& cell = row.*(*whole);
    return cell ? fmt::format("{}", *cell) : "";
  }
  const NumberCell& cell = row.*std::get<NumberCell MeasuredRun::*>(column.field);
  return cell ? fmt::format("{}", *cell) : "";
}

std::string runs_to_csv(std::span<const MeasuredRun> rows) {
  std::string out;
  for (const RunColumn& column : run_columns()) {
    out += (out.empty() ? "" : ",") + std::string(column.name);
  }
  out += "\n";
  for (const MeasuredRun& row : rows) {
    bool first = true;
    for (const RunColumn& column : run_columns()) {
      if (!first) out += ',';
      first = false;
      out += quoted_if_needed(cell_text(column, row));
    }
    out += "\n";
  }
  return out;
}

}  // namespace echelon
