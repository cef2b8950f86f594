// TrainingDevice: gradients between the backward and the optimizer.
#include <algorithm>

#include "runtime/threads/clock.hpp"
#include "runtime/training/training_rank.hpp"

namespace echelon {

/// The gradient buffer of a unit and microbatch; waits until a reduction has freed one.
template <class T>
Wide<T>* TrainingDevice<T>::gradient_buffer_of(RankState& r, const Instruction& i, int unit,
                                               Kernels<T>& on) {
  const typename RankState::GradientBuffer::Owner owner{*i.chunk, unit, i.microbatch};
  const auto is_ours = [&](const auto& buffer) { return buffer.owner == owner; };
  const auto is_free = [](const auto& buffer) { return !buffer.owner; };
  const auto any = [&](const auto& which) {
    return std::any_of(r.gradient_buffers.begin(), r.gradient_buffers.end(), which);
  };
  const Seconds begin = steady_now();
  r.gradient_buffers_monitor.await([&] { return any(is_ours) || any(is_free); });
  on.waited(Within::dp_comm, steady_now() - begin);
  return r.gradient_buffers_monitor.change([&] {
    auto gradient_buffer =
        std::find_if(r.gradient_buffers.begin(), r.gradient_buffers.end(), is_ours);
    if (gradient_buffer == r.gradient_buffers.end()) {
      gradient_buffer = std::find_if(r.gradient_buffers.begin(), r.gradient_buffers.end(), is_free);
      if (gradient_buffer->emptied_by != nullptr) on.wait(*gradient_buffer->emptied_by);
    }
    gradient_buffer->owner = owner;
    return gradient_buffer->block;
  });
}

/// |g|² of one microbatch of one data-parallel rank, of parameters that this rank has whole.
/// Experts that several ranks share have a gradient of all these ranks' microbatches, and do not
/// count.
template <class T>
void TrainingDevice<T>::add_small_squares(RankState& r, int chunk, int unit,
                                          const Wide<T>* gradients, Kernels<T>& on) {
  auto& states = *r.chunks[at_index(chunk)].states;
  double* const total = &r.sums->small_squares;
  OptimizerState<T>::add_local_squares(on, *r.flat(chunk, unit).layout, gradients, total);
  // With one stage the tied embedding's gradient is complete behind the first unit's backward.
  if (const FlatState<T>* tied = r.trained_tied_flat(chunk);
      tied != nullptr && unit == 0 && training_.plan.pp == 1 && states.zero_groups().zero < 2) {
    OptimizerState<T>::add_local_squares(on, *tied->layout, tied->gradients, total);
  }
}

template <class T>
void TrainingDevice<T>::reduce(RankState& r, const Instruction& i, Kernels<T>& on) {
  auto& of_chunk = r.chunks[at_index(*i.chunk)];
  OptimizerState<T>& states = *of_chunk.states;
  const bool merges = states.zero_groups().zero >= 2;
  const bool each_microbatch = training_.plan.zero >= 2;
  const UnitRange units = schedule_.units_of(i);
  for (int unit = units.end - 1; unit >= units.first; --unit) {
    int& done = of_chunk.reductions[at_index(unit)];
    ++done;
    const bool last = !each_microbatch || done == schedule_.microbatches;
    FlatState<T>& flat = r.flat(*i.chunk, unit);
    FlatState<T>* const experts = states.experts_of(unit);
    if (experts != nullptr && !states.merges(*experts) && last)
      states.reduce(on, *experts, experts->gradients, true);
    if (merges) {
      Wide<T>* block = gradient_buffer_of(r, i, unit, on);
      states.reduce(on, flat, block, last);
      if (experts != nullptr && states.merges(*experts))
        states.reduce(on, *experts, block + flat.layout->padded, last);
      r.gradient_buffers_monitor.change([&] {
        for (auto& gradient_buffer : r.gradient_buffers) {
          if (gradient_buffer.block != block) continue;
          gradient_buffer.owner.reset();
          gradient_buffer.emptied_by = &i;
        }
      });
    } else if (last) {
      states.reduce(on, flat, flat.gradients, true);
    }
    // The tied embedding goes with the unit whose backward is the last to add to it.
    FlatState<T>* tied = r.trained_tied_flat(*i.chunk);
    const int host = of_chunk.chunk->spec().embedding ? 0 : schedule_.units - 1;
    if (tied != nullptr && unit == host && last) states.reduce(on, *tied, tied->gradients, true);
  }
}

template <class T>
void TrainingDevice<T>::reduce_tied(RankState& r) {
  for (int c = 0; c < training_.plan.vpp; ++c) {
    if (FlatState<T>* tied = r.trained_tied_flat(c)) {
      r.tied->all_reduce(tied->own_gradients, tied->own(), Number<Wide<T>>::kElement,
                         Reduction::sum);
    }
  }
}

/// One sum over all ranks: squares of the gradients, each parameter once; the loss; the noise
/// scale's two norms.
template <class T>
void TrainingDevice<T>::norm(RankState& r, Kernels<T>& on) {
  const ParallelPlan& plan = training_.plan;
  {
    const ScopedSubSpan pass(on, Within::norm);
    for (int c = 0; c < plan.vpp; ++c) {
      OptimizerState<T>& states = *r.chunks[at_index(c)].states;
      for (FlatState<T>& flat : states.flat_states()) {
        states.add_squares(on, flat, Partial::with, &r.sums->squares);
        if (flat.layout->experts) continue;
        const bool in_small = !flat.tied || (plan.pp == 1 && states.zero_groups().zero < 2);
        if (r.estimates_noise && in_small)
          states.add_squares(on, flat, Partial::without, &r.sums->large_squares);
      }
    }
  }
  if (r.at.tp > 0) on.clear(&r.sums->loss, sizeof r.sums->loss);  // every tp rank has it
  if (r.all->size() > 1) r.all->all_reduce(r.sums, RankState::kSums, Element::f64, Reduction::sum);
}

#define ECHELON_GRADIENTS(T)                                                                   \
  template Wide<T>* TrainingDevice<T>::gradient_buffer_of(RankState&, const Instruction&, int, \
                                                          Kernels<T>&);                        \
  template void TrainingDevice<T>::add_small_squares(RankState&, int, int, const Wide<T>*,     \
                                                     Kernels<T>&);                             \
  template void TrainingDevice<T>::reduce(RankState&, const Instruction&, Kernels<T>&);        \
  template void TrainingDevice<T>::reduce_tied(RankState&);                                    \
  template void TrainingDevice<T>::norm(RankState&, Kernels<T>&);
ECHELON_GRADIENTS(double)
ECHELON_GRADIENTS(float)
ECHELON_GRADIENTS(Bfloat16)
#undef ECHELON_GRADIENTS

}  // namespace echelon
