#include "tests/runtime/cuda/standins/graphs.hpp"

#include <algorithm>
#include <set>

struct CUgraph_st {
  echelon::standins::Graph graph;
};
struct CUgraphExec_st {
  echelon::standins::Graph graph;
  std::shared_ptr<bool> last = std::make_shared<bool>(true);  // the launch before is over
  int device = 0;
  bool uploaded = false;
  [[nodiscard]] std::size_t bytes() const {
    return echelon::standins::kNodeBytes * graph.nodes.size();
  }
};

namespace echelon::standins {
namespace {

const std::string kGraph = "graph";
const std::string kExecutable = "executable graph";

/// Preparing a graph may wait for the device, on which kernels may wait for other ranks.
void count_if_busy(int device) {
  if (!all_over(device)()) ++machine().of_process.graphs_on_busy_devices;
}

/// All nodes that come before these, and these.
std::set<std::size_t> before(const Graph& graph, std::vector<std::size_t> tips) {
  std::set<std::size_t> all;
  while (!tips.empty()) {
    const std::size_t node = tips.back();
    tips.pop_back();
    if (!all.insert(node).second) continue;
    tips.insert(tips.end(), graph.nodes[node].after.begin(), graph.nodes[node].after.end());
  }
  return all;
}

void leave(Capture& capture) {
  // The streams hold the current capture.
  for (CUstream_st* stream : std::vector<CUstream_st*>(capture.streams)) {
    stream->tips.clear();
    stream->capture.reset();
  }
}

std::vector<std::shared_ptr<Capture>> captures() {
  std::vector<std::shared_ptr<Capture>> all;
  for (const auto& stream : machine().streams()) {
    if (stream->capture) all.push_back(stream->capture);
  }
  return all;
}

/// The parts of one launch: nodes in the order of their edges and no other.
Parts parts_of_launch(const CUgraphExec_st& exec) {
  Parts all;
  std::vector<Parts> of_nodes;
  const std::shared_ptr<bool> previous = exec.last;
  for (const Graph::Node& node : exec.graph.nodes) {
    of_nodes.push_back(node.operation.make());
    for (const auto& part : of_nodes.back()) {
      for (const std::size_t earlier : node.after) {
        for (const auto& p : of_nodes[earlier]) part->after.push_back(p.get());
      }
      part->waits_for = [previous, own = part->waits_for]() -> std::string {
        if (!*previous) return "the graph's launch before";
        return own ? own() : "";
      };
      all.push_back(part);
    }
  }
  return all;
}

}  // namespace

void record(CUstream_st& stream, const Operation& operation) {
  Capture& capture = *stream.capture;
  capture.graph.nodes.push_back({operation, stream.tips});
  stream.tips = {capture.graph.nodes.size() - 1};
}

bool forbidden_in_capture() {
  bool found = false;
  for (const auto& capture : captures()) {
    if (capture->thread != std::this_thread::get_id()) continue;
    capture->valid = false;
    found = true;
  }
  return found;
}

cudaError_t spoil(CUstream_st& stream, cudaError_t error) {
  stream.capture->valid = false;
  return failed(error);
}

cudaError_t join(CUstream_st& stream, const Record& record) {
  if (!record.capture) return spoil(stream, cudaErrorStreamCaptureIsolation);
  if (!record.capture->origin->capture) return failed(cudaErrorCapturedEvent);  // it has ended
  if (stream.capture && stream.capture != record.capture) {
    record.capture->valid = false;
    return spoil(stream, cudaErrorStreamCaptureMerge);
  }
  if (!stream.capture) {
    stream.capture = record.capture;
    stream.capture->streams.push_back(&stream);
  }
  std::set<std::size_t> tips(stream.tips.begin(), stream.tips.end());
  tips.insert(record.tips.begin(), record.tips.end());
  stream.tips.assign(tips.begin(), tips.end());
  return cudaSuccess;
}

cudaGraph_t handle_of(const Capture& capture) {
  return reinterpret_cast<cudaGraph_t>(const_cast<Graph*>(&capture.graph));
}

Graph* graph_behind(cudaGraph_t graph) {
  for (const auto& capture : captures()) {
    if (handle_of(*capture) == graph) return &capture->graph;
  }
  return machine().owns(graph, kGraph) ? &graph->graph : nullptr;
}

std::function<bool()> all_over(int device) {
  std::vector<std::shared_ptr<bool>> last;
  for (const auto& stream : machine().streams()) {
    if (stream->device != device || stream->queue.empty()) continue;
    last.push_back(stream->queue.back()->over);
  }
  return [last] {
    return std::all_of(last.begin(), last.end(), [](const auto& over) { return *over; });
  };
}

}  // namespace echelon::standins

using namespace echelon::standins;

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  const Machine::Lock lock;
  machine().check(stream);
  if (mode != cudaStreamCaptureModeThreadLocal) return failed(cudaErrorNotSupported);
  if (stream->capture) return failed(cudaErrorInvalidValue);
  stream->capture = std::make_shared<Capture>();
  stream->capture->origin = stream;
  stream->capture->thread = std::this_thread::get_id();
  stream->capture->streams = {stream};
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* pGraph) {
  const Machine::Lock lock;
  machine().check(stream);
  *pGraph = nullptr;
  const std::shared_ptr<Capture> capture = stream->capture;
  if (!capture) return failed(cudaErrorInvalidValue);
  if (capture->thread != std::this_thread::get_id()) {
    return spoil(*stream, cudaErrorStreamCaptureWrongThread);
  }
  if (capture->origin != stream) return spoil(*stream, cudaErrorStreamCaptureUnmatched);
  const std::set<std::size_t> joined = before(capture->graph, stream->tips);
  const bool all = joined.size() == capture->graph.nodes.size();
  leave(*capture);
  if (!capture->valid) return failed(cudaErrorStreamCaptureInvalidated);
  if (!all) return failed(cudaErrorStreamCaptureUnjoined);
  *pGraph = machine().own(std::make_shared<CUgraph_st>(CUgraph_st{capture->graph}), kGraph);
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* pCaptureStatus) {
  const Machine::Lock lock;
  machine().check(stream);
  *pCaptureStatus = !stream->capture         ? cudaStreamCaptureStatusNone
                    : stream->capture->valid ? cudaStreamCaptureStatusActive
                                             : cudaStreamCaptureStatusInvalidated;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* pGraphExec, cudaGraph_t graph,
                                 unsigned long long flags) {
  const Machine::Lock lock;
  if (flags != 0) return failed(cudaErrorNotSupported);
  if (!machine().owns(graph, kGraph)) return failed(cudaErrorInvalidValue);
  *pGraphExec = machine().own(std::make_shared<CUgraphExec_st>(), kExecutable);
  CUgraphExec_st& made = **pGraphExec;
  made.graph = graph->graph;
  made.device = this_thread().device;
  machine().graph_bytes[made.device] += made.bytes();
  count_if_busy(made.device);
  return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t graphExec, cudaStream_t stream) {
  const Machine::Lock lock;
  machine().check(stream);
  if (!machine().owns(graphExec, kExecutable)) return failed(cudaErrorInvalidValue);
  if (stream->capture) return spoil(*stream, cudaErrorStreamCaptureUnsupported);
  if (machine().settings().graph_uploads_lack_memory) return failed(cudaErrorMemoryAllocation);
  count_if_busy(graphExec->device);
  graphExec->uploaded = true;
  machine().enqueue(stream, plain("the upload of a graph", [] {}));
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graphExec, cudaStream_t stream) {
  const Machine::Lock lock;
  machine().check(stream);
  if (!machine().owns(graphExec, kExecutable)) return failed(cudaErrorInvalidValue);
  if (stream->capture) return spoil(*stream, cudaErrorStreamCaptureUnsupported);
  if (!graphExec->uploaded) count_if_busy(graphExec->device);  // the first launch uploads it
  graphExec->uploaded = true;
  Parts parts = parts_of_launch(*graphExec);
  if (parts.empty()) return cudaSuccess;
  const auto over = std::make_shared<bool>(false);
  graphExec->last = over;
  machine().enqueue(stream, std::move(parts), over);
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graphExec) {
  const Machine::Lock lock;
  if (machine().owns(graphExec, kExecutable)) {
    machine().graph_bytes[graphExec->device] -= graphExec->bytes();
  }
  return machine().disown(graphExec, kExecutable) ? cudaSuccess : cudaErrorInvalidResourceHandle;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  const Machine::Lock lock;
  return machine().disown(graph, kGraph) ? cudaSuccess : cudaErrorInvalidResourceHandle;
}
