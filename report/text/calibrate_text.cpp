#include <fmt/format.h>

#include "costmodel/calibration/calibration_fields.hpp"
#include "report/calibrate.hpp"
#include "report/format.hpp"
#include "report/text/table.hpp"

namespace echelon {

namespace {

std::string shape_words(const Measurement& m) {
  std::string text;
  for (const std::int64_t n : m.shape) text += (text.empty() ? "" : " x ") + std::to_string(n);
  return text;
}

std::string flops_words(double flops, double seconds) {
  const double giga = 1e-9 * flops / seconds;
  return giga < 1e4 ? fmt::format("{:.3g} GFLOP/s", giga)
                    : fmt::format("{:.3g} TFLOP/s", 1e-3 * giga);
}

/// Bytes that a kernel moves per row and column, in numbers; 0: not counted so.
double numbers_moved(const std::string& what) {
  const bool forward = what.ends_with("forward");
  if (what.starts_with("gelu ")) return forward ? 2 : 3;
  if (what.starts_with("norm ")) return forward ? 2 : 3;
  if (what.starts_with("swiglu ")) return forward ? 3 : 5;
  if (what.starts_with("loss ")) return forward ? 1 : 2;
  return 0;
}

/// Of one rank: FLOP/s of products and attention, bytes per second of what moves memory. Numbers
/// are of fp32, on GPUs of bf16.
std::string rate_words(const Measurement& m, bool gpu) {
  double product = 1;
  for (const std::int64_t n : m.shape) product *= static_cast<double>(n);
  const double seconds = m.seconds.in(kSecond);
  if (seconds <= 0) return "";
  if (m.what.starts_with("gemm ")) return flops_words(2 * product, seconds);
  if (m.what.starts_with("attention ")) {
    const double passes = m.what.ends_with("forward") ? 1 : 2.5;
    const double heads = gpu && m.shape.size() > 3 ? static_cast<double>(m.shape[3]) : 1;
    return flops_words(2 * passes * product / heads * static_cast<double>(m.shape[0]), seconds);
  }
  if (const double numbers = numbers_moved(m.what); numbers > 0) {
    return fmt::format("{:.3g} GB/s", 1e-9 * (gpu ? 2 : 4) * numbers * product / seconds);
  }
  if (m.what == "clear and adam") {
    return fmt::format("{:.3g} M parameters/s", 1e-6 * product / seconds);
  }
  if (m.what.find("layers ") != std::string::npos) return "";
  if (m.what == "launch" || m.what == "empty kernel") return "";
  if (m.what == "empty step")
    return fmt::format("{:.3g} us an instruction", 1e6 * seconds / product);
  return fmt::format("{:.3g} GB/s", 1e-9 * static_cast<double>(m.shape[0]) / seconds);
}

std::string facts_text(const GpuFacts& gpu) {
  return fmt::format(
      "{} x {}: {:.1f} GiB each, {} SMs at {:.0f} MHz, compute capability {:.1f}\n"
      "driver {}, runtime {}, cuBLASLt {}, NCCL {}\n{}\n",
      gpu.gpus, gpu.name, gpu.memory.in(1_GiB), gpu.sms, gpu.clock_mhz, gpu.compute_capability,
      gpu.driver, gpu.runtime, gpu.cublas,
      gpu.nccl == 0 ? std::string("not used") : std::to_string(gpu.nccl),
      gpu.attention.empty() ? "" : "attention by " + gpu.attention + "\n");
}

/// Those that calibrations are fitted in: of both kinds, of cores, of GPUs.
std::vector<const char*> keys_told(bool gpu) {
  std::vector<const char*> keys{
      "gemm_efficiency",    "gemm_ramp",       "kernel_fixed",      "attention_forward",
      "attention_backward", "attention_ramp",  "memory_efficiency", "optimizer_efficiency",
      "step_fixed",         "collective_base", "link_efficiency"};
  for (const char* key : {"fp64_efficiency", "host_instruction"}) {
    if (!gpu) keys.push_back(key);
  }
  for (const char* key : {"host_layer_forward", "host_layer_backward", "intra_hop", "switch_base",
                          "context", "nccl_per_communicator", "attention_parts"}) {
    if (gpu) keys.push_back(key);
  }
  return keys;
}

}  // namespace

std::string calibrate_text(const Measurements& measured, const std::vector<FittedRates>& rates,
                           const TextStyle& style) {
  const bool gpu = measured.gpu.has_value();
  Table table({{"operation", Table::Align::left, 0},
               {"shape", Table::Align::left, 0},
               {"ranks", Table::Align::right, 1},
               {"cores each", Table::Align::right, 1},
               {"time", Table::Align::right, 0},
               {"rate of one", Table::Align::right, 0}});
  for (const Measurement& m : measured.all) {
    table.add({m.what, shape_words(m), std::to_string(m.ranks),
               gpu ? std::string("GPU") : std::to_string(m.cores), duration(m.seconds),
               rate_words(m, gpu)});
  }
  std::string out = (gpu ? facts_text(*measured.gpu) : "") + table.text(style);
  std::vector<Table::Column> columns{{"rate", Table::Align::left, 0},
                                     {"unit", Table::Align::left, 0}};
  for (const FittedRates& each : rates) {
    columns.push_back({each.heading, Table::Align::right, 0});
  }
  Table fitted(columns);
  for (const char* key : keys_told(gpu)) {
    const CalibrationField& field = calibration_field(key);
    std::vector<Cell> row{key, field.unit};
    for (const FittedRates& each : rates) {
      row.emplace_back(fmt::format("{:.3g}", rate_of(each.calibration, field)));
    }
    fitted.add(std::move(row));
  }
  return out + "\n" + fitted.text(style);
}

}  // namespace echelon
