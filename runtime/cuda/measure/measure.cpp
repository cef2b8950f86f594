#include "runtime/cuda/measure/measure.hpp"

#include <algorithm>
#include <utility>

#include "runtime/cuda/device/checks.hpp"
#include "runtime/cuda/kernels/launch_errors.hpp"
#include "runtime/cuda/measure/measure_parts.hpp"
#include "runtime/measure/parts.hpp"
#include "runtime/threads/clock.hpp"

namespace echelon::cuda {
namespace {

constexpr std::size_t kMinRepeats = 4;
constexpr std::size_t kMaxRepeats = 2000;

}  // namespace

Stopwatch::Stopwatch(const MeasuredSizes& sizes)
    : begin_(steady_now()), each_(sizes.each), max_time_(sizes.max_time) {}

Seconds Stopwatch::for_next() const {
  return steady_now() - begin_ < max_time_ ? each_ : Seconds{};
}

bool Stopwatch::over() const { return steady_now() - begin_ > 1.5 * max_time_; }

Seconds time_on(cudaStream_t stream, Seconds budget, const std::function<void()>& act) {
  const EventTimer timer;
  const auto batch = [&](int runs) {
    timer.begin(stream);
    for (int run = 0; run < runs; ++run) act();
    timer.end(stream);
    return timer.time() / runs;
  };
  static_cast<void>(batch(1));
  constexpr Seconds kBatch{1e-3};
  constexpr double kMaxRuns = 1000;
  const Seconds one = batch(1);
  const double fits = one > Seconds{} ? kBatch / one : kMaxRuns;
  const int runs = budget > Seconds{} ? static_cast<int>(std::clamp(fits, 1.0, kMaxRuns)) : 1;
  std::vector<Seconds> times;
  const Seconds begin = steady_now();
  while ((steady_now() - begin < budget || times.size() < kMinRepeats) &&
         times.size() < kMaxRepeats) {
    times.push_back(batch(runs));
  }
  check(take_launch_error(), "launch a kernel");
  return median(std::move(times));
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
                     const std::function<void(const std::string&)>& log) {
  const Stopwatch watch(sizes);
  use_device(0);
  Measurements out;
  GpuFacts facts = facts_of_gpus(gpus);
  // First, before kernels that no run uses are loaded: of them the context would be larger.
  measure_launches(sizes, watch, log, facts, out.all);
  measure_kernels(sizes, watch, facts.l2, log, out.all);
  measure_nccl_calls(sizes, log, facts, out.all);
  if (gpus > 1) measure_collectives(sizes, log, facts, out.all);
  out.gpu = std::move(facts);
  return out;
}

}  // namespace echelon::cuda
