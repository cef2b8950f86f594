// CudaKernels: its construction, and its functions as a queue.
#include <algorithm>
#include <cstring>

#include "core/base/expects.hpp"
#include "runtime/cuda/device/checks.hpp"
#include "runtime/cuda/kernels/kernels.hpp"
#include "runtime/cuda/kernels/launch_errors.hpp"
#include "runtime/cuda/queue/cuda_kernels.hpp"
#include "runtime/model/rotary.hpp"
#include "runtime/threads/clock.hpp"

namespace echelon::cuda {
namespace {

/// Bytes of the largest workspace of any kernel of a chunk, except attention's.
std::int64_t workspace_of(const ChunkSpec& spec) {
  const ChunkShape s = shape_of(spec);
  constexpr std::int64_t kFloat = sizeof(float);
  std::int64_t max_bytes = kFloat * norm_backward_workspace(s.local, s.hidden);
  const auto need = [&](std::int64_t bytes) { max_bytes = std::max(max_bytes, bytes); };
  for (const std::int64_t width : {s.hidden, s.qkv, s.up}) {
    need(kFloat * bias_gradient_workspace(s.rows, width));
  }
  if (spec.model.qk_norm) need(kFloat * head_norms_workspace(attention_shape_of(spec)));
  if (spec.model.latent()) need(kFloat * latent_norms_workspace(latent_shape_of(spec)));
  if (spec.loss) need(kFloat * bias_gradient_workspace(s.loss_rows, s.vocab));
  return max_bytes;
}

std::int64_t squares_workspace_of(const ChunkSpec& spec) {
  std::int64_t max_bytes = 0;
  for (const FlatParameters& flat : parameters_of(spec).flat_params) {
    for (const Parameter& p : flat.parameters)
      max_bytes = std::max(max_bytes, sum_of_squares_workspace(p.count()));
  }
  return max_bytes * static_cast<std::int64_t>(sizeof(double));
}

}  // namespace

CudaKernels::CudaKernels(CudaProcessor& processor, int priority, std::optional<int> side_priority,
                         Algorithms& algorithms)
    : processor_(processor), stream_(new_stream(priority)), gemm_(algorithms) {
  for (Event& each : marks_) each = untimed_event();
  if (!side_priority) return;
  side_stream_ = new_stream(*side_priority);
  forked_ = untimed_event();
  for (Event& each : joins_) each = untimed_event();
}

void CudaKernels::prepare(std::span<const ChunkSpec> chunks, Memory& memory) {
  constexpr auto kPart = &MemoryBreakdown::workspace;
  const bool computes = this == &processor_.on(Queue::compute);
  std::vector<Product> products;
  for (const ChunkSpec& spec : chunks) {
    scratch_bytes_ = std::max(scratch_bytes_, squares_workspace_of(spec));
    if (!computes) continue;
    communicates_ = communicates_ || spec.tp * spec.cp * spec.ep > 1;
    scratch_bytes_ = std::max(scratch_bytes_, workspace_of(spec));
    if (spec.layers > 0) {
      const AttentionShape shape = attention_shape_of(spec);
      attention_.prepare(shape, stream(), spec.passes_keys());
      scratch_bytes_ = std::max(scratch_bytes_, attention_.workspace(shape));
    }
    downloads_bytes_ = std::max<std::int64_t>(
        downloads_bytes_, spec.ep * spec.model.moe.experts * bytes_of(Element::i32));
    const std::vector<Product> more = products_of(spec);
    products.insert(products.end(), more.begin(), more.end());
    const ModelSpec& model = spec.model;
    const int width = model.latent() ? model.mla.qk_rope_head_dim : model.head_dim;
    if (model.position != PositionEmbedding::rope || rotations_.contains(width)) continue;
    const RotaryFrequencies frequencies = rotary_frequencies(model.constants->rope, width);
    const auto pairs = static_cast<std::int64_t>(frequencies.angles.size());
    float* table =
        memory.allocate<float>(kPart, spec.sequence * 2 * pairs, "the table of rotary angles");
    rotation_table(stream(), table, spec.sequence, 0, frequencies);
    rotations_.emplace(width, Rotation{frequencies, table});
  }
  scratch_ = memory.allocate<std::byte>(kPart, scratch_bytes_, "scratch of kernels");
  if (!computes) return;
  if (downloads_bytes_ > 0) {
    downloads_.emplace(
        DeviceBuffer::required(downloads_bytes_, DeviceBuffer::Where::pinned, "downloads"));
    downloaded_ = untimed_event();
  }
  gemm_.use_workspace(memory.allocate<std::byte>(kPart, Gemm::kWorkspace, "scratch of cuBLASLt"));
  gemm_.select_algorithms(products, stream());
}

void CudaKernels::reserve_uploads(std::size_t count, std::int64_t bytes) {
  staging_.clear();
  staging_bytes_ = bytes;
  uploads_of_step_ = count;
  while (staging_.size() < 2 * count)
    staging_.push_back(DeviceBuffer::required(bytes, DeviceBuffer::Where::pinned, "uploads"));
}

void CudaKernels::begin(const Instruction& i) {
  timed_ = processor_.step().timed;
  id_ = i.id;
  for (const std::uint32_t id : i.after) wait(processor_.program_->instructions[id]);
  if (timed_) processor_.step().began[i.id] = processor_.time_mark(stream());
  const bool computes = i.op == Op::forward || i.op == Op::backward || i.op == Op::backward_input ||
                        i.op == Op::backward_weight;
  throttle();  // a graph counts as one call
  graph_cache_.begin(i.id, repeatable_ && computes);
}

WithinTimes CudaKernels::end(const Instruction& i) {
  graph_cache_.end(stream());
  check(take_launch_error(), "start a kernel");
  if (timed_) processor_.step().ended[i.id] = processor_.time_mark(stream());
  if (processor_.awaited_[i.id]) {
    check(cudaEventRecord(processor_.step().done_events[i.id].get(), stream()), "record an event");
  }
  timed_ = false;
  return {};
}

void CudaKernels::wait(const Instruction& i) {
  EXPECTS(processor_.awaited_[i.id], "only awaited instructions have an event");
  check(cudaStreamWaitEvent(stream(), processor_.step().done_events[i.id].get(), 0),
        "wait for an event");
}

void CudaKernels::set_mark(std::size_t mark) {
  check(cudaEventRecord(processor_.mark(mark), stream()), "record an event");
}

/// An event that was never recorded is over.
void CudaKernels::wait_for_mark(std::size_t mark) {
  check(cudaStreamWaitEvent(stream(), processor_.mark(mark), 0), "wait for an event");
}

void CudaKernels::start(Within part) {
  graph_cache_.disable_capture();
  if (!timed_) return;
  open_.push_back({.id = id_,
                   .part = part,
                   .depth = static_cast<int>(open_.size()),
                   .begin = processor_.time_mark(stream()),
                   .end = 0});
}

void CudaKernels::stop() {
  if (!timed_) return;
  open_.back().end = processor_.time_mark(stream());
  processor_.step().sub_spans.push_back(open_.back());
  open_.pop_back();
}

void CudaKernels::fork() {
  throttle();
  check(cudaEventRecord(forked_.get(), stream()), "record an event");
  check(cudaStreamWaitEvent(side_stream(), forked_.get(), 0), "wait for an event");
}

SideStream::Mark CudaKernels::mark() {
  const Mark mark = next_join_;
  next_join_ = (next_join_ + 1) % kOpenMarks;
  check(cudaEventRecord(joins_[static_cast<std::size_t>(mark)].get(), side_stream()),
        "record an event");
  return mark;
}

void CudaKernels::join(Mark mark) {
  check(cudaStreamWaitEvent(stream(), joins_[static_cast<std::size_t>(mark)].get(), 0),
        "wait for an event");
}

void CudaKernels::throttle() {
  if (++calls_ < kCallsBetweenMarks) return;
  calls_ = 0;
  const cudaEvent_t mark = marks_[mark_].get();
  mark_ = (mark_ + 1) % kMarks;
  const Seconds begin = steady_now();
  processor_.await_event(mark);  // set kMarks marks ago, or never
  graph_cache_.leave_out(steady_now() - begin);
  check(cudaEventRecord(mark, stream()), "record an event");
}

/// The host waits: what it does then depends on what it reads, so no graph can repeat it.
void CudaKernels::download(const void* from, void* to, std::int64_t bytes) {
  graph_cache_.disable_capture();
  EXPECTS(bytes <= downloads_bytes_, "downloads within the reserved size");
  check(cudaMemcpyAsync(downloads_->as<void>(), from, static_cast<std::size_t>(bytes),
                        cudaMemcpyDeviceToHost, stream()),
        "copy from the GPU");
  check(cudaEventRecord(downloaded_.get(), stream()), "record an event");
  // The GPU has nothing to do from its end on until the host goes on: no nap that it might outlast.
  constexpr Seconds kAwake{5e-3};
  processor_.await_event(downloaded_.get(), kAwake);
  std::memcpy(to, downloads_->as<void>(), static_cast<std::size_t>(bytes));
}

void CudaKernels::upload(const void* from, void* to, std::int64_t bytes) {
  throttle();
  EXPECTS(uploads_ < uploads_end_ && bytes <= staging_bytes_, "uploads within the reserved number");
  std::byte* const pinned = staging_[uploads_++].as<std::byte>();
  std::memcpy(pinned, from, static_cast<std::size_t>(bytes));
  check(cudaMemcpyAsync(to, pinned, static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice,
                        stream()),
        "copy to the GPU");
  const std::int64_t grouped_bytes = processor_.token_rows_bytes_;
  if (bytes != processor_.batch_bytes_ || grouped_bytes == 0) return;
  auto* const grouped = reinterpret_cast<std::int32_t*>(pinned + bytes);
  const auto rows = static_cast<std::size_t>(bytes / 2 / bytes_of(Element::i32));
  token_rows_.group({reinterpret_cast<const std::int32_t*>(pinned), rows}, grouped);
  check(cudaMemcpyAsync(processor_.token_rows_for(to), grouped,
                        static_cast<std::size_t>(grouped_bytes), cudaMemcpyHostToDevice, stream()),
        "copy to the GPU");
}

}  // namespace echelon::cuda
