#include <cmath>
#include <numbers>

#include "core/expects.hpp"
#include "runtime/cpu/kernels.hpp"

namespace echelon::cpu {
namespace {

template <class W>
W activated(Activation kind, W x) {
  switch (kind) {
    case Activation::gelu: {
      const W u = W(std::sqrt(2 / std::numbers::pi)) * (x + W(0.044715) * x * x * x);
      return W(0.5) * x * (1 + std::tanh(u));
    }
    case Activation::silu: return x / (1 + std::exp(-x));
    case Activation::relu: return x < 0 ? W(0) : x;
    case Activation::squared_relu: return x < 0 ? W(0) : x * x;
  }
  EXPECTS(false, "an activation that exists");
  return x;
}

template <class W>
W slope(Activation kind, W x) {
  switch (kind) {
    case Activation::gelu: {
      const W c = W(std::sqrt(2 / std::numbers::pi));
      const W t = std::tanh(c * (x + W(0.044715) * x * x * x));
      return W(0.5) * (1 + t) + W(0.5) * x * (1 - t * t) * c * (1 + 3 * W(0.044715) * x * x);
    }
    case Activation::silu: {
      const W s = 1 / (1 + std::exp(-x));
      return s + x * s * (1 - s);
    }
    case Activation::relu: return x <= 0 ? W(0) : x > 0 ? W(1) : x;
    case Activation::squared_relu: return x < 0 ? W(0) : 2 * x;
  }
  EXPECTS(false, "an activation that exists");
  return x;
}

}  // namespace

template <class T>
void activation_forward(Activation kind, const T* x, T* y, std::int64_t count) {
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < count; ++i) y[i] = T(activated(kind, Wide<T>(x[i])));
}

template <class T>
void activation_backward(Activation kind, const T* x, const T* dy, T* dx, std::int64_t count) {
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < count; ++i) {
    dx[i] = T(Wide<T>(dy[i]) * slope(kind, Wide<T>(x[i])));
  }
}

template <class T>
void gated_forward(Activation kind, const T* x, T* y, std::int64_t rows, std::int64_t width) {
#pragma omp parallel for schedule(static)
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* gate = x + 2 * r * width;
    for (std::int64_t i = 0; i < width; ++i) {
      y[r * width + i] = T(activated(kind, Wide<T>(gate[i])) * Wide<T>(gate[width + i]));
    }
  }
}

template <class T>
void gated_backward(Activation kind, const T* x, const T* dy, T* dx, std::int64_t rows,
                    std::int64_t width) {
#pragma omp parallel for schedule(static)
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* gate = x + 2 * r * width;
    T* dgate = dx + 2 * r * width;
    for (std::int64_t i = 0; i < width; ++i) {
      const Wide<T> g(gate[i]);
      const Wide<T> up(gate[width + i]);
      const Wide<T> d(dy[r * width + i]);
      dgate[i] = T(d * up * slope(kind, g));
      dgate[width + i] = T(d * activated(kind, g));
    }
  }
}

template <class T>
void add_bias(T* x, const T* bias, std::int64_t rows, std::int64_t width) {
#pragma omp parallel for schedule(static)
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t i = 0; i < width; ++i) {
      x[r * width + i] = T(Wide<T>(x[r * width + i]) + Wide<T>(bias[i]));
    }
  }
}

template <class T>
void bias_gradient(const T* dy, Wide<T>* dbias, std::int64_t rows, std::int64_t width) {
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t i = 0; i < width; ++i) dbias[i] += Wide<T>(dy[r * width + i]);
  }
}

template <class T>
void add(T* x, const T* y, std::int64_t count) {
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < count; ++i) x[i] = T(Wide<T>(x[i]) + Wide<T>(y[i]));
}

template <class To, class From>
void cast(const From* from, To* to, std::int64_t count) {
#pragma omp parallel for schedule(static)
  for (std::int64_t i = 0; i < count; ++i) to[i] = To(Wide<To>(Wide<From>(from[i])));
}

template <class T>
void rotate(T* x, std::int64_t rows, std::int64_t row_stride, int samples, int heads, int head_dim,
            std::int64_t first_position, double theta, int direction) {
  const int half = head_dim / 2;
#pragma omp parallel for schedule(static)
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto position = static_cast<double>(first_position + r / samples);
    for (int i = 0; i < half; ++i) {
      const double angle = position * std::pow(theta, -2.0 * i / head_dim);
      const auto c = static_cast<Wide<T>>(std::cos(angle));
      const auto s = static_cast<Wide<T>>(direction * std::sin(angle));
      for (int h = 0; h < heads; ++h) {
        T* a = x + r * row_stride + h * head_dim + i;
        const Wide<T> low(a[0]);
        const Wide<T> high(a[half]);
        a[0] = T(low * c - high * s);
        a[half] = T(high * c + low * s);
      }
    }
  }
}

#define ECHELON_ELEMENTWISE(T)                                                                     \
  template void activation_forward<T>(Activation, const T*, T*, std::int64_t);                     \
  template void activation_backward<T>(Activation, const T*, const T*, T*, std::int64_t);          \
  template void gated_forward<T>(Activation, const T*, T*, std::int64_t, std::int64_t);            \
  template void gated_backward<T>(Activation, const T*, const T*, T*, std::int64_t, std::int64_t); \
  template void add_bias<T>(T*, const T*, std::int64_t, std::int64_t);                             \
  template void bias_gradient<T>(const T*, Wide<T>*, std::int64_t, std::int64_t);                  \
  template void add<T>(T*, const T*, std::int64_t);                                                \
  template void rotate<T>(T*, std::int64_t, std::int64_t, int, int, int, std::int64_t, double, int);
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
