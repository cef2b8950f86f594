#ifdef ECHELON_ONEDNN
#include <dnnl.hpp>
#endif

#define EIGEN_DONT_PARALLELIZE  // we choose the parts, independent of the number of threads
#include <Eigen/Core>
#include <algorithm>
#include <type_traits>
#include <vector>

#include "core/base/expects.hpp"
#include "runtime/cpu/kernels.hpp"
#include "runtime/cpu/simd_rows.hpp"

namespace echelon::cpu {
namespace {

/// out (+)= a · b, with Eigen.
template <class W>
void multiply(Order a_order, Order b_order, std::int64_t m, std::int64_t n, std::int64_t k,
              const W* a, std::int64_t lda, const W* b, std::int64_t ldb, W* out, std::int64_t ldc,
              bool add) {
  using Matrix = Eigen::Matrix<W, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using View = Eigen::Map<const Matrix, 0, Eigen::OuterStride<>>;
  const bool at = a_order == Order::transposed;
  const bool bt = b_order == Order::transposed;
  in_parts(m, 128, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t rows = end - begin;
    const View left(a + (at ? begin : begin * lda), at ? k : rows, at ? rows : k,
                    Eigen::OuterStride<>(lda));
    const View right(b, bt ? n : k, bt ? k : n, Eigen::OuterStride<>(ldb));
    Eigen::Map<Matrix, 0, Eigen::OuterStride<>> sum(out + begin * ldc, rows, n,
                                                    Eigen::OuterStride<>(ldc));
    if (!add) sum.setZero();
    if (at && bt) sum.noalias() += left.transpose() * right.transpose();
    if (at && !bt) sum.noalias() += left.transpose() * right;
    if (!at && bt) sum.noalias() += left * right.transpose();
    if (!at && !bt) sum.noalias() += left * right;
  });
}

#ifdef ECHELON_ONEDNN
void multiply(Order a_order, Order b_order, std::int64_t m, std::int64_t n, std::int64_t k,
              const float* a, std::int64_t lda, const float* b, std::int64_t ldb, float* out,
              std::int64_t ldc, bool add) {
  const auto letter = [](Order order) { return order == Order::plain ? 'N' : 'T'; };
  const dnnl_status_t status = dnnl_sgemm(letter(a_order), letter(b_order), m, n, k, 1, a, lda, b,
                                          ldb, add ? 1.0F : 0.0F, out, ldc);
  EXPECTS(status == dnnl_success, "oneDNN multiplies matrices of any size");
}
#endif

/// Converts rows of T to contiguous rows of Wide<T>.
template <class T>
void to_wide(const T* x, std::int64_t rows, std::int64_t columns, std::int64_t stride, Wide<T>* y) {
  in_parts(rows, grain_of_rows(columns), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) cast(x + i * stride, y + i * columns, columns);
  });
}

/// Without instructions for T: in blocks that are converted, which needs little memory.
template <class T, class Out>
void multiply_wide(Order a_order, Order b_order, std::int64_t m, std::int64_t n, std::int64_t k,
                   const T* a, std::int64_t lda, const T* b, std::int64_t ldb, Out* out,
                   std::int64_t ldc, bool add) {
  using W = Wide<T>;
  static constexpr std::int64_t kBlock = 1024;
  const bool at = a_order == Order::transposed;
  const bool bt = b_order == Order::transposed;
  const auto size = [](std::int64_t rows, std::int64_t columns) {
    return static_cast<std::size_t>(std::min(rows, kBlock) * std::min(columns, kBlock));
  };
  std::vector<W> left(size(m, k));
  std::vector<W> right(size(k, n));
  std::vector<W> sum(size(m, n));
  for (std::int64_t j = 0; j < n; j += kBlock) {
    const std::int64_t columns = std::min(kBlock, n - j);
    for (std::int64_t i = 0; i < m; i += kBlock) {
      const std::int64_t rows = std::min(kBlock, m - i);
      if (add) to_wide(out + i * ldc + j, rows, columns, ldc, sum.data());
      for (std::int64_t l = 0; l < k; l += kBlock) {
        const std::int64_t depth = std::min(kBlock, k - l);
        to_wide(at ? a + l * lda + i : a + i * lda + l, at ? depth : rows, at ? rows : depth, lda,
                left.data());
        to_wide(bt ? b + j * ldb + l : b + l * ldb + j, bt ? columns : depth, bt ? depth : columns,
                ldb, right.data());
        multiply(a_order, b_order, rows, columns, depth, left.data(), at ? rows : depth,
                 right.data(), bt ? depth : columns, sum.data(), columns, add || l > 0);
      }
      in_parts(rows, grain_of_rows(columns), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t r = begin; r < end; ++r) {
          cast(sum.data() + r * columns, out + (i + r) * ldc + j, columns);
        }
      });
    }
  }
}

#ifdef ECHELON_ONEDNN
/// oneDNN's product of bf16 matrices; false if this processor has no instructions for it.
template <class Out>
bool multiply_bf16(Order a_order, Order b_order, std::int64_t m, std::int64_t n, std::int64_t k,
                   const Bfloat16* a, std::int64_t lda, const Bfloat16* b, std::int64_t ldb,
                   Out* out, std::int64_t ldc, bool add) {
  static const bool has = dnnl::get_effective_cpu_isa() == dnnl::cpu_isa::avx512_core_bf16 ||
                          dnnl::get_effective_cpu_isa() == dnnl::cpu_isa::avx512_core_amx;
  if (!has) return false;
  using Type = dnnl::memory::data_type;
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  const auto desc = [](std::int64_t rows, std::int64_t columns, Type type, Order order,
                       std::int64_t stride) {
    const bool plain = order == Order::plain;
    return dnnl::memory::desc({rows, columns}, type,
                              dnnl::memory::dims{plain ? stride : 1, plain ? 1 : stride});
  };
  const auto a_desc = desc(m, k, Type::bf16, a_order, lda);
  const auto b_desc = desc(k, n, Type::bf16, b_order, ldb);
  const auto out_desc =
      desc(m, n, std::is_same_v<Out, float> ? Type::f32 : Type::bf16, Order::plain, ldc);
  dnnl::primitive_attr attributes;
  if (add) {
    dnnl::post_ops sum;
    sum.append_sum();
    attributes.set_post_ops(sum);
  }
  // oneDNN caches the code it compiled for a shape.
  const dnnl::matmul product(
      dnnl::matmul::primitive_desc({a_desc, b_desc, out_desc}, attributes, engine));
  dnnl::stream stream(engine);
  product.execute(stream, {{DNNL_ARG_SRC, {a_desc, engine, const_cast<Bfloat16*>(a)}},
                           {DNNL_ARG_WEIGHTS, {b_desc, engine, const_cast<Bfloat16*>(b)}},
                           {DNNL_ARG_DST, {out_desc, engine, out}}});
  stream.wait();
  return true;
}
#endif

}  // namespace

template <class T, class Out>
void gemm(Order a_order, Order b_order, std::int64_t m, std::int64_t n, std::int64_t k, const T* a,
          std::int64_t lda, const T* b, std::int64_t ldb, Out* out, std::int64_t ldc, bool add) {
  if (m == 0 || n == 0) return;
  if (k == 0) {
    for (std::int64_t i = 0; i < m && !add; ++i) std::fill_n(out + i * ldc, n, Out{});
    return;
  }
  if constexpr (std::is_same_v<T, Wide<T>>) {
    multiply(a_order, b_order, m, n, k, a, lda, b, ldb, out, ldc, add);
  } else {
#ifdef ECHELON_ONEDNN
    if (multiply_bf16(a_order, b_order, m, n, k, a, lda, b, ldb, out, ldc, add)) return;
#endif
    multiply_wide(a_order, b_order, m, n, k, a, lda, b, ldb, out, ldc, add);
  }
}

#define ECHELON_GEMM(T, Out)                                                                   \
  template void gemm<T, Out>(Order, Order, std::int64_t, std::int64_t, std::int64_t, const T*, \
                             std::int64_t, const T*, std::int64_t, Out*, std::int64_t, bool);
ECHELON_GEMM(double, double)
ECHELON_GEMM(float, float)
ECHELON_GEMM(Bfloat16, Bfloat16)
ECHELON_GEMM(Bfloat16, float)
#undef ECHELON_GEMM

}  // namespace echelon::cpu
