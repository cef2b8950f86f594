#include <fmt/format.h>

#include "costmodel/calibration_fields.hpp"
#include "report/calibrate.hpp"
#include "report/table.hpp"
#include "report/words.hpp"

namespace echelon {

namespace {

std::string shape_words(const Measurement& m) {
  std::string text;
  for (const std::int64_t n : m.shape) text += (text.empty() ? "" : " x ") + std::to_string(n);
  return text;
}

/// Of one rank: FLOP/s of products and attention, bytes per second of what moves memory.
std::string rate_words(const Measurement& m) {
  double product = 1;
  for (const std::int64_t n : m.shape) product *= static_cast<double>(n);
  const double seconds = m.seconds.in(kSecond);
  if (seconds <= 0) return "";
  if (m.what.starts_with("gemm ")) return fmt::format("{:.3g} GFLOP/s", 2e-9 * product / seconds);
  if (m.what.starts_with("attention ")) {
    const double passes = m.what.ends_with("forward") ? 1 : 2.5;
    const double flops = 2 * passes * product * static_cast<double>(m.shape[0]);
    return fmt::format("{:.3g} GFLOP/s", 1e-9 * flops / seconds);
  }
  if (m.what.starts_with("gelu ") || m.what.starts_with("norm ")) {
    const double bytes = (m.what.ends_with("forward") ? 8 : 12) * product;
    return fmt::format("{:.3g} GB/s", 1e-9 * bytes / seconds);
  }
  if (m.what == "clear and adam") {
    return fmt::format("{:.3g} M parameters/s", 1e-6 * product / seconds);
  }
  if (m.what.find("layers ") != std::string::npos) return "";
  if (m.what == "empty step")
    return fmt::format("{:.3g} us an instruction", 1e6 * seconds / product);
  return fmt::format("{:.3g} GB/s", 1e-9 * product / seconds);
}

}  // namespace

std::string calibrate_text(const std::vector<Measurement>& all,
                           const std::vector<CalibrationByCores>& rates, const TextStyle& style) {
  Table table({{"operation", Table::Align::left, 0},
               {"shape", Table::Align::left, 0},
               {"ranks", Table::Align::right, 1},
               {"cores each", Table::Align::right, 1},
               {"time", Table::Align::right, 0},
               {"rate of one", Table::Align::right, 0}});
  for (const Measurement& m : all) {
    table.add({m.what, shape_words(m), std::to_string(m.ranks), std::to_string(m.cores),
               duration(m.seconds), rate_words(m)});
  }
  std::string out = table.text(style);
  std::vector<Table::Column> columns{{"rate", Table::Align::left, 0},
                                     {"unit", Table::Align::left, 0}};
  for (const CalibrationByCores& each : rates) {
    columns.push_back({each.cores == 1 ? "1 core a rank" : fmt::format("{} cores", each.cores),
                       Table::Align::right, 0});
  }
  Table fitted(columns);
  for (const char* key :
       {"gemm_efficiency", "gemm_ramp", "kernel_fixed", "attention_forward", "attention_backward",
        "attention_ramp", "memory_efficiency", "fp64_efficiency", "optimizer_efficiency",
        "host_instruction", "step_fixed", "collective_base", "link_efficiency"}) {
    const CalibrationField& field = calibration_field(key);
    std::vector<Cell> row{key, field.unit};
    for (const CalibrationByCores& each : rates) {
      row.emplace_back(fmt::format("{:.3g}", rate_of(each.calibration, field)));
    }
    fitted.add(std::move(row));
  }
  return out + "\n" + fitted.text(style);
}

}  // namespace echelon
