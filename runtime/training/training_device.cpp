#include "runtime/training/training_device.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "runtime/model/context_tokens.hpp"
#include "runtime/threads/clock.hpp"
#include "runtime/training/training_rank.hpp"

namespace echelon {
namespace {

/// Tokens of a microbatch on a rank.
std::int64_t rows_of(const Training& training) {
  return std::int64_t{training.job.sequence} / training.plan.cp * training.plan.microbatch;
}

}  // namespace

template <class T>
TrainingDevice<T>::TrainingDevice(RunThreads& run_threads, Backend<T>& backend,
                                  const Schedule& schedule, const Training& training)
    : backend_(backend), schedule_(schedule), training_(training), grid_(training.plan) {
  World& world = backend.world();
  for (const int rank : world.local_ranks()) {
    auto& r =
        *ranks_.emplace(rank, std::make_unique<RankState>(run_threads, rank, backend.at(rank)))
             .first->second;
    r.at = grid_.coordinates(rank);
    Stream& compute = r.processor.on(Queue::compute);
    r.tp = std::make_unique<TimedCommunicator>(world.at(rank, GroupRole::tp), compute,
                                               Within::tp_comm);
    r.kv = std::make_unique<TimedCommunicator>(world.at(rank, GroupRole::kv_replicas), compute,
                                               Within::tp_comm);
    r.cp = std::make_unique<TimedCommunicator>(world.at(rank, GroupRole::cp), compute,
                                               Within::cp_comm);
    if (training.plan.ep > 1)
      r.ep = std::make_unique<TimedCommunicator>(world.at(rank, GroupRole::ep), compute,
                                                 Within::ep_comm);
    r.forward = &world.at(rank, GroupRole::forward);
    r.backward = &world.at(rank, GroupRole::backward);
    r.tied = &world.at(rank, GroupRole::tied);
    r.all = &world.at(rank, GroupRole::norm);
    r.sample.resize(at_index(training.job.sequence + 1));
    r.batch.resize(at_index(2 * rows_of(training)));
    allocate(r);
  }
}

template <class T>
TrainingDevice<T>::~TrainingDevice() = default;

template <class T>
typename TrainingDevice<T>::RankState& TrainingDevice<T>::state(int rank) const {
  return *ranks_.at(rank);
}

template <class T>
bool TrainingDevice<T>::estimates_noise(std::int64_t step) const {
  return training_.noise_every > 0 && step % training_.noise_every == 0 &&
         training_.plan.cp == 1 &&  // a rank has part of a microbatch's gradient
         training_.plan.schedule != ScheduleKind::zero_bubble_h1 &&
         std::int64_t{schedule_.microbatches} * training_.plan.dp > 1;
}

template <class T>
double TrainingDevice<T>::learning_rate_of(std::int64_t step) const {
  return training_.rate.at(static_cast<double>(samples_before(step)) /
                           static_cast<double>(training_.job.global_batch));
}

template <class T>
void TrainingDevice<T>::begin_step(int rank, std::int64_t step, bool timed) {
  RankState& r = state(rank);
  r.step = first_step_ + step;
  r.estimates_noise = estimates_noise(r.step);
  for (auto& each : r.chunks) {
    std::fill(each.backwards.begin(), each.backwards.end(), 0);
    std::fill(each.reductions.begin(), each.reductions.end(), 0);
    each.updates_awaited.assign(at_index(schedule_.units) + 1, false);
  }
  for (auto& gradient_buffer : r.gradient_buffers) gradient_buffer.emptied_by = nullptr;
  r.processor.begin_step(schedule_.programs[at_index(r.at.pp)], timed, !r.estimates_noise);
  r.processor.on(Queue::compute).clear(r.sums, sizeof *r.sums);
}

template <class T>
void TrainingDevice<T>::close_step(int rank) {
  RankState& r = state(rank);
  r.processor.close_step(r.sums, sizeof *r.sums);
}

template <class T>
void TrainingDevice<T>::end_step(int rank, std::int64_t step, StepTimes* times) {
  RankState& r = state(rank);
  typename RankState::StepSums sums;
  static_assert(sizeof sums <= Processor<T>::kResultBytes);
  r.processor.end_step(times, &sums);
  StepResult& result = r.result;
  result.loss = sums.loss / training_.job.tokens_per_step();
  result.gradient_norm = std::sqrt(sums.squares);
  result.learning_rate = learning_rate_of(first_step_ + step);
  result.clipped = sums.scale < 1;
  result.small_norm.reset();
  if (estimates_noise(first_step_ + step)) {
    // Gradients are scaled to the global batch: back to the mean of one microbatch's samples.
    const ParallelPlan& plan = training_.plan;
    const double share =
        static_cast<double>(training_.job.global_batch) / static_cast<double>(plan.microbatch);
    result.small_norm = sums.small_squares / plan.dp * share * share;
    result.large_norm = sums.large_squares;
  }
}

template <class T>
Seconds TrainingDevice<T>::now(int, Queue) const {
  return steady_now();
}

template <class T>
void TrainingDevice<T>::execute(Work& work) {
  RankState& r = state(work.rank);
  const Instruction& i = work.instruction;
  Kernels<T>& on = r.processor.on(i.queue);
  const Seconds start = steady_now();
  on.begin(i);
  carry_out(r, i, on);
  work.within = on.end(i);
  if (const Communicator* among = partners(r, i); among != nullptr && among->size() > 1) {
    // A chunk without layers may exchange nothing: the group's last transfer is then another's.
    const Seconds began = among->transfer_began();
    if (began >= start) work.transfer_began = began;
  }
  work.report_done(i);
}

/// The group of a communication; null for other instructions.
template <class T>
const Communicator* TrainingDevice<T>::partners(RankState& r, const Instruction& i) const {
  const auto zero_groups = [&]() -> const ZeroGroups& {
    return r.chunks[at_index(*i.chunk)].states->zero_groups();
  };
  switch (i.op) {
    case Op::send_activation:
    case Op::recv_activation: return r.forward;
    case Op::send_gradient:
    case Op::recv_gradient: return r.backward;
    case Op::gather_parameters:
    case Op::gather_updated: return zero_groups().gather_shards;
    case Op::reduce_gradients:
      return zero_groups().zero > 0 ? zero_groups().reduce_shards : zero_groups().reduce_replicas;
    case Op::reduce_tied_embedding: return r.tied;
    case Op::norm_reduce: return r.all;
    default: return nullptr;
  }
}

template <class T>
std::byte* TrainingDevice<T>::buffer_of(const RankState& r, const Instruction& i,
                                        BufferKind kind) const {
  const auto& places =
      r.places[at_index(*i.chunk) * at_index(schedule_.microbatches) + at_index(*i.microbatch)];
  const std::optional<std::int32_t> number = places[at_index(static_cast<int>(kind))];
  return number ? r.buffers[at_index(*number)] : nullptr;
}

template <class T>
void TrainingDevice<T>::carry_out(RankState& r, const Instruction& i, Kernels<T>& on) {
  const auto buffer = [&](BufferKind kind) { return buffer_of(r, i, kind); };
  const auto boundary = [&] { return r.chunks.front().chunk->boundary_count(); };
  constexpr Element kElement = Number<T>::kElement;
  switch (i.op) {
    case Op::load_batch: return load(r, i, on);
    case Op::forward: return forward(r, i, on);
    case Op::backward:
    case Op::backward_input:
    case Op::backward_weight: return backward(r, i, on);
    case Op::send_activation:
      return r.forward->send(buffer(BufferKind::output), boundary(), kElement, *i.peer);
    case Op::recv_activation:
      return r.forward->receive(buffer(BufferKind::input), boundary(), kElement, *i.peer);
    case Op::send_gradient:
      return r.backward->send(buffer(BufferKind::input_gradient), boundary(), kElement, *i.peer);
    case Op::recv_gradient:
      return r.backward->receive(buffer(BufferKind::output_gradient), boundary(), kElement,
                                 *i.peer);
    case Op::gather_parameters: return gather(r, i);
    case Op::release_parameters: return;
    case Op::reduce_gradients: return reduce(r, i, on);
    case Op::reduce_tied_embedding: return reduce_tied(r);
    case Op::norm_reduce: return norm(r, on);
    case Op::clip: return on.clip_scale(&r.sums->squares, training_.clip, &r.sums->scale);
    case Op::optimizer_step: return step(r, on);
    case Op::gather_updated: return gather_updated(r, i, on);
    case Op::zero_gradients:
      for (auto& each : r.chunks) {
        for (auto& flat : each.states->flat_states()) each.states->clear_gradients(on, flat);
      }
      return;
  }
}

/// Rows are ordered [sequence][sample]; targets follow the tokens.
template <class T>
void TrainingDevice<T>::load(RankState& r, const Instruction& i, Kernels<T>& on) {
  const ParallelPlan& plan = training_.plan;
  const std::int64_t rows = rows_of(training_);
  const auto runs = context_tokens(training_.job.sequence, plan.cp, plan.cp_comm, r.at.cp);
  std::int32_t* const tokens = r.batch.data();
  const std::int64_t share = training_.job.global_batch / plan.dp;
  for (std::int64_t s = 0; s < plan.microbatch; ++s) {
    const std::int64_t number = samples_before(r.step) + r.at.dp * share +
                                std::int64_t{*i.microbatch} * plan.microbatch + s;
    training_.read(number, r.sample.data());
    for (const TokenRun& run : runs) {
      const std::int32_t* const from = &r.sample[at_index(run.position)];
      for (std::int64_t t = 0; t < run.count; ++t) {
        std::int32_t* const to = tokens + (run.at + t) * plan.microbatch + s;
        to[0] = from[t], to[rows] = from[t + 1];
      }
    }
  }
  on.upload(tokens, r.buffers[at_index(*i.writes.begin())],
            static_cast<std::int64_t>(r.batch.size() * sizeof r.batch.front()));
}

/// ZeRO-3: a unit's weights, then those that go with them.
template <class T>
void TrainingDevice<T>::gather(RankState& r, const Instruction& i) {
  OptimizerState<T>& states = *r.chunks[at_index(*i.chunk)].states;
  const int unit = schedule_.units_of(i).first;
  const FlatState<T>& flat = r.flat(*i.chunk, unit);
  T* const to = reinterpret_cast<T*>(r.buffers[at_index(*i.writes.begin())]);
  states.gather(flat, to);
  if (const FlatState<T>* const other = states.gathered_with(unit))
    states.gather(*other, to + flat.layout->padded);
}

template <class T>
ChunkArguments<T> TrainingDevice<T>::arguments_of(RankState& r, const Instruction& i, int unit) {
  const auto buffer = [&](BufferKind kind) { return buffer_of(r, i, kind); };
  ChunkArguments<T> args;
  const T* gathered = nullptr;
  const Program& program = schedule_.programs[at_index(r.at.pp)];
  for (const std::int32_t number : i.reads) {  // ZeRO-3
    if (program.buffers[at_index(number)].kind == BufferKind::parameters)
      gathered = reinterpret_cast<const T*>(r.buffers[at_index(number)]);
  }
  r.set_weights(*i.chunk, unit, gathered, args);
  if (const FlatState<T>* tied = r.tied_flat(*i.chunk)) {
    args.tied = tied->weights;
    args.tied_gradients = tied->gradients;
  }
  args.tokens = reinterpret_cast<const std::int32_t*>(buffer(BufferKind::batch));
  if (args.tokens != nullptr) args.targets = args.tokens + rows_of(training_);
  args.input = reinterpret_cast<const T*>(buffer(BufferKind::input));
  args.output = reinterpret_cast<T*>(buffer(BufferKind::output));
  args.output_gradient = reinterpret_cast<const T*>(buffer(BufferKind::output_gradient));
  args.saved = buffer(BufferKind::saved);
  args.weight_inputs = buffer(BufferKind::weight_inputs);
  args.workspace = r.workspace;
  args.loss = &r.sums->loss;
  args.loss_in_backward = r.loss_in_backward[i.id];
  args.loss_scale = 1 / training_.job.tokens_per_step();
  return args;
}

template <class T>
void TrainingDevice<T>::forward(RankState& r, const Instruction& i, Kernels<T>& on) {
  const UnitRange units = schedule_.units_of(i);
  for (int unit = units.first; unit < units.end; ++unit) {
    await_updated(r, *i.chunk, unit, on);
    r.chunks[at_index(*i.chunk)].chunk->forward(unit, arguments_of(r, i, unit));
  }
}

/// In the order in which the next step's forward needs them: a tied embedding before the layers, or
/// after them.
template <class T>
void TrainingDevice<T>::gather_updated(RankState& r, const Instruction& i, Kernels<T>& on) {
  auto& of_chunk = r.chunks[at_index(*i.chunk)];
  auto& flat_states = of_chunk.states->flat_states();
  const std::size_t units = at_index(schedule_.units);
  const auto gather_tied = [&] {
    of_chunk.states->gather_updated(flat_states.back());
    on.set_mark(r.mark_of(*i.chunk, units));
  };
  const bool tied = r.trained_tied_flat(*i.chunk) != nullptr;
  const bool tied_first = tied && of_chunk.chunk->spec().embedding;
  if (tied_first) gather_tied();
  for (std::size_t unit = 0; unit < units; ++unit) {
    of_chunk.states->gather_updated(flat_states[unit]);
    if (FlatState<T>* const experts = of_chunk.states->experts_of(static_cast<int>(unit)))
      of_chunk.states->gather_updated(*experts);
    on.set_mark(r.mark_of(*i.chunk, unit));
  }
  if (tied && !tied_first) gather_tied();
}

template <class T>
void TrainingDevice<T>::await_updated(RankState& r, int chunk, int unit, Kernels<T>& on) {
  auto& of_chunk = r.chunks[at_index(chunk)];
  const int zero = of_chunk.states->zero_groups().zero;
  if (zero != 1 && zero != 2) return;
  const auto await = [&](std::size_t which) {
    if (of_chunk.updates_awaited[which]) return;
    of_chunk.updates_awaited[which] = true;
    const ScopedSubSpan exposed(on, Within::dp_comm);
    on.wait_for_mark(r.mark_of(chunk, which));
  };
  const ChunkSpec& spec = of_chunk.chunk->spec();
  const bool uses_tied = (unit == 0 && spec.embedding) || (unit + 1 == spec.units && spec.loss);
  if (r.trained_tied_flat(chunk) != nullptr && uses_tied) await(at_index(spec.units));
  await(at_index(unit));
}

/// Units fall. ZeRO-2 and 3 accumulate a unit's gradients in a gradient buffer that its reduction
/// frees.
template <class T>
void TrainingDevice<T>::backward(RankState& r, const Instruction& i, Kernels<T>& on) {
  auto& of_chunk = r.chunks[at_index(*i.chunk)];
  const Chunk<T>& chunk = *of_chunk.chunk;
  const bool merges = of_chunk.states->zero_groups().zero >= 2;
  const UnitRange units = schedule_.units_of(i);
  for (int unit = units.end - 1; unit >= units.first; --unit) {
    ChunkArguments<T> args = arguments_of(r, i, unit);
    args.gradient = r.upstream_gradient;
    const FlatState<T>& flat = r.flat(*i.chunk, unit);
    args.gradients = merges ? gradient_buffer_of(r, i, unit, on) : flat.gradients;
    if (const FlatState<T>* const experts = of_chunk.states->experts_of(unit)) {
      args.expert_gradients = of_chunk.states->merges(*experts)
                                  ? args.gradients + flat.layout->padded
                                  : experts->gradients;
    }
    if (i.op == Op::backward_weight) {
      chunk.backward_weight(unit, args);
    } else if (i.op == Op::backward) {
      chunk.backward(unit, args);
    } else {
      chunk.backward_input(unit, args);
    }
    if (i.op != Op::backward_weight && unit == 0) store_input_gradient(r, i, on);
    if (i.op == Op::backward_input) continue;
    int& done = of_chunk.backwards[at_index(unit)];
    ++done;
    if (merges || done == schedule_.microbatches) chunk.finish_gradients(unit, args.gradients);
    if (r.estimates_noise && done == 1) add_small_squares(r, *i.chunk, unit, args.gradients, on);
  }
}

template <class T>
void TrainingDevice<T>::store_input_gradient(RankState& r, const Instruction& i, Kernels<T>& on) {
  std::byte* const to = buffer_of(r, i, BufferKind::input_gradient);
  if (to == nullptr) return;  // the embedding is here
  on.copy(r.upstream_gradient, reinterpret_cast<T*>(to), r.chunks.front().chunk->boundary_count());
}

/// Nothing changes if the gradients are NaN; the loss watch ends such a run.
template <class T>
void TrainingDevice<T>::step(RankState& r, Kernels<T>& on) {
  OptimizerStep optimizer = training_.optimizer;
  optimizer.learning_rate = learning_rate_of(r.step);
  optimizer.step = r.step + 1;
  for (auto& each : r.chunks) {
    for (FlatState<T>& flat : each.states->flat_states())
      each.states->update(on, flat, optimizer, &r.sums->scale);
  }
}

template <class T>
void TrainingDevice<T>::make_nan(int rank) {
  RankState& r = state(rank);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  r.processor.on(Queue::reduce).upload(&nan, &r.sums->squares, sizeof nan);
}

template <class T>
StepResult TrainingDevice<T>::result(int rank) const {
  return state(rank).result;
}

template <class T>
const MemoryBreakdown& TrainingDevice<T>::held(int rank) const {
  return state(rank).memory.held();
}

template <class T>
std::vector<OptimizerState<T>*> TrainingDevice<T>::states(int rank) {
  std::vector<OptimizerState<T>*> out;
  for (auto& each : state(rank).chunks) out.push_back(each.states.get());
  return out;
}

template class TrainingDevice<double>;
template class TrainingDevice<float>;
template class TrainingDevice<Bfloat16>;

}  // namespace echelon
