#include "costmodel/calibration/calibration_fields.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "core/base/expects.hpp"

namespace echelon {
namespace {

using C = Calibration;
constexpr auto kFields = std::to_array<CalibrationField>({
    {"kernel_speed_factor", &C::kernel_speed_factor, "ratio", 0.1, 10, "pace"},
    {"moe_speed_factor", &C::moe_speed_factor, "ratio", 0.05, 5, "experts_pace"},
    {"gemm_efficiency", &C::gemm_efficiency, "ratio", 1e-3, 1.2},
    {"power_reference", &C::power_reference, "W/TFLOPS", 0, 100},
    {"fp8_efficiency", &C::fp8_efficiency, "ratio", 0.1, 2},
    {"fp64_efficiency", &C::fp64_efficiency, "ratio", 0.01, 2},
    {"gemm_ramp", &C::gemm_ramp, "elements", 0, 1e5},
    {"fp8_ramp", &C::fp8_ramp, "ratio", 0.01, 100},
    {"kernel_fixed", &C::kernel_fixed, "us", 0, 1e4},
    {"attention_forward", &C::attention_forward, "ratio", 1e-3, 1.2},
    {"attention_backward", &C::attention_backward, "ratio", 1e-3, 1.2},
    {"attention_ramp", &C::attention_ramp, "tokens", 0, 1e6},
    {"attention_overhead", &C::attention_overhead, "ratio", 0, 100},
    {"memory_efficiency", &C::memory_efficiency, "ratio", 1e-3, 1.2},
    {"optimizer_efficiency", &C::optimizer_efficiency, "ratio", 1e-3, 1.2},
    {"host_layer_forward", &C::host_layer_forward, "us", 0, 1e7},
    {"host_layer_backward", &C::host_layer_backward, "us", 0, 1e7},
    {"host_experts", &C::host_experts, "us", 0, 1e7},
    {"host_wait", &C::host_wait, "us", 0, 1e6},
    {"host_memory", &C::host_memory, "GB/s", 1, 1e6},
    {"host_instruction", &C::host_instruction, "us", 0, 1e6},
    {"step_fixed", &C::step_fixed, "us", 0, 1e8},
    {"straggler_per_doubling", &C::straggler_per_doubling, "ratio", 0, 1},
    {"link_efficiency", &C::link_efficiency, "ratio", 1e-3, 1.2},
    {"nic_efficiency", &C::nic_efficiency, "ratio", 1e-3, 1.2},
    {"collective_base", &C::collective_base, "us", 0, 1e6},
    {"intra_hop", &C::intra_hop, "us", 0, 1e6},
    {"inter_hop", &C::inter_hop, "us", 0, 1e6},
    {"bulk_latency_factor", &C::bulk_latency_factor, "ratio", 0, 100, "bulk_hop_felt"},
    {"layer_latency_factor", &C::layer_latency_factor, "ratio", 0, 100, "hop_felt"},
    {"host_latency_factor", &C::host_latency_factor, "ratio", 0, 100, "host_hop_felt"},
    {"ring_latency_factor", &C::ring_latency_factor, "ratio", 0, 100, "span_hop_felt"},
    {"switch_efficiency", &C::switch_efficiency, "ratio", 1e-3, 1.2},
    {"switch_base", &C::switch_base, "us", 0, 1e6},
    {"dp_rank_latency", &C::dp_rank_latency, "us", 0, 1e6},
    {"dp_overlap", &C::dp_overlap, "ratio", 0, 1},
    {"tp_overlap", &C::tp_overlap, "ratio", 0, 1},
    {"overlap_slowdown", &C::overlap_slowdown, "ratio", 0, 1},
    {"allocator_reserve", &C::allocator_reserve, "ratio", 0, 1},
    {"pending_collective_share", &C::pending_collective_share, "ratio", 0, 4, "collective_held"},
    {"context", &C::context, "MiB", 0, 1e6},
    {"nvidia_smi_cache", &C::nvidia_smi_cache, "MiB", 0, 1e6},
    {"nccl_per_communicator", &C::nccl_per_communicator, "MiB", 0, 1e6},
    {"nccl_per_peer", &C::nccl_per_peer, "MiB", 0, 1e6},
    {"gemm_workspace", &C::gemm_workspace, "MiB", 0, 1e6},
    {"attention_parts", &C::attention_parts, "MiB", 0, 1e6},
    {"attention_deterministic", &C::attention_deterministic, "ratio", 0, 1},
    {"time_band", &C::time_band, "ratio", 0, 1},
});

}  // namespace

std::span<const CalibrationField> calibration_fields() { return kFields; }

const CalibrationField& calibration_field(std::string_view key) {
  const auto* field = std::ranges::find(kFields, key, &CalibrationField::key);
  EXPECTS(field != kFields.end(), "no such rate");
  return *field;
}

double rate_of(const Calibration& c, const CalibrationField& field) {
  if (const auto* ratio = std::get_if<double C::*>(&field.member)) return c.*(*ratio);
  if (const auto* time = std::get_if<Seconds C::*>(&field.member)) return (c.*(*time)).in(1_us);
  if (const auto* size = std::get_if<Bytes C::*>(&field.member)) return (c.*(*size)).in(1_MiB);
  return (c.*std::get<BytesPerSecond C::*>(field.member)).in(1_GBps);
}

void set_rate(Calibration& c, const CalibrationField& field, double value) {
  if (const auto* ratio = std::get_if<double C::*>(&field.member)) c.*(*ratio) = value;
  if (const auto* time = std::get_if<Seconds C::*>(&field.member)) c.*(*time) = value * 1_us;
  if (const auto* size = std::get_if<Bytes C::*>(&field.member)) c.*(*size) = value * 1_MiB;
  if (const auto* rate = std::get_if<BytesPerSecond C::*>(&field.member)) {
    c.*(*rate) = value * 1_GBps;
  }
}

void set_source(Calibration& c, const CalibrationField& field, std::string text) {
  for (auto& source : c.sources) {
    if (source.field == field.key) {
      source.text = std::move(text);
      return;
    }
  }
  c.sources.push_back({field.key, std::move(text)});
}

}  // namespace echelon
