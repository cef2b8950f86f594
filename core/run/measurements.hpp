// Measurements: operations that the runtime times on this machine for `plan calibrate`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"
#include "core/base/units.hpp"

namespace echelon {

/// Load average per core above which a machine is too busy for wall-clock measurements.
inline constexpr double kBusy = 0.5;

/// One operation, timed on `ranks` ranks concurrently, each with `cores` threads (1 on a GPU).
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
/// Only on GPUs:
///   swiglu forward|backward      rows, width: silu(gate) · up of [gate | up], both `width` wide
///   loss forward|backward        rows, columns: cross entropy of bf16 logits
///   host of layers forward|backward   as layers: host time to enqueue them
///   empty kernel        count: device time of one of that many kernels in a graph
///   launch              count: host time to enqueue one of that many kernels on an idle queue
///   copy to host|from host       bytes, of pinned memory
///   kernel after a copy to host  bytes: device time from the end of a copy that the host waits for
///                       until the end of a nearly empty kernel that it launches then
///   product of zeros    m, n, k: gemm nt of zeros, which draws less power; no rate follows
///   call of NCCL, blocking|nonblocking   count: host time until a message is on the stream, of a
///                       communicator of one rank that sends to itself; no rate follows
///   send_recv           also the distance between the two GPUs
struct Measurement {
  std::string what;
  int ranks = 1;
  int cores = 1;
  std::vector<std::int64_t> shape;
  /// Lowest decile of CPU time; for collectives and empty steps, of wall time; for ranks of several
  /// cores the minimum wall time, unless other programs kept the machine busy. On GPUs the median
  /// of device time, or of host time for host measurements.
  Seconds seconds;
  bool operator==(const Measurement&) const = default;
};

/// Properties of the measured GPUs as reported by CUDA; versions in the format of CUDA's libraries.
struct GpuFacts {
  std::string name;  ///< "NVIDIA H200"
  int gpus = 1;      ///< identical GPUs of this machine
  Bytes memory;      ///< total memory of one GPU, as visible to programs
  int sms = 0;
  double compute_capability = 0;
  Bytes l2;
  double clock_mhz = 0;  ///< maximum SM clock; like the next two 0 if CUDA does not report it
  double memory_clock_mhz = 0;
  int memory_bits = 0;    ///< width of the memory bus
  Bytes context;          ///< used before any allocation: context, kernels, cuBLASLt
  Bytes communicator;     ///< upper bound for one more NCCL communicator; 0: none was created
  Bytes peer;             ///< … for each peer more, once it has exchanged parts
  std::string attention;  ///< what computed it, "cuDNN 9.19.0, …"; empty: not measured
  Bytes attention_parts;  ///< Calibration::attention_parts
  bool attention_deterministic = false;  ///< ECHELON_DETERMINISTIC=1 while it was measured
  int driver = 0, runtime = 0, cublas = 0, nccl = 0;
  bool operator==(const GpuFacts&) const = default;
};

/// All measurements of one calibration.
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
