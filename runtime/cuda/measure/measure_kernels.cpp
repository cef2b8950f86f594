// Kernels of the backend by shape: products, attention, and memory-bound ones.
#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/cuda/attention/attention.hpp"
#include "runtime/cuda/device/checks.hpp"
#include "runtime/cuda/gemm/gemm.hpp"
#include "runtime/cuda/kernels/kernels.hpp"
#include "runtime/cuda/measure/measure_parts.hpp"
#include "runtime/threads/clock.hpp"

namespace echelon::cuda {
namespace {

using T = Bfloat16;

/// A separate stream, and the operations timed on it.
class MeasuredStream {
 public:
  MeasuredStream(const Stopwatch& watch, std::vector<Measurement>& out)
      : watch_(watch), out_(out) {}

  [[nodiscard]] cudaStream_t stream() const { return stream_.get(); }
  /// Blocks of these sizes, filled; nothing if not all of them fit.
  struct Wanted {
    std::int64_t count;
    bool wide = false;
  };
  [[nodiscard]] std::vector<DeviceBuffer> buffers(const std::vector<Wanted>& wanted) const {
    std::vector<DeviceBuffer> out;
    for (const Wanted& each : wanted) {
      const std::int64_t width = each.wide ? bytes_of(Element::f32) : bytes_of(Element::bf16);
      DeviceBuffer buffer(std::max<std::int64_t>(1, each.count) * width);
      if (!buffer.allocated()) return {};
      fill(buffer, each.count, each.wide, stream());
      out.push_back(std::move(buffer));
    }
    return out;
  }
  [[nodiscard]] bool over() const { return watch_.over(); }
  void time(const char* what, std::vector<std::int64_t> shape, const std::function<void()>& act) {
    const Seconds seconds = time_on(stream(), watch_.for_next(), act);
    out_.push_back({what, 1, 1, std::move(shape), seconds});
  }

 private:
  const Stopwatch& watch_;
  std::vector<Measurement>& out_;
  OwnStream stream_ = new_stream();
};

/// Copies of a product's operands, used in turn, so that none is in the L2 cache when its turn
/// comes: together they are at least twice its size.
class OperandSets {
 public:
  OperandSets(const MeasuredStream& on, const MeasuredSizes::Linear& l, Bytes l2)
      : l_(l),
        sets_(sets_beyond(l, l2)),
        buffers_(on.buffers({{sets_ * l.rows * l.in},
                             {sets_ * l.in * l.out},
                             {sets_ * l.rows * l.out},
                             {sets_ * l.in * l.out, true}})) {}
  [[nodiscard]] bool allocated() const { return !buffers_.empty(); }
  /// The next set; x (rows, in), w (out, in), y (rows, out), dw (out, in).
  void turn() { set_ = (set_ + 1) % sets_; }
  [[nodiscard]] T* x() const { return buffers_[0].as<T>() + set_ * l_.rows * l_.in; }
  [[nodiscard]] T* w() const { return buffers_[1].as<T>() + set_ * l_.in * l_.out; }
  [[nodiscard]] T* y() const { return buffers_[2].as<T>() + set_ * l_.rows * l_.out; }
  [[nodiscard]] float* dw() const { return buffers_[3].as<float>() + set_ * l_.in * l_.out; }
  void clear_inputs(cudaStream_t stream) const {
    const auto bytes = [&](std::int64_t count) {
      return static_cast<std::size_t>(sets_ * count) * sizeof(T);
    };
    check(cudaMemsetAsync(buffers_[0].as<T>(), 0, bytes(l_.rows * l_.in), stream), "clear x");
    check(cudaMemsetAsync(buffers_[1].as<T>(), 0, bytes(l_.in * l_.out), stream), "clear w");
  }

 private:
  static std::int64_t sets_beyond(const MeasuredSizes::Linear& l, Bytes l2) {
    const double once =
        sizeof(T) * static_cast<double>(l.rows * l.in + l.in * l.out + l.rows * l.out);
    return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(2 * l2 / Bytes{once})));
  }

  MeasuredSizes::Linear l_;
  std::int64_t sets_;
  std::vector<DeviceBuffer> buffers_;
  std::int64_t set_ = 0;
};

double flops_of(const MeasuredSizes::Linear& l) {
  return 2.0 * static_cast<double>(l.rows) * static_cast<double>(l.in) * static_cast<double>(l.out);
}

/// Keeps the GPU at full load for `time`, at least for some products, by the largest ones that fit;
/// returns their size, or null.
const MeasuredSizes::Linear* warm_up(MeasuredStream& on,
                                     const std::vector<MeasuredSizes::Linear>& all, Bytes l2,
                                     Gemm& gemm, Seconds time) {
  std::vector<const MeasuredSizes::Linear*> falling;
  for (const MeasuredSizes::Linear& each : all) falling.push_back(&each);
  std::stable_sort(falling.begin(), falling.end(),
                   [](const auto* a, const auto* b) { return flops_of(*a) > flops_of(*b); });
  for (const MeasuredSizes::Linear* const l : falling) {
    OperandSets operands(on, *l, l2);
    if (!operands.allocated()) continue;
    const Product forward = forward_product(l->rows, l->in, l->out);
    gemm.select_algorithms(std::vector<Product>{forward}, on.stream());
    constexpr int kAtOnce = 16;
    const Seconds begin = steady_now();
    do {
      for (int i = 0; i < kAtOnce; ++i, operands.turn()) {
        gemm.run(forward, {.a = operands.w(), .b = operands.x(), .d = operands.y()}, on.stream());
      }
      check(cudaStreamSynchronize(on.stream()), "warm up the GPU");
    } while (steady_now() - begin < time);
    return l;
  }
  return nullptr;
}

void products(MeasuredStream& on, const MeasuredSizes::Linear& l, Bytes l2, Gemm& gemm,
              bool on_zeros) {
  const Product forward = forward_product(l.rows, l.in, l.out);
  const Product input = input_product(l.rows, l.in, l.out);
  const Product weight = weight_product(l.rows, l.in, l.out);
  gemm.select_algorithms(std::vector<Product>{forward, input, weight}, on.stream());
  OperandSets operands(on, l, l2);
  if (!operands.allocated()) return;
  const auto run = [&](const Product& product, const Operands& with) {
    gemm.run(product, with, on.stream());
    operands.turn();
  };
  // As in CudaKernels: cuBLAS reads A with the leading dimension m.
  const auto forwards = [&] {
    run(forward, {.a = operands.w(), .b = operands.x(), .d = operands.y()});
  };
  on.time("gemm nt", {l.rows, l.out, l.in}, forwards);
  on.time("gemm tn", {l.out, l.in, l.rows}, [&] {
    run(weight,
        {.a = operands.x(), .b = operands.y(), .d = operands.dw(), .addend = operands.dw()});
  });
  on.time("gemm nn", {l.rows, l.in, l.out},
          [&] { run(input, {.a = operands.w(), .b = operands.y(), .d = operands.x()}); });
  if (!on_zeros) return;
  operands.clear_inputs(on.stream());
  on.time("product of zeros", {l.rows, l.out, l.in}, forwards);
}

void attention(MeasuredStream& on, const AttentionShape& s) {
  Attention by;
  by.prepare(s, on.stream());
  const std::int64_t rows = s.sequence * s.samples;
  const std::vector<DeviceBuffer> buffers = on.buffers({{rows * s.qkv_stride},
                                                        {rows * s.out_stride},
                                                        {rows * s.heads, true},
                                                        {rows * s.out_stride},
                                                        {rows * s.qkv_stride},
                                                        {by.workspace(s) / 4, true}});
  if (buffers.empty()) return;
  const std::vector<std::int64_t> shape{s.sequence, s.heads, s.head_dim, s.kv_heads, s.samples};
  on.time("attention forward", shape, [&] {
    by.forward(on.stream(), s, buffers[0].as<T>(), buffers[1].as<T>(), buffers[2].as<float>(),
               buffers[5].as<void>());
  });
  on.time("attention backward", shape, [&] {
    by.backward(on.stream(), s, buffers[0].as<T>(), buffers[1].as<T>(), buffers[2].as<float>(),
                buffers[3].as<T>(), buffers[4].as<T>(), buffers[5].as<void>());
  });
}

void pointwise(MeasuredStream& on, const MeasuredSizes::Matrix& m) {
  const std::int64_t count = m.rows * m.width;
  const std::vector<std::int64_t> shape{m.rows, m.width};
  const std::vector<DeviceBuffer> buffers = on.buffers({{2 * count}, {count}, {2 * count}});
  if (buffers.empty()) return;
  T* const x = buffers[0].as<T>();
  T* const y = buffers[1].as<T>();
  T* const dx = buffers[2].as<T>();
  T* const none = nullptr;  // the activation is not wanted again
  on.time("gelu forward", shape,
          [&] { activation_forward(on.stream(), Activation::gelu, x, y, count); });
  on.time("gelu backward", shape,
          [&] { activation_backward(on.stream(), Activation::gelu, x, y, dx, none, count); });
  on.time("swiglu forward", shape,
          [&] { gated_forward(on.stream(), Activation::silu, x, y, m.rows, m.width); });
  on.time("swiglu backward", shape,
          [&] { gated_backward(on.stream(), Activation::silu, x, y, dx, none, m.rows, m.width); });
  const std::vector<DeviceBuffer> more =
      on.buffers({{m.width},
                  {m.width},
                  {m.rows, true},
                  {m.rows, true},
                  {m.width, true},
                  {m.width, true},
                  {norm_backward_workspace(m.rows, m.width), true}});
  if (more.empty()) return;
  float* const mean = more[2].as<float>();
  float* const rstd = more[3].as<float>();
  constexpr double kEps = 1e-5;
  on.time("norm forward", shape, [&] {
    layer_norm_forward<T>(on.stream(), x, {}, more[0].as<T>(), more[1].as<T>(), y, mean, rstd,
                          m.rows, m.width, kEps);
  });
  on.time("norm backward", shape, [&] {  // with the residual gradient
    layer_norm_backward<T>(on.stream(), y, x, more[0].as<T>(), mean, rstd, dx + count, dx,
                           more[4].as<float>(), more[5].as<float>(), more[6].as<float>(), m.rows,
                           m.width);
  });
}

void loss(MeasuredStream& on, const MeasuredSizes::Matrix& m) {
  const std::vector<DeviceBuffer> buffers = on.buffers(
      {{m.rows * m.width}, {m.rows, true}, {m.rows, true}, {2 * m.rows, true}, {2, true}});
  if (buffers.empty()) return;
  T* const logits = buffers[0].as<T>();
  auto* const targets = buffers[1].as<std::int32_t>();
  check(cudaMemsetAsync(targets, 0, static_cast<std::size_t>(m.rows) * sizeof(std::int32_t),
                        on.stream()),
        "clear targets");
  auto* const total = buffers[4].as<double>();
  float* const max = buffers[2].as<float>();
  float* const sums = buffers[3].as<float>();
  on.time("loss forward", {m.rows, m.width}, [&] {
    logits_partials<T>(on.stream(), logits, targets, max, sums, m.rows, m.width, m.width, 0);
    add_losses(on.stream(), max, sums, total, m.rows);
  });
  on.time("loss backward", {m.rows, m.width}, [&] {
    logits_gradient<T>(on.stream(), logits, targets, max, sums, m.rows, m.width, m.width, 0, 1e-3);
  });
}

/// As in CudaProcessor's step: the norm of all gradients, the scale, the update, zeros.
void optimizer(MeasuredStream& on, std::int64_t count) {
  const std::vector<DeviceBuffer> buffers =
      on.buffers({{count, true},
                  {count, true},
                  {count, true},
                  {count, true},
                  {count},
                  {1, true},
                  {2, true},
                  {2 * sum_of_squares_workspace(count), true}});
  if (buffers.empty()) return;
  float* const gradient = buffers[0].as<float>();
  float* const scale = buffers[5].as<float>();
  auto* const squares = buffers[6].as<double>();
  const auto bytes = static_cast<std::size_t>(count) * sizeof(float);
  check(cudaMemsetAsync(buffers[3].as<float>(), 0, bytes, on.stream()), "clear moments");
  AdamStep step;
  step.learning_rate = 1e-6;
  on.time("clear and adam", {count}, [&] {
    check(cudaMemsetAsync(squares, 0, sizeof(double), on.stream()), "clear a sum");
    sum_of_squares(on.stream(), gradient, squares, buffers[7].as<double>(), count);
    clip_scale(on.stream(), squares, 1, scale);
    adam(on.stream(), step, scale, gradient, buffers[1].as<float>(), buffers[2].as<float>(),
         buffers[3].as<float>(), buffers[4].as<T>(), count);
    check(cudaMemsetAsync(gradient, 0, bytes, on.stream()), "clear gradients");
  });
}

}  // namespace

void measure_kernels(const MeasuredSizes& sizes, const Stopwatch& watch, Bytes l2,
                     const std::function<void(const std::string&)>& log,
                     std::vector<Measurement>& out) {
  MeasuredStream on(watch, out);
  const auto each = [&](const char* what, const auto& list, const auto& one) {
    log(what);
    for (const auto& size : list) {
      if (on.over()) return;
      one(size);
      check(cudaStreamSynchronize(on.stream()), "time the GPU");
    }
  };
  each("bandwidth of kernels", sizes.matrices, [&](const auto& m) { pointwise(on, m); });
  each("bandwidth of the loss", sizes.logits, [&](const auto& m) { loss(on, m); });
  each("bandwidth of the optimizer", sizes.parameters, [&](auto count) { optimizer(on, count); });
  {
    Algorithms algorithms("");
    Gemm gemm(algorithms);
    const DeviceBuffer workspace(Gemm::kWorkspace);
    if (!workspace.allocated()) return;
    gemm.use_workspace(workspace.as<void>());
    const MeasuredSizes::Linear* const largest =
        on.over() ? nullptr : warm_up(on, sizes.linears, l2, gemm, sizes.warm_up);
    each("matrix products", sizes.linears,
         [&](const auto& l) { products(on, l, l2, gemm, &l == largest); });
  }
  each("attention", sizes.attentions, [&](const AttentionShape& s) { attention(on, s); });
}

}  // namespace echelon::cuda
