#define EIGEN_DONT_PARALLELIZE

#include "tests/runtime/cuda/standins/products.hpp"

#include <Eigen/Core>
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <set>
#include <vector>

#include "runtime/comm/element.hpp"
#include "tests/runtime/cuda/standins/machine.hpp"

namespace echelon::standins {
namespace {

using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic>;

float number_at(const void* memory, cudaDataType_t type, std::int64_t at) {
  if (type == CUDA_R_32F) return static_cast<const float*>(memory)[at];
  return static_cast<float>(static_cast<const Bfloat16*>(memory)[at]);
}

std::int64_t place(const Layout& layout, std::int64_t row, std::int64_t column) {
  return layout.order == CUBLASLT_ORDER_COL ? column * layout.ld + row : row * layout.ld + column;
}

/// op(A), in float.
Matrix read(const Layout& layout, const void* memory, bool transposes) {
  Matrix all(layout.rows, layout.columns);
  for (std::int64_t column = 0; column < layout.columns; ++column) {
    for (std::int64_t row = 0; row < layout.rows; ++row) {
      all(row, column) = number_at(memory, layout.type, place(layout, row, column));
    }
  }
  if (transposes) all.transposeInPlace();
  return all;
}

/// A part of no depth is zeros.
void multiply_part(const Matrix& a, const Matrix& b, std::int64_t first, std::int64_t end,
                   Eigen::Ref<Matrix> to) {
  to.noalias() = a.middleCols(first, end - first) * b.middleRows(first, end - first);
}

/// Of product_counts(); guarded by the machine's lock.
int product_runs = 0;
int beside_collectives = 0;
int beside_gathers = 0;
std::set<const void*> first_operands;

/// Whether every byte of a matrix is zero.
bool all_zero(const void* matrix, std::size_t bytes) {
  const auto* const first = static_cast<const unsigned char*>(matrix);
  return std::all_of(first, first + bytes, [](unsigned char byte) { return byte == 0; });
}

}  // namespace

void forget_products() {
  product_runs = beside_collectives = beside_gathers = 0;
  first_operands.clear();
}

ProductCounts product_counts() {
  const Machine::Lock lock;
  return {product_runs, first_operands.size(), beside_collectives, beside_gathers,
          machine().suggestions};
}

void multiply(const Product& product, const Operands& operands, int parts, bool rounds) {
  ++product_runs;
  first_operands.insert(operands.a);
  const Matrix a = read(product.a, operands.a, product.transposes_a);
  const Matrix b = read(product.b, operands.b, product.transposes_b);
  const std::int64_t depth = product.depth();
  Matrix sum(product.d.rows, product.d.columns);
  if (parts == 1) {
    multiply_part(a, b, 0, depth, sum);
  } else {
    sum.setZero();
    for (int part = 0; part < parts; ++part) {
      // As in the library: the part is stored in the workspace before it is added.
      Eigen::Map<Matrix> partial(operands.workspace + part * sum.size(), sum.rows(), sum.cols());
      multiply_part(a, b, depth * part / parts, depth * (part + 1) / parts, partial);
      if (rounds && product.d.type != CUDA_R_32F)
        partial = partial.unaryExpr([](float x) { return static_cast<float>(Bfloat16(x)); });
      sum += partial;
    }
  }
  const bool has_bias = (product.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0;
  for (std::int64_t column = 0; column < product.d.columns; ++column) {
    for (std::int64_t row = 0; row < product.d.rows; ++row) {
      float value = operands.alpha * sum(row, column);
      if (operands.beta != 0) {
        value +=
            operands.beta * number_at(operands.c, product.c.type, place(product.c, row, column));
      }
      if (has_bias) value += number_at(operands.bias, product.bias_type, row);
      const std::int64_t at = place(product.d, row, column);
      if (product.d.type == CUDA_R_32F) {
        static_cast<float*>(operands.d)[at] = value;
      } else {
        static_cast<Bfloat16*>(operands.d)[at] = Bfloat16(value);
      }
    }
  }
}

void observe(const Product& product, const Operands& with, int parts, int number, int device) {
  if (machine().communicates(device)) ++beside_collectives;
  if (machine().communicates(device, "AllGather")) ++beside_gathers;
  if (all_zero(with.a, product.a.bytes()) || all_zero(with.b, product.b.bytes())) {
    ++machine().of_process.products_of_zeros;
  }
  if (const auto& time = machine().settings().product_time) {
    machine().ahead += std::chrono::duration<double>(time(parts, number));
  }
}

}  // namespace echelon::standins
