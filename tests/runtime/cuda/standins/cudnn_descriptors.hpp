// Descriptors of cuDNN's backend, with what was set. Under the machine's lock.
#pragma once

#include <cuda_runtime_api.h>  // first: cudnn.h includes it as C
#include <cudnn.h>

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/runtime/cuda/standins/cudnn_operations.hpp"

struct cudnnContext {
  int device = 0;
  CUstream_st* stream = nullptr;
};

namespace echelon::standins {

inline const std::string kDnnHandle = "cuDNN handle";

struct DnnDescriptor {
  /// One kind of elements, or descriptors.
  struct Attribute {
    std::int64_t count = 0;
    std::vector<char> bytes;
    std::vector<std::shared_ptr<DnnDescriptor>> descriptors;
  };
  cudnnBackendDescriptorType_t type = CUDNN_BACKEND_TENSOR_DESCRIPTOR;
  bool finalized = false;
  std::map<cudnnBackendAttributeName_t, Attribute> set;
  // What finalizing made of it: of a tensor, an operation, a graph and all that follow from one.
  std::optional<DnnTensor> tensor;
  std::optional<DnnOperation> operation;
  std::shared_ptr<const DnnGraph> graph;

  /// Of an attribute that has to be there by the time it is read.
  template <class T>
  [[nodiscard]] std::vector<T> all(cudnnBackendAttributeName_t name) const {
    const Attribute& one = set.at(name);
    std::vector<T> values(static_cast<std::size_t>(one.count));
    if (!values.empty()) std::memcpy(values.data(), one.bytes.data(), one.bytes.size());
    return values;
  }
  template <class T>
  [[nodiscard]] T value(cudnnBackendAttributeName_t name) const {
    T one{};
    std::memcpy(&one, set.at(name).bytes.data(), sizeof one);
    return one;
  }
  template <class T>
  [[nodiscard]] T value(cudnnBackendAttributeName_t name, T otherwise) const {
    return set.count(name) > 0 ? value<T>(name) : otherwise;
  }
  [[nodiscard]] const DnnDescriptor& other(cudnnBackendAttributeName_t name) const {
    return *set.at(name).descriptors.at(0);
  }
};

/// Complains about one that is not, or no longer, there.
std::shared_ptr<DnnDescriptor> dnn_descriptor(cudnnBackendDescriptor_t descriptor);
/// Complains about one of another type, or that is not finalized.
std::shared_ptr<DnnDescriptor> dnn_descriptor(cudnnBackendDescriptor_t descriptor,
                                              cudnnBackendDescriptorType_t type);
/// What a refusal of `call` gives; its text is the thread's last error.
cudnnStatus_t dnn_status(const std::function<void()>& call);
/// Takes from what was set what the descriptor stands for.
void dnn_finalize(DnnDescriptor& descriptor);

}  // namespace echelon::standins
