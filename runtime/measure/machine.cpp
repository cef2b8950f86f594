#include "runtime/measure/machine.hpp"

#include <omp.h>
#include <time.h>

#include <algorithm>
#include <barrier>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <thread>

#include "runtime/cpu/cpu_backend.hpp"
#include "runtime/cpu/kernels.hpp"
#include "runtime/measure/parts.hpp"
#include "runtime/model/chunk.hpp"
#include "runtime/threads/clock.hpp"

namespace echelon {
namespace {

using Act = std::function<void()>;

/// Minimum time and number of repetitions of each operation.
constexpr Seconds budget_of(bool wall) { return Seconds{wall ? 0.1 : 0.06}; }
constexpr std::size_t kMin = 4;
constexpr std::size_t kMax = 2000;

/// Numbers like a model's activations: no zeros, no denormals.
template <class T = float>
std::vector<T> numbers(std::int64_t count, float scale = 1) {
  std::vector<T> out(static_cast<std::size_t>(count));
  std::uint32_t state = 12345;
  for (T& x : out) {
    state = state * 1664525U + 1013904223U;
    x = scale * (static_cast<float>(state >> 8U) / static_cast<float>(1U << 23U) - 1.0F);
  }
  return out;
}

/// For a rank of one core, the CPU time of its thread: other users of the core do not count. For a
/// rank of several cores, the wall-clock time, since its threads wait for each other asleep; on a
/// busy machine most of that would belong to other programs.
Seconds now_of(bool wall) {
  if (wall) return steady_now();
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  constexpr double kNanosecond = 1e-9;
  return Seconds{static_cast<double>(now.tv_sec) + kNanosecond * static_cast<double>(now.tv_nsec)};
}

/// `ranks` threads do the same concurrently, each with its own memory.
Seconds at_once(int ranks, int cores, bool wall, const std::function<Act()>& make) {
  std::vector<std::vector<Seconds>> times(static_cast<std::size_t>(ranks));
  std::barrier together(ranks);
  std::vector<std::thread> threads;
  for (auto& own : times) {
    threads.emplace_back([&own, &together, &make, cores, wall] {
      omp_set_num_threads(cores);
      const Act act = make();
      act();
      together.arrive_and_wait();
      const Seconds begin = now_of(wall);
      Seconds now = begin;
      while ((now - begin < budget_of(wall) || own.size() < kMin) && own.size() < kMax) {
        const Seconds before = now;
        act();
        now = now_of(wall);
        own.push_back(now - before);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<Seconds> all;
  for (const auto& own : times) all.insert(all.end(), own.begin(), own.end());
  // Waits between threads grow whenever one of them is delayed: the minimum counts.
  return wall ? *std::min_element(all.begin(), all.end()) : undisturbed(std::move(all));
}

/// A chunk of layers in the middle of a GPT-2-like model, with its memory.
template <class T>
class MeasuredLayers {
 public:
  MeasuredLayers(int layers, int hidden, int sequence, int samples)
      : processor_(cpu_processor<T>(omp_get_max_threads())),
        chunk_(processor_->on(Queue::compute),
               measured_layers(layers, hidden, kHead, sequence, samples), nullptr, nullptr) {
    const std::int64_t count = chunk_.boundary_count();
    weights_ = numbers<T>(chunk_.parameters().flat_params.front().padded, 0.05F);
    gradients_.resize(weights_.size());
    input_ = numbers<T>(count);
    output_gradient_ = numbers<T>(count, 0.01F);
    output_.resize(input_.size());
    gradient_.resize(input_.size());
    saved_.resize(static_cast<std::size_t>(chunk_.memory().saved) + kAlignmentSlack);
    workspace_.resize(static_cast<std::size_t>(chunk_.memory().workspace) + kAlignmentSlack);
    args_.weights = weights_.data();
    args_.gradients = gradients_.data();
    args_.input = input_.data();
    args_.output = output_.data();
    args_.output_gradient = output_gradient_.data();
    args_.gradient = gradient_.data();
    args_.saved = aligned_in(saved_);
    args_.workspace = aligned_in(workspace_);
    forward();
  }
  void forward() { chunk_.forward(0, args_); }
  void backward() { chunk_.backward(0, args_); }

 private:
  static constexpr std::size_t kAlignmentSlack = 64;
  static std::byte* aligned_in(std::vector<std::byte>& block) {
    void* at = block.data();
    std::size_t space = block.size();
    return static_cast<std::byte*>(std::align(kAlignmentSlack, space - kAlignmentSlack, at, space));
  }
  static constexpr int kHead = 32;
  std::unique_ptr<Processor<T>> processor_;
  Chunk<T> chunk_;
  std::vector<T> weights_, gradients_, input_, output_, output_gradient_, gradient_;
  std::vector<std::byte> saved_, workspace_;
  ChunkArguments<T> args_;
};

class Measuring {
 public:
  Measuring(int ranks, int cores, bool quiet, std::vector<Measurement>& out)
      : ranks_(ranks), cores_(cores), wall_(quiet && cores > 1), out_(out) {}

  void gemm(const char* what, std::int64_t m, std::int64_t n, std::int64_t k) {
    using cpu::Order;
    const bool nt = what[5] == 'n' && what[6] == 't';
    const bool tn = what[5] == 't';
    time(what, {m, n, k}, [=]() -> Act {
      return [=, a = numbers(m * k), b = numbers(n * k), c = numbers(m * n)]() mutable {
        cpu::gemm<float, float>(tn ? Order::transposed : Order::plain,
                                nt ? Order::transposed : Order::plain, m, n, k, a.data(),
                                tn ? m : k, b.data(), nt ? k : n, c.data(), n, tn);
      };
    });
  }
  void pointwise(std::int64_t rows, std::int64_t width) {
    const std::int64_t count = rows * width;
    time("gelu forward", {rows, width}, [=]() -> Act {
      return [=, x = numbers(count), y = numbers(count)]() mutable {
        cpu::activation_forward<float>(Activation::gelu, x.data(), y.data(), count);
      };
    });
    time("gelu backward", {rows, width}, [=]() -> Act {
      return [=, x = numbers(count), dy = numbers(count), dx = numbers(count)]() mutable {
        cpu::activation_backward<float>(Activation::gelu, x.data(), dy.data(), dx.data(), nullptr,
                                        count);
      };
    });
    time("norm forward", {rows, width}, [=]() -> Act {
      return [=, x = numbers(count), y = numbers(count), w = numbers(width), b = numbers(width),
              mean = numbers(rows), rstd = numbers(rows)]() mutable {
        cpu::layer_norm_forward<float>(x.data(), {}, w.data(), b.data(), y.data(), mean.data(),
                                       rstd.data(), rows, width, 1e-5);
      };
    });
  }
  void attention(std::int64_t sequence, int heads) {
    constexpr int kHead = 32;
    const std::int64_t width = std::int64_t{heads} * kHead;
    const AttentionShape shape{.sequence = sequence,
                               .samples = 1,
                               .heads = heads,
                               .kv_heads = heads,
                               .head_dim = kHead,
                               .qkv_stride = 3 * width,
                               .out_stride = width};
    const auto both = [=](bool backward) {
      return [=]() -> Act {
        return [=, qkv = numbers(sequence * 3 * width), out = numbers(sequence * width),
                log_sum = numbers(sequence * heads), dout = numbers(sequence * width),
                dqkv = numbers(sequence * 3 * width), ready = false]() mutable {
          if (!backward || !ready) {
            cpu::attention_forward<float>(shape, qkv.data(), out.data(), log_sum.data());
            ready = true;
          }
          if (!backward) return;
          cpu::attention_backward<float>(shape, qkv.data(), out.data(), log_sum.data(), dout.data(),
                                         dqkv.data());
        };
      };
    };
    time("attention forward", {sequence, heads, kHead}, both(false));
    time("attention backward", {sequence, heads, kHead}, both(true));
  }
  template <class T>
  void layers(const std::string& prefix, int layers, int hidden, int sequence, int samples) {
    const auto both = [=](bool backward) {
      return [=]() -> Act {
        auto chunk = std::make_shared<MeasuredLayers<T>>(layers, hidden, sequence, samples);
        return [=] { backward ? chunk->backward() : chunk->forward(); };
      };
    };
    const std::vector<std::int64_t> shape{layers, hidden, sequence, samples};
    time(prefix + "layers forward", shape, both(false));
    time(prefix + "layers backward", shape, both(true));
  }
  void optimizer(std::int64_t count) {
    time("clear and adam", {count}, [=]() -> Act {
      return [=, g = numbers(count), w = numbers(count), m = numbers(count),
              v = std::vector<float>(static_cast<std::size_t>(count), 1.0F)]() mutable {
        AdamStep step;
        step.learning_rate = 1e-6;
        step.gradient_scale = 1 / (1 + cpu::sum_of_squares(g.data(), count));
        cpu::adam<float>(step, g.data(), w.data(), m.data(), v.data(), w.data(), count);
        std::fill(g.begin(), g.end(), 1e-3F);
      };
    });
  }
  void copy(std::int64_t bytes) {
    time("copy", {bytes}, [=]() -> Act {
      return [from = numbers(bytes / 4), to = numbers(bytes / 4), bytes]() mutable {
        std::memcpy(to.data(), from.data(), static_cast<std::size_t>(bytes));
        from[0] += 1;
      };
    });
  }

 private:
  void time(const std::string& what, std::vector<std::int64_t> shape,
            const std::function<Act()>& make) {
    const Seconds seconds = at_once(ranks_, cores_, wall_, make);
    out_.push_back({what, ranks_, cores_, std::move(shape), seconds});
  }

  int ranks_;
  int cores_;
  bool wall_;
  std::vector<Measurement>& out_;
};

void measure_kernels(Measuring& measure) {
  for (const std::int64_t width : {128, 256, 512, 1024}) {
    for (const std::int64_t rows : {64, 256, 1024}) {
      if (rows * width > (1 << 19)) continue;
      measure.gemm("gemm nt", rows, 4 * width, width);
      measure.gemm("gemm nn", rows, width, 4 * width);
      measure.gemm("gemm tn", 4 * width, width, rows);
    }
  }
  measure.pointwise(256, 512);
  measure.pointwise(1024, 2048);
  for (const std::int64_t sequence : {64, 256, 1024}) measure.attention(sequence, 8);
  for (const int hidden : {128, 256, 512}) {
    measure.layers<float>("", 2, hidden, 256, 1);
    measure.layers<float>("", 2, hidden, 256, 4);
  }
  measure.layers<float>("", 2, 64, 128, 1);
  measure.layers<double>("fp64 ", 2, 256, 256, 1);
  for (const std::int64_t count : {1 << 20, 1 << 22, 1 << 24}) measure.optimizer(count);
  for (const std::int64_t bytes : {1 << 18, 1 << 22, 1 << 25}) measure.copy(bytes);
}

}  // namespace

std::vector<Measurement> measure_machine(int cores,
                                         const std::function<void(const std::string&)>& log) {
  std::vector<Measurement> out;
  double load = 0;  // load of others, since ours only begins
  const bool quiet = getloadavg(&load, 1) < 1 || load < kBusy * cores;
  int each = 1;
  while (true) {
    const int ranks = cores / each;
    log("ranks of " + std::to_string(each) + (each == 1 ? " core, " : " cores, ") +
        std::to_string(ranks) + " at once");
    Measuring measure(ranks, each, quiet, out);
    measure_kernels(measure);
    const auto keep = [&](std::vector<Measurement> more) {
      std::move(more.begin(), more.end(), std::back_inserter(out));
    };
    keep(measure_host(ranks, each));
    if (ranks > 1) keep(measure_collectives_of_threads(ranks, each));
    if (each == cores) return out;
    each = std::min(cores, 2 * each);
  }
}

}  // namespace echelon
