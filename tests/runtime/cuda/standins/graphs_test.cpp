#include <set>

#include "tests/runtime/cuda/standins/rig.hpp"

namespace echelon::standins {
namespace {

/// Two streams and an event of one capture.
struct Fork {
  cudaStream_t first = new_stream();
  cudaStream_t second = new_stream();
  cudaEvent_t forked = new_event();
  cudaEvent_t joined = new_event();
  void begin() const {
    CHECK(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  }
  void fork() const {
    cudaEventRecord(forked, first);
    cudaStreamWaitEvent(second, forked);
  }
  void join() const {
    cudaEventRecord(joined, second);
    cudaStreamWaitEvent(first, joined);
  }
  cudaGraphExec_t end(cudaError_t expected = cudaSuccess) const {
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(first, &graph) == expected);
    if (graph == nullptr) return nullptr;
    cudaGraphExec_t exec = nullptr;
    CHECK(cudaGraphInstantiate(&exec, graph) == cudaSuccess);
    CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    return exec;
  }
};

TEST_CASE("a captured operation of the stand-ins waits for a launch, and runs at each") {
  start(1, Order::eager);
  const Fork streams;
  auto* const x = on_the_device<float>(std::vector<float>{1});
  auto* const host = pinned<float>(1);
  streams.begin();
  affine(streams.first, x, 2, 0);
  cudaMemcpyAsync(host, x, sizeof *x, cudaMemcpyDeviceToHost, streams.first);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  CHECK(cudaStreamIsCapturing(streams.first, &status) == cudaSuccess);
  CHECK(status == cudaStreamCaptureStatusActive);
  cudaGraphExec_t const exec = streams.end();
  CHECK(*x == 1);
  cudaGraphLaunch(exec, streams.first);
  cudaGraphLaunch(exec, streams.second);  // of the same graph: after the one before
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(*host == 4);
  CHECK(cudaGraphExecDestroy(exec) == cudaSuccess);
}

/// x = 1, then on the other stream x = 2·x, then x = x + 3.
float forked(bool joins) {
  const Fork streams;
  auto* const x = on_the_device<float>(2);
  streams.begin();
  affine(streams.first, x, 0, 1);
  streams.fork();
  affine(streams.second, x, 2, 0);
  if (joins) streams.join();
  affine(streams.first, x, 1, 3);
  if (!joins) streams.join();
  cudaGraphExec_t const exec = streams.end();
  cudaGraphLaunch(exec, streams.first);
  CHECK(cudaStreamSynchronize(streams.first) == cudaSuccess);
  cudaGraphExecDestroy(exec);
  return *x;
}

TEST_CASE("a graph of the stand-ins has the edges of its events and no others") {
  std::set<float> free;
  for (std::uint64_t seed = 1; seed < 20; ++seed) {
    start(seed, Order::random);
    CHECK(forked(true) == 5);
    free.insert(forked(false));
  }
  CHECK(free == std::set<float>{5, 8});
}

TEST_CASE("launches of one graph of the stand-ins do not mix") {
  for (std::uint64_t seed = 1; seed < 10; ++seed) {
    start(seed, Order::random);
    const Fork streams;
    auto* const x = on_the_device<float>(std::vector<float>{1});
    streams.begin();
    affine(streams.first, x, 2, 0);
    affine(streams.first, x, 1, 1);
    cudaGraphExec_t const exec = streams.end();
    cudaGraphLaunch(exec, streams.first);
    cudaGraphLaunch(exec, streams.second);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(*x == 7);
  }
}

TEST_CASE("stand-ins neither wait nor allocate within a capture") {
  const Fork* streams = nullptr;
  const auto spoils = [&](const auto& call) {
    start(1, Order::random);
    const Fork fresh;
    streams = &fresh;
    fresh.begin();
    CHECK(call() == cudaErrorStreamCaptureUnsupported);
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    cudaStreamIsCapturing(fresh.first, &status);
    CHECK(status == cudaStreamCaptureStatusInvalidated);
    CHECK(fresh.end(cudaErrorStreamCaptureInvalidated) == nullptr);
    cudaStreamIsCapturing(fresh.first, &status);
    CHECK(status == cudaStreamCaptureStatusNone);
  };
  void* memory = nullptr;
  spoils([&] { return cudaMalloc(&memory, 16); });
  spoils([&] { return cudaMallocHost(&memory, 16); });
  spoils([&] { return cudaStreamSynchronize(streams->first); });
  spoils([&] { return cudaStreamSynchronize(streams->second); });
  spoils([&] { return cudaStreamQuery(streams->first); });
  spoils([&] { return cudaEventQuery(streams->forked); });
  spoils([&] { return cudaDeviceSynchronize(); });
}

TEST_CASE("captures of the stand-ins end joined, on their first stream, separate from others") {
  start(1, Order::random);
  auto* const x = on_the_device<float>(1);
  {
    const Fork streams;
    streams.begin();
    streams.fork();
    affine(streams.second, x, 0, 1);
    CHECK(streams.end(cudaErrorStreamCaptureUnjoined) == nullptr);
  }
  {
    const Fork streams;
    streams.begin();
    streams.fork();
    CHECK(cudaEventQuery(streams.forked) == cudaErrorCapturedEvent);
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(streams.second, &graph) == cudaErrorStreamCaptureUnmatched);
    CHECK(streams.end(cudaErrorStreamCaptureInvalidated) == nullptr);
  }
  {
    const Fork streams;
    affine(streams.second, x, 0, 1);
    cudaEventRecord(streams.forked, streams.second);
    streams.begin();
    CHECK(cudaStreamWaitEvent(streams.first, streams.forked) == cudaErrorStreamCaptureIsolation);
    CHECK(streams.end(cudaErrorStreamCaptureInvalidated) == nullptr);
  }
  const Fork streams;
  CHECK(cudaStreamBeginCapture(streams.first, cudaStreamCaptureModeGlobal) ==
        cudaErrorNotSupported);
}

}  // namespace
}  // namespace echelon::standins
