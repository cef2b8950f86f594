// Heads of multi-head latent attention: put together from the projections of the latents, and
// taken apart again. Source: DeepSeek-V2 (arXiv 2405.04434), section 2.1, equations 9 to 19.
#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/cpu/kernels.hpp"
#include "runtime/cpu/simd_rows.hpp"

namespace echelon::cpu {
namespace {

/// Cosines and sines of one position's angles.
template <class W>
class Turn {
 public:
  Turn(const RotaryFrequencies& frequencies, std::int64_t position, int direction) {
    for (const double each : frequencies.angles) {
      const double angle = static_cast<double>(position) * each;
      cosines_.push_back(static_cast<W>(frequencies.scale * std::cos(angle)));
      sines_.push_back(static_cast<W>(frequencies.scale * direction * std::sin(angle)));
    }
  }
  /// Neighbours: `from` and `to` may be the same memory.
  template <class From, class To>
  void operator()(const From* from, To* to) const {
    for (std::size_t i = 0; i < cosines_.size(); ++i) {
      const W low = W(from[2 * i]);
      const W high = W(from[2 * i + 1]);
      to[2 * i] = To(low * cosines_[i] - high * sines_[i]);
      to[2 * i + 1] = To(high * cosines_[i] + low * sines_[i]);
    }
  }

 private:
  std::vector<W> cosines_, sines_;
};

/// Calls each(row, turn) for every row.
template <class W, class Each>
void for_each_row(const LatentShape& s, const RotaryFrequencies& frequencies, int direction,
                  const Each& each) {
  in_parts((s.rows + s.samples - 1) / s.samples, 4, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t p = begin; p < end; ++p) {
      const Turn<W> turn(frequencies, s.first_position + p, direction);
      for (std::int64_t r = p * s.samples; r < std::min(s.rows, (p + 1) * s.samples); ++r)
        each(r, turn);
    }
  });
}

}  // namespace

template <class T>
void join_latent_heads(const LatentShape& s, const RotaryFrequencies& frequencies, const T* q,
                       const T* kv, const T* latents, T* qkv) {
  const int d = s.nope + s.rope;
  for_each_row<Wide<T>>(s, frequencies, 1, [&](std::int64_t r, const Turn<Wide<T>>& turn) {
    const T* const q_row = q + r * s.query();
    const T* const kv_row = kv + r * s.key_value();
    T* const queries = qkv + r * s.qkv();
    T* const keys = queries + s.query();
    T* const values = keys + s.query();
    std::vector<T> rotary(static_cast<std::size_t>(s.rope));
    turn(latents + (r + 1) * s.latents() - s.rope, rotary.data());
    for (int h = 0; h < s.heads; ++h) {
      std::copy_n(q_row + h * d, s.nope, queries + h * d);
      turn(q_row + h * d + s.nope, queries + h * d + s.nope);
      const T* const projected = kv_row + h * (s.nope + s.value);
      std::copy_n(projected, s.nope, keys + h * d);
      std::copy(rotary.begin(), rotary.end(), keys + h * d + s.nope);
      std::copy_n(projected + s.nope, s.value, values + h * s.value);
    }
  });
}

template <class T>
void split_latent_heads(const LatentShape& s, const RotaryFrequencies& frequencies, const T* dqkv,
                        T* dq, T* dkv, T* dlatents) {
  const int d = s.nope + s.rope;
  for_each_row<Wide<T>>(s, frequencies, -1, [&](std::int64_t r, const Turn<Wide<T>>& turn) {
    const T* const queries = dqkv + r * s.qkv();
    const T* const keys = queries + s.query();
    const T* const values = keys + s.query();
    T* const q_row = dq + r * s.query();
    T* const kv_row = dkv + r * s.key_value();
    std::vector<Wide<T>> rotary(static_cast<std::size_t>(s.rope));
    for (int h = 0; h < s.heads; ++h) {
      std::copy_n(queries + h * d, s.nope, q_row + h * d);
      turn(queries + h * d + s.nope, q_row + h * d + s.nope);
      T* const projected = kv_row + h * (s.nope + s.value);
      std::copy_n(keys + h * d, s.nope, projected);
      for (int i = 0; i < s.rope; ++i)
        rotary[static_cast<std::size_t>(i)] += Wide<T>(keys[h * d + s.nope + i]);
      std::copy_n(values + h * s.value, s.value, projected + s.nope);
    }
    turn(rotary.data(), dlatents + (r + 1) * s.latents() - s.rope);
  });
}

#define ECHELON_LATENT(T)                                                                         \
  template void join_latent_heads<T>(const LatentShape&, const RotaryFrequencies&, const T*,      \
                                     const T*, const T*, T*);                                     \
  template void split_latent_heads<T>(const LatentShape&, const RotaryFrequencies&, const T*, T*, \
                                      T*, T*);
ECHELON_LATENT(double)
ECHELON_LATENT(float)
ECHELON_LATENT(Bfloat16)
#undef ECHELON_LATENT

}  // namespace echelon::cpu
