#include <atomic>
#include <set>
#include <thread>

#include "tests/runtime/cuda/standins/rig.hpp"

namespace echelon::standins {
namespace {

/// 1 on one stream, ·2 on another, +3 on a third; `waits`: in this order.
float chain(bool waits) {
  const cudaStream_t streams[] = {new_stream(), new_stream(), new_stream()};
  const cudaEvent_t events[] = {new_event(), new_event()};
  auto* const x = on_the_device<float>(1);
  affine(streams[0], x, 0, 1);
  cudaMemsetAsync(x, 0, sizeof *x, streams[0]);
  affine(streams[0], x, 1, 1);
  cudaEventRecord(events[0], streams[0]);
  if (waits) cudaStreamWaitEvent(streams[1], events[0]);
  affine(streams[1], x, 2, 0);
  cudaEventRecord(events[1], streams[1]);
  if (waits) cudaStreamWaitEvent(streams[2], events[1]);
  affine(streams[2], x, 1, 3);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  const float result = *x;
  for (cudaStream_t stream : streams) cudaStreamDestroy(stream);
  for (cudaEvent_t event : events) cudaEventDestroy(event);
  cudaFree(x);
  check_nothing_left();
  return result;
}

TEST_CASE("stand-ins keep every order that events require") {
  for (const Order order : kOrders) {
    for (std::uint64_t seed = 1; seed < 20; ++seed) {
      CAPTURE(static_cast<int>(order), seed);
      start(seed, order);
      CHECK(chain(true) == 5);
    }
  }
}

TEST_CASE("a missing wait gives different results in stand-ins") {
  std::set<std::string> results;
  for (const Order order : {Order::random, Order::newest_first, Order::starve_one}) {
    std::set<std::string> of_order;
    for (std::uint64_t seed = 1; seed < 20; ++seed) {
      start(seed, order);
      of_order.insert(std::to_string(chain(false)));
    }
    CHECK((of_order.size() > 1 || *of_order.begin() != "5.000000"));
    results.insert(of_order.begin(), of_order.end());
  }
  CHECK(results.size() > 2);
}

TEST_CASE("a seed of the stand-ins determines the order") {
  start(7, Order::random);
  const std::string first = std::to_string(chain(false));
  for (int i = 0; i < 3; ++i) {
    start(7, Order::random);
    CHECK(std::to_string(chain(false)) == first);
  }
}

TEST_CASE("stand-ins run nothing before a thread waits, and copy the data of that time") {
  start(1, Order::random);
  cudaStream_t const stream = new_stream();
  auto* const host = pinned<float>(1);
  auto* const x = on_the_device<float>(1);
  CHECK(*x != *x);  // NaN, as all memory that nothing wrote
  *host = 1;
  cudaMemcpyAsync(x, host, sizeof *x, cudaMemcpyHostToDevice, stream);
  *host = 2;
  CHECK(*x != *x);
  CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
  CHECK(*x == 2);
  // The other order is as good.
  start(1, Order::eager);
  cudaStream_t const other = new_stream();
  auto* const source = pinned<float>(1);
  auto* const y = on_the_device<float>(1);
  *source = 1;
  cudaMemcpyAsync(y, source, sizeof *y, cudaMemcpyHostToDevice, other);
  *source = 2;
  CHECK(*y == 1);
}

TEST_CASE("a starved stream of the stand-ins comes last") {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    start(seed, Order::starve_one);
    std::vector<cudaStream_t> streams;
    for (int i = 0; i < 3; ++i) streams.push_back(new_stream());
    auto* const last = on_the_device<float>(1);
    for (int turn = 0; turn < 3; ++turn) {
      for (int i = 0; i < 3; ++i) affine(streams[i], last, 0, static_cast<float>(i));
    }
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(*last == static_cast<float>(seed % 3));
  }
}

TEST_CASE("a wait for an event of the stand-ins refers to its last record") {
  start(1, Order::newest_first);
  cudaStream_t const first = new_stream();
  cudaStream_t const second = new_stream();
  cudaEvent_t const event = new_event(cudaEventDefault);
  auto* const x = on_the_device<float>(2);
  cudaStreamWaitEvent(second, event);  // never recorded: no wait
  affine(second, x, 0, 1);
  CHECK(cudaStreamSynchronize(second) == cudaSuccess);
  CHECK(cudaEventQuery(event) == cudaSuccess);
  affine(first, x + 1, 0, 1);
  cudaEventRecord(event, first);
  cudaStreamWaitEvent(second, event);
  affine(first, x + 1, 0, 2);
  cudaEventRecord(event, first);  // not the one that `second` waits for
  affine(second, x + 1, 0, 3);
  CHECK(cudaStreamSynchronize(second) == cudaSuccess);
  CHECK(x[1] == 3);
  CHECK(cudaStreamSynchronize(first) == cudaSuccess);
  CHECK(x[1] == 2);
}

TEST_CASE("stand-ins report not ready, and proceed when they are polled") {
  start(3, Order::random);
  cudaStream_t const stream = new_stream();
  cudaEvent_t const begin = new_event(cudaEventDefault);
  cudaEvent_t const end = new_event(cudaEventDefault);
  cudaEvent_t const untimed = new_event();
  auto* const x = on_the_device<float>(1);
  cudaEventRecord(begin, stream);
  for (int i = 0; i < 20; ++i) affine(stream, x, 0, 1);
  cudaEventRecord(end, stream);
  cudaEventRecord(untimed, stream);
  CHECK(cudaEventQuery(end) == cudaErrorNotReady);
  CHECK(cudaGetLastError() == cudaErrorNotReady);
  CHECK(cudaGetLastError() == cudaSuccess);
  float ms = -1;
  CHECK(cudaEventElapsedTime(&ms, begin, end) == cudaErrorNotReady);
  int asked = 0;
  while (cudaStreamQuery(stream) == cudaErrorNotReady && asked < 10000) ++asked;
  CHECK(asked > 2);
  CHECK(cudaStreamQuery(stream) == cudaSuccess);
  CHECK(cudaEventElapsedTime(&ms, begin, end) == cudaSuccess);
  CHECK(ms >= 0);
  CHECK(cudaEventElapsedTime(&ms, begin, untimed) == cudaErrorInvalidResourceHandle);
}

inline __global__ void faulty() { throw emulation::Fault("a kernel's own"); }

TEST_CASE("a fault on a stream of stand-ins reaches every thread that waits") {
  start(1, Order::random);
  cudaStream_t const stream = new_stream();
  cudaStream_t const other = new_stream();
  cuda::launch<faulty>(stream, dim3(1), dim3(32), 0);
  CHECK(says(complaint([&] { cudaStreamSynchronize(stream); }), "a kernel's own"));
  CHECK(cudaStreamSynchronize(other) ==
        cudaErrorLaunchFailure);  // reported once, an error from then on
  std::string there;
  std::thread([&] { there = complaint([&] { cudaStreamSynchronize(other); }); }).join();
  CHECK(says(there, "a kernel's own"));
  CHECK(says(complaint([&] { check_nothing_left(); }), "a kernel's own"));
}

TEST_CASE("threads wait for operations that others enqueue, and no longer than the limit") {
  Settings settings;
  settings.limit = std::chrono::milliseconds(200);
  start(settings);
  cudaStream_t const first = new_stream();
  cudaStream_t const second = new_stream();
  cudaEvent_t const event = new_event();
  auto* const x = on_the_device<float>(1);
  std::atomic<bool> done = false;
  affine(first, x, 0, 1);
  cudaEventRecord(event, first);
  std::thread waiter([&] {
    cudaStreamWaitEvent(second, event);
    affine(second, x, 2, 0);
    CHECK(cudaStreamSynchronize(second) == cudaSuccess);
    done = true;
  });
  waiter.join();
  CHECK(done);
  CHECK(*x == 2);
}

TEST_CASE("stand-ins accept only kernels of the stream's device") {
  Settings settings;
  settings.devices = 2;
  start(settings);
  int devices = 0;
  CHECK((cudaGetDeviceCount(&devices) == cudaSuccess && devices == 2));
  CHECK(cudaSetDevice(2) == cudaErrorInvalidDevice);
  cudaStream_t const stream = new_stream();
  auto* const here = on_the_device<float>(1);
  CHECK(cudaSetDevice(1) == cudaSuccess);
  auto* const there = on_the_device<float>(1);
  affine(stream, here, 0, 1);
  CHECK(cudaGetLastError() == cudaErrorInvalidResourceHandle);
  int elsewhere = -1;
  std::thread([&] { cudaGetDevice(&elsewhere); }).join();
  CHECK(elsewhere == 0);
  cudaSetDevice(0);
  CHECK(says(complaint([&] { affine(stream, there, 0, 1); }), "device 0 uses memory of device 1"));
}

TEST_CASE("stand-ins do not order the null stream, and so refuse it") {
  start(1, Order::random);
  auto* const x = on_the_device<float>(1);
  affine(nullptr, x, 0, 4);
  CHECK(*x == 4);  // a kernel runs at once
  CHECK(says(complaint([&] { cudaMemsetAsync(x, 0, 4); }), "null stream"));
}

TEST_CASE("stand-ins count objects that were not freed") {
  start(1, Order::random);
  CHECK(complaint([] { check_nothing_left(); }).empty());
  cudaStream_t const stream = new_stream();
  CHECK(says(complaint([] { check_nothing_left(); }), "left: stream 1 of device 0"));
  CHECK(says(complaint([&] {
               cudaStreamDestroy(stream);
               cudaStreamSynchronize(stream);
             }),
             "no longer"));
}

}  // namespace
}  // namespace echelon::standins
