// Rotation frequencies of the pairs of a head from one position to the next: computed once, on the
// host, for the kernels of every backend.
#pragma once

#include "core/model/model.hpp"
#include "runtime/backend/kernel_shapes.hpp"

namespace echelon {

/// Pair i of the d rotated numbers of a head: f = θ^(−2i/d), turns t = f·P/2π in the original
/// context of P positions.
///
///   none    f                                         arXiv 2104.09864, section 3.2.2
///   linear  f / factor                                arXiv 2306.15595, equation 4
///   llama3  f where t > high, f / factor where t < low, between them
///           (1 − s)·f/factor + s·f with s = (t − low) / (high − low)
///                                                     Llama 3.1; transformers, _compute_llama3_…
///   yarn    f·k + f/factor·(1 − k), k = 1 − clamp((i − a) / (b − a), 0, 1), where pair a (b)
///           turns beta_fast (beta_slow) times in P    arXiv 2309.00071, section 3.2
///
/// With yarn cosines and sines are multiplied by its attention factor (section 3.4), which makes
/// the scores that of a softmax at another temperature.
/// Checked by: tests/runtime/model/rotary_test.cpp, chunk_golden_test.cpp.
[[nodiscard]] RotaryFrequencies rotary_frequencies(const RotaryEmbedding& rope, int head_dim);

}  // namespace echelon
