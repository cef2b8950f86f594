// The three products of a linear layer y = x·Wᵀ, W: [out, in], x: [rows, in].
#pragma once

#include <cstdint>

#include "runtime/cpu/kernels.hpp"

namespace echelon {

template <class T>
void multiply(const T* x, std::int64_t rows, std::int64_t in, const T* weight, std::int64_t out,
              T* y) {
  using cpu::Order;
  cpu::gemm(Order::plain, Order::transposed, rows, out, in, x, in, weight, in, y, out, false);
}

template <class T>
void multiply_back(const T* dy, std::int64_t rows, std::int64_t out, const T* weight,
                   std::int64_t in, T* dx) {
  using cpu::Order;
  cpu::gemm(Order::plain, Order::plain, rows, in, out, dy, out, weight, in, dx, in, false);
}

template <class T>
void add_weight_gradient(const T* dy, std::int64_t out, const T* x, std::int64_t in,
                         std::int64_t rows, Wide<T>* dweight) {
  using cpu::Order;
  cpu::gemm(Order::transposed, Order::plain, out, in, rows, dy, out, x, in, dweight, in, true);
}

}  // namespace echelon
