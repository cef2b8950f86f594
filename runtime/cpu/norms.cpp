#include <cmath>

#include "runtime/cpu/kernels.hpp"

namespace echelon::cpu {

template <class T>
void layer_norm_forward(const T* x, const T* weight, const T* bias, T* y, Wide<T>* mean,
                        Wide<T>* rstd, std::int64_t rows, std::int64_t width, double eps) {
  using W = Wide<T>;
  for (std::int64_t r = 0; r < rows; ++r, x += width, y += width) {
    W sum = 0;
    for (std::int64_t i = 0; i < width; ++i) sum += W(x[i]);
    const W m = sum / W(width);
    W squares = 0;
    for (std::int64_t i = 0; i < width; ++i) squares += (W(x[i]) - m) * (W(x[i]) - m);
    const W s = W(1) / std::sqrt(squares / W(width) + W(eps));
    mean[r] = m;
    rstd[r] = s;
    for (std::int64_t i = 0; i < width; ++i) {
      y[i] = T((W(x[i]) - m) * s * W(weight[i]) + W(bias[i]));
    }
  }
}

template <class T>
void layer_norm_backward(const T* dy, const T* x, const T* weight, const Wide<T>* mean,
                         const Wide<T>* rstd, T* dx, Wide<T>* dweight, Wide<T>* dbias,
                         std::int64_t rows, std::int64_t width) {
  using W = Wide<T>;
  for (std::int64_t r = 0; r < rows; ++r, x += width, dy += width, dx += width) {
    W sum = 0;
    W dot = 0;
    for (std::int64_t i = 0; i < width; ++i) {
      const W hat = (W(x[i]) - mean[r]) * rstd[r];
      const W g = W(dy[i]) * W(weight[i]);
      sum += g;
      dot += g * hat;
      dweight[i] += W(dy[i]) * hat;
      dbias[i] += W(dy[i]);
    }
    for (std::int64_t i = 0; i < width; ++i) {
      const W hat = (W(x[i]) - mean[r]) * rstd[r];
      const W g = W(dy[i]) * W(weight[i]);
      dx[i] = T((g - sum / W(width) - hat * (dot / W(width))) * rstd[r]);
    }
  }
}

template <class T>
void rms_norm_forward(const T* x, const T* weight, T* y, Wide<T>* rstd, std::int64_t rows,
                      std::int64_t width, double eps) {
  using W = Wide<T>;
  for (std::int64_t r = 0; r < rows; ++r, x += width, y += width) {
    W squares = 0;
    for (std::int64_t i = 0; i < width; ++i) squares += W(x[i]) * W(x[i]);
    rstd[r] = W(1) / std::sqrt(squares / W(width) + W(eps));
    for (std::int64_t i = 0; i < width; ++i) y[i] = T(W(x[i]) * rstd[r] * W(weight[i]));
  }
}

template <class T>
void rms_norm_backward(const T* dy, const T* x, const T* weight, const Wide<T>* rstd, T* dx,
                       Wide<T>* dweight, std::int64_t rows, std::int64_t width) {
  using W = Wide<T>;
  for (std::int64_t r = 0; r < rows; ++r, x += width, dy += width, dx += width) {
    W dot = 0;
    for (std::int64_t i = 0; i < width; ++i) {
      const W hat = W(x[i]) * rstd[r];
      dot += W(dy[i]) * W(weight[i]) * hat;
      dweight[i] += W(dy[i]) * hat;
    }
    for (std::int64_t i = 0; i < width; ++i) {
      const W hat = W(x[i]) * rstd[r];
      dx[i] = T((W(dy[i]) * W(weight[i]) - hat * (dot / W(width))) * rstd[r]);
    }
  }
}

#define ECHELON_NORMS(T)                                                                          \
  template void layer_norm_forward<T>(const T*, const T*, const T*, T*, Wide<T>*, Wide<T>*,       \
                                      std::int64_t, std::int64_t, double);                        \
  template void layer_norm_backward<T>(const T*, const T*, const T*, const Wide<T>*,              \
                                       const Wide<T>*, T*, Wide<T>*, Wide<T>*, std::int64_t,      \
                                       std::int64_t);                                             \
  template void rms_norm_forward<T>(const T*, const T*, T*, Wide<T>*, std::int64_t, std::int64_t, \
                                    double);                                                      \
  template void rms_norm_backward<T>(const T*, const T*, const T*, const Wide<T>*, T*, Wide<T>*,  \
                                     std::int64_t, std::int64_t);
ECHELON_NORMS(double)
ECHELON_NORMS(float)
ECHELON_NORMS(Bfloat16)
#undef ECHELON_NORMS

}  // namespace echelon::cpu
