#include "tests/runtime/cuda/standins/cudnn_operations.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "runtime/comm/element.hpp"

namespace echelon::standins {
namespace {

using Index = std::vector<std::int64_t>;

// Indices are generated as floats.
constexpr std::int64_t kExactInFloat = 1 << 24;

[[noreturn]] void not_supported(const std::string& why) {
  dnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, why);
}

/// A tensor's elements, as floats; every one stored is rounded to the declared type.
struct Elements {
  Elements(const DnnTensor& of, const DnnMemory& memory)
      : tensor(of), strides(of.places()), at(memory.at(of.uid)) {}
  [[nodiscard]] std::int64_t place(const Index& index) const {
    std::int64_t sum = 0;
    for (std::size_t d = 0; d < index.size(); ++d) {
      if (tensor.dims[d] > 1) sum += index[d] * strides[d];
    }
    return sum;
  }
  [[nodiscard]] float operator[](std::int64_t i) const {
    switch (tensor.type) {
      case CUDNN_DATA_BFLOAT16: return static_cast<float>(reinterpret_cast<const Bfloat16*>(at)[i]);
      case CUDNN_DATA_INT32:
        return static_cast<float>(reinterpret_cast<const std::int32_t*>(at)[i]);
      case CUDNN_DATA_BOOLEAN: return at[i] != 0 ? 1.0F : 0.0F;
      default: return reinterpret_cast<const float*>(at)[i];
    }
  }
  void store(std::int64_t i, float value) const {
    switch (tensor.type) {
      case CUDNN_DATA_BFLOAT16: reinterpret_cast<Bfloat16*>(at)[i] = Bfloat16(value); return;
      case CUDNN_DATA_INT32:
        reinterpret_cast<std::int32_t*>(at)[i] = static_cast<std::int32_t>(value);
        return;
      case CUDNN_DATA_BOOLEAN: at[i] = value != 0 ? 1 : 0; return;
      default: reinterpret_cast<float*>(at)[i] = value;
    }
  }
  DnnTensor tensor;
  std::vector<std::int64_t> strides;
  char* at;
};

/// Every index, the last axis fastest.
template <class Visit>
void for_each_index(const std::vector<std::int64_t>& dims, const Visit& visit) {
  Index index(dims.size(), 0);
  for (;;) {
    visit(index);
    std::size_t d = dims.size();
    while (d > 0 && ++index[d - 1] == dims[d - 1]) index[--d] = 0;
    if (d == 0) return;
  }
}

void expect_repeatable(const std::string& who, const DnnTensor& x, const DnnTensor& y) {
  bool good = x.dims.size() == y.dims.size();
  for (std::size_t d = 0; good && d < x.dims.size(); ++d) {
    good = x.dims[d] == y.dims[d] || x.dims[d] == 1;
  }
  if (!good) not_supported(who + ": " + x.name() + " has not the shape of " + y.name());
}

std::optional<std::size_t> operands_of(cudnnPointwiseMode_t mode) {
  switch (mode) {
    case CUDNN_POINTWISE_ADD:
    case CUDNN_POINTWISE_SUB:
    case CUDNN_POINTWISE_MUL:
    case CUDNN_POINTWISE_DIV:
    case CUDNN_POINTWISE_CMP_GE: return 2;
    case CUDNN_POINTWISE_EXP:
    case CUDNN_POINTWISE_LOG:
    case CUDNN_POINTWISE_IDENTITY:
    case CUDNN_POINTWISE_GEN_INDEX: return 1;
    case CUDNN_POINTWISE_BINARY_SELECT: return 3;
    default: return std::nullopt;
  }
}

float computed(cudnnPointwiseMode_t mode, float x, float b, float t) {
  switch (mode) {
    case CUDNN_POINTWISE_ADD: return x + b;
    case CUDNN_POINTWISE_SUB: return x - b;
    case CUDNN_POINTWISE_MUL: return x * b;
    case CUDNN_POINTWISE_DIV: return x / b;
    case CUDNN_POINTWISE_CMP_GE: return x >= b ? 1 : 0;
    case CUDNN_POINTWISE_EXP: return std::exp(x);
    case CUDNN_POINTWISE_LOG: return std::log(x);
    case CUDNN_POINTWISE_IDENTITY: return x;
    default: return t != 0 ? x : b;
  }
}

void expect_types(const std::string& who, const DnnPointwise& how,
                  const std::vector<DnnTensor>& inputs, const DnnTensor& y) {
  const auto number = [](const DnnTensor& tensor) {
    return tensor.type == CUDNN_DATA_FLOAT || tensor.type == CUDNN_DATA_BFLOAT16;
  };
  bool good = how.precision == CUDNN_DATA_FLOAT;
  if (how.mode == CUDNN_POINTWISE_GEN_INDEX) {
    good = good && y.type == CUDNN_DATA_INT32;
  } else if (how.mode == CUDNN_POINTWISE_CMP_GE) {
    good = how.precision == CUDNN_DATA_BOOLEAN && y.type == CUDNN_DATA_BOOLEAN &&
           inputs[0].type == inputs[1].type;
  } else {
    good = good && number(y) && number(inputs[0]) && (inputs.size() < 2 || number(inputs[1])) &&
           (inputs.size() < 3 || inputs[2].type == CUDNN_DATA_BOOLEAN);
  }
  if (!good) not_supported(who + " of these types");
}

}  // namespace

void dnn_refuse(cudnnStatus_t status, const std::string& why) {
  throw Refusal{status, "stand-in of cuDNN: " + why};
}

std::size_t DnnTensor::element() const {
  switch (type) {
    case CUDNN_DATA_BFLOAT16: return 2;
    case CUDNN_DATA_BOOLEAN: return 1;
    default: return 4;
  }
}
std::vector<std::int64_t> DnnTensor::places() const {
  if (!is_virtual) return strides;
  std::vector<std::int64_t> dense(dims.size(), 1);
  for (std::size_t d = dims.size() - 1; d > 0; --d) dense[d - 1] = dense[d] * dims[d];
  return dense;
}
std::size_t DnnTensor::bytes() const {
  const std::vector<std::int64_t> by = places();
  std::int64_t last = 0;
  for (std::size_t d = 0; d < dims.size(); ++d) last += (dims[d] - 1) * by[d];
  return static_cast<std::size_t>(last + 1) * element();
}
std::string DnnTensor::name() const {
  std::string text = "tensor " + std::to_string(uid) + " [";
  for (const std::int64_t dim : dims) text += std::to_string(dim) + " ";
  text.back() = ']';
  return text;
}

DnnOperation dnn_pointwise(const DnnPointwise& how, const DnnTensor& x,
                           const std::optional<DnnTensor>& b, const std::optional<DnnTensor>& t,
                           const DnnTensor& y) {
  const std::string who = "pointwise mode " + std::to_string(how.mode);
  const auto operands = operands_of(how.mode);
  if (!operands) not_supported(who);
  std::vector<DnnTensor> inputs{x};
  if (b) inputs.push_back(*b);
  if (t) inputs.push_back(*t);
  if (inputs.size() != *operands || (t && !b)) not_supported(who + " of so many operands");
  expect_types(who, how, inputs, y);
  for (const DnnTensor& input : inputs) expect_repeatable(who, input, y);
  if (how.mode == CUDNN_POINTWISE_GEN_INDEX) {
    if (!how.axis || *how.axis < 0 || *how.axis >= static_cast<std::int64_t>(y.dims.size()) ||
        y.dims[static_cast<std::size_t>(*how.axis)] > kExactInFloat) {
      not_supported(who + " without an axis, or of a long one");
    }
    return {who, inputs, y, [y, axis = static_cast<std::size_t>(*how.axis)](const DnnMemory& m) {
              const Elements to(y, m);
              for_each_index(y.dims, [&](const Index& index) {
                to.store(to.place(index), static_cast<float>(index[axis]));
              });
            }};
  }
  return {who, inputs, y, [inputs, y, mode = how.mode](const DnnMemory& memory) {
            const Elements from(inputs[0], memory);
            const Elements other(inputs[inputs.size() > 1 ? 1 : 0], memory);
            const Elements third(inputs[inputs.size() > 2 ? 2 : 0], memory);
            const Elements to(y, memory);
            for_each_index(y.dims, [&](const Index& index) {
              to.store(to.place(index),
                       computed(mode, from[from.place(index)], other[other.place(index)],
                                third[third.place(index)]));
            });
          }};
}

DnnOperation dnn_reduction(cudnnReduceTensorOp_t op, const DnnTensor& x, const DnnTensor& y) {
  const std::string who = "reduction " + std::to_string(op);
  if (op != CUDNN_REDUCE_TENSOR_ADD && op != CUDNN_REDUCE_TENSOR_MAX) not_supported(who);
  bool good =
      x.dims.size() == y.dims.size() && x.type != CUDNN_DATA_BOOLEAN && x.type != CUDNN_DATA_INT32;
  for (std::size_t d = 0; good && d < x.dims.size(); ++d) {
    good = y.dims[d] == x.dims[d] || y.dims[d] == 1 || (d == 1 && x.dims[d] % y.dims[d] == 0);
  }
  if (!good) not_supported(who + " of " + x.name() + " to " + y.name());
  return {who, {x}, y, [x, y, op](const DnnMemory& memory) {
            const Elements from(x, memory);
            const Elements to(y, memory);
            std::map<std::int64_t, float> sums;  // by the place in y
            Index at(x.dims.size());
            for_each_index(x.dims, [&](const Index& index) {
              for (std::size_t d = 0; d < at.size(); ++d) {
                at[d] = index[d] * y.dims[d] / x.dims[d];
              }
              const float value = from[from.place(index)];
              const auto [sum, first] = sums.try_emplace(to.place(at), value);
              if (first) return;
              if (op == CUDNN_REDUCE_TENSOR_ADD) {
                sum->second += value;
              } else if (value > sum->second || std::isnan(value)) {
                sum->second = value;
              }
            });
            for (const auto& [place, sum] : sums) to.store(place, sum);
          }};
}

DnnOperation dnn_matmul(const DnnTensor& a, const DnnTensor& b, const DnnTensor& c) {
  const std::string who = "a product of " + a.name() + " and " + b.name();
  const std::size_t axes = c.dims.size();
  bool good = axes >= 2 && a.dims.size() == axes && b.dims.size() == axes && a.type == b.type &&
              (a.type == CUDNN_DATA_FLOAT || a.type == CUDNN_DATA_BFLOAT16) &&
              (c.type == CUDNN_DATA_FLOAT || c.type == CUDNN_DATA_BFLOAT16);
  for (std::size_t d = 0; good && d + 2 < axes; ++d) {
    good = a.dims[d] == c.dims[d] &&
           (b.dims[d] == c.dims[d] || (d == 1 && c.dims[d] % b.dims[d] == 0));
  }
  if (!good || a.dims[axes - 2] != c.dims[axes - 2] || b.dims[axes - 1] != c.dims[axes - 1] ||
      a.dims[axes - 1] != b.dims[axes - 2]) {
    not_supported(who + " to " + c.name());
  }
  const auto run = [a, b, c, axes](const DnnMemory& memory) {
    const Elements left(a, memory), right(b, memory), to(c, memory);
    const std::int64_t rows = c.dims[axes - 2], columns = c.dims[axes - 1];
    const std::int64_t depth = a.dims[axes - 1];
    std::vector<float> factor(static_cast<std::size_t>(depth * columns));
    std::vector<float> sum(static_cast<std::size_t>(columns));
    std::vector<std::int64_t> batches(c.dims.begin(), c.dims.end() - 2);
    batches.push_back(1);
    for_each_index(batches, [&](const Index& batch) {
      Index at(batch.begin(), batch.end() - 1), shared = at;
      for (std::size_t d = 0; d < at.size(); ++d) shared[d] = at[d] * b.dims[d] / c.dims[d];
      at.resize(axes), shared.resize(axes);
      const std::int64_t a0 = left.place(at), b0 = right.place(shared), c0 = to.place(at);
      for (std::int64_t i = 0; i < depth * columns; ++i) {
        factor[static_cast<std::size_t>(i)] = right[b0 + i / columns * right.strides[axes - 2] +
                                                    i % columns * right.strides[axes - 1]];
      }
      for (std::int64_t row = 0; row < rows; ++row) {
        std::fill(sum.begin(), sum.end(), 0.0F);
        for (std::int64_t k = 0; k < depth; ++k) {
          const float x = left[a0 + row * left.strides[axes - 2] + k * left.strides[axes - 1]];
          const float* const y = factor.data() + k * columns;
          for (std::size_t column = 0; column < sum.size(); ++column) sum[column] += x * y[column];
        }
        for (std::int64_t column = 0; column < columns; ++column) {
          to.store(c0 + row * to.strides[axes - 2] + column * to.strides[axes - 1],
                   sum[static_cast<std::size_t>(column)]);
        }
      }
    });
  };
  return {who, {a, b}, c, run};
}

DnnOperation dnn_reshape(const DnnTensor& x, const DnnTensor& y) {
  const std::string who = "a reshape of " + x.name() + " to " + y.name();
  if (x.dims.size() != y.dims.size()) not_supported(who);
  // Which axis of x each of y is; one of a single element is any other such.
  std::vector<std::size_t> axis_of(y.dims.size());
  std::vector<bool> taken(x.dims.size(), false);
  for (std::size_t d = 0; d < y.dims.size(); ++d) {
    std::size_t from = 0, found = 0;
    for (std::size_t other = 0; other < x.dims.size(); ++other) {
      const bool same = x.dims[other] == y.dims[d] &&
                        (y.dims[d] == 1 ? !taken[other] : x.strides[other] == y.strides[d]);
      if (!same || (y.dims[d] == 1 && found > 0)) continue;
      from = other;
      ++found;
    }
    if (found != 1 || taken[from]) not_supported(who);
    axis_of[d] = from;
    taken[from] = true;
  }
  return {"a reshape", {x}, y, [x, y, axis_of](const DnnMemory& memory) {
            const Elements from(x, memory);
            const Elements to(y, memory);
            Index at(x.dims.size());
            for_each_index(y.dims, [&](const Index& index) {
              for (std::size_t d = 0; d < index.size(); ++d) at[axis_of[d]] = index[d];
              to.store(to.place(index), from[from.place(at)]);
            });
          }};
}

}  // namespace echelon::standins
