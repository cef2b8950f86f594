// Kernels of the backend by shape: products, attention, and those that memory bounds.
#include <algorithm>
#include <utility>

#include "runtime/cuda/attention.hpp"
#include "runtime/cuda/checks.hpp"
#include "runtime/cuda/gemm.hpp"
#include "runtime/cuda/kernels.hpp"
#include "runtime/cuda/measure_parts.hpp"

namespace echelon::cuda {
namespace {

using T = Bfloat16;

/// A stream of its own, and what is timed on it.
class MeasuredStream {
 public:
  MeasuredStream(const Stopwatch& watch, std::vector<Measurement>& out)
      : watch_(watch), out_(out) {}

  [[nodiscard]] cudaStream_t stream() const { return stream_.get(); }
  /// Blocks of such numbers, filled; nothing where not all of them find room.
  struct Wanted {
    std::int64_t count;
    bool wide = false;
  };
  [[nodiscard]] std::vector<Room> rooms(const std::vector<Wanted>& wanted) const {
    std::vector<Room> out;
    for (const Wanted& each : wanted) {
      const std::int64_t width = each.wide ? bytes_of(Element::f32) : bytes_of(Element::bf16);
      Room room(std::max<std::int64_t>(1, each.count) * width);
      if (!room.there()) return {};
      fill(room, each.count, each.wide, stream());
      out.push_back(std::move(room));
    }
    return out;
  }
  [[nodiscard]] bool over() const { return watch_.over(); }
  void take(const char* what, std::vector<std::int64_t> shape, const std::function<void()>& act) {
    const Seconds seconds = time_on(stream(), watch_.for_next(), act);
    out_.push_back({what, 1, 1, std::move(shape), seconds});
  }

 private:
  const Stopwatch& watch_;
  std::vector<Measurement>& out_;
  OwnStream stream_ = new_stream();
};

void products(MeasuredStream& on, const MeasuredSizes::Linear& l, Gemm& gemm) {
  const Product forward = forward_product(l.rows, l.in, l.out);
  const Product input = input_product(l.rows, l.in, l.out);
  const Product weight = weight_product(l.rows, l.in, l.out);
  gemm.choose(std::vector<Product>{forward, input, weight}, on.stream());
  const std::vector<Room> rooms =
      on.rooms({{l.rows * l.in}, {l.in * l.out}, {l.rows * l.out}, {l.in * l.out, true}});
  if (rooms.empty()) return;
  T* const x = rooms[0].as<T>();
  T* const w = rooms[1].as<T>();
  T* const y = rooms[2].as<T>();
  float* const dw = rooms[3].as<float>();
  // As CudaKernels has them: A is what cuBLAS reads with the leading dimension m.
  on.take("gemm nt", {l.rows, l.out, l.in},
          [&] { gemm.run(forward, {.a = w, .b = x, .d = y}, on.stream()); });
  on.take("gemm tn", {l.out, l.in, l.rows},
          [&] { gemm.run(weight, {.a = x, .b = y, .d = dw, .addend = dw}, on.stream()); });
  on.take("gemm nn", {l.rows, l.in, l.out},
          [&] { gemm.run(input, {.a = w, .b = y, .d = x}, on.stream()); });
}

void attention(MeasuredStream& on, const AttentionShape& s) {
  Attention by;
  by.prepare(s, on.stream());
  const std::int64_t rows = s.sequence * s.samples;
  const std::vector<Room> rooms = on.rooms({{rows * s.qkv_stride},
                                            {rows * s.out_stride},
                                            {rows * s.heads, true},
                                            {rows * s.out_stride},
                                            {rows * s.qkv_stride},
                                            {by.workspace(s) / 4, true}});
  if (rooms.empty()) return;
  const std::vector<std::int64_t> shape{s.sequence, s.heads, s.head_dim, s.kv_heads, s.samples};
  on.take("attention forward", shape, [&] {
    by.forward(on.stream(), s, rooms[0].as<T>(), rooms[1].as<T>(), rooms[2].as<float>(),
               rooms[5].as<void>());
  });
  on.take("attention backward", shape, [&] {
    by.backward(on.stream(), s, rooms[0].as<T>(), rooms[1].as<T>(), rooms[2].as<float>(),
                rooms[3].as<T>(), rooms[4].as<T>(), rooms[5].as<void>());
  });
}

void pointwise(MeasuredStream& on, const MeasuredSizes::Matrix& m) {
  const std::int64_t count = m.rows * m.width;
  const std::vector<std::int64_t> shape{m.rows, m.width};
  const std::vector<Room> rooms = on.rooms({{2 * count}, {count}, {2 * count}});
  if (rooms.empty()) return;
  T* const x = rooms[0].as<T>();
  T* const y = rooms[1].as<T>();
  T* const dx = rooms[2].as<T>();
  on.take("gelu forward", shape,
          [&] { activation_forward(on.stream(), Activation::gelu, x, y, count); });
  on.take("gelu backward", shape,
          [&] { activation_backward(on.stream(), Activation::gelu, x, y, dx, count); });
  on.take("swiglu forward", shape,
          [&] { gated_forward(on.stream(), Activation::silu, x, y, m.rows, m.width); });
  on.take("swiglu backward", shape,
          [&] { gated_backward(on.stream(), Activation::silu, x, y, dx, m.rows, m.width); });
  const std::vector<Room> more = on.rooms({{m.width},
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
  on.take("norm forward", shape, [&] {
    layer_norm_forward<T>(on.stream(), x, {}, more[0].as<T>(), more[1].as<T>(), y, mean, rstd,
                          m.rows, m.width, kEps);
  });
  on.take("norm backward", shape, [&] {  // with the gradient that goes round it
    layer_norm_backward<T>(on.stream(), y, x, more[0].as<T>(), mean, rstd, dx + count, dx,
                           more[4].as<float>(), more[5].as<float>(), more[6].as<float>(), m.rows,
                           m.width);
  });
}

void loss(MeasuredStream& on, const MeasuredSizes::Matrix& m) {
  const std::vector<Room> rooms =
      on.rooms({{m.rows * m.width}, {m.rows, true}, {m.rows, true}, {2 * m.rows, true}, {2, true}});
  if (rooms.empty()) return;
  T* const logits = rooms[0].as<T>();
  auto* const targets = rooms[1].as<std::int32_t>();
  check(cudaMemsetAsync(targets, 0, static_cast<std::size_t>(m.rows) * sizeof(std::int32_t),
                        on.stream()),
        "clear targets");
  auto* const total = rooms[4].as<double>();
  float* const max = rooms[2].as<float>();
  float* const sums = rooms[3].as<float>();
  on.take("loss forward", {m.rows, m.width}, [&] {
    logits_partials<T>(on.stream(), logits, targets, max, sums, m.rows, m.width, m.width, 0);
    add_losses(on.stream(), max, sums, total, m.rows);
  });
  on.take("loss backward", {m.rows, m.width}, [&] {
    logits_gradient<T>(on.stream(), logits, targets, max, sums, m.rows, m.width, m.width, 0, 1e-3);
  });
}

/// As CudaProcessor's step does it: the norm of all gradients, the scale, the update, zeros.
void optimizer(MeasuredStream& on, std::int64_t count) {
  const std::vector<Room> rooms = on.rooms({{count, true},
                                            {count, true},
                                            {count, true},
                                            {count, true},
                                            {count},
                                            {1, true},
                                            {2, true},
                                            {2 * sum_of_squares_workspace(count), true}});
  if (rooms.empty()) return;
  float* const gradient = rooms[0].as<float>();
  float* const scale = rooms[5].as<float>();
  auto* const squares = rooms[6].as<double>();
  const auto bytes = static_cast<std::size_t>(count) * sizeof(float);
  check(cudaMemsetAsync(rooms[3].as<float>(), 0, bytes, on.stream()), "clear moments");
  AdamStep step;
  step.learning_rate = 1e-6;
  on.take("clear and adam", {count}, [&] {
    check(cudaMemsetAsync(squares, 0, sizeof(double), on.stream()), "clear a sum");
    sum_of_squares(on.stream(), gradient, squares, rooms[7].as<double>(), count);
    clip_scale(on.stream(), squares, 1, scale);
    adam(on.stream(), step, scale, gradient, rooms[1].as<float>(), rooms[2].as<float>(),
         rooms[3].as<float>(), rooms[4].as<T>(), count);
    check(cudaMemsetAsync(gradient, 0, bytes, on.stream()), "clear gradients");
  });
}

}  // namespace

void measure_kernels(const MeasuredSizes& sizes, const Stopwatch& watch,
                     const std::function<void(const std::string&)>& tell,
                     std::vector<Measurement>& out) {
  MeasuredStream on(watch, out);
  const auto each = [&](const char* what, const auto& list, const auto& one) {
    tell(what);
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
    const Room workspace(Gemm::kWorkspace);
    if (!workspace.there()) return;
    gemm.use_workspace(workspace.as<void>());
    each("matrix products", sizes.linears, [&](const auto& l) { products(on, l, gemm); });
  }
  each("attention", sizes.attentions, [&](const AttentionShape& s) { attention(on, s); });
}

}  // namespace echelon::cuda
