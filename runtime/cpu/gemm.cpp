#ifdef ECHELON_ONEDNN
#include <dnnl.h>
#endif

#include <Eigen/Core>
#include <algorithm>
#include <type_traits>
#include <vector>

#include "core/expects.hpp"
#include "runtime/cpu/kernels.hpp"

namespace echelon::cpu {
namespace {

/// out = op(a) · op(b) (+ out) in one precision.
template <class W>
void gemm_wide(Order a_order, Order b_order, std::int64_t m, std::int64_t n, std::int64_t k,
               const W* a, std::int64_t lda, const W* b, std::int64_t ldb, W* out, std::int64_t ldc,
               bool add) {
#ifdef ECHELON_ONEDNN
  if constexpr (std::is_same_v<W, float>) {
    const auto letter = [](Order order) { return order == Order::plain ? 'N' : 'T'; };
    const dnnl_status_t status = dnnl_sgemm(letter(a_order), letter(b_order), m, n, k, 1, a, lda, b,
                                            ldb, add ? 1.0F : 0.0F, out, ldc);
    EXPECTS(status == dnnl_success, "oneDNN multiplies matrices of any size");
    return;
  }
#endif
  using Matrix = Eigen::Matrix<W, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using Stride = Eigen::OuterStride<>;
  const bool at = a_order == Order::transposed;
  const bool bt = b_order == Order::transposed;
  const Eigen::Map<const Matrix, 0, Stride> A(a, at ? k : m, at ? m : k, Stride(lda));
  const Eigen::Map<const Matrix, 0, Stride> B(b, bt ? n : k, bt ? k : n, Stride(ldb));
  Eigen::Map<Matrix, 0, Stride> C(out, m, n, Stride(ldc));
  const auto product = [&](const auto& left, const auto& right) {
    if (add) {
      C.noalias() += left * right;
    } else {
      C.noalias() = left * right;
    }
  };
  if (at && bt) product(A.transpose(), B.transpose());
  if (at && !bt) product(A.transpose(), B);
  if (!at && bt) product(A, B.transpose());
  if (!at && !bt) product(A, B);
}

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
    gemm_wide(a_order, b_order, m, n, k, a, lda, b, ldb, out, ldc, add);
  } else {
    const auto widened = [](const T* x, std::int64_t rows, std::int64_t columns, std::int64_t ld) {
      std::vector<Wide<T>> y(static_cast<std::size_t>(rows * columns));
      for (std::int64_t i = 0; i < rows; ++i) cast(x + i * ld, y.data() + i * columns, columns);
      return y;
    };
    const bool at = a_order == Order::transposed;
    const bool bt = b_order == Order::transposed;
    const auto wa = widened(a, at ? k : m, at ? m : k, lda);
    const auto wb = widened(b, bt ? n : k, bt ? k : n, ldb);
    if constexpr (std::is_same_v<Out, Wide<T>>) {
      gemm_wide(a_order, b_order, m, n, k, wa.data(), at ? m : k, wb.data(), bt ? k : n, out, ldc,
                add);
    } else {
      std::vector<Wide<T>> sum(static_cast<std::size_t>(m * n));
      for (std::int64_t i = 0; i < m && add; ++i) cast(out + i * ldc, sum.data() + i * n, n);
      gemm_wide(a_order, b_order, m, n, k, wa.data(), at ? m : k, wb.data(), bt ? k : n, sum.data(),
                n, add);
      for (std::int64_t i = 0; i < m; ++i) cast(sum.data() + i * n, out + i * ldc, n);
    }
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
