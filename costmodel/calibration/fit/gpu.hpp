// From what was timed on this computer's GPUs to the rates plans for them are priced with.
#pragma once

#include <string>

#include "core/run/measurements.hpp"
#include "costmodel/calibration/calibration.hpp"
#include "topologies/topology.hpp"

namespace echelon {

/// Rates of the framework that was measured, echelon, as shares of the description's peaks; `prior`
/// gives those nothing was measured for. `how` goes into every source. A rate is what makes the
/// formulas of rates.hpp give the measured times, with the bytes and FLOPs that operators.hpp
/// counts:
///
///   kernel_fixed                  one kernel among many in a graph that do nothing
///   memory_efficiency             median over norms, activations and the loss of
///                                 bytes / (t − kernel_fixed) / HBM
///   gemm_efficiency, gemm_ramp    least squares of log time over the table of products
///   attention_*                   the same over sequences and heads; one ramp, of the forward
///   optimizer_efficiency          the largest number of parameters, 38 bytes each
///   host_layer_*                  median of what the host took to launch a layer
///   step_fixed                    a line through empty steps. host_instruction stays: the host
///                                 runs ahead of GPUs
///   link_efficiency, collective_base, intra_hop, switch_base   collectives_fit.hpp
///   context, nccl_per_communicator  what CUDA held besides our own memory
///
/// `measured.gpu` is there. Checked by: tests/costmodel/calibration/gpu_fit_test.cpp (rates put in
/// come out again).
[[nodiscard]] Calibration calibrated_gpus(const Measurements& measured,
                                          const ClusterTopology& cluster, const Calibration& prior,
                                          const std::string& how);

}  // namespace echelon
