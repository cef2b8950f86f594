#include "runtime/training/optimizer_state.hpp"

#include <algorithm>
#include <type_traits>

#include "core/base/expects.hpp"

namespace echelon {
namespace {

constexpr auto kWeights = &MemoryBreakdown::weights;
constexpr auto kGradients = &MemoryBreakdown::gradients;
constexpr auto kOptimizer = &MemoryBreakdown::optimizer;
constexpr auto kCommunication = &MemoryBreakdown::communication;

/// The part of a parameter in [begin, end) of its flat parameters, as offsets in these.
struct Overlap {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};
Overlap overlap_of(const Parameter& parameter, std::int64_t begin, std::int64_t end) {
  return {std::max(begin, parameter.offset), std::min(end, parameter.offset + parameter.count())};
}

bool is_partial(const Parameter& p) { return p.summed_over_tp || p.summed_over_kv; }

}  // namespace

template <class T>
OptimizerState<T>::OptimizerState(const ChunkParameters& parameters, const ZeroGroups& zero_groups,
                                  const ZeroGroups& of_experts, Memory& memory)
    : parameters_(parameters), zero_groups_(zero_groups), of_experts_(of_experts) {
  constexpr bool kWideWeights = std::is_same_v<T, Wide<T>>;
  for (std::size_t i = 0; i < parameters.flat_params.size(); ++i) {
    const FlatParameters& flat = parameters.flat_params[i];
    FlatState<T>& state = flat_states_.emplace_back();
    state.layout = &flat;
    const ZeroGroups& groups = groups_of(state);
    EXPECTS(flat.padded % groups.shards == 0, "flat parameters are padded to whole shards");
    state.tied = parameters.tied && i + 1 == parameters.flat_params.size();
    const std::int64_t part = groups.zero > 0 ? flat.padded / groups.shards : flat.padded;
    state.begin = groups.zero > 0 ? part * groups.shard : 0;
    state.end = state.begin + part;
    if (groups.zero < 3 || state.tied) {
      state.weights = memory.allocate<T>(kWeights, flat.padded, "weights");
      state.own_weights = state.weights + state.begin;
    } else {
      state.own_weights = memory.allocate<T>(kWeights, part, "weights");
    }
    if (flat.frozen) continue;
    if (groups.zero < 2) {
      state.gradients = memory.allocate<Wide<T>>(kGradients, flat.padded, "gradients");
      state.own_gradients = state.gradients + state.begin;
    } else {
      state.own_gradients = memory.allocate<Wide<T>>(kGradients, part, "gradients");
      if (state.tied) {
        state.gradients = memory.allocate<Wide<T>>(kCommunication, flat.padded, "tied gradients");
      }
    }
    if constexpr (kWideWeights) {
      state.master = state.own_weights;
    } else {
      state.master = memory.allocate<Wide<T>>(kOptimizer, part, "master weights");
    }
    for (std::size_t k = 0; k < kOptimizerStates; ++k) {
      const char* const name = info_of(OptimizerStep::kStates[k]).name;
      state.states[k] = memory.allocate<Wide<T>>(kOptimizer, part, name);
    }
  }
}

template <class T>
void OptimizerState<T>::gather(const FlatState<T>& flat, T* whole) const {
  if (flat.layout->count == 0) return;
  groups_of(flat).gather_shards->all_gather(flat.own_weights, whole, flat.own(),
                                            Number<T>::kElement);
}

template <class T>
void OptimizerState<T>::reduce(Kernels<T>& on, FlatState<T>& flat, Wide<T>* whole,
                               bool last) const {
  constexpr Element kElement = Number<Wide<T>>::kElement;
  const ZeroGroups& s = groups_of(flat);
  if (flat.layout->count == 0) return;
  if (s.zero == 0) {
    // All ranks are replicas.
    if (s.replicas > 1)
      s.reduce_replicas->all_reduce(whole, flat.layout->padded, kElement, Reduction::sum);
    return;
  }
  s.reduce_shards->reduce_scatter(whole, whole + flat.begin, flat.own(), kElement);
  if (s.zero >= 2) {
    on.add_gradients(flat.own_gradients, whole + flat.begin, flat.own());
    on.clear(whole, bytes_of(kElement) * flat.layout->padded);
  }
  if (last && s.replicas > 1) {
    s.reduce_replicas->all_reduce(flat.own_gradients, flat.own(), kElement, Reduction::sum);
  }
}

template <class T>
void OptimizerState<T>::add_squares(Kernels<T>& on, const FlatState<T>& flat, Partial partial,
                                    double* total) const {
  const ZeroGroups& groups = groups_of(flat);
  if (flat.layout->frozen) return;
  const bool first_copy = groups.replica == 0 && (groups.zero > 0 || groups.shard == 0);
  if (!first_copy) return;
  for (const Parameter& parameter : flat.layout->parameters) {
    const Overlap o = overlap_of(parameter, flat.begin, flat.end);
    if (!parameter.counted || o.begin >= o.end) continue;
    if (partial == Partial::without && is_partial(parameter)) continue;
    on.sum_of_squares(flat.own_gradients + (o.begin - flat.begin), o.end - o.begin, total);
  }
}

template <class T>
void OptimizerState<T>::add_local_squares(Kernels<T>& on, const FlatParameters& flat,
                                          const Wide<T>* whole, double* total) {
  for (const Parameter& parameter : flat.parameters) {
    if (parameter.counted && !is_partial(parameter))
      on.sum_of_squares(whole + parameter.offset, parameter.count(), total);
  }
}

template <class T>
void OptimizerState<T>::update(Kernels<T>& on, FlatState<T>& flat, const OptimizerStep& step,
                               const Wide<T>* scale) const {
  if (flat.layout->frozen) return;
  for (const Parameter& parameter : flat.layout->parameters) {
    const Overlap o = overlap_of(parameter, flat.begin, flat.end);
    if (o.begin >= o.end) continue;
    OptimizerStep each = step;
    if (!parameter.decayed) each.weight_decay = 0;
    const std::int64_t at = o.begin - flat.begin;
    OptimizerOperands<T> operands{
        flat.own_gradients + at, flat.master + at, {}, flat.own_weights + at, o.end - o.begin};
    for (std::size_t k = 0; k < kOptimizerStates; ++k) operands.states[k] = flat.states[k] + at;
    on.optimizer_update(each, scale, operands);
  }
  if (flat.tied && zero_groups_.zero == 3) {
    zero_groups_.step_shards->all_gather(flat.own_weights, flat.weights, flat.own(),
                                         Number<T>::kElement);
  }
}

template <class T>
void OptimizerState<T>::gather_updated(FlatState<T>& flat) const {
  const ZeroGroups& groups = groups_of(flat);
  if (flat.layout->count == 0 || groups.zero == 0) return;
  groups.gather_shards->all_gather(flat.own_weights, flat.weights, flat.own(), Number<T>::kElement);
}

template <class T>
void OptimizerState<T>::clear_gradients(Kernels<T>& on, FlatState<T>& flat) const {
  if (flat.layout->frozen) return;
  constexpr std::int64_t kSize = bytes_of(Number<Wide<T>>::kElement);
  if (!merges(flat)) {
    on.clear(flat.gradients, kSize * flat.layout->padded);
  } else {
    on.clear(flat.own_gradients, kSize * flat.own());
  }
}

template <class T>
void OptimizerState<T>::take_weights_as_master(Kernels<T>& on, FlatState<T>& flat) const {
  if (flat.layout->frozen) return;
  if constexpr (!std::is_same_v<T, Wide<T>>) {
    on.copy_to_wide(flat.own_weights, flat.master, flat.own());
  }
}

template class OptimizerState<double>;
template class OptimizerState<float>;
template class OptimizerState<Bfloat16>;

}  // namespace echelon
