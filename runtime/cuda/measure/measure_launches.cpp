// Times other than that of single kernels: copies, launches, and whole layers together with the
// host time to enqueue them.
#include <algorithm>
#include <numeric>
#include <utility>

#include "runtime/cuda/device/checks.hpp"
#include "runtime/cuda/kernels/kernels.hpp"
#include "runtime/cuda/measure/measure_parts.hpp"
#include "runtime/cuda/queue/cuda_kernels.hpp"
#include "runtime/cuda/queue/cuda_processor.hpp"
#include "runtime/measure/parts.hpp"
#include "runtime/model/chunk.hpp"
#include "runtime/threads/clock.hpp"
#include "runtime/threads/failure.hpp"

namespace echelon::cuda {
namespace {

using T = Bfloat16;

void copies(cudaStream_t stream, std::int64_t bytes, Seconds budget,
            std::vector<Measurement>& out) {
  const DeviceBuffer device(bytes);
  if (!device.allocated()) return;
  const auto size = static_cast<std::size_t>(bytes);
  const auto time = [&](const char* what, const DeviceBuffer& from, const DeviceBuffer& to,
                        cudaMemcpyKind kind) {
    if (!from.allocated() || !to.allocated()) return;
    const Seconds seconds = time_on(stream, budget, [&] {
      check(cudaMemcpyAsync(to.as<void>(), from.as<void>(), size, kind, stream), "copy");
    });
    out.push_back({what, 1, 1, {bytes}, seconds});
  };
  {
    const DeviceBuffer other(bytes);
    time("copy", other, device, cudaMemcpyDeviceToDevice);
  }
  const DeviceBuffer host(bytes, DeviceBuffer::Where::pinned);
  time("copy from host", host, device, cudaMemcpyHostToDevice);
  time("copy to host", device, host, cudaMemcpyDeviceToHost);
}

/// Host time of `act`, by the host's clock, on an idle queue; the median.
Seconds host_time(cudaStream_t stream, Seconds budget, const std::function<void()>& act) {
  constexpr std::size_t kMinTimes = 4;
  std::vector<Seconds> times;
  const Seconds begin = steady_now();
  while (steady_now() - begin < budget || times.size() < kMinTimes) {
    check(cudaStreamSynchronize(stream), "wait for the GPU");
    const Seconds before = steady_now();
    act();
    times.push_back(steady_now() - before);
  }
  check(cudaStreamSynchronize(stream), "wait for the GPU");
  return median(std::move(times));
}

/// A graph of kernels, launched as one.
class KernelGraph {
 public:
  KernelGraph(cudaStream_t stream, const std::function<void()>& record) {
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "record a graph");
    record();
    check(cudaStreamEndCapture(stream, &graph_), "record a graph");
    check(cudaGraphInstantiate(&ready_, graph_), "make a graph");
  }
  ~KernelGraph() {
    if (ready_ != nullptr) static_cast<void>(cudaGraphExecDestroy(ready_));
    if (graph_ != nullptr) static_cast<void>(cudaGraphDestroy(graph_));
  }
  KernelGraph(const KernelGraph&) = delete;
  KernelGraph& operator=(const KernelGraph&) = delete;
  void launch(cudaStream_t stream) const {
    check(cudaGraphLaunch(ready_, stream), "launch a graph");
  }

 private:
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t ready_ = nullptr;
};

void launches(cudaStream_t stream, int count, Seconds budget, std::vector<Measurement>& out) {
  constexpr std::int64_t kNumbers = 8;  // of one thread
  const DeviceBuffer x(kNumbers * bytes_of(Element::bf16));
  const DeviceBuffer y(kNumbers * bytes_of(Element::bf16));
  if (count == 0 || !x.allocated() || !y.allocated()) return;
  fill(x, kNumbers, false, stream);
  fill(y, kNumbers, false, stream);
  const auto all = [&] {
    for (int i = 0; i < count; ++i) add(stream, x.as<T>(), y.as<T>(), kNumbers);
  };
  out.push_back({"launch", 1, 1, {count}, host_time(stream, budget, all) / count});
  const KernelGraph graph(stream, all);
  const Seconds together = time_on(stream, budget, [&] { graph.launch(stream); });
  check(cudaStreamSynchronize(stream), "run a graph");
  out.push_back({"empty kernel", 1, 1, {count}, together / count});
}

/// Device time from the end of a copy that the host waits for until the end of a nearly empty
/// kernel that it launches then; the median.
void answers(cudaStream_t stream, Seconds budget, std::vector<Measurement>& out) {
  constexpr std::int64_t kNumbers = 8;  // of one thread
  constexpr std::int64_t kBytes = kNumbers * bytes_of(Element::bf16);
  constexpr std::size_t kMinTimes = 4;
  const DeviceBuffer x(kBytes);
  const DeviceBuffer host(kBytes, DeviceBuffer::Where::pinned);
  if (!x.allocated() || !host.allocated()) return;
  fill(x, kNumbers, false, stream);
  const Event copied = timed_event();
  const Event computed = timed_event();
  std::vector<Seconds> times;
  const Seconds begin = steady_now();
  while (steady_now() - begin < budget || times.size() < kMinTimes) {
    check(cudaMemcpyAsync(host.as<void>(), x.as<void>(), kBytes, cudaMemcpyDeviceToHost, stream),
          "copy");
    check(cudaEventRecord(copied.get(), stream), "record an event");
    while (!has_passed(copied.get())) continue;  // as CudaKernels::download
    add(stream, x.as<T>(), x.as<T>(), kNumbers);
    check(cudaEventRecord(computed.get(), stream), "record an event");
    check(cudaStreamSynchronize(stream), "wait for the GPU");
    times.push_back(between(copied.get(), computed.get()));
  }
  out.push_back({"kernel after a copy to host", 1, 1, {kBytes}, median(std::move(times))});
}

/// Layers in the middle of a model on a rank as in runs.
class LayersOnGpu {
 public:
  explicit LayersOnGpu(const MeasuredSizes::Layers& sizes)
      : processor_(run_threads_, 0, 0, algorithms_),
        memory_("the GPU", processor_),
        chunk_(processor_.on(Queue::compute),
               measured_layers(sizes.layers, sizes.hidden, kHead, sizes.sequence, sizes.samples),
               nullptr, nullptr) {
    const ChunkSpec& spec = chunk_.spec();
    processor_.prepare({&spec, 1}, memory_);
    const std::int64_t count = chunk_.boundary_count();
    const std::int64_t weights = chunk_.parameters().flat_params.front().padded;
    constexpr auto kPart = &MemoryBreakdown::workspace;
    const auto block = [&]<class N>(N*, std::int64_t n) {
      return memory_.allocate<N>(kPart, n, "measured layers");
    };
    T* const t = nullptr;
    args_.weights = block(t, weights);
    args_.gradients = block(static_cast<float*>(nullptr), weights);
    args_.input = block(t, count);
    args_.output = block(t, count);
    args_.output_gradient = block(t, count);
    args_.gradient = block(t, count);
    std::byte* const bytes = nullptr;
    args_.saved = block(bytes, chunk_.memory().saved);
    args_.workspace = block(bytes, chunk_.memory().workspace);
  }
  [[nodiscard]] cudaStream_t stream() const { return processor_.stream(Queue::compute); }
  void forward() { chunk_.forward(0, args_); }
  void backward() { chunk_.backward(0, args_); }
  [[nodiscard]] const Attention& attention() const { return processor_.attention(); }
  /// Held by CUDA and its libraries, not by us.
  [[nodiscard]] Bytes context() const {
    const Bytes ours = memory_.held().total() - memory_.held().context;
    return std::max(Bytes{}, memory_of_device().used - ours);
  }

 private:
  static constexpr int kHead = 64;
  RunThreads run_threads_;
  Algorithms algorithms_{""};
  CudaProcessor processor_;
  Memory memory_;
  Chunk<T> chunk_;
  ChunkArguments<T> args_;
};

void layers(const MeasuredSizes::Layers& sizes, Seconds budget, GpuFacts& facts,
            std::vector<Measurement>& out) {
  LayersOnGpu on(sizes);
  const std::vector<std::int64_t> shape{sizes.layers, sizes.hidden, sizes.sequence, sizes.samples};
  const auto forward = [&] { on.forward(); };
  const auto backward = [&] { on.backward(); };
  out.push_back({"layers forward", 1, 1, shape, time_on(on.stream(), budget, forward)});
  out.push_back({"host of layers forward", 1, 1, shape, host_time(on.stream(), budget, forward)});
  out.push_back({"layers backward", 1, 1, shape, time_on(on.stream(), budget, backward)});
  out.push_back({"host of layers backward", 1, 1, shape, host_time(on.stream(), budget, backward)});
  facts.context = std::max(facts.context, on.context());
  facts.attention = on.attention().by();
  facts.attention_parts = std::max(facts.attention_parts, on.attention().parts());
  facts.attention_deterministic = chosen_attention(facts.memory).deterministic;
}

}  // namespace

void measure_launches(const MeasuredSizes& sizes, const Stopwatch& watch,
                      const std::function<void(const std::string&)>& log, GpuFacts& facts,
                      std::vector<Measurement>& out) {
  facts.context = memory_of_device().used;
  log("copies and launches");
  {
    const OwnStream own = new_stream();
    const cudaStream_t stream = own.get();
    launches(stream, sizes.launches, watch.for_next(), out);
    if (sizes.launches > 0) answers(stream, watch.for_next(), out);
    for (const std::int64_t bytes : sizes.copies) {
      if (!watch.over()) copies(stream, bytes, watch.for_next(), out);
      check(cudaStreamSynchronize(stream), "wait for the GPU");
    }
  }
  log("layers");
  for (const MeasuredSizes::Layers& each : sizes.layers) {
    if (watch.over()) return;
    try {
      layers(each, watch.for_next(), facts, out);
    } catch (const RunFailure& failure) {
      if (failure.kind() != RunFailure::Kind::out_of_memory) throw;
    }
  }
}

}  // namespace echelon::cuda
