// Descriptors of cuDNN's backend, with their attributes. Under the machine's lock.
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
  // The result of finalizing: a tensor, an operation, a graph or an object derived from one.
  std::optional<DnnTensor> tensor;
  std::optional<DnnOperation> operation;
  std::shared_ptr<const DnnGraph> graph;

  /// The value of an attribute that must be set before it is read.
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

/// Reports a descriptor that does not exist, or no longer.
std::shared_ptr<DnnDescriptor> dnn_descriptor(cudnnBackendDescriptor_t descriptor);
/// Reports a descriptor of another type, or one that is not finalized.
std::shared_ptr<DnnDescriptor> dnn_descriptor(cudnnBackendDescriptor_t descriptor,
                                              cudnnBackendDescriptorType_t type);
/// The status of a refusal of `call`; its text is the thread's last error.
cudnnStatus_t dnn_status(const std::function<void()>& call);
/// Derives the descriptor's object from its attributes.
void dnn_finalize(DnnDescriptor& descriptor);

}  // namespace echelon::standins
