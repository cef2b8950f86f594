// The objects behind cuDNN's backend descriptors: tensors in memory, operations on them, graphs.
#pragma once

#include <cuda_runtime_api.h>  // first: cudnn.h includes it as C
#include <cudnn.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace echelon::standins {

/// Thrown: the status of the call, and the text of cudnnGetLastErrorString().
struct Refusal {
  cudnnStatus_t status;
  std::string why;
};
[[noreturn]] void dnn_refuse(cudnnStatus_t status, const std::string& why);

struct DnnTensor {
  std::int64_t uid = 0;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  std::vector<std::int64_t> dims;
  std::vector<std::int64_t> strides;
  std::int64_t alignment = 1;
  bool is_virtual = false;
  bool by_value = false;
  auto operator<=>(const DnnTensor&) const = default;

  [[nodiscard]] std::size_t element() const;
  /// Virtual tensors have no fixed memory: any layout may be used. Their strides only define the
  /// meaning of a reshape; the frontend gives some with overlapping elements.
  [[nodiscard]] std::vector<std::int64_t> places() const;
  /// From its first byte to its last.
  [[nodiscard]] std::size_t bytes() const;
  [[nodiscard]] std::string name() const;
};

/// Where each tensor lies, by its uid.
using DnnMemory = std::map<std::int64_t, char*>;

struct DnnOperation {
  std::string what;
  std::vector<DnnTensor> inputs;
  DnnTensor output;
  std::function<void(const DnnMemory&)> run;
};

struct DnnPointwise {
  cudnnPointwiseMode_t mode = CUDNN_POINTWISE_MUL;
  cudnnDataType_t precision = CUDNN_DATA_FLOAT;
  std::optional<std::int64_t> axis;  // of CUDNN_POINTWISE_GEN_INDEX
};
/// y = mode(x), mode(x, b), or t ? x : b. An operand with one element along an axis is broadcast.
DnnOperation dnn_pointwise(const DnnPointwise& how, const DnnTensor& x,
                           const std::optional<DnnTensor>& b, const std::optional<DnnTensor>& t,
                           const DnnTensor& y);
/// Over the axes of which y has one element. Of the second it may have a part: then each takes the
/// same number of consecutive elements of x, as heads that share a key have them.
DnnOperation dnn_reduction(cudnnReduceTensorOp_t op, const DnnTensor& x, const DnnTensor& y);
/// Over the last two axes. b may have a part of the second axis, as with dnn_reduction().
DnnOperation dnn_matmul(const DnnTensor& a, const DnnTensor& b, const DnnTensor& c);
/// The same elements at the same places by both strides, so y names the axes in another order.
DnnOperation dnn_reshape(const DnnTensor& x, const DnnTensor& y);

struct DnnGraph {
  std::vector<DnnOperation> operations;  // each after the operations that produce its inputs
  std::map<std::int64_t, DnnTensor> tensors;
  std::vector<std::int64_t> outputs;  // in memory that the caller gives
  std::size_t workspace_bytes = 0;
  int device = 0;  // of the handle it was made with
};
DnnGraph dnn_graph(const std::vector<DnnOperation>& operations);
/// `given`: all that are not virtual. The others get memory for the time of the run.
void run_dnn_graph(const DnnGraph& graph, DnnMemory given);

}  // namespace echelon::standins
