#include "runtime/cuda/queue/graph_cache.hpp"

#include <algorithm>
#include <mutex>
#include <string_view>

#include "runtime/cuda/device/checks.hpp"
#include "runtime/cuda/kernels/launch_errors.hpp"
#include "runtime/threads/clock.hpp"
#include "runtime/threads/failure.hpp"

namespace echelon::cuda {

void GraphCache::Destroy::operator()(CUgraph_st* graph) const {
  static_cast<void>(cudaGraphDestroy(graph));
}
void GraphCache::Destroy::operator()(CUgraphExec_st* graph) const {
  static_cast<void>(cudaGraphExecDestroy(graph));
}

void GraphCache::reset(std::size_t instructions, Use use) {
  if (!capture_stream_) capture_stream_ = new_stream();
  use_ = use;
  entries_.clear();
  entries_.resize(instructions);
  captured_.clear();
  graphs_ = 0;
  memory_ = {};
}

bool GraphCache::pays(const Entry& entry) const {
  constexpr double kFallsBehind = 0.5;
  if (use_ == Use::where_it_pays)
    return entry.device > Seconds{} && entry.host > kFallsBehind * entry.device;
  return use_ == Use::always;
}

void GraphCache::begin(std::uint32_t id, bool repeatable) {
  mode_ = Mode::outside;
  if (!repeatable || use_ == Use::never) return;
  id_ = id;
  hash_ = 0;
  begun_ = steady_now();
  Entry& entry = entries_[id];
  if (entry.graph) {
    mode_ = Mode::replay;
    return;
  }
  mode_ = Mode::direct;
  if (entry.repeats == 0 || entry.capture_disabled || !pays(entry)) return;
  if (cudaStreamBeginCapture(capture_stream_.get(), cudaStreamCaptureModeThreadLocal) ==
      cudaSuccess) {
    mode_ = Mode::capture;
  } else {
    entry.capture_disabled = true;
    static_cast<void>(cudaGetLastError());
  }
}

void GraphCache::disable_capture() {
  if (mode_ == Mode::direct || mode_ == Mode::capture) entries_[id_].capture_disabled = true;
}

void GraphCache::record_device_time(std::uint32_t id, Seconds device) {
  entries_[id].device = device;
}

/// The calls are on the stream already. An error of the GPU itself is met again by the next one.
void GraphCache::give_up_capture() {
  cudaGraph_t captured = nullptr;
  static_cast<void>(cudaStreamEndCapture(capture_stream_.get(), &captured));
  entries_[id_].captured.reset(captured);
  entries_[id_].captured.reset();
  entries_[id_].capture_disabled = true;
  static_cast<void>(take_launch_error());
  mode_ = Mode::direct;
}

/// The captured calls are on the stream already, so nothing is lost if no graph results.
void GraphCache::finish_capture(Entry& entry) {
  cudaGraph_t captured = nullptr;
  const bool repeatable = hash_ == entry.hash && !entry.capture_disabled;
  const bool ended = cudaStreamEndCapture(capture_stream_.get(), &captured) == cudaSuccess;
  entry.captured.reset(captured);
  if (ended && repeatable) {
    captured_.push_back(id_);
  } else {
    static_cast<void>(cudaGetLastError());
    entry.captured.reset();
    entry.capture_disabled = true;
  }
}

Bytes GraphCache::make_graphs(cudaStream_t stream) {
  if (captured_.empty()) return {};
  static std::mutex one_at_a_time;  // ranks that share a GPU: what they take is told apart
  const std::lock_guard lock(one_at_a_time);
  const Bytes before = memory_of_device().used;
  for (const std::uint32_t id : captured_) {
    Entry& entry = entries_[id];
    cudaGraphExec_t made = nullptr;
    const bool is_made = cudaGraphInstantiate(&made, entry.captured.get(), 0) == cudaSuccess;
    entry.graph.reset(made);
    if (is_made && cudaGraphUpload(made, stream) == cudaSuccess) {
      ++graphs_;
      check(cudaStreamSynchronize(stream), "upload a graph");
    } else {  // too little memory
      static_cast<void>(cudaGetLastError());
      entry.graph.reset();
      entry.capture_disabled = true;
    }
    entry.captured.reset();
  }
  captured_.clear();
  const Bytes taken = std::max(Bytes{}, memory_of_device().used - before);
  memory_ += taken;
  return taken;
}

void GraphCache::end(cudaStream_t stream) {
  const Mode mode = mode_;
  mode_ = Mode::outside;
  if (mode == Mode::outside) return;
  Entry& entry = entries_[id_];
  if (mode == Mode::capture) return finish_capture(entry);
  if (mode == Mode::direct) {
    entry.host = steady_now() - begun_;
    entry.repeats = hash_ == entry.hash ? entry.repeats + 1 : 0;
    entry.hash = hash_;
    return;
  }
  if (hash_ != entry.hash) {
    throw RunFailure(RunFailure::Kind::defect,
                     "the calls differ from those that its graph was captured from");
  }
  check(cudaGraphLaunch(entry.graph.get(), stream), "launch a graph");
}

GraphCache::Use chosen_graph_use() {
  const std::string_view given = chosen_by("ECHELON_CUDA_GRAPHS", {"always", "never"});
  if (given == "always") return GraphCache::Use::always;
  if (given == "never") return GraphCache::Use::never;
  return GraphCache::Use::where_it_pays;
}

}  // namespace echelon::cuda
