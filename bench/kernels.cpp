// Speed of the CPU kernels. Matrix products are compared with a large square one, which stands for
// the peak; other kernels report the bytes per second that must cross the memory bus. On a busy
// machine compare CPU times.
//
//   bench_kernels [--benchmark_filter=...]
#include <benchmark/benchmark.h>
#include <omp.h>

#include <cstdint>
#include <vector>

#include "runtime/cpu/kernels.hpp"

namespace {

using namespace echelon;
using cpu::Order;

template <class T>
std::vector<T> filled(std::int64_t count, double scale = 1) {
  std::vector<T> x(static_cast<std::size_t>(count));
  std::uint32_t state = 1;
  for (T& value : x) {
    state = state * 1664525U + 1013904223U;
    value = T(static_cast<Wide<T>>(scale * (static_cast<double>(state >> 8U) * 0x1p-23 - 1)));
  }
  return x;
}

void report_flops(benchmark::State& state, double flops) {
  state.counters["GFLOP/s"] =
      benchmark::Counter(flops * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}
template <class T>
void report_bytes(benchmark::State& state, std::int64_t numbers) {
  state.SetBytesProcessed(state.iterations() * numbers * static_cast<std::int64_t>(sizeof(T)));
}

/// Forward [m, k]·[n, k]ᵀ, input gradient [m, n]·[n, k], weight gradient [m, n]ᵀ·[m, k].
enum Product { forward, input, weight };

template <class T>
void gemm(benchmark::State& state) {
  omp_set_num_threads(static_cast<int>(state.range(0)));
  const auto product = static_cast<Product>(state.range(1));
  const std::int64_t m = state.range(2), n = state.range(3), k = state.range(4);
  const auto x = filled<T>(m * k);
  const auto w = filled<T>(n * k);
  const auto y = filled<T>(m * n);
  std::vector<T> out(static_cast<std::size_t>(m * std::max(n, k)));
  std::vector<Wide<T>> sums(static_cast<std::size_t>(n * k));
  for (auto _ : state) {
    if (product == forward) {
      cpu::gemm(Order::plain, Order::transposed, m, n, k, x.data(), k, w.data(), k, out.data(), n,
                false);
    } else if (product == input) {
      cpu::gemm(Order::plain, Order::plain, m, k, n, y.data(), n, w.data(), k, out.data(), k,
                false);
    } else {
      cpu::gemm(Order::transposed, Order::plain, n, k, m, y.data(), n, x.data(), k, sums.data(), k,
                true);
    }
  }
  report_flops(state,
               2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k));
}

/// Layers of GPT-2 124M (hidden 768) and 350M (1024), 2048 tokens; the last shape is a large
/// square.
void gemm_shapes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"threads", "product", "m", "n", "k"});
  for (const int threads : {1, 2}) {
    for (const int hidden : {768, 1024}) {
      for (const Product product : {forward, input, weight}) {
        b->Args({threads, product, 2048, 3 * hidden, hidden});
        b->Args({threads, product, 2048, hidden, hidden});
        b->Args({threads, product, 2048, 4 * hidden, hidden});
        b->Args({threads, product, 2048, hidden, 4 * hidden});
      }
    }
    b->Args({threads, forward, 2048, 50304, 768});
    b->Args({threads, forward, 4096, 4096, 4096});
  }
}
BENCHMARK_TEMPLATE(gemm, float)->Apply(gemm_shapes)->UseRealTime()->Unit(benchmark::kMillisecond);
BENCHMARK_TEMPLATE(gemm, Bfloat16)
    ->Apply(gemm_shapes)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

/// FLOPs of the causal half: 2 products forward, 5 backward (FlashAttention-2, section 4.1).
template <class T>
void attention(benchmark::State& state) {
  omp_set_num_threads(static_cast<int>(state.range(0)));
  const bool backward = state.range(1) != 0;
  AttentionShape s;
  s.sequence = state.range(2);
  s.samples = static_cast<int>(4096 / s.sequence);
  s.heads = 12;
  s.kv_heads = static_cast<int>(state.range(3));
  s.head_dim = 64;
  s.qkv_stride = std::int64_t{s.heads + 2 * s.kv_heads} * s.head_dim;
  s.out_stride = std::int64_t{s.heads} * s.head_dim;
  const auto qkv = filled<T>(4096 * s.qkv_stride);
  const auto dout = filled<T>(4096 * s.out_stride);
  auto out = dout;
  auto dqkv = qkv;
  std::vector<Wide<T>> log_sum(static_cast<std::size_t>(4096 * s.heads));
  cpu::attention_forward(s, qkv.data(), out.data(), log_sum.data());
  for (auto _ : state) {
    if (backward) {
      cpu::attention_backward(s, qkv.data(), out.data(), log_sum.data(), dout.data(), dqkv.data());
    } else {
      cpu::attention_forward(s, qkv.data(), out.data(), log_sum.data());
    }
  }
  report_flops(
      state, (backward ? 5 : 2) * 4096.0 * static_cast<double>(s.sequence) * s.heads * s.head_dim);
}
void attention_shapes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"threads", "backward", "sequence", "kv_heads"});
  for (const int threads : {1, 2}) {
    for (const int backward : {0, 1}) {
      b->Args({threads, backward, 1024, 12})->Args({threads, backward, 4096, 4});
    }
  }
}
BENCHMARK_TEMPLATE(attention, float)
    ->Apply(attention_shapes)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK_TEMPLATE(attention, Bfloat16)
    ->Apply(attention_shapes)
    ->UseRealTime()
    ->Unit(benchmark::kMillisecond);

constexpr std::int64_t kRows = 4096;
constexpr std::int64_t kWidth = 768;

void threads(benchmark::internal::Benchmark* b) {
  b->ArgName("threads")->Arg(1)->Arg(2)->UseRealTime()->Unit(benchmark::kMillisecond);
}

/// Bytes: x read, y written.
template <class T>
void layer_norm_forward(benchmark::State& state) {
  omp_set_num_threads(static_cast<int>(state.range(0)));
  const auto x = filled<T>(kRows * kWidth);
  const auto weight = filled<T>(kWidth);
  auto y = x;
  std::vector<Wide<T>> mean(kRows), rstd(kRows);
  for (auto _ : state) {
    cpu::layer_norm_forward(x.data(), {}, weight.data(), weight.data(), y.data(), mean.data(),
                            rstd.data(), kRows, kWidth, 1e-5);
  }
  report_bytes<T>(state, 2 * kRows * kWidth);
}
BENCHMARK_TEMPLATE(layer_norm_forward, float)->Apply(threads);
BENCHMARK_TEMPLATE(layer_norm_forward, Bfloat16)->Apply(threads);

/// Bytes: dy and x read, dx written.
template <class T>
void layer_norm_backward(benchmark::State& state) {
  omp_set_num_threads(static_cast<int>(state.range(0)));
  const auto x = filled<T>(kRows * kWidth);
  const auto weight = filled<T>(kWidth);
  auto dx = x;
  std::vector<Wide<T>> mean(kRows, 0), rstd(kRows, 1), dweight(kWidth), dbias(kWidth);
  for (auto _ : state) {
    cpu::layer_norm_backward(x.data(), x.data(), weight.data(), mean.data(), rstd.data(),
                             static_cast<const T*>(nullptr), dx.data(), dweight.data(),
                             dbias.data(), kRows, kWidth);
  }
  report_bytes<T>(state, 3 * kRows * kWidth);
}
BENCHMARK_TEMPLATE(layer_norm_backward, float)->Apply(threads);
BENCHMARK_TEMPLATE(layer_norm_backward, Bfloat16)->Apply(threads);

template <class T>
void gelu_forward(benchmark::State& state) {
  omp_set_num_threads(static_cast<int>(state.range(0)));
  const auto x = filled<T>(kRows * 4 * kWidth, 3);
  auto y = x;
  for (auto _ : state) {
    cpu::activation_forward(Activation::gelu, x.data(), y.data(), kRows * 4 * kWidth);
  }
  report_bytes<T>(state, 2 * kRows * 4 * kWidth);
}
BENCHMARK_TEMPLATE(gelu_forward, float)->Apply(threads);
BENCHMARK_TEMPLATE(gelu_forward, Bfloat16)->Apply(threads);

template <class T>
void gelu_backward(benchmark::State& state) {
  omp_set_num_threads(static_cast<int>(state.range(0)));
  const auto x = filled<T>(kRows * 4 * kWidth, 3);
  auto dx = x;
  for (auto _ : state) {
    cpu::activation_backward<T>(Activation::gelu, x.data(), x.data(), dx.data(), nullptr,
                                kRows * 4 * kWidth);
  }
  report_bytes<T>(state, 3 * kRows * 4 * kWidth);
}
BENCHMARK_TEMPLATE(gelu_backward, float)->Apply(threads);
BENCHMARK_TEMPLATE(gelu_backward, Bfloat16)->Apply(threads);

/// Bytes: add_bias reads and writes x; bias_gradient reads x.
template <class T>
void biases(benchmark::State& state) {
  omp_set_num_threads(static_cast<int>(state.range(0)));
  auto x = filled<T>(kRows * 4 * kWidth);
  const auto bias = filled<T>(4 * kWidth, 1e-6);
  std::vector<Wide<T>> gradient(4 * kWidth);
  for (auto _ : state) {
    cpu::add_bias(x.data(), bias.data(), kRows, 4 * kWidth);
    cpu::bias_gradient(x.data(), gradient.data(), kRows, 4 * kWidth);
  }
  report_bytes<T>(state, 3 * kRows * 4 * kWidth);
}
BENCHMARK_TEMPLATE(biases, float)->Apply(threads);
BENCHMARK_TEMPLATE(biases, Bfloat16)->Apply(threads);

/// Bytes: the logits are read three times (maximum, sum, gradient) and written once.
template <class T>
void cross_entropy(benchmark::State& state) {
  omp_set_num_threads(static_cast<int>(state.range(0)));
  constexpr std::int64_t kTokens = 512, kColumns = 50304;
  auto logits = filled<T>(kTokens * kColumns);
  const std::vector<std::int32_t> targets(kTokens, 7);
  std::vector<Wide<T>> max(kTokens), sums(2 * kTokens);
  for (auto _ : state) {
    cpu::logits_max(logits.data(), max.data(), kTokens, kColumns, 50257);
    cpu::logits_sums(logits.data(), targets.data(), max.data(), sums.data(), kTokens, kColumns,
                     50257, 0);
    cpu::logits_gradient(logits.data(), targets.data(), max.data(), sums.data(), kTokens, kColumns,
                         50257, 0, 1.0);
  }
  report_bytes<T>(state, 4 * kTokens * kColumns);
}
BENCHMARK_TEMPLATE(cross_entropy, float)->Apply(threads);
BENCHMARK_TEMPLATE(cross_entropy, Bfloat16)->Apply(threads);

/// Bytes: gradient, weight and two moments are read; all but the gradient are written.
void adamw(benchmark::State& state) {
  omp_set_num_threads(static_cast<int>(state.range(0)));
  constexpr std::int64_t kCount = 1 << 24;
  const auto gradient = filled<float>(kCount);
  auto weights = gradient;
  std::vector<float> m(kCount), v(kCount);
  for (auto _ : state) {
    cpu::adam({.learning_rate = 1e-4, .weight_decay = 0.1}, gradient.data(), weights.data(),
              m.data(), v.data(), weights.data(), kCount);
  }
  report_bytes<float>(state, 7 * kCount);
}
BENCHMARK(adamw)->Apply(threads);

void sum_of_squares(benchmark::State& state) {
  omp_set_num_threads(static_cast<int>(state.range(0)));
  const auto x = filled<float>(1 << 24);
  for (auto _ : state) benchmark::DoNotOptimize(cpu::sum_of_squares(x.data(), 1 << 24));
  report_bytes<float>(state, 1 << 24);
}
BENCHMARK(sum_of_squares)->Apply(threads);

}  // namespace

BENCHMARK_MAIN();
