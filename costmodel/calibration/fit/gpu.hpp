// Fits the rates for plans on this computer's GPUs to times measured on them.
#pragma once

#include <string>

#include "core/run/measurements.hpp"
#include "costmodel/calibration/calibration.hpp"
#include "topologies/topology.hpp"

namespace echelon {

/// Rates of the measured framework, echelon, as shares of the description's peaks; `prior` gives
/// the unmeasured ones. `how` goes into every source. With these rates the formulas of rates.hpp
/// give the measured times, with the bytes and FLOPs that operators.hpp counts:
///
///   kernel_fixed                  one of many empty kernels in a graph
///   memory_efficiency             median over norms, activations and the loss of
///                                 bytes / (t − kernel_fixed) / HBM
///   gemm_efficiency, gemm_ramp    least squares of log time over the table of products
///   attention_*                   the same over sequences and heads; one ramp, of the forward
///   optimizer_efficiency          the largest number of parameters, 38 bytes each
///   host_layer_*                  median of the host time to launch a layer
///   host_wait                     a copy that the host waits for to the end of an empty kernel
///                                 launched then, less kernel_fixed
///   step_fixed                    a line through empty steps. host_instruction stays: the host
///                                 runs ahead of GPUs
///   link_efficiency, collective_base, intra_hop, switch_base   collectives_fit.hpp
///   context, nccl_per_communicator, nccl_per_peer  memory that CUDA held in addition to our own
///
/// `measured.gpu` must be set. Checked by: tests/costmodel/calibration/gpu_fit_test.cpp (known
/// rates are recovered).
[[nodiscard]] Calibration calibrated_gpus(const Measurements& measured,
                                          const ClusterTopology& cluster, const Calibration& prior,
                                          const std::string& how);

}  // namespace echelon
