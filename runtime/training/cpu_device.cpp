#include "runtime/training/cpu_device.hpp"

#include <omp.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string>

#include "runtime/clock.hpp"
#include "runtime/cpu/kernels.hpp"
#include "runtime/training/cpu_rank.hpp"

namespace echelon {

template <class T>
CpuDevice<T>::CpuDevice(Crew& crew, World& world, const Schedule& schedule,
                        const Training& training)
    : schedule_(schedule), training_(training), grid_(training.plan) {
  for (const int rank : world.local_ranks()) {
    auto& r = *ranks_.emplace(rank, std::make_unique<RankState>(crew, rank)).first->second;
    r.rank = rank;
    r.at = grid_.coordinates(rank);
    r.tp = std::make_unique<TimedCommunicator>(world.at(rank, Line::tp));
    r.kv = std::make_unique<TimedCommunicator>(world.at(rank, Line::kv_replicas));
    r.forward = &world.at(rank, Line::forward);
    r.backward = &world.at(rank, Line::backward);
    r.tied = &world.at(rank, Line::tied);
    r.all = &world.at(rank, Line::norm);
    r.sample.resize(at_index(training.job.sequence + 1));
    allocate(r, world);
  }
}

template <class T>
CpuDevice<T>::~CpuDevice() = default;

template <class T>
typename CpuDevice<T>::RankState& CpuDevice<T>::state(int rank) const {
  return *ranks_.at(rank);
}

template <class T>
void CpuDevice<T>::begin_step(int rank, std::int64_t step) {
  RankState& r = state(rank);
  r.step = first_step_ + step;
  r.last_forward = {};
  r.loss_sum = 0;
  r.small_squares = 0;
  const ParallelPlan& plan = training_.plan;
  r.estimates_noise = training_.noise_every > 0 && r.step % training_.noise_every == 0 &&
                      plan.schedule != ScheduleKind::zero_bubble_h1 &&
                      std::int64_t{schedule_.microbatches} * plan.dp > 1;
  for (auto& each : r.chunks) {
    std::fill(each.backwards.begin(), each.backwards.end(), 0);
    std::fill(each.reductions.begin(), each.reductions.end(), 0);
  }
}

template <class T>
Seconds CpuDevice<T>::now(int, Queue) const {
  return steady_now();
}

template <class T>
void CpuDevice<T>::execute(Work& work) {
  RankState& r = state(work.rank);
  const Instruction& i = work.instruction;
  omp_set_num_threads(training_.threads);  // of this thread alone
  const auto buffer = [&](BufferKind kind) -> std::byte* {
    const std::int32_t number = r.places[at_index(i.chunk) * at_index(schedule_.microbatches) +
                                         at_index(i.microbatch)][at_index(static_cast<int>(kind))];
    return number < 0 ? nullptr : r.buffers[at_index(number)];
  };
  const auto met = [&](const Communicator* among) {
    if (among->size() > 1) work.met = among->met();
  };
  const auto boundary = [&] { return r.chunks.front().chunk->boundary_count(); };
  constexpr Element kElement = Number<T>::kElement;
  switch (i.op) {
    case Op::load_batch: load(r, work); break;
    case Op::forward: forward(r, work); break;
    case Op::backward:
    case Op::backward_input:
    case Op::backward_weight: backward(r, work); break;
    case Op::send_activation:
      r.forward->send(buffer(BufferKind::output), boundary(), kElement, i.peer);
      met(r.forward);
      break;
    case Op::recv_activation:
      r.forward->receive(buffer(BufferKind::input), boundary(), kElement, i.peer);
      met(r.forward);
      break;
    case Op::send_gradient:
      r.backward->send(buffer(BufferKind::input_gradient), boundary(), kElement, i.peer);
      met(r.backward);
      break;
    case Op::recv_gradient:
      r.backward->receive(buffer(BufferKind::output_gradient), boundary(), kElement, i.peer);
      met(r.backward);
      break;
    case Op::gather_parameters: {
      const auto& states = *r.chunks[at_index(i.chunk)].states;
      states.gather(r.region(i.chunk, std::max(0, i.unit)),
                    reinterpret_cast<T*>(r.buffers[at_index(*i.writes.begin())]));
      met(states.sharing().gather_shards);
      break;
    }
    case Op::release_parameters: break;
    case Op::reduce_gradients: {
      const Sharing& sharing = r.chunks[at_index(i.chunk)].states->sharing();
      reduce(r, i);
      met(sharing.zero > 0 ? sharing.reduce_shards : sharing.reduce_replicas);
      break;
    }
    case Op::reduce_tied_embedding:
      reduce_tied(r);
      met(r.tied);
      break;
    case Op::norm_reduce:
      norm(r);
      met(r.all);
      break;
    case Op::clip: {
      const double norm = r.result.gradient_norm;
      r.result.clipped = training_.clip > 0 && norm > training_.clip;
      constexpr double kLittle = 1e-6;  // torch.nn.utils.clip_grad_norm_
      r.scale = r.result.clipped ? training_.clip / (norm + kLittle) : 1;
      break;
    }
    case Op::optimizer_step: step(r); break;
    case Op::gather_updated: {
      States<T>& states = *r.chunks[at_index(i.chunk)].states;
      for (auto& region : states.regions()) states.gather_updated(region);
      met(states.sharing().gather_shards);
      break;
    }
    case Op::zero_gradients:
      for (auto& each : r.chunks) {
        for (auto& region : each.states->regions()) each.states->clear_gradients(region);
      }
      break;
  }
  if (i.queue == Queue::compute) work[Within::tp_comm] += r.tp->take() + r.kv->take();
  work.did(i);
}

/// Rows are ordered [sequence][sample]; targets lie behind the tokens.
template <class T>
void CpuDevice<T>::load(RankState& r, const Work& work) {
  const Instruction& i = work.instruction;
  const ParallelPlan& plan = training_.plan;
  const std::int64_t sequence = training_.job.sequence;
  const std::int64_t rows = sequence * plan.microbatch;
  auto* tokens = reinterpret_cast<std::int32_t*>(r.buffers[at_index(*i.writes.begin())]);
  const std::int64_t share = training_.job.global_batch / plan.dp;
  for (std::int64_t s = 0; s < plan.microbatch; ++s) {
    const std::int64_t number = r.step * training_.job.global_batch + r.at.dp * share +
                                std::int64_t{i.microbatch} * plan.microbatch + s;
    training_.read(number, r.sample.data());
    for (std::int64_t t = 0; t < sequence; ++t) {
      tokens[t * plan.microbatch + s] = r.sample[at_index(t)];
      tokens[rows + t * plan.microbatch + s] = r.sample[at_index(t + 1)];
    }
  }
}

template <class T>
Pass<T> CpuDevice<T>::pass_of(RankState& r, const Instruction& i, int unit) {
  const auto places =
      r.places[at_index(i.chunk) * at_index(schedule_.microbatches) + at_index(i.microbatch)];
  const auto buffer = [&](BufferKind kind) -> std::byte* {
    const std::int32_t number = places[at_index(static_cast<int>(kind))];
    return number < 0 ? nullptr : r.buffers[at_index(number)];
  };
  const RegionState<T>& region = r.region(i.chunk, unit);
  Pass<T> pass;
  pass.weights = region.weights;
  const Program& program = schedule_.programs[at_index(r.at.pp)];
  for (const std::int32_t number : i.reads) {  // ZeRO-3
    if (program.buffers[at_index(number)].kind == BufferKind::parameters)
      pass.weights = reinterpret_cast<const T*>(r.buffers[at_index(number)]);
  }
  if (const RegionState<T>* tied = r.tied_region(i.chunk)) {
    pass.tied = tied->weights;
    pass.tied_gradients = tied->gradients;
  }
  pass.tokens = reinterpret_cast<const std::int32_t*>(buffer(BufferKind::batch));
  if (pass.tokens != nullptr)
    pass.targets = pass.tokens + training_.job.sequence * training_.plan.microbatch;
  pass.input = reinterpret_cast<const T*>(buffer(BufferKind::input));
  pass.output = reinterpret_cast<T*>(buffer(BufferKind::output));
  pass.output_gradient = reinterpret_cast<const T*>(buffer(BufferKind::output_gradient));
  pass.saved = buffer(BufferKind::saved);
  pass.weight_inputs = buffer(BufferKind::weight_inputs);
  pass.workspace = r.workspace;
  pass.loss_scale = 1 / training_.job.tokens_per_step();
  return pass;
}

template <class T>
void CpuDevice<T>::forward(RankState& r, Work& work) {
  const Instruction& i = work.instruction;
  const int first = std::max(0, i.unit);
  const int end = i.unit < 0 ? schedule_.units : i.unit + 1;
  for (int unit = first; unit < end; ++unit) {
    r.loss_sum += r.chunks[at_index(i.chunk)].chunk->forward(unit, pass_of(r, i, unit));
  }
  r.last_forward = {i.chunk, i.microbatch};
}

/// Units fall. ZeRO-2 and 3 make a unit's gradients in a slot that its reduction empties.
template <class T>
void CpuDevice<T>::backward(RankState& r, Work& work) {
  const Instruction& i = work.instruction;
  auto& of_chunk = r.chunks[at_index(i.chunk)];
  const Chunk<T>& chunk = *of_chunk.chunk;
  const bool merges = of_chunk.states->sharing().zero >= 2;
  const int first = std::max(0, i.unit);
  const int end = i.unit < 0 ? schedule_.units : i.unit + 1;
  for (int unit = end - 1; unit >= first; --unit) {
    Pass<T> pass = pass_of(r, i, unit);
    pass.logits_left = r.last_forward.chunk == i.chunk && r.last_forward.microbatch == i.microbatch;
    r.last_forward = {};
    pass.gradient = r.running;
    pass.recomputing = &work[Within::recompute];
    pass.communicating = &r.tp->spent();
    pass.gradients = merges ? slot_of(r, i, unit) : r.region(i.chunk, unit).gradients;
    if (i.op == Op::backward_weight) {
      chunk.backward_weight(unit, pass);
    } else if (i.op == Op::backward) {
      chunk.backward(unit, pass);
    } else {
      chunk.backward_input(unit, pass);
    }
    if (i.op != Op::backward_weight && unit == 0) hand_over_gradient(r, i);
    if (i.op == Op::backward_input) continue;
    int& done = of_chunk.backwards[at_index(unit)];
    ++done;
    if (merges || done == schedule_.microbatches) chunk.finish_gradients(unit, pass.gradients);
    if (r.estimates_noise && done == 1) add_small_squares(r, i.chunk, unit, pass.gradients);
  }
}

template <class T>
void CpuDevice<T>::hand_over_gradient(RankState& r, const Instruction& i) {
  const std::int32_t number =
      r.places[at_index(i.chunk) * at_index(schedule_.microbatches) + at_index(i.microbatch)]
              [at_index(static_cast<int>(BufferKind::input_gradient))];
  if (number < 0) return;  // the embedding is here
  std::memcpy(r.buffers[at_index(number)], r.running,
              at_index(r.chunks.front().chunk->boundary_count()) * sizeof(T));
}

/// The slot of a unit's gradients of one microbatch; waits until a reduction has emptied one.
template <class T>
Wide<T>* CpuDevice<T>::slot_of(RankState& r, const Instruction& i, int unit) {
  const auto is_ours = [&](const auto& slot) {
    return slot.chunk == i.chunk && slot.unit == unit && slot.microbatch == i.microbatch;
  };
  const auto is_free = [](const auto& slot) { return slot.chunk < 0; };
  const auto any = [&](const auto& which) {
    return std::any_of(r.slots.begin(), r.slots.end(), which);
  };
  r.slots_gate.await([&] { return any(is_ours) || any(is_free); });
  return r.slots_gate.change([&] {
    auto slot = std::find_if(r.slots.begin(), r.slots.end(), is_ours);
    if (slot == r.slots.end()) slot = std::find_if(r.slots.begin(), r.slots.end(), is_free);
    slot->chunk = i.chunk;
    slot->unit = unit;
    slot->microbatch = i.microbatch;
    return slot->block;
  });
}

/// |g|² of one microbatch of one data-parallel rank, of parameters that this rank has whole.
template <class T>
void CpuDevice<T>::add_small_squares(RankState& r, int chunk, int unit, const Wide<T>* gradients) {
  auto& states = *r.chunks[at_index(chunk)].states;
  r.small_squares += States<T>::local_sum_of_squares(*r.region(chunk, unit).region, gradients);
  // With one stage the tied embedding's gradient is complete behind the first unit's backward.
  if (const RegionState<T>* tied = r.tied_region(chunk);
      tied != nullptr && unit == 0 && training_.plan.pp == 1 && states.sharing().zero < 2) {
    r.small_squares += States<T>::local_sum_of_squares(*tied->region, tied->gradients);
  }
}

template <class T>
void CpuDevice<T>::reduce(RankState& r, const Instruction& i) {
  auto& of_chunk = r.chunks[at_index(i.chunk)];
  States<T>& states = *of_chunk.states;
  const bool merges = states.sharing().zero >= 2;
  const bool each_microbatch = training_.plan.zero >= 2;
  const int first = std::max(0, i.unit);
  const int end = i.unit < 0 ? schedule_.units : i.unit + 1;
  for (int unit = end - 1; unit >= first; --unit) {
    int& done = of_chunk.reductions[at_index(unit)];
    ++done;
    const bool last = !each_microbatch || done == schedule_.microbatches;
    RegionState<T>& region = r.region(i.chunk, unit);
    if (merges) {
      Wide<T>* block = slot_of(r, i, unit);
      states.reduce(region, block, last);
      r.slots_gate.change([&] {
        for (auto& slot : r.slots) {
          if (slot.block == block) slot.chunk = -1;
        }
      });
    } else if (last) {
      states.reduce(region, region.gradients, true);
    }
    // The tied embedding goes with the unit whose backward is the last to add to it.
    RegionState<T>* tied = r.tied_region(i.chunk);
    const int host = of_chunk.chunk->spec().embedding ? 0 : schedule_.units - 1;
    if (tied != nullptr && unit == host && last) states.reduce(*tied, tied->gradients, true);
  }
}

template <class T>
void CpuDevice<T>::reduce_tied(RankState& r) {
  for (int c = 0; c < training_.plan.vpp; ++c) {
    if (RegionState<T>* tied = r.tied_region(c)) {
      r.tied->all_reduce(tied->own_gradients, tied->own(), Number<Wide<T>>::kElement,
                         Reduction::sum);
    }
  }
}

/// One sum over all ranks: squares of the gradients, each parameter once; the loss; the noise
/// scale's two norms.
template <class T>
void CpuDevice<T>::norm(RankState& r) {
  std::array<double, 4> sums{};
  const ParallelPlan& plan = training_.plan;
  for (int c = 0; c < plan.vpp; ++c) {
    const States<T>& states = *r.chunks[at_index(c)].states;
    for (RegionState<T>& region : r.chunks[at_index(c)].states->regions()) {
      sums[0] += states.sum_of_squares(region, Partial::with);
      const bool in_small = !region.tied || (plan.pp == 1 && states.sharing().zero < 2);
      if (r.estimates_noise && in_small) sums[3] += states.sum_of_squares(region, Partial::without);
    }
  }
  if (r.at.tp == 0) sums[1] = r.loss_sum;
  sums[2] = r.small_squares;
  if (r.all->size() > 1) r.all->all_reduce(sums.data(), sums.size(), Element::f64, Reduction::sum);
  r.result.loss = sums[1] / training_.job.tokens_per_step();
  r.result.gradient_norm = std::sqrt(sums[0]);
  r.result.small_norm.reset();
  if (r.estimates_noise) {
    // Gradients are scaled to the global batch: back to the mean of one microbatch's samples.
    const double share =
        static_cast<double>(training_.job.global_batch) / static_cast<double>(plan.microbatch);
    r.result.small_norm = sums[2] / plan.dp * share * share;
    r.result.large_norm = sums[3];
  }
}

/// Nothing changes where the gradients are no numbers; the loss watch ends such a run.
template <class T>
void CpuDevice<T>::step(RankState& r) {
  r.result.learning_rate = training_.rate.at(r.step);
  cpu::AdamStep adam = training_.adam;
  adam.learning_rate = r.result.learning_rate;
  adam.gradient_scale = r.scale;
  adam.step = r.step + 1;
  if (!std::isfinite(r.result.gradient_norm)) return;
  for (auto& each : r.chunks) {
    for (RegionState<T>& region : each.states->regions()) each.states->update(region, adam);
  }
}

template <class T>
StepResult CpuDevice<T>::result(int rank) const {
  return state(rank).result;
}

template <class T>
const MemoryBreakdown& CpuDevice<T>::held(int rank) const {
  return state(rank).memory.held();
}

template <class T>
std::vector<States<T>*> CpuDevice<T>::states(int rank) {
  std::vector<States<T>*> out;
  for (auto& each : state(rank).chunks) out.push_back(each.states.get());
  return out;
}

template class CpuDevice<double>;
template class CpuDevice<float>;
template class CpuDevice<Bfloat16>;

}  // namespace echelon
