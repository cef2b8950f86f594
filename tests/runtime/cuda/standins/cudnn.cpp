// cuDNN: handles, and the conditions of executing a plan.
#include <algorithm>
#include <cstdlib>

#include "tests/runtime/cuda/standins/allocations.hpp"
#include "tests/runtime/cuda/standins/cudnn_descriptors.hpp"
#include "tests/runtime/cuda/standins/machine.hpp"

namespace echelon::standins {
namespace {

/// The frontend builds attention's graph for this version of the library. PRETENDED_CUDNN gives
/// another one.
constexpr std::size_t kVersion = 91900;

/// A plan with its operands, at the call.
struct Execution {
  std::shared_ptr<const DnnGraph> graph;
  DnnMemory given;
  std::map<std::int64_t, std::vector<char>> values;  // of tensors by value: read at the call
  char* workspace = nullptr;
  int device = 0;
};

/// Calls with the first byte of each element, counted from the tensor's first.
template <class Visit>
void for_each_place(const DnnTensor& tensor, std::size_t axis, std::size_t from,
                    const Visit& visit) {
  if (axis == tensor.dims.size()) return visit(from);
  for (std::int64_t i = 0; i < tensor.dims[axis]; ++i) {
    const auto step = static_cast<std::size_t>(i * tensor.strides[axis]) * tensor.element();
    for_each_place(tensor, axis + 1, from + step, visit);
  }
}

/// Whether elements of the two overlap in memory; their rows may alternate.
bool share_elements(const DnnTensor& one, const char* at, const DnnTensor& other,
                    const char* other_at) {
  const std::size_t bytes = one.bytes();
  if (!overlap(at, bytes, other_at, other.bytes())) return false;
  std::vector<bool> taken(bytes, false);
  for_each_place(one, 0, 0, [&](std::size_t from) {
    std::fill_n(taken.begin() + static_cast<std::ptrdiff_t>(from), one.element(), true);
  });
  bool shared = false;
  for_each_place(other, 0, 0, [&](std::size_t from) {
    for (std::size_t i = 0; i < other.element(); ++i) {
      const std::ptrdiff_t byte = other_at + from + i - at;
      shared = shared || (byte >= 0 && byte < static_cast<std::ptrdiff_t>(bytes) &&
                          taken[static_cast<std::size_t>(byte)]);
    }
  });
  return shared;
}

/// All memory is valid, outputs do not overlap other tensors, and the workspace overlaps none.
void check_plan_memory(const Execution& with) {
  const DnnGraph& graph = *with.graph;
  const std::string who = "a plan of cuDNN";
  check_operand(who + ", workspace", with.workspace, graph.workspace_bytes, with.device);
  for (const auto& [uid, at] : with.given) {
    const DnnTensor& tensor = graph.tensors.at(uid);
    check_operand(who + ", " + tensor.name(), at, tensor.bytes(), with.device);
    if (overlap(at, tensor.bytes(), with.workspace, graph.workspace_bytes)) {
      machine().complain(who + ": its workspace overlaps " + tensor.name());
    }
  }
  for (const std::int64_t output : graph.outputs) {
    const DnnTensor& tensor = graph.tensors.at(output);
    for (const auto& [uid, at] : with.given) {
      if (uid == output) continue;
      const DnnTensor& other = graph.tensors.at(uid);
      if (share_elements(tensor, with.given.at(output), other, at)) {
        machine().complain(who + ": " + tensor.name() + " overlaps " + other.name());
      }
    }
  }
}

/// The workspace is overwritten before and after the run.
void run_plan(const Execution& with) {
  constexpr char kPoison = -1;  // as numbers, NaN
  std::map<std::int64_t, std::vector<char>> values = with.values;
  DnnMemory memory = with.given;
  for (auto& [uid, bytes] : values) memory[uid] = bytes.data();
  std::fill_n(with.workspace, with.graph->workspace_bytes, kPoison);
  run_dnn_graph(*with.graph, std::move(memory));
  std::fill_n(with.workspace, with.graph->workspace_bytes, kPoison);
}

/// Every tensor of the graph that is not virtual has its pointer, with the declared alignment.
Execution with_operands(const DnnDescriptor& plan, const DnnDescriptor& pack, int device) {
  const auto uids = pack.all<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = pack.all<char*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  DnnMemory offered;
  for (std::size_t i = 0; i < uids.size(); ++i) offered[uids[i]] = pointers[i];
  Execution with{plan.graph, {}, {}, pack.value<char*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE), device};
  for (const auto& [uid, tensor] : plan.graph->tensors) {
    if (tensor.is_virtual) continue;
    const auto at = offered.find(uid);
    if (at == offered.end() || at->second == nullptr) {
      machine().complain("a plan of cuDNN is executed without " + tensor.name());
    }
    char* const first = at->second;
    if (tensor.by_value) {
      with.values[uid].assign(first, first + tensor.bytes());
      continue;
    }
    if (reinterpret_cast<std::uintptr_t>(first) % static_cast<std::uintptr_t>(tensor.alignment) !=
        0) {
      machine().complain("a plan of cuDNN: " + tensor.name() + " is not aligned to " +
                         std::to_string(tensor.alignment) + " bytes");
    }
    with.given[uid] = first;
  }
  return with;
}

}  // namespace
}  // namespace echelon::standins

using namespace echelon::standins;

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  const Machine::Lock lock;
  if (handle == nullptr) return CUDNN_STATUS_BAD_PARAM;
  *handle = machine().own(
      std::make_shared<cudnnContext>(cudnnContext{this_thread().device, nullptr}), kDnnHandle);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  const Machine::Lock lock;
  return machine().disown(handle, kDnnHandle) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t streamId) {
  const Machine::Lock lock;
  machine().check(streamId);
  if (!machine().owns(handle, kDnnHandle)) return CUDNN_STATUS_NOT_INITIALIZED;
  if (handle->device != streamId->device) return CUDNN_STATUS_BAD_PARAM;
  handle->stream = streamId;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t* streamId) {
  const Machine::Lock lock;
  if (!machine().owns(handle, kDnnHandle)) return CUDNN_STATUS_NOT_INITIALIZED;
  if (streamId == nullptr) return CUDNN_STATUS_BAD_PARAM;
  *streamId = handle->stream;
  return CUDNN_STATUS_SUCCESS;
}

size_t cudnnGetVersion() {
  const char* other = std::getenv("PRETENDED_CUDNN");
  return other == nullptr ? kVersion : std::strtoull(other, nullptr, 10);
}

const char* cudnnGetErrorString(cudnnStatus_t status) {
  switch (status) {
    case CUDNN_STATUS_SUCCESS: return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_NOT_INITIALIZED: return "CUDNN_STATUS_NOT_INITIALIZED";
    case CUDNN_STATUS_BAD_PARAM: return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_NOT_SUPPORTED: return "CUDNN_STATUS_NOT_SUPPORTED";
    default: return "unknown";
  }
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t executionPlan,
                                  cudnnBackendDescriptor_t variantPack) {
  const Machine::Lock lock;
  if (!machine().owns(handle, kDnnHandle)) return CUDNN_STATUS_NOT_INITIALIZED;
  const auto plan = dnn_descriptor(executionPlan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  const auto pack = dnn_descriptor(variantPack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  cudaStream_t const stream = handle->stream;
  machine().check(stream);
  if (handle->device != stream->device || plan->graph->device != stream->device ||
      this_thread().device != stream->device) {
    machine().complain("a plan of cuDNN in " + said(*stream) +
                       ", with another current device, or a handle or plan of another");
  }
  const Execution with = with_operands(*plan, *pack, stream->device);
  check_plan_memory(with);
  machine().enqueue(stream, plain("a plan of cuDNN", [with] {
                      check_plan_memory(with);
                      run_plan(with);
                    }));
  return CUDNN_STATUS_SUCCESS;
}
