#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "runtime/cpu/kernels.hpp"
#include "runtime/cpu/simd_rows.hpp"

namespace echelon::cpu {
namespace {

constexpr double kGeluScale = 2 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi;  // 2·√(2/π)
constexpr double kGeluCube = 0.044715;

/// gelu(x) = x/2·(1 + tanh(u)) = x / (1 + e^(−2u)), u = √(2/π)·(x + 0.044715·x³).
/// Source: arXiv 1606.08415, section 2.
template <class W>
ECHELON_INLINE Lanes<W> activated(Activation kind, const Lanes<W>& x) {
  using V = Lanes<W>;
  const V zero{};
  switch (kind) {
    case Activation::gelu: {
      const V twice = static_cast<W>(kGeluScale) * (x + static_cast<W>(kGeluCube) * x * x * x);
      return x / (1 + exp(-twice));
    }
    case Activation::silu: return x / (1 + exp(-x));
    case Activation::relu: return x < 0 ? zero : x;
    case Activation::squared_relu: return x < 0 ? zero : x * x;
  }
  return x;
}

template <class W>
ECHELON_INLINE Lanes<W> slope(Activation kind, const Lanes<W>& x) {
  using V = Lanes<W>;
  const V zero{};
  switch (kind) {
    case Activation::gelu: {
      const V square = x * x;
      const V twice = static_cast<W>(kGeluScale) * (x + static_cast<W>(kGeluCube) * square * x);
      const V steep = static_cast<W>(kGeluScale) * (1 + static_cast<W>(3 * kGeluCube) * square);
      const V s = 1 / (1 + exp(-twice));
      return s + x * (s * (1 - s)) * steep;
    }
    case Activation::silu: {
      const V s = 1 / (1 + exp(-x));
      return s + x * (s * (1 - s));
    }
    case Activation::relu: return x > 0 ? zero + 1 : x <= 0 ? zero : x;
    case Activation::squared_relu: return x < 0 ? zero : 2 * x;
  }
  return x;
}

template <class T>
ECHELON_CLONES void activate_range(Activation kind, const T* x, T* y, std::int64_t count) {
  using W = Wide<T>;
  for (std::int64_t i = 0; i < count; i += kLanes<W>) {
    store(y + i, activated<W>(kind, load(x + i, count - i)), count - i);
  }
}

template <class T>
ECHELON_CLONES void activate_backward(Activation kind, const T* x, const T* dy, T* dx, T* y,
                                      std::int64_t count) {
  using W = Wide<T>;
  for (std::int64_t i = 0; i < count; i += kLanes<W>) {
    const std::int64_t left = count - i;
    const Lanes<W> v = load(x + i, left);
    store(dx + i, load(dy + i, left) * slope<W>(kind, v), left);
    if (y != nullptr) store(y + i, activated<W>(kind, v), left);
  }
}

template <class T>
ECHELON_CLONES void gated_forward_row(Activation kind, const T* gate, const T* up, T* y,
                                      std::int64_t width) {
  using W = Wide<T>;
  for (std::int64_t i = 0; i < width; i += kLanes<W>) {
    const std::int64_t left = width - i;
    store(y + i, activated<W>(kind, load(gate + i, left)) * load(up + i, left), left);
  }
}

template <class T>
ECHELON_CLONES void gated_backward_row(Activation kind, const T* gate, const T* up, const T* dy,
                                       T* dgate, T* dup, T* y, std::int64_t width) {
  using W = Wide<T>;
  for (std::int64_t i = 0; i < width; i += kLanes<W>) {
    const std::int64_t left = width - i;
    const Lanes<W> g = load(gate + i, left);
    const Lanes<W> d = load(dy + i, left);
    const Lanes<W> u = load(up + i, left);
    const Lanes<W> a = activated<W>(kind, g);
    store(dup + i, d * a, left);
    if (y != nullptr) store(y + i, a * u, left);
    store(dgate + i, d * u * slope<W>(kind, g), left);
  }
}

template <class T>
ECHELON_CLONES void add_range(T* x, const T* y, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += kLanes<Wide<T>>) {
    const std::int64_t left = count - i;
    store(x + i, load(x + i, left) + load(y + i, left), left);
  }
}

template <class T>
ECHELON_CLONES void scale_range(T* x, Wide<T> factor, std::int64_t count) {
  for (std::int64_t i = 0; i < count; i += kLanes<Wide<T>>) {
    const std::int64_t left = count - i;
    store(x + i, load(x + i, left) * factor, left);
  }
}

template <class To, class From>
ECHELON_CLONES void cast_range(const From* from, To* to, std::int64_t count) {
  if constexpr (std::is_same_v<Wide<To>, Wide<From>>) {
    for (std::int64_t i = 0; i < count; i += kLanes<Wide<To>>) {
      store(to + i, load(from + i, count - i), count - i);
    }
  } else {
    for (std::int64_t i = 0; i < count; ++i) {
      to[i] = To(static_cast<Wide<To>>(Wide<From>(from[i])));
    }
  }
}

/// One head: (low, high) turned by the angles whose cosines and sines are given.
template <class T>
ECHELON_CLONES void turn(T* x, const Wide<T>* cosines, const Wide<T>* sines, std::int64_t half) {
  for (std::int64_t i = 0; i < half; i += kLanes<Wide<T>>) {
    const std::int64_t left = half - i;
    const auto c = load(cosines + i, left);
    const auto s = load(sines + i, left);
    const auto low = load(x + i, left);
    const auto high = load(x + half + i, left);
    store(x + i, low * c - high * s, left);
    store(x + half + i, high * c + low * s, left);
  }
}

}  // namespace

template <class T>
void activation_forward(Activation kind, const T* x, T* y, std::int64_t count) {
  in_parts(count, kGrain, [&](std::int64_t begin, std::int64_t end) {
    activate_range(kind, x + begin, y + begin, end - begin);
  });
}

template <class T>
void activation_backward(Activation kind, const T* x, const T* dy, T* dx, T* y,
                         std::int64_t count) {
  in_parts(count, kGrain, [&](std::int64_t begin, std::int64_t end) {
    activate_backward(kind, x + begin, dy + begin, dx + begin, y == nullptr ? y : y + begin,
                      end - begin);
  });
}

template <class T>
void gated_forward(Activation kind, const T* x, T* y, std::int64_t rows, std::int64_t width) {
  in_parts(rows, grain_of_rows(width), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const T* gate = x + 2 * r * width;
      gated_forward_row(kind, gate, gate + width, y + r * width, width);
    }
  });
}

template <class T>
void gated_backward(Activation kind, const T* x, const T* dy, T* dx, T* y, std::int64_t rows,
                    std::int64_t width) {
  in_parts(rows, grain_of_rows(width), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      const T* gate = x + 2 * r * width;
      T* dgate = dx + 2 * r * width;
      gated_backward_row(kind, gate, gate + width, dy + r * width, dgate, dgate + width,
                         y == nullptr ? y : y + r * width, width);
    }
  });
}

template <class T>
void add_bias(T* x, const T* bias, std::int64_t rows, std::int64_t width) {
  in_parts(rows, grain_of_rows(width), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) add_range(x + r * width, bias, width);
  });
}

template <class T>
void bias_gradient(const T* dy, Wide<T>* dbias, std::int64_t rows, std::int64_t width) {
  RowSums<Wide<T>> sums(rows, width);
  in_parts(rows, sums.kRows, [&](std::int64_t begin, std::int64_t end) {
    add_rows(dy + begin * width, end - begin, width, width, sums.part(begin));
  });
  sums.add_to(dbias);
}

template <class T>
void add(T* x, const T* y, std::int64_t count) {
  in_parts(count, kGrain, [&](std::int64_t begin, std::int64_t end) {
    add_range(x + begin, y + begin, end - begin);
  });
}

template <class T>
void scale(T* x, double factor, std::int64_t count) {
  in_parts(count, kGrain, [&](std::int64_t begin, std::int64_t end) {
    scale_range(x + begin, static_cast<Wide<T>>(factor), end - begin);
  });
}

template <class To, class From>
void cast(const From* from, To* to, std::int64_t count) {
  in_parts(count, kGrain, [&](std::int64_t begin, std::int64_t end) {
    cast_range(from + begin, to + begin, end - begin);
  });
}

template <class T>
void rotate(T* x, std::int64_t rows, std::int64_t row_stride, int samples, int heads, int head_dim,
            std::int64_t first_position, const RotaryFrequencies& frequencies, int direction) {
  const int half = static_cast<int>(frequencies.angles.size());
  // Whole positions, so that their angles are computed once for all samples.
  in_parts((rows + samples - 1) / samples, 4, [&](std::int64_t begin, std::int64_t end) {
    std::vector<Wide<T>> cosines(static_cast<std::size_t>(half));
    std::vector<Wide<T>> sines(static_cast<std::size_t>(half));
    for (std::int64_t p = begin; p < end; ++p) {
      for (int i = 0; i < half; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const double angle = static_cast<double>(first_position + p) * frequencies.angles[at];
        cosines[at] = static_cast<Wide<T>>(frequencies.scale * std::cos(angle));
        sines[at] = static_cast<Wide<T>>(frequencies.scale * direction * std::sin(angle));
      }
      for (std::int64_t r = p * samples; r < std::min(rows, (p + 1) * samples); ++r) {
        for (int h = 0; h < heads; ++h) {
          turn(x + r * row_stride + h * head_dim, cosines.data(), sines.data(), half);
        }
      }
    }
  });
}

namespace {

/// Calls move(column of a whole row, element of the parts, count) for every run of columns of a row
/// that lies in one piece in a part.
template <class Move>
void for_each_run(const HeadSplit& split, std::int64_t row, const Move& move) {
  const std::int64_t width = split.width() / split.parts;
  std::int64_t begin = 0;
  for (const std::int64_t heads : {split.query, split.key, split.value}) {
    const std::int64_t own = heads / split.parts;
    for (int part = 0; part < split.parts; ++part) {
      move(begin + part * own, (part * split.rows + row) * width + begin / split.parts, own);
    }
    begin += heads;
  }
}

}  // namespace

template <class T>
void split_heads(const HeadSplit& split, const T* x, T* parts) {
  in_parts(split.rows, grain_of_rows(split.width()), [&](std::int64_t first, std::int64_t end) {
    for (std::int64_t row = first; row < end; ++row) {
      for_each_run(split, row, [&](std::int64_t column, std::int64_t at, std::int64_t count) {
        std::copy_n(x + row * split.width() + column, count, parts + at);
      });
    }
  });
}

template <class T>
void join_heads(const HeadSplit& split, const T* parts, T* x) {
  in_parts(split.rows, grain_of_rows(split.width()), [&](std::int64_t first, std::int64_t end) {
    for (std::int64_t row = first; row < end; ++row) {
      for_each_run(split, row, [&](std::int64_t column, std::int64_t at, std::int64_t count) {
        std::copy_n(parts + at, count, x + row * split.width() + column);
      });
    }
  });
}

#define ECHELON_ELEMENTWISE(T)                                                                \
  template void activation_forward<T>(Activation, const T*, T*, std::int64_t);                \
  template void activation_backward<T>(Activation, const T*, const T*, T*, T*, std::int64_t); \
  template void gated_forward<T>(Activation, const T*, T*, std::int64_t, std::int64_t);       \
  template void gated_backward<T>(Activation, const T*, const T*, T*, T*, std::int64_t,       \
                                  std::int64_t);                                              \
  template void add_bias<T>(T*, const T*, std::int64_t, std::int64_t);                        \
  template void bias_gradient<T>(const T*, Wide<T>*, std::int64_t, std::int64_t);             \
  template void add<T>(T*, const T*, std::int64_t);                                           \
  template void scale<T>(T*, double, std::int64_t);                                           \
  template void rotate<T>(T*, std::int64_t, std::int64_t, int, int, int, std::int64_t,        \
                          const RotaryFrequencies&, int);                                     \
  template void split_heads<T>(const HeadSplit&, const T*, T*);                               \
  template void join_heads<T>(const HeadSplit&, const T*, T*);
ECHELON_ELEMENTWISE(double)
ECHELON_ELEMENTWISE(float)
ECHELON_ELEMENTWISE(Bfloat16)
#undef ECHELON_ELEMENTWISE

#define ECHELON_CASTS(To)                                           \
  template void cast<To, double>(const double*, To*, std::int64_t); \
  template void cast<To, float>(const float*, To*, std::int64_t);   \
  template void cast<To, Bfloat16>(const Bfloat16*, To*, std::int64_t);
ECHELON_CASTS(double)
ECHELON_CASTS(float)
ECHELON_CASTS(Bfloat16)
#undef ECHELON_CASTS

}  // namespace echelon::cpu
