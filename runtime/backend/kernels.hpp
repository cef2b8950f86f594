// Kernels: the operators that a queue of a rank executes, on any backend.
//
// Layout: a token is a row; rows are ordered [sequence][sample], so a part of the sequence is a
// contiguous block of rows. Matrices are row-major; a weight is [out, in], y = x · Wᵀ (+ bias).
// Arithmetic is in Wide<T> (double for double, else float), rounded once when T is stored.
// Gradients of parameters are Wide<T> and are *accumulated*; gradients of activations are
// overwritten. Pointers refer to memory of the rank's Processor.
#pragma once

#include <cstdint>

#include "core/model/model.hpp"
#include "runtime/backend/kernel_shapes.hpp"
#include "runtime/backend/optimizer.hpp"
#include "runtime/backend/stream.hpp"
#include "runtime/comm/element.hpp"

namespace echelon {

/// rows × width of T, contiguous.
template <class T>
struct Rows {
  const T* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t width = 0;
};

/// Operands of a norm: input, weight, and (layer norm) bias.
template <class T>
struct NormOf {
  Normalization kind = Normalization::layer_norm;
  const T* x = nullptr;
  const T* weight = nullptr;
  const T* bias = nullptr;  ///< layer norm
  Wide<T>* mean = nullptr;  ///< [rows], layer norm; the forward writes it, the backward reads it
  Wide<T>* rstd = nullptr;  ///< [rows], the same
  std::int64_t rows = 0;
  std::int64_t width = 0;
  double eps = 0;
};

/// Logits of the part [first, first + valid) of the vocabulary; columns from `valid` on are padding
/// and skipped everywhere.
template <class T>
struct Logits {
  T* data = nullptr;  ///< [rows, columns]
  const std::int32_t* targets = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t valid = 0;
  std::int64_t first = 0;
};

template <class T>
class Kernels : public Stream {
 public:
#define ECHELON_OPERATOR(...) virtual __VA_ARGS__ = 0;
#include "runtime/backend/operators.def"
#undef ECHELON_OPERATOR
};

}  // namespace echelon
