#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "runtime/cpu/kernels.hpp"

namespace echelon::cpu {

template <class T>
void attention_forward(const AttentionShape& s, const T* qkv, T* out, Wide<T>* log_sum) {
  using W = Wide<T>;
  const W scale = W(1) / std::sqrt(W(s.head_dim));
#pragma omp parallel for schedule(static) collapse(2)
  for (int b = 0; b < s.samples; ++b) {
    for (int h = 0; h < s.heads; ++h) {
      const int kv = h / (s.heads / s.kv_heads);
      std::vector<W> p(static_cast<std::size_t>(s.sequence));
      std::vector<W> o(static_cast<std::size_t>(s.head_dim));
      for (std::int64_t i = 0; i < s.sequence; ++i) {
        const T* q = qkv + (i * s.samples + b) * s.qkv_stride + h * s.head_dim;
        W most = -std::numeric_limits<W>::infinity();
        for (std::int64_t j = 0; j <= i; ++j) {
          const T* k = qkv + (j * s.samples + b) * s.qkv_stride + (s.heads + kv) * s.head_dim;
          W dot = 0;
          for (int c = 0; c < s.head_dim; ++c) dot += W(q[c]) * W(k[c]);
          p[std::size_t(j)] = dot * scale;
          most = std::max(most, p[std::size_t(j)]);
        }
        W sum = 0;
        std::fill(o.begin(), o.end(), W(0));
        for (std::int64_t j = 0; j <= i; ++j) {
          const T* v =
              qkv + (j * s.samples + b) * s.qkv_stride + (s.heads + s.kv_heads + kv) * s.head_dim;
          const W e = std::exp(p[std::size_t(j)] - most);
          sum += e;
          for (int c = 0; c < s.head_dim; ++c) o[std::size_t(c)] += e * W(v[c]);
        }
        log_sum[(std::int64_t{b} * s.heads + h) * s.sequence + i] = most + std::log(sum);
        T* to = out + (i * s.samples + b) * s.out_stride + h * s.head_dim;
        for (int c = 0; c < s.head_dim; ++c) to[c] = T(o[std::size_t(c)] / sum);
      }
    }
  }
}

template <class T>
void attention_backward(const AttentionShape& s, const T* qkv, const T* out, const Wide<T>* log_sum,
                        const T* dout, T* dqkv) {
  using W = Wide<T>;
  const W scale = W(1) / std::sqrt(W(s.head_dim));
  const int group = s.heads / s.kv_heads;
  const auto d = static_cast<std::size_t>(s.head_dim);
#pragma omp parallel for schedule(static) collapse(2)
  for (int b = 0; b < s.samples; ++b) {
    for (int kv = 0; kv < s.kv_heads; ++kv) {
      const auto row = [&](std::int64_t i, int part) {
        return (i * s.samples + b) * s.qkv_stride + part * s.head_dim;
      };
      std::vector<W> dk(static_cast<std::size_t>(s.sequence) * d);
      std::vector<W> dv(static_cast<std::size_t>(s.sequence) * d);
      std::vector<W> dq(d);
      for (int h = kv * group; h < (kv + 1) * group; ++h) {
        for (std::int64_t i = 0; i < s.sequence; ++i) {
          const std::int64_t at = (i * s.samples + b) * s.out_stride + h * s.head_dim;
          const T* q = qkv + row(i, h);
          W delta = 0;
          for (std::size_t c = 0; c < d; ++c) delta += W(out[at + c]) * W(dout[at + c]);
          std::fill(dq.begin(), dq.end(), W(0));
          for (std::int64_t j = 0; j <= i; ++j) {
            const T* k = qkv + row(j, s.heads + kv);
            const T* v = qkv + row(j, s.heads + s.kv_heads + kv);
            W dot = 0;
            W dp = 0;
            for (std::size_t c = 0; c < d; ++c) dot += W(q[c]) * W(k[c]);
            for (std::size_t c = 0; c < d; ++c) dp += W(dout[at + c]) * W(v[c]);
            const W p =
                std::exp(dot * scale - log_sum[(std::int64_t{b} * s.heads + h) * s.sequence + i]);
            const W ds = p * (dp - delta) * scale;
            for (std::size_t c = 0; c < d; ++c) {
              dq[c] += ds * W(k[c]);
              dk[std::size_t(j) * d + c] += ds * W(q[c]);
              dv[std::size_t(j) * d + c] += p * W(dout[at + c]);
            }
          }
          for (std::size_t c = 0; c < d; ++c) dqkv[row(i, h) + c] = T(dq[c]);
        }
      }
      for (std::int64_t j = 0; j < s.sequence; ++j) {
        for (std::size_t c = 0; c < d; ++c) {
          dqkv[row(j, s.heads + kv) + c] = T(dk[std::size_t(j) * d + c]);
          dqkv[row(j, s.heads + s.kv_heads + kv) + c] = T(dv[std::size_t(j) * d + c]);
        }
      }
    }
  }
}

#define ECHELON_ATTENTION(T)                                                                     \
  template void attention_forward<T>(const AttentionShape&, const T*, T*, Wide<T>*);             \
  template void attention_backward<T>(const AttentionShape&, const T*, const T*, const Wide<T>*, \
                                      const T*, T*);
ECHELON_ATTENTION(double)
ECHELON_ATTENTION(float)
ECHELON_ATTENTION(Bfloat16)
#undef ECHELON_ATTENTION

}  // namespace echelon::cpu
