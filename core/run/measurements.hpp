// Measurements: what `plan calibrate` lets the runtime time on this machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"
#include "core/base/units.hpp"

namespace echelon {

/// Load average per core from which on a machine is too busy to be measured on the wall.
inline constexpr double kBusy = 0.5;

/// One operation, timed on `ranks` ranks at once, each with `cores` threads (or each a GPU: 1).
///
///   gemm nt|nn|tn       m, n, k: y = x·Wᵀ, dx = dy·W, dW = dyᵀ·x; fp32, on GPUs bf16
///   gelu forward|backward, norm forward|backward   rows, width
///   attention forward|backward   sequence, heads, width of a head; on GPUs also kv heads, samples
///   layers forward|backward      layers, hidden, sequence, samples: a GPT-2-like chunk
///   fp64 layers forward|backward   the same shape, in fp64
///   empty step          instructions of the compute queue that grow with the microbatches: a step
///                       of the executor whose instructions do nothing
///   clear and adam      parameters: gradients cleared, their norm, the update
///   copy                bytes
///   all_reduce|all_gather|reduce_scatter|send_recv   bytes of the whole tensor
///
/// On GPUs alone:
///   swiglu forward|backward      rows, width: silu(gate) · up of [gate | up], both `width` wide
///   loss forward|backward        rows, columns: cross entropy of bf16 logits
///   host of layers forward|backward   as layers: what the host takes to put them on the queue
///   empty kernel        how many: device time of one among so many in a graph
///   launch              how many: host time to put one of so many on an idle queue
///   copy to host|from host       bytes, of pinned memory
///   send_recv           also the distance of the two GPUs
struct Measurement {
  std::string what;
  int ranks = 1;
  int cores = 1;
  std::vector<std::int64_t> shape;
  /// Lowest decile of processor time; of wall time for collectives and empty steps; the least wall
  /// time for ranks of several cores, unless others kept the machine busy. Of GPUs the lowest
  /// decile of device time, of host time where the host is measured.
  Seconds seconds;
  bool operator==(const Measurement&) const = default;
};

/// What CUDA says of the GPUs that were measured; versions as CUDA's libraries count them.
struct GpuFacts {
  std::string name;  ///< "NVIDIA H200"
  int gpus = 1;      ///< of this computer, alike
  Bytes memory;      ///< all of one GPU's, as programs see it
  int sms = 0;
  double compute_capability = 0;
  Bytes l2;
  double clock_mhz = 0;  ///< of the SMs at most; 0 where CUDA does not tell, as are these:
  double memory_clock_mhz = 0;
  int memory_bits = 0;    ///< width of the bus
  Bytes context;          ///< taken while nothing of ours was allocated: context, kernels, cuBLASLt
  Bytes communicator;     ///< one more NCCL communicator, at most; 0: none was made
  Bytes attention_parts;  ///< Calibration::attention_parts
  int driver = 0, runtime = 0, cublas = 0, nccl = 0;
  bool operator==(const GpuFacts&) const = default;
};

/// All that was measured at once.
struct Measurements {
  std::vector<Measurement> all;
  std::optional<GpuFacts> gpu{};  ///< of the CUDA backend
  bool operator==(const Measurements&) const = default;
};

/// The file's text, and back.
[[nodiscard]] std::string measurements_to_json(const Measurements& measurements);
[[nodiscard]] Result<Measurements> parse_measurements(std::string_view json,
                                                      std::string_view where);

}  // namespace echelon
