#include "runtime/cuda/measure.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/clock.hpp"
#include "runtime/cuda/checks.hpp"
#include "runtime/cuda/measure_parts.hpp"
#include "runtime/failure.hpp"
#include "runtime/measure/parts.hpp"

namespace echelon::cuda {
namespace {

constexpr std::size_t kLeastLaps = 4;
constexpr std::size_t kMostLaps = 2000;

}  // namespace

Stopwatch::Stopwatch(const MeasuredSizes& sizes)
    : begin_(steady_now()), each_(sizes.each), most_(sizes.most) {}

Seconds Stopwatch::for_next() const { return steady_now() - begin_ < most_ ? each_ : Seconds{}; }

bool Stopwatch::over() const { return steady_now() - begin_ > 1.5 * most_; }

Room::Room(std::int64_t bytes, Where where) : where_(where) {
  const auto size = static_cast<std::size_t>(bytes);
  const cudaError_t status =
      where == Where::device ? cudaMalloc(&at_, size) : cudaMallocHost(&at_, size);
  if (status == cudaSuccess) return;
  at_ = nullptr;
  static_cast<void>(cudaGetLastError());  // which would be found by the next launch
}

Room::~Room() {
  if (at_ == nullptr) return;
  static_cast<void>(where_ == Where::device ? cudaFree(at_) : cudaFreeHost(at_));
}

void fill(const Room& room, std::int64_t count, bool wide, cudaStream_t stream) {
  constexpr std::int64_t kBlock = 1 << 16;  // bytes
  const std::int64_t width = wide ? bytes_of(Element::f32) : bytes_of(Element::bf16);
  const Room block(kBlock, Room::Where::pinned);
  if (!block.there()) throw RunFailure(RunFailure::Kind::out_of_memory, "no pinned memory");
  std::uint32_t state = 12345;
  for (std::int64_t i = 0; i < kBlock / width; ++i) {
    state = state * 1664525U + 1013904223U;
    const float x = static_cast<float>(state >> 8U) / static_cast<float>(1U << 23U) - 1.0F;
    if (wide) {
      block.as<float>()[i] = x;
    } else {
      block.as<Bfloat16>()[i] = Bfloat16(x);
    }
  }
  for (std::int64_t at = 0; at < count * width; at += kBlock) {
    const auto part = static_cast<std::size_t>(std::min(kBlock, count * width - at));
    check(cudaMemcpyAsync(room.as<std::byte>() + at, block.as<std::byte>(), part,
                          cudaMemcpyHostToDevice, stream),
          "copy numbers to the GPU");
  }
  check(cudaStreamSynchronize(stream), "copy numbers to the GPU");
}

Lap::Lap() {
  check(cudaEventCreateWithFlags(&begin_, cudaEventDefault), "make an event");
  check(cudaEventCreateWithFlags(&end_, cudaEventDefault), "make an event");
}

Lap::~Lap() {
  for (cudaEvent_t each : {begin_, end_}) {
    if (each != nullptr) static_cast<void>(cudaEventDestroy(each));
  }
}

void Lap::begin(cudaStream_t stream) { check(cudaEventRecord(begin_, stream), "record an event"); }
void Lap::end(cudaStream_t stream) { check(cudaEventRecord(end_, stream), "record an event"); }

bool Lap::over() const {
  const cudaError_t status = cudaEventQuery(end_);
  if (status == cudaErrorNotReady) {
    static_cast<void>(cudaGetLastError());  // where that answer stays as well
    return false;
  }
  check(status, "time the GPU");
  return true;
}

Seconds Lap::time() const {
  check(cudaEventSynchronize(end_), "time the GPU");
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, begin_, end_), "time the GPU");
  return Seconds{1e-3 * static_cast<double>(milliseconds)};
}

Seconds time_on(cudaStream_t stream, Seconds budget, const std::function<void()>& act) {
  Lap lap;
  const auto batch = [&](int runs) {
    lap.begin(stream);
    for (int run = 0; run < runs; ++run) act();
    lap.end(stream);
    return lap.time() / runs;
  };
  static_cast<void>(batch(1));
  constexpr Seconds kBatch{1e-3};
  constexpr double kMostRuns = 1000;
  const Seconds one = batch(1);
  const double fits = one > Seconds{} ? kBatch / one : kMostRuns;
  const int runs = budget > Seconds{} ? static_cast<int>(std::clamp(fits, 1.0, kMostRuns)) : 1;
  std::vector<Seconds> times;
  const Seconds begin = steady_now();
  while ((steady_now() - begin < budget || times.size() < kLeastLaps) && times.size() < kMostLaps) {
    times.push_back(batch(runs));
  }
  check(cudaGetLastError(), "launch a kernel");
  return undisturbed(std::move(times));
}

AttentionShape attention_of_heads(std::int64_t sequence, int samples, int heads, int kv_heads,
                                  int head_dim) {
  return {.sequence = sequence,
          .samples = samples,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .qkv_stride = std::int64_t{heads + 2 * kv_heads} * head_dim,
          .out_stride = std::int64_t{heads} * head_dim};
}

Measurements measure(int gpus, const MeasuredSizes& sizes,
                     const std::function<void(const std::string&)>& tell) {
  const Stopwatch watch(sizes);
  use_device(0);
  Measurements out;
  GpuFacts facts = facts_of_gpus(gpus);
  measure_kernels(sizes, watch, tell, out.all);
  measure_launches(sizes, watch, tell, facts, out.all);
  if (gpus > 1) measure_collectives(sizes, watch, tell, facts, out.all);
  out.gpu = std::move(facts);
  return out;
}

}  // namespace echelon::cuda
