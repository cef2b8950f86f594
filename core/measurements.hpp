// Measurements: what `plan calibrate` lets the runtime time on this machine.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.hpp"
#include "core/units.hpp"

namespace echelon {

/// Load average per core from which on a machine is too busy to be measured on the wall.
inline constexpr double kBusy = 0.5;

/// One operation, timed on `ranks` ranks at once, each with `cores` threads.
///
///   gemm nt|nn|tn       m, n, k: y = x·Wᵀ, dx = dy·W, dW = dyᵀ·x; fp32
///   gelu forward|backward, norm forward|backward   rows, width
///   attention forward|backward   sequence, heads, width of a head
///   layers forward|backward      layers, hidden, sequence, samples: a GPT-2-like chunk
///   fp64 layers forward|backward   the same shape, in fp64
///   empty step          instructions of the compute queue that grow with the microbatches: a step
///                       of the executor whose instructions do nothing
///   clear and adam      parameters: gradients cleared, their norm, the update
///   copy                bytes
///   all_reduce|all_gather|reduce_scatter|send_recv   bytes of the whole tensor
struct Measurement {
  std::string what;
  int ranks = 1;
  int cores = 1;
  std::vector<std::int64_t> shape;
  /// Lowest decile of processor time; of wall time for collectives and empty steps; the least wall
  /// time for ranks of several cores, unless others kept the machine busy.
  Seconds seconds;
  bool operator==(const Measurement&) const = default;
};

/// The file's text, and back.
[[nodiscard]] std::string measurements_to_json(const std::vector<Measurement>& all);
[[nodiscard]] Result<std::vector<Measurement>> parse_measurements(std::string_view json,
                                                                  std::string_view where);

}  // namespace echelon
