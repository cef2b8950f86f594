#include "runtime/training/states.hpp"

#include <algorithm>
#include <type_traits>

#include "core/base/expects.hpp"

namespace echelon {
namespace {

constexpr auto kWeights = &MemoryBreakdown::weights;
constexpr auto kGradients = &MemoryBreakdown::gradients;
constexpr auto kOptimizer = &MemoryBreakdown::optimizer;
constexpr auto kCommunication = &MemoryBreakdown::communication;

/// The part of a parameter that lies in [begin, end) of its region, as offsets in the region.
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
States<T>::States(const ChunkParameters& parameters, const Sharing& sharing, Memory& memory)
    : sharing_(sharing) {
  constexpr bool kWideWeights = std::is_same_v<T, Wide<T>>;
  for (std::size_t i = 0; i < parameters.regions.size(); ++i) {
    const Region& region = parameters.regions[i];
    EXPECTS(region.padded % sharing.shards == 0, "regions are padded to whole shards");
    RegionState<T>& state = regions_.emplace_back();
    state.region = &region;
    state.tied = parameters.tied && i + 1 == parameters.regions.size();
    const std::int64_t part = sharing.zero > 0 ? region.padded / sharing.shards : region.padded;
    state.begin = sharing.zero > 0 ? part * sharing.shard : 0;
    state.end = state.begin + part;
    if (sharing.zero < 3 || state.tied) {
      state.weights = memory.allocate<T>(kWeights, region.padded, "weights");
      state.own_weights = state.weights + state.begin;
    } else {
      state.own_weights = memory.allocate<T>(kWeights, part, "weights");
    }
    if (sharing.zero < 2) {
      state.gradients = memory.allocate<Wide<T>>(kGradients, region.padded, "gradients");
      state.own_gradients = state.gradients + state.begin;
    } else {
      state.own_gradients = memory.allocate<Wide<T>>(kGradients, part, "gradients");
      if (state.tied) {
        state.gradients = memory.allocate<Wide<T>>(kCommunication, region.padded, "tied gradients");
      }
    }
    if constexpr (kWideWeights) {
      state.master = state.own_weights;
    } else {
      state.master = memory.allocate<Wide<T>>(kOptimizer, part, "master weights");
    }
    state.first_moment = memory.allocate<Wide<T>>(kOptimizer, part, "first moments");
    state.second_moment = memory.allocate<Wide<T>>(kOptimizer, part, "second moments");
  }
}

template <class T>
void States<T>::gather(const RegionState<T>& region, T* whole) const {
  sharing_.gather_shards->all_gather(region.own_weights, whole, region.own(), Number<T>::kElement);
}

template <class T>
void States<T>::reduce(Kernels<T>& on, RegionState<T>& region, Wide<T>* whole, bool last) const {
  constexpr Element kElement = Number<Wide<T>>::kElement;
  const Sharing& s = sharing_;
  if (s.zero == 0) {
    // All ranks are replicas.
    if (s.replicas > 1)
      s.reduce_replicas->all_reduce(whole, region.region->padded, kElement, Reduction::sum);
    return;
  }
  s.reduce_shards->reduce_scatter(whole, whole + region.begin, region.own(), kElement);
  if (s.zero >= 2) {
    on.add_gradients(region.own_gradients, whole + region.begin, region.own());
    on.clear(whole, bytes_of(kElement) * region.region->padded);
  }
  if (last && s.replicas > 1) {
    s.reduce_replicas->all_reduce(region.own_gradients, region.own(), kElement, Reduction::sum);
  }
}

template <class T>
void States<T>::add_squares(Kernels<T>& on, const RegionState<T>& region, Partial partial,
                            double* total) const {
  const bool first_copy = sharing_.replica == 0 && (sharing_.zero > 0 || sharing_.shard == 0);
  if (!first_copy) return;
  for (const Parameter& parameter : region.region->parameters) {
    const Overlap o = overlap_of(parameter, region.begin, region.end);
    if (!parameter.counted || o.begin >= o.end) continue;
    if (partial == Partial::without && is_partial(parameter)) continue;
    on.sum_of_squares(region.own_gradients + (o.begin - region.begin), o.end - o.begin, total);
  }
}

template <class T>
void States<T>::add_local_squares(Kernels<T>& on, const Region& region, const Wide<T>* whole,
                                  double* total) {
  for (const Parameter& parameter : region.parameters) {
    if (parameter.counted && !is_partial(parameter))
      on.sum_of_squares(whole + parameter.offset, parameter.count(), total);
  }
}

template <class T>
void States<T>::update(Kernels<T>& on, RegionState<T>& region, const AdamStep& step,
                       const Wide<T>* scale) const {
  for (const Parameter& parameter : region.region->parameters) {
    const Overlap o = overlap_of(parameter, region.begin, region.end);
    if (o.begin >= o.end) continue;
    AdamStep each = step;
    if (!parameter.decayed) each.weight_decay = 0;
    const std::int64_t at = o.begin - region.begin;
    on.adam(each, scale,
            {region.own_gradients + at, region.master + at, region.first_moment + at,
             region.second_moment + at, region.own_weights + at, o.end - o.begin});
  }
  if (region.tied && sharing_.zero == 3) {
    sharing_.step_shards->all_gather(region.own_weights, region.weights, region.own(),
                                     Number<T>::kElement);
  }
}

template <class T>
void States<T>::gather_updated(RegionState<T>& region) const {
  sharing_.gather_shards->all_gather(region.own_weights, region.weights, region.own(),
                                     Number<T>::kElement);
}

template <class T>
void States<T>::clear_gradients(Kernels<T>& on, RegionState<T>& region) const {
  constexpr std::int64_t kSize = bytes_of(Number<Wide<T>>::kElement);
  if (sharing_.zero < 2) {
    on.clear(region.gradients, kSize * region.region->padded);
  } else {
    on.clear(region.own_gradients, kSize * region.own());
  }
}

template <class T>
void States<T>::take_weights_as_master(Kernels<T>& on, RegionState<T>& region) const {
  if constexpr (!std::is_same_v<T, Wide<T>>) {
    on.widen(region.own_weights, region.master, region.own());
  }
}

template class States<double>;
template class States<float>;
template class States<Bfloat16>;

}  // namespace echelon
