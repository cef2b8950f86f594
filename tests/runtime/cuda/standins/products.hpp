// The computation of cublasLtMatmul: D = alpha·op(A)·op(B) + beta·C, plus a bias.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>

namespace echelon::standins {

/// A matrix as described by its descriptor.
struct Layout {
  cudaDataType_t type = CUDA_R_32F;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t ld = 0;
  cublasLtOrder_t order = CUBLASLT_ORDER_COL;
  auto operator<=>(const Layout&) const = default;

  [[nodiscard]] std::size_t element() const { return type == CUDA_R_32F ? 4 : 2; }
  [[nodiscard]] std::size_t bytes() const {
    const bool by_columns = order == CUBLASLT_ORDER_COL;
    const std::int64_t lines = by_columns ? columns : rows;
    return static_cast<std::size_t>((lines - 1) * ld + (by_columns ? rows : columns)) * element();
  }
};

struct Product {
  bool transposes_a = false;
  bool transposes_b = false;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  cudaDataType_t bias_type = CUDA_R_32F;
  Layout a, b, c, d;
  auto operator<=>(const Product&) const = default;

  [[nodiscard]] std::int64_t depth() const { return transposes_a ? a.rows : a.columns; }
};

struct Operands {
  float alpha = 1;
  float beta = 0;
  const void* a = nullptr;
  const void* b = nullptr;
  const void* c = nullptr;
  void* d = nullptr;
  const void* bias = nullptr;
  float* workspace = nullptr;  // of a product in several parts: a matrix of floats each
};

/// The depth is split into `parts`, whose sums are added one after the other: another number of
/// parts gives other bits. Sums are in float; stored results are rounded once, and parts before
/// they are added where these are stored in the type of the result (`rounds`).
void multiply(const Product& product, const Operands& operands, int parts, bool rounds);
/// What the stand-in counts and times when the product runs, the `number`-th of the process.
void observe(const Product& product, const Operands& operands, int parts, int number, int device);
/// product_counts() begins again.
void forget_products();

}  // namespace echelon::standins
