#include "runtime/cuda/cuda_kernels.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/expects.hpp"
#include "runtime/cuda/checks.hpp"
#include "runtime/cuda/kernels.hpp"

namespace echelon::cuda {
namespace {

AttentionShape attention_of(const ChunkSpec& spec, const ChunkShape& s) {
  return {.sequence = spec.sequence,
          .samples = spec.microbatch,
          .heads = s.heads,
          .kv_heads = s.kv_heads,
          .head_dim = spec.model.head_dim,
          .qkv_stride = s.qkv,
          .out_stride = s.query};
}

/// Bytes of the largest workspace of any kernel that a chunk is computed with.
std::int64_t workspace_of(const ChunkSpec& spec) {
  const ChunkShape s = shape_of(spec);
  constexpr std::int64_t kFloat = sizeof(float);
  std::int64_t most = kFloat * norm_backward_workspace(s.local, s.hidden);
  const auto need = [&](std::int64_t bytes) { most = std::max(most, bytes); };
  for (const std::int64_t width : {s.hidden, s.qkv, s.up}) {
    need(kFloat * bias_gradient_workspace(s.rows, width));
  }
  if (spec.loss) need(kFloat * bias_gradient_workspace(s.loss_rows, s.vocab));
  if (spec.layers > 0) need(kFloat * attention_backward_workspace(attention_of(spec, s)));
  if (spec.embedding) need(kFloat * embedding_backward_workspace(s.rows));
  return most;
}

std::int64_t squares_workspace_of(const ChunkSpec& spec) {
  std::int64_t most = 0;
  for (const Region& region : parameters_of(spec).regions) {
    for (const Parameter& p : region.parameters)
      most = std::max(most, sum_of_squares_workspace(p.count()));
  }
  return most * static_cast<std::int64_t>(sizeof(double));
}

int alignment_of(std::initializer_list<const void*> pointers) {
  std::uintptr_t all = 16;
  for (const void* each : pointers) all |= reinterpret_cast<std::uintptr_t>(each);
  return 1 << std::countr_zero(all);
}

}  // namespace

CudaKernels::CudaKernels(CudaProcessor& processor, Queue queue, int priority,
                         Algorithms& algorithms)
    : processor_(processor), gemm_(algorithms) {
  static_cast<void>(queue);
  check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, priority), "make a stream");
  for (CudaProcessor::Event& each : marks_) each = CudaProcessor::untimed_event();
}

CudaKernels::~CudaKernels() { static_cast<void>(cudaStreamDestroy(stream_)); }

void CudaKernels::prepare(std::span<const ChunkSpec> chunks, Memory& memory) {
  constexpr auto kPart = &MemoryBreakdown::workspace;
  const bool computes = this == &processor_.on(Queue::compute);
  std::vector<Product> products;
  for (const ChunkSpec& spec : chunks) {
    scratch_bytes_ = std::max(scratch_bytes_, squares_workspace_of(spec));
    if (!computes) continue;
    communicates_ = communicates_ || spec.tp > 1;
    scratch_bytes_ = std::max(scratch_bytes_, workspace_of(spec));
    const std::vector<Product> more = products_of(spec);
    products.insert(products.end(), more.begin(), more.end());
    const ModelSpec& model = spec.model;
    if (model.position != PositionEmbedding::rope || rotations_.contains(model.head_dim)) continue;
    float* table = memory.allocate<float>(kPart, std::int64_t{spec.sequence} * model.head_dim,
                                          "the table of rotations");
    rotation_table(stream_, table, spec.sequence, model.head_dim, 0, spec.rope_theta);
    rotations_.emplace(model.head_dim, table);
  }
  scratch_ = memory.allocate<std::byte>(kPart, scratch_bytes_, "scratch of kernels");
  if (!computes) return;
  gemm_.use_workspace(memory.allocate<std::byte>(kPart, Gemm::kWorkspace, "scratch of cuBLASLt"));
  gemm_.choose(products, stream_);
}

template <class E>
E* CudaKernels::scratch(std::int64_t count) const {
  EXPECTS(count * static_cast<std::int64_t>(sizeof(E)) <= scratch_bytes_,
          "kernels need what was prepared");
  return reinterpret_cast<E*>(scratch_);
}

// ---- Queue

void CudaKernels::reserve_uploads(std::size_t count, std::int64_t bytes) {
  staging_.clear();
  staging_bytes_ = bytes;
  while (staging_.size() < count) staging_.push_back(processor_.pinned(bytes));
}

void CudaKernels::begin(const Instruction& i, bool timed) {
  timed_ = timed;
  id_ = i.id;
  for (const std::uint32_t id : i.after) wait(processor_.program_->instructions[id]);
  if (timed_) processor_.began_[i.id] = processor_.stamp(stream_);
  const bool computes = i.op == Op::forward || i.op == Op::backward || i.op == Op::backward_input ||
                        i.op == Op::backward_weight;
  repeats_.begin(i.id, may_repeat_ && computes);
}

WithinTimes CudaKernels::end(const Instruction& i) {
  repeats_.end(stream_);
  check(cudaGetLastError(), "start a kernel");
  if (timed_) processor_.ended_[i.id] = processor_.stamp(stream_);
  if (processor_.awaited_[i.id]) {
    check(cudaEventRecord(processor_.over_[i.id].get(), stream_), "record an event");
  }
  timed_ = false;
  return {};
}

void CudaKernels::wait(const Instruction& i) {
  EXPECTS(processor_.awaited_[i.id], "only what is known to be waited for has an event");
  check(cudaStreamWaitEvent(stream_, processor_.over_[i.id].get(), 0), "wait for an event");
}

void CudaKernels::start(Within part) {
  repeats_.keep_out();
  if (!timed_) return;
  open_.push_back({.id = id_,
                   .part = part,
                   .depth = static_cast<int>(open_.size()),
                   .begin = processor_.stamp(stream_),
                   .end = 0});
}

void CudaKernels::stop() {
  if (!timed_) return;
  open_.back().end = processor_.stamp(stream_);
  processor_.spent_.push_back(open_.back());
  open_.pop_back();
}

void CudaKernels::follow() {
  if (++calls_ < kCallsBetweenMarks) return;
  calls_ = 0;
  const CudaProcessor::Event& mark = marks_[mark_];
  mark_ = (mark_ + 1) % kMarks;
  processor_.await(mark);  // set kMarks marks ago, or never
  check(cudaEventRecord(mark.get(), stream_), "record an event");
}

void CudaKernels::upload(const void* from, void* to, std::int64_t bytes) {
  follow();
  EXPECTS(uploads_ < staging_.size() && bytes <= staging_bytes_, "uploads that were announced");
  std::byte* const pinned = staging_[uploads_++].get();
  std::memcpy(pinned, from, static_cast<std::size_t>(bytes));
  check(
      cudaMemcpyAsync(to, pinned, static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice, stream_),
      "copy to the GPU");
}

void CudaKernels::clear(void* block, std::int64_t bytes) {
  put(
      [&](cudaStream_t on) {
        check(cudaMemsetAsync(block, 0, static_cast<std::size_t>(bytes), on), "clear memory");
      },
      block, bytes);
}

void CudaKernels::copy_bytes(const void* from, void* to, std::int64_t bytes) {
  put(
      [&](cudaStream_t on) {
        check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice,
                              on),
              "copy memory");
      },
      from, to, bytes);
}

// ---- Products

void CudaKernels::product(Product p, const Operands& o) {
  p.bias = o.bias != nullptr;
  p.addend = o.addend != nullptr;
  p.alignment = alignment_of({o.a, o.b, o.d, o.addend, o.bias});
  put([&](cudaStream_t on) { gemm_.run(p, o, on); }, p.m, p.n, p.k, p.a_transposed, p.b_transposed,
      o.a, o.b, o.d, o.bias, o.addend);
}

void CudaKernels::multiply(Rows<T> x, const T* weight, std::int64_t out, const T* bias,
                           const T* addend, T* y) {
  product(forward_product(x.rows, x.width, out), {weight, x.data, y, bias, addend});
}

void CudaKernels::multiply_back(Rows<T> dy, const T* weight, std::int64_t in, T* dx) {
  product(input_product(dy.rows, in, dy.width), {weight, dy.data, dx, nullptr, nullptr});
}

void CudaKernels::add_weight_gradient(Rows<T> dy, Rows<T> x, float* dweight) {
  product(weight_product(x.rows, x.width, dy.width), {x.data, dy.data, dweight, nullptr, dweight});
}

// ---- Kernels of our own

void CudaKernels::norm_forward(const NormOf<T>& n, T* y) {
  put(
      [&](cudaStream_t on) {
        if (n.kind == Normalization::layer_norm) {
          layer_norm_forward<T>(on, n.x, nullptr, nullptr, n.weight, n.bias, y, n.mean, n.rstd,
                                n.rows, n.width, n.eps);
        } else {
          rms_norm_forward<T>(on, n.x, nullptr, nullptr, n.weight, y, n.rstd, n.rows, n.width,
                              n.eps);
        }
      },
      n, y);
}

void CudaKernels::norm_backward(const NormOf<T>& n, const T* dy, const T* around, T* dx,
                                float* dweight, float* dbias) {
  put(
      [&](cudaStream_t on) {
        auto* const workspace = scratch<float>(norm_backward_workspace(n.rows, n.width));
        if (n.kind == Normalization::layer_norm) {
          layer_norm_backward<T>(on, dy, n.x, n.weight, n.mean, n.rstd, around, dx, dweight, dbias,
                                 workspace, n.rows, n.width);
        } else {
          rms_norm_backward<T>(on, dy, n.x, n.weight, n.rstd, around, dx, dweight, workspace,
                               n.rows, n.width);
        }
      },
      n, dy, around, dx, dweight, dbias);
}

void CudaKernels::activation_forward(Activation kind, bool gated, const T* x, T* y,
                                     std::int64_t rows, std::int64_t width) {
  put(
      [&](cudaStream_t on) {
        if (gated) {
          cuda::gated_forward<T>(on, kind, x, y, rows, width);
        } else {
          cuda::activation_forward<T>(on, kind, x, y, rows * width);
        }
      },
      kind, gated, x, y, rows, width);
}

void CudaKernels::activation_backward(Activation kind, bool gated, const T* x, const T* dy, T* dx,
                                      std::int64_t rows, std::int64_t width) {
  put(
      [&](cudaStream_t on) {
        if (gated) {
          cuda::gated_backward<T>(on, kind, x, dy, dx, rows, width);
        } else {
          cuda::activation_backward<T>(on, kind, x, dy, dx, rows * width);
        }
      },
      kind, gated, x, dy, dx, rows, width);
}

void CudaKernels::add_bias(T* x, const T* bias, std::int64_t rows, std::int64_t width) {
  put([&](cudaStream_t on) { cuda::add_bias<T>(on, x, bias, rows, width); }, x, bias, rows, width);
}

void CudaKernels::bias_gradient(Rows<T> dy, float* dbias) {
  put(
      [&](cudaStream_t on) {
        cuda::bias_gradient<T>(on, dy.data, dbias,
                               scratch<float>(bias_gradient_workspace(dy.rows, dy.width)), dy.rows,
                               dy.width);
      },
      dy, dbias);
}

void CudaKernels::add(T* x, const T* y, std::int64_t count) {
  put([&](cudaStream_t on) { cuda::add<T>(on, x, y, count); }, x, y, count);
}

void CudaKernels::copy(const T* from, T* to, std::int64_t count) {
  copy_bytes(from, to, count * static_cast<std::int64_t>(sizeof(T)));
}

void CudaKernels::add_positions(T* x, const T* positions, std::int64_t rows, int samples,
                                std::int64_t width) {
  put([&](cudaStream_t on) { cuda::add_positions<T>(on, x, positions, rows, samples, width); }, x,
      positions, rows, samples, width);
}

void CudaKernels::position_gradient(Rows<T> dy, int samples, float* dpositions) {
  put(
      [&](cudaStream_t on) {
        cuda::position_gradient<T>(on, dy.data, dpositions, dy.rows, samples, dy.width);
      },
      dy, samples, dpositions);
}

void CudaKernels::rotate(const AttentionShape& s, double, T* qkv, int direction) {
  put(
      [&](cudaStream_t on) {
        cuda::rotate<T>(on, qkv, rotations_.at(s.head_dim), s.sequence * s.samples, s.qkv_stride,
                        s.samples, s.heads + s.kv_heads, s.head_dim, direction);
      },
      s, qkv, direction);
}

void CudaKernels::attention_forward(const AttentionShape& shape, const T* qkv, T* out,
                                    float* log_sum) {
  put([&](cudaStream_t on) { cuda::attention_forward(on, shape, qkv, out, log_sum); }, shape, qkv,
      out, log_sum);
}

void CudaKernels::attention_backward(const AttentionShape& shape, const T* qkv, const T* out,
                                     const float* log_sum, const T* dout, T* dqkv) {
  put(
      [&](cudaStream_t on) {
        cuda::attention_backward(on, shape, qkv, out, log_sum, dout, dqkv,
                                 scratch<float>(attention_backward_workspace(shape)));
      },
      shape, qkv, out, log_sum, dout, dqkv);
}

void CudaKernels::embedding_forward(const std::int32_t* tokens, const T* weight, T* y,
                                    std::int64_t rows, std::int64_t width, std::int64_t first,
                                    std::int64_t count) {
  put(
      [&](cudaStream_t on) {
        cuda::embedding_forward<T>(on, tokens, weight, y, rows, width, first, count);
      },
      tokens, weight, y, rows, width, first, count);
}

void CudaKernels::embedding_backward(const std::int32_t* tokens, Rows<T> dy, float* dweight,
                                     std::int64_t first, std::int64_t count) {
  put(
      [&](cudaStream_t on) {
        cuda::embedding_backward<T>(on, tokens, dy.data, dweight,
                                    scratch<std::int32_t>(embedding_backward_workspace(dy.rows)),
                                    dy.rows, dy.width, first, count);
      },
      tokens, dy, dweight, first, count);
}

void CudaKernels::logits_partials(const Logits<T>& l, float* max, float* sums) {
  put(
      [&](cudaStream_t on) {
        cuda::logits_partials<T>(on, l.data, l.targets, max, sums, l.rows, l.columns, l.valid,
                                 l.first);
      },
      l, max, sums);
}

void CudaKernels::rescale_sums(const float* part_max, const float* max, float* sums,
                               std::int64_t rows) {
  put([&](cudaStream_t on) { cuda::rescale_sums(on, part_max, max, sums, rows); }, part_max, max,
      sums, rows);
}

void CudaKernels::add_losses(const float* max, const float* sums, double* total,
                             std::int64_t rows) {
  put([&](cudaStream_t on) { cuda::add_losses(on, max, sums, total, rows); }, max, sums, total,
      rows);
}

void CudaKernels::logits_gradient(const Logits<T>& l, const float* max, const float* sums,
                                  double scale) {
  put(
      [&](cudaStream_t on) {
        cuda::logits_gradient<T>(on, l.data, l.targets, max, sums, l.rows, l.columns, l.valid,
                                 l.first, scale);
      },
      l, max, sums, scale);
}

void CudaKernels::add_gradients(float* x, const float* y, std::int64_t count) {
  put([&](cudaStream_t on) { cuda::add<float>(on, x, y, count); }, x, y, count);
}

void CudaKernels::copy_wide(const float* from, float* to, std::int64_t count) {
  copy_bytes(from, to, count * static_cast<std::int64_t>(sizeof(float)));
}

void CudaKernels::widen(const T* from, float* to, std::int64_t count) {
  put([&](cudaStream_t on) { cuda::cast(on, from, to, count); }, from, to, count);
}

void CudaKernels::sum_of_squares(const float* x, std::int64_t count, double* total) {
  put(
      [&](cudaStream_t on) {
        cuda::sum_of_squares(on, x, total, scratch<double>(sum_of_squares_workspace(count)), count);
      },
      x, count, total);
}

void CudaKernels::clip_scale(const double* squares, double most, float* scale) {
  put([&](cudaStream_t on) { cuda::clip_scale(on, squares, most, scale); }, squares, most, scale);
}

void CudaKernels::adam(const AdamStep& step, const float* scale, const Adam<T>& s) {
  put(
      [&](cudaStream_t on) {
        cuda::adam<T>(on, step, scale, s.gradient, s.master, s.first_moment, s.second_moment,
                      s.weights, s.count);
      },
      step.step);
}

}  // namespace echelon::cuda
