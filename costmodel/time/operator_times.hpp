// Times of single operators of a layer: kernels, casts to fp8, collectives.
#pragma once

#include "costmodel/collectives/collectives.hpp"
#include "costmodel/collectives/expert_exchange.hpp"
#include "costmodel/cost_model.hpp"
#include "costmodel/operators/operators.hpp"
#include "costmodel/time/rates.hpp"

namespace echelon {

/// Everything that the time of an operator depends on besides its own shape.
struct OperatorContext {
  DeviceRates rates;  ///< GEMMs in the job's format
  DeviceRates wide;   ///< GEMMs in 16 bits
  AxisArray<GroupLinks, kLayerAxes> links;
  const LayerSharding& sharding;
  const MixtureOfExperts& moe;
  double sms;
  const TrainingJob& job;
  const Calibration& calibration;
  const Framework& framework;

  [[nodiscard]] bool in_fp8(const Operator& op) const {
    return job.precision.compute == Dtype::fp8 && !op.wide;
  }
  [[nodiscard]] const DeviceRates& gemm_rates(const Operator& op) const {
    return in_fp8(op) ? rates : wide;
  }
  /// An fp8 GEMM's input is read in 16 bits and written in 8, once as it is and once transposed,
  /// and read once more where its scale depends on it. Source: TransformerEngine's cast-transpose
  /// kernels; bytes of each recipe: core/plan/precision.cpp.
  /// Fused kernels of experts write what the down projection reads in fp8.
  [[nodiscard]] Seconds cast(const Operator& op, double elements) const {
    const bool written_so = framework.fused_experts && op.name == "expert_down";
    return in_fp8(op) && !written_so
               ? elementwise_time(Bytes{job.precision.cast * elements}, 1, rates)
               : Seconds{};
  }
  /// Kernels of routed experts, in units of what their shapes say; those that are fused reach it.
  [[nodiscard]] double slower(const Operator& op) const {
    return op.routed && !framework.fused_experts ? 1 / calibration.moe_speed_factor : 1.0;
  }
  /// Share of the bytes that dispatch, or the backward of combine, sends.
  [[nodiscard]] double dispatched_width() const {
    constexpr double kScaled = (1 + 4.0 / 128) / 2;  // fp8 with a scale per 128 values
    return framework.fp8_dispatch && job.precision.compute == Dtype::fp8 ? kScaled : 1.0;
  }
  [[nodiscard]] Seconds collective(const Operator& op, CollectiveKind kind, bool backward) const {
    const GroupLinks& group = links[op.axis];
    if (op.axis != Axis::ep || kind != CollectiveKind::all_to_all) {
      return collective_time(kind, op.payload, group);
    }
    const bool to_experts = (op.name == "dispatch") != backward;
    return expert_exchange(sharding.dispatcher, moe, op.payload,
                           to_experts ? dispatched_width() : 1.0, group);
  }
  [[nodiscard]] Seconds pointwise(const Operator& op, Bytes traffic, int kernels) const {
    const double passes = op.moves_as_stated ? 1.0 : framework.pointwise_passes;
    return elementwise_time(passes * traffic, kernels, rates);
  }
};

/// The two backward products of a GEMM: gradient of the input and of the weight.
struct BackwardTimes {
  Seconds input;
  Seconds weight;
};

[[nodiscard]] BackwardTimes backward_gemm(const Operator& op, const OperatorContext& c);

/// Of a kernel; nothing of a collective.
[[nodiscard]] Seconds forward_time(const Operator& op, const OperatorContext& c);

}  // namespace echelon
