// TrainingDevice: what becomes of gradients between the backward and the optimizer.
#include <algorithm>

#include "runtime/clock.hpp"
#include "runtime/training/training_rank.hpp"

namespace echelon {

/// The slot of a unit's gradients of one microbatch; waits until a reduction has emptied one.
template <class T>
Wide<T>* TrainingDevice<T>::slot_of(RankState& r, const Instruction& i, int unit, Kernels<T>& on) {
  const auto is_ours = [&](const auto& slot) {
    return slot.chunk == i.chunk && slot.unit == unit && slot.microbatch == i.microbatch;
  };
  const auto is_free = [](const auto& slot) { return slot.chunk < 0; };
  const auto any = [&](const auto& which) {
    return std::any_of(r.slots.begin(), r.slots.end(), which);
  };
  const Seconds begin = steady_now();
  r.slots_gate.await([&] { return any(is_ours) || any(is_free); });
  on.waited(Within::dp_comm, steady_now() - begin);
  return r.slots_gate.change([&] {
    auto slot = std::find_if(r.slots.begin(), r.slots.end(), is_ours);
    if (slot == r.slots.end()) {
      slot = std::find_if(r.slots.begin(), r.slots.end(), is_free);
      if (slot->emptied_by != nullptr) on.wait(*slot->emptied_by);
    }
    slot->chunk = i.chunk;
    slot->unit = unit;
    slot->microbatch = i.microbatch;
    return slot->block;
  });
}

/// |g|² of one microbatch of one data-parallel rank, of parameters that this rank has whole.
template <class T>
void TrainingDevice<T>::add_small_squares(RankState& r, int chunk, int unit,
                                          const Wide<T>* gradients, Kernels<T>& on) {
  auto& states = *r.chunks[at_index(chunk)].states;
  double* const total = &r.sums->small_squares;
  States<T>::add_local_squares(on, *r.region(chunk, unit).region, gradients, total);
  // With one stage the tied embedding's gradient is complete behind the first unit's backward.
  if (const RegionState<T>* tied = r.tied_region(chunk);
      tied != nullptr && unit == 0 && training_.plan.pp == 1 && states.sharing().zero < 2) {
    States<T>::add_local_squares(on, *tied->region, tied->gradients, total);
  }
}

template <class T>
void TrainingDevice<T>::reduce(RankState& r, const Instruction& i, Kernels<T>& on) {
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
      Wide<T>* block = slot_of(r, i, unit, on);
      states.reduce(on, region, block, last);
      r.slots_gate.change([&] {
        for (auto& slot : r.slots) {
          if (slot.block != block) continue;
          slot.chunk = -1;
          slot.emptied_by = &i;
        }
      });
    } else if (last) {
      states.reduce(on, region, region.gradients, true);
    }
    // The tied embedding goes with the unit whose backward is the last to add to it.
    RegionState<T>* tied = r.tied_region(i.chunk);
    const int host = of_chunk.chunk->spec().embedding ? 0 : schedule_.units - 1;
    if (tied != nullptr && unit == host && last) states.reduce(on, *tied, tied->gradients, true);
  }
}

template <class T>
void TrainingDevice<T>::reduce_tied(RankState& r) {
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
void TrainingDevice<T>::norm(RankState& r, Kernels<T>& on) {
  const ParallelPlan& plan = training_.plan;
  {
    const Spending pass(on, Within::norm);
    for (int c = 0; c < plan.vpp; ++c) {
      States<T>& states = *r.chunks[at_index(c)].states;
      for (RegionState<T>& region : states.regions()) {
        states.add_squares(on, region, Partial::with, &r.sums->squares);
        const bool in_small = !region.tied || (plan.pp == 1 && states.sharing().zero < 2);
        if (r.estimates_noise && in_small)
          states.add_squares(on, region, Partial::without, &r.sums->large_squares);
      }
    }
  }
  if (r.at.tp > 0) on.clear(&r.sums->loss, sizeof r.sums->loss);  // every tp rank has it
  if (r.all->size() > 1) r.all->all_reduce(r.sums, RankState::kSums, Element::f64, Reduction::sum);
}

#define ECHELON_GRADIENTS(T)                                                                      \
  template Wide<T>* TrainingDevice<T>::slot_of(RankState&, const Instruction&, int, Kernels<T>&); \
  template void TrainingDevice<T>::add_small_squares(RankState&, int, int, const Wide<T>*,        \
                                                     Kernels<T>&);                                \
  template void TrainingDevice<T>::reduce(RankState&, const Instruction&, Kernels<T>&);           \
  template void TrainingDevice<T>::reduce_tied(RankState&);                                       \
  template void TrainingDevice<T>::norm(RankState&, Kernels<T>&);
ECHELON_GRADIENTS(double)
ECHELON_GRADIENTS(float)
ECHELON_GRADIENTS(Bfloat16)
#undef ECHELON_GRADIENTS

}  // namespace echelon
