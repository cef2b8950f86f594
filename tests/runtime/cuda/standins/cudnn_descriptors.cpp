// cuDNN's backend: descriptors and their attributes. Attributes outside the table are refused.
#include "tests/runtime/cuda/standins/cudnn_descriptors.hpp"

#include <algorithm>

#include "tests/runtime/cuda/standins/machine.hpp"

namespace echelon::standins {
namespace {

struct Known {
  cudnnBackendDescriptorType_t of;
  cudnnBackendAttributeName_t name;
  cudnnBackendAttributeType_t type;
  bool needed = true;
  bool many = false;
};
constexpr bool kOptional = false;

constexpr Known kKnown[] = {
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, true, true},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, true, true},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, kOptional},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, kOptional},
    {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE},
    {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE},
    {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, kOptional},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
     CUDNN_TYPE_BACKEND_DESCRIPTOR},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
     CUDNN_TYPE_BACKEND_DESCRIPTOR},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_YDESC,
     CUDNN_TYPE_BACKEND_DESCRIPTOR},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
     CUDNN_TYPE_BACKEND_DESCRIPTOR, kOptional},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_TDESC,
     CUDNN_TYPE_BACKEND_DESCRIPTOR, kOptional},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1,
     CUDNN_TYPE_FLOAT, kOptional},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2,
     CUDNN_TYPE_FLOAT, kOptional},
    {CUDNN_BACKEND_REDUCTION_DESCRIPTOR, CUDNN_ATTR_REDUCTION_OPERATOR,
     CUDNN_TYPE_REDUCTION_OPERATOR_TYPE},
    {CUDNN_BACKEND_REDUCTION_DESCRIPTOR, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE},
    {CUDNN_BACKEND_REDUCTION_DESCRIPTOR, CUDNN_ATTR_REDUCTION_IS_DETERMINISTIC, CUDNN_TYPE_BOOLEAN,
     kOptional},
    {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_DESC,
     CUDNN_TYPE_BACKEND_DESCRIPTOR},
    {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_XDESC,
     CUDNN_TYPE_BACKEND_DESCRIPTOR},
    {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_YDESC,
     CUDNN_TYPE_BACKEND_DESCRIPTOR},
    {CUDNN_BACKEND_MATMUL_DESCRIPTOR, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE},
    {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_DESC,
     CUDNN_TYPE_BACKEND_DESCRIPTOR},
    {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_ADESC,
     CUDNN_TYPE_BACKEND_DESCRIPTOR},
    {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_BDESC,
     CUDNN_TYPE_BACKEND_DESCRIPTOR},
    {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_CDESC,
     CUDNN_TYPE_BACKEND_DESCRIPTOR},
    {CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, CUDNN_ATTR_OPERATION_RESHAPE_XDESC,
     CUDNN_TYPE_BACKEND_DESCRIPTOR},
    {CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, CUDNN_ATTR_OPERATION_RESHAPE_YDESC,
     CUDNN_TYPE_BACKEND_DESCRIPTOR},
    {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_ATTR_OPERATIONGRAPH_OPS,
     CUDNN_TYPE_BACKEND_DESCRIPTOR, true, true},
    {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE},
    {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
     CUDNN_TYPE_BACKEND_DESCRIPTOR},
    {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE},
    // These two come only from heuristics.
    {CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, CUDNN_ATTR_ENGINECFG_ENGINE,
     CUDNN_TYPE_BACKEND_DESCRIPTOR},
    {CUDNN_BACKEND_ENGINE_DESCRIPTOR, CUDNN_ATTR_ENGINE_OPERATION_GRAPH,
     CUDNN_TYPE_BACKEND_DESCRIPTOR},
    {CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE},
    {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
     CUDNN_TYPE_BACKEND_DESCRIPTOR},
    {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
     true, true},
    {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
     CUDNN_TYPE_VOID_PTR, true, true},
    {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR},
};

std::size_t size_of(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_BOOLEAN: return sizeof(bool);
    case CUDNN_TYPE_INT64: return sizeof(std::int64_t);
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR: return sizeof(void*);
    default: return sizeof(int);  // enumerators, int and float
  }
}

/// The program's descriptors. They belong to the host, so a new machine keeps them.
std::map<const void*, std::shared_ptr<DnnDescriptor>>& held() {
  static std::map<const void*, std::shared_ptr<DnnDescriptor>> all;
  return all;
}

std::string& last_error() {
  thread_local std::string text;
  return text;
}

std::string name_of(const DnnDescriptor& descriptor) {
  return "cuDNN descriptor of type " + std::to_string(descriptor.type);
}

void set_attribute(DnnDescriptor& to, cudnnBackendAttributeName_t name,
                   cudnnBackendAttributeType_t type, std::int64_t count, const void* elements) {
  const auto* known = std::find_if(std::begin(kKnown), std::end(kKnown), [&](const Known& one) {
    return one.of == to.type && one.name == name;
  });
  const std::string what = "attribute " + std::to_string(name) + " of a " + name_of(to);
  if (to.finalized) machine().complain(what + " is set when it is finalized");
  if (known == std::end(kKnown)) dnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, what);
  if (type != known->type || elements == nullptr || count < 1 || (!known->many && count != 1)) {
    dnn_refuse(CUDNN_STATUS_BAD_PARAM, what + " with another type or number of elements");
  }
  DnnDescriptor::Attribute& attribute = to.set[name];
  attribute = {};
  attribute.count = count;
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    const auto* const others = static_cast<const cudnnBackendDescriptor_t*>(elements);
    for (std::int64_t i = 0; i < count; ++i) {
      attribute.descriptors.push_back(dnn_descriptor(others[i]));
      if (!attribute.descriptors.back()->finalized) {
        machine().complain(what + " is a " + name_of(*attribute.descriptors.back()) +
                           " that is not finalized");
      }
    }
    return;
  }
  const auto* const first = static_cast<const char*>(elements);
  attribute.bytes.assign(first, first + static_cast<std::size_t>(count) * size_of(type));
}

// Properties that cuDNN 9.19's engines of attention report.
constexpr cudnnBackendNumericalNote_t kNumericalNote = CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
constexpr cudnnBackendBehaviorNote_t kBehaviorNotes[] = {
    CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION, CUDNN_BEHAVIOR_NOTE_SUPPORTS_CUDA_GRAPH_NATIVE_API};

template <class T>
void give_values(const std::vector<T>& values, std::int64_t requested, std::int64_t* count,
                 void* to) {
  if (count != nullptr) *count = static_cast<std::int64_t>(values.size());
  if (to == nullptr) return;
  const auto taken = std::min(static_cast<std::size_t>(requested), values.size());
  std::memcpy(to, values.data(), taken * sizeof(T));
}

/// The given descriptor becomes the requested one.
void give_descriptor(const DnnDescriptor& from, cudnnBackendDescriptorType_t type,
                     std::int64_t requested, std::int64_t* count, void* to) {
  if (count != nullptr) *count = 1;
  if (to == nullptr || requested < 1) return;
  DnnDescriptor& given = *dnn_descriptor(static_cast<cudnnBackendDescriptor_t*>(to)[0]);
  if (given.type != type || given.finalized) {
    dnn_refuse(CUDNN_STATUS_BAD_PARAM, "a new descriptor of another type has to be there");
  }
  given.graph = from.graph;
  given.finalized = true;
}

void get_attribute(const DnnDescriptor& from, cudnnBackendAttributeName_t name,
                   std::int64_t requested, std::int64_t* count, void* to) {
  if (!from.finalized) machine().complain(name_of(from) + " is asked before it is finalized");
  const std::vector<std::int64_t> workspace{
      from.graph ? static_cast<std::int64_t>(from.graph->workspace_bytes) : 0};
  switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS:
      return give_descriptor(from, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, requested, count, to);
    case CUDNN_ATTR_ENGINECFG_ENGINE:
      return give_descriptor(from, CUDNN_BACKEND_ENGINE_DESCRIPTOR, requested, count, to);
    case CUDNN_ATTR_ENGINECFG_KNOB_CHOICES:
      return give_values<std::int64_t>({}, requested, count, nullptr);
    case CUDNN_ATTR_ENGINECFG_SHARED_MEMORY_USED:
      return give_values<std::int32_t>({0}, requested, count, to);
    case CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE:
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE:
      return give_values(workspace, requested, count, to);
    case CUDNN_ATTR_ENGINE_GLOBAL_INDEX:
      return give_values<std::int64_t>({0}, requested, count, to);
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
      return give_values(std::vector{kNumericalNote}, requested, count, to);
    case CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE:
      return give_values(std::vector(std::begin(kBehaviorNotes), std::end(kBehaviorNotes)),
                         requested, count, to);
    default:
      dnn_refuse(CUDNN_STATUS_NOT_SUPPORTED,
                 "attribute " + std::to_string(name) + " of a " + name_of(from) + " is asked for");
  }
}

}  // namespace

cudnnStatus_t dnn_status(const std::function<void()>& call) {
  try {
    call();
  } catch (const Refusal& refusal) {
    last_error() = refusal.why;
    return refusal.status;
  }
  return CUDNN_STATUS_SUCCESS;
}

std::shared_ptr<DnnDescriptor> dnn_descriptor(cudnnBackendDescriptor_t descriptor) {
  const auto at = held().find(descriptor);
  if (at == held().end()) {
    machine().complain("a descriptor of cuDNN is used that is not there, or no longer");
  }
  return at->second;
}

std::shared_ptr<DnnDescriptor> dnn_descriptor(cudnnBackendDescriptor_t descriptor,
                                              cudnnBackendDescriptorType_t type) {
  auto one = dnn_descriptor(descriptor);
  if (one->type != type || !one->finalized) {
    machine().complain("a " + name_of(*one) + " is used as one of type " + std::to_string(type) +
                       (one->finalized ? "" : ", and is not finalized"));
  }
  return one;
}

}  // namespace echelon::standins

using namespace echelon::standins;

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t descriptorType,
                                           cudnnBackendDescriptor_t* descriptor) {
  const Machine::Lock lock;
  return dnn_status([&] {
    if (descriptor == nullptr) dnn_refuse(CUDNN_STATUS_BAD_PARAM, "no place for a descriptor");
    const bool known = std::any_of(std::begin(kKnown), std::end(kKnown),
                                   [&](const Known& one) { return one.of == descriptorType; });
    if (!known) {
      dnn_refuse(CUDNN_STATUS_NOT_SUPPORTED,
                 "descriptors of type " + std::to_string(descriptorType));
    }
    auto made = std::make_shared<DnnDescriptor>();
    made->type = descriptorType;
    *descriptor = made.get();
    held().emplace(made.get(), std::move(made));
  });
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  const Machine::Lock lock;
  if (descriptor == nullptr || held().erase(descriptor) > 0) return CUDNN_STATUS_SUCCESS;
  machine().blame("a descriptor of cuDNN is destroyed that is not there",
                  cudaErrorInvalidResourceHandle);
  return CUDNN_STATUS_BAD_PARAM;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t attributeName,
                                       cudnnBackendAttributeType_t attributeType,
                                       int64_t elementCount, const void* arrayOfElements) {
  const Machine::Lock lock;
  return dnn_status([&] {
    set_attribute(*dnn_descriptor(descriptor), attributeName, attributeType, elementCount,
                  arrayOfElements);
  });
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor,
                                       cudnnBackendAttributeName_t attributeName,
                                       cudnnBackendAttributeType_t, int64_t requestedElementCount,
                                       int64_t* elementCount, void* arrayOfElements) {
  const Machine::Lock lock;
  return dnn_status([&] {
    get_attribute(*dnn_descriptor(descriptor), attributeName, requestedElementCount, elementCount,
                  arrayOfElements);
  });
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  const Machine::Lock lock;
  return dnn_status([&] {
    DnnDescriptor& one = *dnn_descriptor(descriptor);
    for (const Known& known : kKnown) {
      if (known.of != one.type || !known.needed || one.set.count(known.name) > 0) continue;
      dnn_refuse(CUDNN_STATUS_BAD_PARAM,
                 name_of(one) + " without attribute " + std::to_string(known.name));
    }
    dnn_finalize(one);
    one.finalized = true;
  });
}

void cudnnGetLastErrorString(char* message, size_t max_size) {
  const std::string text = std::exchange(last_error(), {});
  if (message == nullptr || max_size == 0) return;
  const std::size_t taken = std::min(text.size(), max_size - 1);
  std::memcpy(message, text.data(), taken);
  message[taken] = '\0';
}
