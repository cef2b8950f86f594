// The objects of cuDNN's backend descriptors once all attributes are set.
#include <algorithm>

#include "tests/runtime/cuda/standins/cudnn_descriptors.hpp"
#include "tests/runtime/cuda/standins/machine.hpp"

namespace echelon::standins {
namespace {

DnnTensor tensor_of(const DnnDescriptor& of) {
  DnnTensor made;
  made.uid = of.value<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
  made.type = of.value<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE);
  made.dims = of.all<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
  made.strides = of.all<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
  made.alignment = of.value<std::int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
  made.is_virtual = of.value(CUDNN_ATTR_TENSOR_IS_VIRTUAL, false);
  made.by_value = of.value(CUDNN_ATTR_TENSOR_IS_BY_VALUE, false);
  switch (made.type) {
    case CUDNN_DATA_FLOAT:
    case CUDNN_DATA_BFLOAT16:
    case CUDNN_DATA_INT32:
    case CUDNN_DATA_BOOLEAN: break;
    default: dnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, made.name() + " of another type");
  }
  const auto below = [](const std::vector<std::int64_t>& some, std::int64_t minimum) {
    return std::any_of(some.begin(), some.end(), [&](std::int64_t x) { return x < minimum; });
  };
  if (made.dims.size() != made.strides.size() || below(made.dims, 1) || below(made.strides, 0) ||
      made.alignment < 1 || (made.is_virtual && made.by_value) ||
      (made.by_value && made.bytes() != made.element())) {
    dnn_refuse(CUDNN_STATUS_BAD_PARAM, made.name() + " is none");
  }
  return made;
}

const DnnTensor& tensor_at(const DnnDescriptor& of, cudnnBackendAttributeName_t name) {
  const auto& tensor = of.other(name).tensor;
  if (!tensor) dnn_refuse(CUDNN_STATUS_BAD_PARAM, "an operand is no tensor");
  return *tensor;
}
std::optional<DnnTensor> tensor_if(const DnnDescriptor& of, cudnnBackendAttributeName_t name) {
  if (of.set.count(name) == 0) return std::nullopt;
  return tensor_at(of, name);
}

const DnnDescriptor& described(const DnnDescriptor& of, cudnnBackendAttributeName_t name,
                               cudnnBackendDescriptorType_t type) {
  const DnnDescriptor& other = of.other(name);
  if (other.type != type) dnn_refuse(CUDNN_STATUS_BAD_PARAM, "a descriptor of another type");
  return other;
}

void expect_float(const DnnDescriptor& of, cudnnBackendAttributeName_t name) {
  if (of.value<cudnnDataType_t>(name) != CUDNN_DATA_FLOAT) {
    dnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, "sums in another type than float");
  }
}

DnnOperation pointwise_of(const DnnDescriptor& of) {
  const DnnDescriptor& how = described(of, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
                                       CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  if (of.value(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, 1.0F) != 1 ||
      of.value(CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, 1.0F) != 1) {
    dnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, "operands of pointwise operations with a factor");
  }
  DnnPointwise mode;
  mode.mode = how.value<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
  mode.precision = how.value<cudnnDataType_t>(CUDNN_ATTR_POINTWISE_MATH_PREC);
  if (how.set.count(CUDNN_ATTR_POINTWISE_AXIS) > 0) {
    mode.axis = how.value<std::int64_t>(CUDNN_ATTR_POINTWISE_AXIS);
  }
  return dnn_pointwise(mode, tensor_at(of, CUDNN_ATTR_OPERATION_POINTWISE_XDESC),
                       tensor_if(of, CUDNN_ATTR_OPERATION_POINTWISE_BDESC),
                       tensor_if(of, CUDNN_ATTR_OPERATION_POINTWISE_TDESC),
                       tensor_at(of, CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
}

DnnOperation reduction_of(const DnnDescriptor& of) {
  const DnnDescriptor& how =
      described(of, CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
  expect_float(how, CUDNN_ATTR_REDUCTION_COMP_TYPE);
  return dnn_reduction(how.value<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR),
                       tensor_at(of, CUDNN_ATTR_OPERATION_REDUCTION_XDESC),
                       tensor_at(of, CUDNN_ATTR_OPERATION_REDUCTION_YDESC));
}

DnnOperation matmul_of(const DnnDescriptor& of) {
  expect_float(described(of, CUDNN_ATTR_OPERATION_MATMUL_DESC, CUDNN_BACKEND_MATMUL_DESCRIPTOR),
               CUDNN_ATTR_MATMUL_COMP_TYPE);
  return dnn_matmul(tensor_at(of, CUDNN_ATTR_OPERATION_MATMUL_ADESC),
                    tensor_at(of, CUDNN_ATTR_OPERATION_MATMUL_BDESC),
                    tensor_at(of, CUDNN_ATTR_OPERATION_MATMUL_CDESC));
}

std::shared_ptr<const DnnGraph> graph_of(const DnnDescriptor& of) {
  auto* const handle = of.value<cudnnHandle_t>(CUDNN_ATTR_OPERATIONGRAPH_HANDLE);
  if (!machine().owns(handle, kDnnHandle)) {
    dnn_refuse(CUDNN_STATUS_BAD_PARAM, "a graph with a handle that is not there");
  }
  std::vector<DnnOperation> operations;
  for (const auto& one : of.set.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).descriptors) {
    if (!one->operation) dnn_refuse(CUDNN_STATUS_BAD_PARAM, "a graph of what is no operation");
    operations.push_back(*one->operation);
  }
  auto graph = std::make_shared<DnnGraph>(dnn_graph(operations));
  graph->device = handle->device;
  return graph;
}

void check_pack(const DnnDescriptor& of) {
  auto uids = of.all<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = of.all<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  std::sort(uids.begin(), uids.end());
  if (uids.size() != pointers.size() ||
      std::adjacent_find(uids.begin(), uids.end()) != uids.end()) {
    dnn_refuse(CUDNN_STATUS_BAD_PARAM, "a variant pack without one pointer for each tensor");
  }
}

}  // namespace

void dnn_finalize(DnnDescriptor& of) {
  switch (of.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR: of.tensor = tensor_of(of); return;
    case CUDNN_BACKEND_POINTWISE_DESCRIPTOR:
    case CUDNN_BACKEND_REDUCTION_DESCRIPTOR:
    case CUDNN_BACKEND_MATMUL_DESCRIPTOR: return;
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: of.operation = pointwise_of(of); return;
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR: of.operation = reduction_of(of); return;
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR: of.operation = matmul_of(of); return;
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
      of.operation = dnn_reshape(tensor_at(of, CUDNN_ATTR_OPERATION_RESHAPE_XDESC),
                                 tensor_at(of, CUDNN_ATTR_OPERATION_RESHAPE_YDESC));
      return;
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR: of.graph = graph_of(of); return;
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
      of.graph = described(of, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                           CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)
                     .graph;
      return;
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
      of.graph =
          described(of, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)
              .graph;
      return;
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR: check_pack(of); return;
    default: dnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, "engines that no heuristic found");
  }
}

}  // namespace echelon::standins
