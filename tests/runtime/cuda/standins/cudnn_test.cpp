#include <cuda_runtime_api.h>  // first: cudnn.h includes it as C
#include <cudnn.h>

#include "tests/runtime/cuda/standins/rig.hpp"

namespace echelon::standins {
namespace {

/// Of cuDNN's backend; destroyed at the end.
class DnnBuilt {
 public:
  explicit DnnBuilt(cudnnBackendDescriptorType_t type) {
    REQUIRE(cudnnBackendCreateDescriptor(type, &at) == CUDNN_STATUS_SUCCESS);
  }
  DnnBuilt(const DnnBuilt&) = delete;
  DnnBuilt& operator=(const DnnBuilt&) = delete;
  ~DnnBuilt() { cudnnBackendDestroyDescriptor(at); }
  template <class T>
  cudnnStatus_t set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                    const std::vector<T>& values) const {
    return cudnnBackendSetAttribute(at, name, type, static_cast<std::int64_t>(values.size()),
                                    values.data());
  }
  cudnnStatus_t set(cudnnBackendAttributeName_t name, const DnnBuilt& other) const {
    return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::vector{other.at});
  }
  [[nodiscard]] cudnnStatus_t finalize() const { return cudnnBackendFinalize(at); }
  cudnnBackendDescriptor_t at = nullptr;
};

std::string dnn_said() {
  char text[256];
  cudnnGetLastErrorString(text, sizeof text);
  return text;
}

/// Not finalized yet.
class DnnMatrix : public DnnBuilt {
 public:
  DnnMatrix(std::int64_t uid, std::vector<std::int64_t> dims, std::vector<std::int64_t> strides,
            cudnnDataType_t type = CUDNN_DATA_FLOAT)
      : DnnBuilt(CUDNN_BACKEND_TENSOR_DESCRIPTOR) {
    set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, std::vector{uid});
    set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, std::vector{type});
    set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, dims);
    set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, strides);
    set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, std::vector{std::int64_t{16}});
  }
};

cudnnStatus_t pointwise(const DnnBuilt& operation, cudnnPointwiseMode_t mode, const DnnBuilt& x,
                        const DnnBuilt& b, const DnnBuilt& y) {
  const DnnBuilt how(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  how.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, std::vector{mode});
  how.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, std::vector{CUDNN_DATA_FLOAT});
  REQUIRE(how.finalize() == CUDNN_STATUS_SUCCESS);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
  return operation.finalize();
}

/// y = x + x of 2 × 4, whose rows of x are 8 apart, from the graph to the plan.
struct DnnSum {
  cudnnHandle_t handle = nullptr;
  cudaStream_t stream = new_stream();
  DnnMatrix x{1, {2, 4}, {8, 1}};
  DnnMatrix y{2, {2, 4}, {4, 1}};
  DnnBuilt sum{CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR};
  DnnBuilt graph{CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR};
  DnnBuilt heuristics{CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR};
  DnnBuilt engine{CUDNN_BACKEND_ENGINECFG_DESCRIPTOR};
  DnnBuilt plan{CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR};

  DnnSum() {
    REQUIRE(cudnnCreate(&handle) == CUDNN_STATUS_SUCCESS);
    REQUIRE(cudnnSetStream(handle, stream) == CUDNN_STATUS_SUCCESS);
    REQUIRE(x.finalize() == CUDNN_STATUS_SUCCESS);
    REQUIRE(y.finalize() == CUDNN_STATUS_SUCCESS);
    REQUIRE(pointwise(sum, CUDNN_POINTWISE_ADD, x, x, y) == CUDNN_STATUS_SUCCESS);
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, sum);
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, std::vector{handle});
    REQUIRE(graph.finalize() == CUDNN_STATUS_SUCCESS);
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE,
                   std::vector{CUDNN_HEUR_MODE_A});
    REQUIRE(heuristics.finalize() == CUDNN_STATUS_SUCCESS);
    std::int64_t count = 0;
    REQUIRE(cudnnBackendGetAttribute(heuristics.at, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
                                     &engine.at) == CUDNN_STATUS_SUCCESS);
    REQUIRE(count == 1);
    plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, engine);
    REQUIRE(plan.finalize() == CUDNN_STATUS_SUCCESS);
  }
  DnnSum(const DnnSum&) = delete;
  DnnSum& operator=(const DnnSum&) = delete;
  ~DnnSum() {
    cudnnDestroy(handle);
    cudaStreamDestroy(stream);
  }
  cudnnStatus_t run(const std::vector<std::int64_t>& uids, const std::vector<float*>& pointers,
                    void* workspace) const {
    const DnnBuilt pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, uids);
    pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, pointers);
    pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, std::vector{workspace});
    const cudnnStatus_t status = pack.finalize();
    return status == CUDNN_STATUS_SUCCESS ? cudnnBackendExecute(handle, plan.at, pack.at) : status;
  }
};

struct DnnMemoryOfSum {
  float* x = on_the_device(std::vector<float>{1, 2, 3, 4, 0, 0, 0, 0, 5, 6, 7, 8});
  float* y = on_the_device<float>(8);
  char* workspace = on_the_device<char>(256);
};

TEST_CASE("a plan of cuDNN's stand-in runs in stream order, on tensors with any strides") {
  start(1, Order::random);
  {
    const DnnSum sum;
    const DnnMemoryOfSum memory;
    CHECK(sum.run({1, 2}, {memory.x, memory.y}, memory.workspace) == CUDNN_STATUS_SUCCESS);
    memory.x[8] = 50;  // it has not run yet
    CHECK(cudaStreamSynchronize(sum.stream) == cudaSuccess);
    CHECK(content(memory.y, 8) == std::vector<float>{2, 4, 6, 8, 100, 12, 14, 16});
    for (void* each : {static_cast<void*>(memory.x), static_cast<void*>(memory.y),
                       static_cast<void*>(memory.workspace)}) {
      cudaFree(each);
    }
  }
  CHECK(complaint([] { check_nothing_left(); }).empty());
  cudnnHandle_t left = nullptr;
  cudnnCreate(&left);
  CHECK(says(complaint([] { check_nothing_left(); }), "cuDNN handle"));
}

TEST_CASE("a plan of cuDNN's stand-in reports operands that are missing or wrong") {
  using Run = void (*)(const DnnSum&, const DnnMemoryOfSum&);
  const auto reported = [](Run run) {
    start(1, Order::random);
    const DnnSum sum;
    const DnnMemoryOfSum memory;
    return complaint([&] {
      run(sum, memory);
      cudaStreamSynchronize(sum.stream);
    });
  };
  CHECK(says(reported([](const DnnSum& sum, const DnnMemoryOfSum& m) {
               sum.run({1}, {m.x}, m.workspace);
             }),
             "without tensor 2"));
  CHECK(says(reported([](const DnnSum& sum, const DnnMemoryOfSum& m) {
               sum.run({1, 2}, {m.x, m.y + 4}, m.workspace);
             }),
             "outside a live allocation"));
  CHECK(says(reported([](const DnnSum& sum, const DnnMemoryOfSum& m) {
               sum.run({1, 2}, {m.x + 1, m.y}, m.workspace);
             }),
             "not aligned to 16 bytes"));
  CHECK(says(reported([](const DnnSum& sum, const DnnMemoryOfSum& m) {
               sum.run({1, 2}, {m.x, m.x}, m.workspace);
             }),
             "overlaps"));
  CHECK(says(reported([](const DnnSum& sum, const DnnMemoryOfSum& m) {
               sum.run({1, 2}, {m.x, m.y}, m.workspace + 1);
             }),
             "workspace: "));
  CHECK(says(reported([](const DnnSum&, const DnnMemoryOfSum&) {
               cudnnBackendDescriptor_t gone = nullptr;
               cudnnBackendCreateDescriptor(CUDNN_BACKEND_TENSOR_DESCRIPTOR, &gone);
               cudnnBackendDestroyDescriptor(gone);
               cudnnBackendFinalize(gone);
             }),
             "not there, or no longer"));
  CHECK(says(reported([](const DnnSum& sum, const DnnMemoryOfSum&) {
               cudnnBackendExecute(sum.handle, sum.graph.at, sum.plan.at);
             }),
             "is used as one of type"));
  CHECK(reported([](const DnnSum& sum, const DnnMemoryOfSum& m) {
          CHECK(sum.run({1, 1}, {m.x, m.y}, m.workspace) == CUDNN_STATUS_BAD_PARAM);
        }).empty());
}

TEST_CASE("cuDNN's stand-in refuses unsupported operations with a message") {
  start(1, Order::random);
  cudnnBackendDescriptor_t none = nullptr;
  CHECK(cudnnBackendCreateDescriptor(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, &none) ==
        CUDNN_STATUS_NOT_SUPPORTED);
  CHECK(says(dnn_said(), "descriptors of type"));
  const DnnMatrix x(1, {2, 4}, {4, 1}), y(2, {2, 4}, {4, 1});
  CHECK(x.set(CUDNN_ATTR_TENSOR_VECTOR_COUNT, CUDNN_TYPE_INT64, std::vector{std::int64_t{4}}) ==
        CUDNN_STATUS_NOT_SUPPORTED);
  CHECK(x.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_FLOAT, std::vector{1.0F}) ==
        CUDNN_STATUS_BAD_PARAM);
  CHECK(DnnBuilt(CUDNN_BACKEND_TENSOR_DESCRIPTOR).finalize() == CUDNN_STATUS_BAD_PARAM);
  CHECK(says(dnn_said(), "without attribute"));
  CHECK(DnnMatrix(3, {2, 4}, {4, 1}, CUDNN_DATA_HALF).finalize() == CUDNN_STATUS_NOT_SUPPORTED);
  CHECK(DnnMatrix(3, {2, 4}, {4}).finalize() == CUDNN_STATUS_BAD_PARAM);
  const DnnBuilt early(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
  CHECK(says(complaint([&] { early.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x); }),
             "that is not finalized"));
  start(1, Order::random);
  REQUIRE(x.finalize() == CUDNN_STATUS_SUCCESS);
  REQUIRE(y.finalize() == CUDNN_STATUS_SUCCESS);
  const auto refused = [&](cudnnPointwiseMode_t mode, const DnnBuilt& with) {
    const DnnBuilt operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    return pointwise(operation, mode, x, with, y) == CUDNN_STATUS_NOT_SUPPORTED;
  };
  const DnnMatrix wide(3, {2, 5}, {5, 1}), flag(4, {2, 4}, {4, 1}, CUDNN_DATA_BOOLEAN);
  REQUIRE(wide.finalize() == CUDNN_STATUS_SUCCESS);
  REQUIRE(flag.finalize() == CUDNN_STATUS_SUCCESS);
  CHECK(refused(CUDNN_POINTWISE_TANH_FWD, x));
  CHECK(refused(CUDNN_POINTWISE_EXP, x));  // of two operands
  CHECK(refused(CUDNN_POINTWISE_ADD, wide));
  CHECK(refused(CUDNN_POINTWISE_ADD, flag));
  CHECK_FALSE(refused(CUDNN_POINTWISE_ADD, x));
  CHECK(says(complaint([&] {
               x.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, std::vector<std::int64_t>{4, 1});
             }),
             "is set when it is finalized"));
}

}  // namespace
}  // namespace echelon::standins
