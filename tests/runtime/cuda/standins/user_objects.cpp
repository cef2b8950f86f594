// Objects that graphs keep alive for the threads that captured them.
#include <set>

#include "tests/runtime/cuda/standins/graphs.hpp"

struct CUuserObject_st {
  void* content = nullptr;
  cudaHostFn_t destroy = nullptr;
  unsigned references = 0;
};

namespace echelon::standins {
namespace {

std::set<const CUuserObject_st*>& living() {
  static std::set<const CUuserObject_st*> all;
  return all;
}

/// Its function is called here at the end, with the machine's lock held: it may not call CUDA.
void drop(CUuserObject_st* object, unsigned count) {
  object->references -= count;
  if (object->references > 0) return;
  living().erase(object);
  object->destroy(object->content);
  delete object;
}

}  // namespace
}  // namespace echelon::standins

using namespace echelon::standins;

cudaError_t cudaUserObjectCreate(cudaUserObject_t* object_out, void* ptr, cudaHostFn_t destroy,
                                 unsigned int initialRefcount, unsigned int flags) {
  const Machine::Lock lock;
  if (object_out == nullptr || destroy == nullptr || initialRefcount == 0 ||
      flags != cudaUserObjectNoDestructorSync) {
    return failed(cudaErrorInvalidValue);
  }
  *object_out = new CUuserObject_st{ptr, destroy, initialRefcount};
  living().insert(*object_out);
  return cudaSuccess;
}

cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned int count) {
  const Machine::Lock lock;
  if (living().count(object) == 0 || count == 0 || count > object->references) {
    return failed(cudaErrorInvalidValue);
  }
  drop(object, count);
  return cudaSuccess;
}

cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object,
                                      unsigned int count, unsigned int flags) {
  const Machine::Lock lock;
  Graph* const to = graph_behind(graph);
  if (to == nullptr || living().count(object) == 0 || count == 0) {
    return failed(cudaErrorInvalidValue);
  }
  if (flags != 0) return failed(cudaErrorNotSupported);
  object->references += count;
  to->retained.push_back(
      std::shared_ptr<void>(nullptr, [object, count](void*) { drop(object, count); }));
  return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long* id_out, cudaGraph_t* graph_out,
                                     const cudaGraphNode_t** dependencies_out,
                                     const cudaGraphEdgeData** edgeData_out,
                                     std::size_t* numDependencies_out) {
  const Machine::Lock lock;
  machine().check(stream);
  if (id_out != nullptr || dependencies_out != nullptr || edgeData_out != nullptr ||
      numDependencies_out != nullptr) {
    return failed(cudaErrorNotSupported);
  }
  *status = !stream->capture         ? cudaStreamCaptureStatusNone
            : stream->capture->valid ? cudaStreamCaptureStatusActive
                                     : cudaStreamCaptureStatusInvalidated;
  if (graph_out != nullptr) *graph_out = stream->capture ? handle_of(*stream->capture) : nullptr;
  return cudaSuccess;
}

/// Captures belong to their own thread and forbid nothing to others: there is nothing to change.
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  thread_local cudaStreamCaptureMode mine = cudaStreamCaptureModeGlobal;
  std::swap(*mode, mine);
  return cudaSuccess;
}

/// There is no driver below.
cudaError_t cudaGetDriverEntryPointByVersion(const char*, void** funcPtr, unsigned int,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* driverStatus) {
  *funcPtr = nullptr;
  if (driverStatus != nullptr) *driverStatus = cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
