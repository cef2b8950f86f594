#include "runtime/cuda/queue/cuda_processor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/base/expects.hpp"
#include "runtime/cuda/device/checks.hpp"
#include "runtime/cuda/kernels/kernels.hpp"
#include "runtime/cuda/kernels/launch_errors.hpp"
#include "runtime/cuda/kernels/token_rows.hpp"
#include "runtime/cuda/queue/cuda_kernels.hpp"
#include "runtime/threads/clock.hpp"

namespace echelon::cuda {
namespace {

constexpr std::int64_t kStaging = 8 << 20;

/// Communication has priority: others wait for it, and it leaves most of the device free.
bool goes_first(Queue queue) { return queue != Queue::compute && queue != Queue::host; }

}  // namespace

CudaProcessor::CudaProcessor(RunThreads& run_threads, int rank, int device, Algorithms& algorithms)
    : run_threads_(run_threads), rank_(rank), device_(device) {
  use_device(device_);
  load_kernels();
  check(take_launch_error(), "load kernels");
  int last = 0;
  int first = 0;
  check(cudaDeviceGetStreamPriorityRange(&last, &first), "ask for priorities");
  for (std::size_t queue = 0; queue < kQueues; ++queue) {
    const auto which = static_cast<Queue>(queue);
    const auto side = which == Queue::compute ? std::optional(first) : std::nullopt;
    queues_[queue] =
        std::make_unique<CudaKernels>(*this, goes_first(which) ? first : last, side, algorithms);
  }
  staging_.emplace(DeviceBuffer::required(kStaging, DeviceBuffer::Where::pinned, "copies"));
  for (Step& each : steps_) {
    each.over = untimed_event();
    each.result.emplace(
        DeviceBuffer::required(kResultBytes, DeviceBuffer::Where::pinned, "results of steps"));
  }
  for (Event& each : fronts_) each = timed_event();
}

CudaProcessor::~CudaProcessor() { static_cast<void>(cudaSetDevice(device_)); }

cudaStream_t CudaProcessor::stream(Queue queue) const {
  return queues_[static_cast<std::size_t>(queue)]->stream();
}

cudaStream_t CudaProcessor::side_stream() const { return compute().side_stream(); }

const Attention& CudaProcessor::attention() const {
  return queues_[static_cast<std::size_t>(Queue::compute)]->attention();
}

void* CudaProcessor::allocate(std::int64_t bytes) {
  use_device(device_);
  void* block = nullptr;
  const cudaError_t status = cudaMalloc(&block, static_cast<std::size_t>(bytes));
  if (status == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());  // otherwise the next launch would report it
    return nullptr;
  }
  check(status, "take memory of the GPU");
  const cudaStream_t compute = stream(Queue::compute);
  check(cudaMemsetAsync(block, 0, static_cast<std::size_t>(bytes), compute), "clear memory");
  check(cudaStreamSynchronize(compute), "clear memory");
  return block;
}

void CudaProcessor::free(void* block) {
  static_cast<void>(cudaSetDevice(device_));
  static_cast<void>(cudaFree(block));
}

std::optional<Bytes> CudaProcessor::available() const {
  use_device(device_);
  return memory_of_device().free;
}

Kernels<Bfloat16>& CudaProcessor::on(Queue queue) {
  use_device(device_);
  return *queues_[static_cast<std::size_t>(queue)];
}

/// The compute queue computes, and the reduce queue adds up squares and gradients.
void CudaProcessor::prepare(std::span<const ChunkSpec> chunks, Memory& memory) {
  use_device(device_);
  memory_ = &memory;
  memory.count(&MemoryBreakdown::context, context_);
  memory.count(&MemoryBreakdown::communication, communicators_);
  const Bytes beside = memory_of_device().used - memory.held().total();
  for (const ChunkSpec& spec : chunks) {
    const std::int64_t rows = shape_of(spec).rows;
    batch_bytes_ = 2 * rows * bytes_of(Element::i32);
    if (spec.embedding) token_rows_bytes_ = token_rows_count(rows) * bytes_of(Element::i32);
  }
  for (const Queue queue : {Queue::compute, Queue::reduce}) {
    queues_[static_cast<std::size_t>(queue)]->prepare(chunks, memory);
  }
  check(cudaDeviceSynchronize(), "prepare the GPU");
  check(take_launch_error(), "start a kernel");
  // Memory that libraries allocated meanwhile. Ranks that share a GPU are prepared one by one.
  const Bytes loaded = memory_of_device().used - memory.held().total() - beside;
  memory.count(&MemoryBreakdown::context, std::max(Bytes{}, loaded));
}

/// Pages of allocations, pools of events, and what libraries allocated in a step. Other programs on
/// the GPU count too, as they did in the first context.
void CudaProcessor::count_rest() {
  if (!alone_ || memory_ == nullptr) return;
  use_device(device_);
  const Bytes rest = memory_of_device().used - memory_->held().total();
  if (rest > Bytes{}) memory_->count(&MemoryBreakdown::context, rest);
}

/// Instructions that need an event: those that others wait for, reductions (which free gradient
/// buffers) and the last of each queue.
void CudaProcessor::prepare_events(const Program& program) {
  EXPECTS(begun_ == ended_, "no step of another program runs");
  program_ = &program;
  const std::size_t count = program.instructions.size();
  awaited_.assign(count, false);
  last_.fill(std::nullopt);
  last_needed_.fill(std::nullopt);
  for (const Instruction& i : program.instructions) {
    const auto queue = static_cast<std::size_t>(i.queue);
    for (const std::uint32_t id : i.after) awaited_[id] = true;
    if (i.op == Op::reduce_gradients) awaited_[i.id] = true;
    last_[queue] = i.id;
    if (i.op != Op::gather_updated) last_needed_[queue] = i.id;
  }
  for (const auto& ids : {last_, last_needed_}) {
    for (const std::optional<std::uint32_t> id : ids) {
      if (id) awaited_[*id] = true;
    }
  }
  for (Step& each : steps_) {
    each.done_events.clear();
    for (std::size_t id = 0; id < count; ++id)
      each.done_events.push_back(awaited_[id] ? untimed_event() : Event());
    each.began.assign(count, 0);
    each.ended.assign(count, 0);
  }
  const auto loads = std::count_if(program.instructions.begin(), program.instructions.end(),
                                   [](const Instruction& i) { return i.op == Op::load_batch; });
  queues_[static_cast<std::size_t>(Queue::host)]->reserve_uploads(static_cast<std::size_t>(loads),
                                                                  batch_bytes_ + token_rows_bytes_);
  queues_[static_cast<std::size_t>(Queue::reduce)]->reserve_uploads(1, sizeof(double));  // make_nan
  prepare_token_rows(program);
  compute().graph_cache().reset(count, chosen_graph_use());
}

/// As many as the program's buffers of batches.
void CudaProcessor::prepare_token_rows(const Program& program) {
  token_rows_.clear();
  token_rows_of_.clear();
  if (token_rows_bytes_ == 0) return;
  for (const Buffer& buffer : program.buffers) {
    if (buffer.kind != BufferKind::batch) continue;
    token_rows_.push_back(DeviceBuffer::required(token_rows_bytes_, DeviceBuffer::Where::device,
                                                 "the rows of a batch by token"));
    memory_->count(&MemoryBreakdown::workspace, Bytes{static_cast<double>(token_rows_bytes_)});
  }
}

std::int32_t* CudaProcessor::token_rows_for(const void* batch) {
  const auto [place, is_new] = token_rows_of_.try_emplace(batch, token_rows_of_.size());
  EXPECTS(place->second < token_rows_.size(), "as many batches as the program has buffers for");
  return token_rows_[place->second].as<std::int32_t>();
}

const std::int32_t* CudaProcessor::token_rows(const void* batch) const {
  return token_rows_[token_rows_of_.at(batch)].as<std::int32_t>();
}

cudaEvent_t CudaProcessor::mark(std::size_t number) {
  while (marks_.size() <= number) marks_.push_back(untimed_event());
  return marks_[number].get();
}

std::size_t CudaProcessor::time_mark(cudaStream_t stream) {
  Step& now = step();
  if (now.used_time_marks == now.time_marks.size()) now.time_marks.push_back(timed_event());
  check(cudaEventRecord(now.time_marks[now.used_time_marks].get(), stream), "record an event");
  return now.used_time_marks++;
}

void CudaProcessor::begin_step(const Program& program, bool timed, bool repeatable) {
  use_device(device_);
  EXPECTS(begun_ - ended_ < steps_.size(), "at most two steps run");
  if (program_ != &program) prepare_events(program);
  const cudaEvent_t before = begun_ > 0 ? step().over.get() : nullptr;
  if (before != nullptr && compute().graph_cache().has_captured()) await_step_before();
  make_graphs();
  ++begun_;
  for (const auto& queue : queues_) {
    queue->begin_step(repeatable);
    if (before != nullptr)
      check(cudaStreamWaitEvent(queue->stream(), before, 0), "wait for an event");
  }
  const bool follows_timed = begun_ > 1 && steps_[begun_ % steps_.size()].timed;
  step().timed = timed;
  if (timed) begin_times(follows_timed);
}

void CudaProcessor::await_step_before() {
  await_event(step().over.get());
  for (const std::optional<std::uint32_t> id : last_) {
    if (id) await_event(step().done_events[*id].get());
  }
}

/// Of consecutive measured steps only the first one's front is awaited here, to know when it is by
/// the host's clock; the others follow from it (fill).
void CudaProcessor::begin_times(bool follows_timed) {
  Step& now = step();
  now.used_time_marks = 0;
  now.sub_spans.clear();
  const cudaEvent_t front = this->front(begun_);
  check(cudaEventRecord(front, stream(Queue::compute)), "record an event");
  if (follows_timed) return;
  await_event(front);
  origin_ = steady_now();
  origin_of_ = begun_;
}

/// On the compute queue: the next step's work waits for it.
void CudaProcessor::close_step(const void* result, std::int64_t bytes) {
  use_device(device_);
  Step& now = step();
  const cudaStream_t compute = stream(Queue::compute);
  for (const std::optional<std::uint32_t> id : last_needed_) {
    if (id) check(cudaStreamWaitEvent(compute, now.done_events[*id].get(), 0), "wait for an event");
  }
  EXPECTS(bytes <= kResultBytes, "a result of a few numbers");
  now.result_bytes = bytes;
  if (bytes > 0) {
    check(cudaMemcpyAsync(now.result->as<void>(), result, static_cast<std::size_t>(bytes),
                          cudaMemcpyDeviceToHost, compute),
          "copy from the GPU");
  }
  if (now.timed) now.closed = time_mark(compute);
  check(cudaEventRecord(now.over.get(), compute), "record an event");
}

bool CudaProcessor::is_over(std::uint32_t id) const {
  return has_passed(ending().done_events[id].get());
}

/// "rank 1 of the GPU is at #17 reduce c0 u1 (reduce)": the unfinished instruction of each queue.
std::string CudaProcessor::unfinished() const {
  std::string text;
  for (std::size_t queue = 0; queue < kQueues && program_ != nullptr; ++queue) {
    for (const Instruction& i : program_->instructions) {
      const bool here = static_cast<std::size_t>(i.queue) == queue && awaited_[i.id];
      if (!here || is_over(i.id)) continue;
      text += (text.empty() ? "" : ", ") + describe(rank_, i) + " or what comes before it";
      break;
    }
  }
  if (text.empty()) text = "what was put on it last";
  return "the GPU has not finished " + text;
}

void CudaProcessor::await_event(cudaEvent_t event, Seconds awake) {
  const auto over = [&] {
    watch_();
    return has_passed(event);
  };
  run_threads_.poll(
      over, [&] { return unfinished(); }, awake);
}

void CudaProcessor::end_step(StepTimes* times, void* into) {
  use_device(device_);
  EXPECTS(ended_ < begun_, "a step that has begun");
  const auto all_over = [&] {
    watch_();
    return has_passed(ending().over.get()) &&
           std::all_of(last_.begin(), last_.end(),
                       [&](std::optional<std::uint32_t> id) { return !id || is_over(*id); });
  };
  run_threads_.poll(all_over, [&] { return unfinished(); });
  if (ending().result_bytes > 0)
    std::memcpy(into, ending().result->as<void>(), static_cast<std::size_t>(ending().result_bytes));
  if (times != nullptr) fill(*times);
  ++ended_;
}

/// The step before is over, so nothing of this rank runs on the device.
void CudaProcessor::make_graphs() {
  const Bytes taken = compute().graph_cache().make_graphs(stream(Queue::compute));
  if (memory_ != nullptr) memory_->count(&MemoryBreakdown::context, taken);
}

std::string CudaProcessor::gemm_algorithms() const { return compute().gemm().in_use(); }

GraphsMade CudaProcessor::graphs() const {
  const GraphCache& cache = compute().graph_cache();
  return {cache.graphs(), cache.memory()};
}

Seconds CudaProcessor::time_of(std::size_t time_mark) const {
  const Step& step = ending();
  return origin_ + between(front(ended_ + 1), step.time_marks[time_mark].get());
}

/// The step ends when the next one's work may begin: of gathers that run beside that, the waits of
/// its forwards count there. A nested part is subtracted from the outer one.
void CudaProcessor::fill(StepTimes& times) {
  const Step& step = ending();
  const std::size_t number = ended_ + 1;
  if (origin_of_ != number) origin_ += between(front(number - 1), front(number));
  origin_of_ = number;
  times.begin = origin_;
  times.end = time_of(step.closed);
  for (const Instruction& i : program_->instructions) {
    InstructionSpan& span = times.spans[i.id];
    span = {.start = std::min(time_of(step.began[i.id]), times.end),
            .end = std::min(time_of(step.ended[i.id]), times.end),
            .within = {}};
    if (i.queue == Queue::compute)
      compute().graph_cache().record_device_time(i.id, span.end - span.start);
  }
  const std::vector<SubSpan>& sub_spans = step.sub_spans;
  for (std::size_t s = 0; s < sub_spans.size(); ++s) {
    const SubSpan& each = sub_spans[s];
    Seconds own = time_of(each.end) - time_of(each.begin);
    // A nested part ended before the outer one, so it precedes it directly.
    for (std::size_t in = s; in-- > 0;) {
      const SubSpan& inner = sub_spans[in];
      if (inner.id != each.id || inner.depth <= each.depth) break;
      if (inner.depth == each.depth + 1) own -= time_of(inner.end) - time_of(inner.begin);
    }
    times.spans[each.id].within[static_cast<std::size_t>(each.part)] += own;
  }
}

void CudaProcessor::read(const void* from, void* host, std::int64_t bytes) {
  use_device(device_);
  const cudaStream_t stream = this->stream(Queue::host);
  for (std::int64_t at = 0; at < bytes; at += kStaging) {
    const auto part = static_cast<std::size_t>(std::min(kStaging, bytes - at));
    check(cudaMemcpyAsync(staging_->as<std::byte>(), static_cast<const std::byte*>(from) + at, part,
                          cudaMemcpyDeviceToHost, stream),
          "copy from the GPU");
    check(cudaStreamSynchronize(stream), "copy from the GPU");
    std::memcpy(static_cast<std::byte*>(host) + at, staging_->as<std::byte>(), part);
  }
}

void CudaProcessor::write(const void* host, void* to, std::int64_t bytes) {
  use_device(device_);
  const cudaStream_t stream = this->stream(Queue::host);
  for (std::int64_t at = 0; at < bytes; at += kStaging) {
    const auto part = static_cast<std::size_t>(std::min(kStaging, bytes - at));
    std::memcpy(staging_->as<std::byte>(), static_cast<const std::byte*>(host) + at, part);
    check(cudaMemcpyAsync(static_cast<std::byte*>(to) + at, staging_->as<std::byte>(), part,
                          cudaMemcpyHostToDevice, stream),
          "copy to the GPU");
    check(cudaStreamSynchronize(stream), "copy to the GPU");
  }
}

}  // namespace echelon::cuda
