// Times the GPUs of this computer for `plan calibrate --backend cuda`.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/run/measurements.hpp"
#include "runtime/backend/kernel_shapes.hpp"
#include "runtime/cuda/device/devices.hpp"

namespace echelon::cuda {

/// The timed operations. Sizes that do not fit the device are left out.
struct MeasuredSizes {
  struct Linear {
    std::int64_t rows, in, out;
  };
  struct Matrix {
    std::int64_t rows, width;
  };
  struct Layers {
    int layers, hidden, sequence, samples;
  };
  std::vector<Linear> linears;  ///< three products each
  std::vector<AttentionShape> attentions;
  std::vector<Matrix> matrices;  ///< of element-wise kernels and norms
  std::vector<Matrix> logits;
  std::vector<std::int64_t> parameters;
  std::vector<Layers> layers;  ///< GPT-2-like, heads of 64
  std::vector<std::int64_t> copies;
  std::vector<std::int64_t> collectives;  ///< bytes
  int launches = 0;                       ///< of nearly empty kernels
  int nccl_calls = 0;                     ///< of one number on one rank
  /// Products run for this time before the first one is timed: clocks are then those of sustained
  /// load, under the power limit.
  Seconds warm_up;
  /// Each operation is repeated for this time, and at least four times.
  Seconds each;
  /// Time limit of all operations, and once more of collectives: after it, the remaining ones are
  /// timed by the minimum number of repetitions, and after 1.5 times the limit not at all.
  Seconds max_time;
};

/// Attention with heads side by side: [q | k | v].
[[nodiscard]] AttentionShape attention_of_heads(std::int64_t sequence, int samples, int heads,
                                                int kv_heads, int head_dim);
/// Of models from 124 M to 7 B parameters; under a minute.
[[nodiscard]] MeasuredSizes usual_sizes();

/// Kernels and copies on the first GPU; collectives among all of `gpus`, and the first 2, 4, 8 ...
/// `tell` receives the current operation. Throws RunFailure.
[[nodiscard]] Measurements measure(int gpus, const MeasuredSizes& sizes,
                                   const std::function<void(const std::string&)>& log);

}  // namespace echelon::cuda
