// Weights, gradients and optimizer states of one rank's chunk, and their division by ZeRO.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/backend/kernels.hpp"
#include "runtime/backend/memory.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/comm/element.hpp"
#include "runtime/model/parameters.hpp"

namespace echelon {

/// The ZeRO groups: states are divided over `shards` ranks and repeated on `replicas` such groups;
/// shards·replicas are all data-parallel ranks, of experts all ranks with the same ones.
/// Communicators of size 1 may be null.
struct ZeroGroups {
  int zero = 0;  ///< effective stage: 0 when shards is 1
  int shards = 1;
  int shard = 0;  ///< this rank's
  int replicas = 1;
  int replica = 0;
  Communicator* reduce_shards = nullptr;    ///< queue reduce
  Communicator* reduce_replicas = nullptr;  ///< queue reduce
  Communicator* gather_shards = nullptr;    ///< queue gather
  Communicator* step_shards = nullptr;      ///< queue compute
};

/// Flat parameters (parameters.hpp) as this rank keeps them. `begin`..`end` is its own part, whose
/// master weights and optimizer states it holds; everything without ZeRO.
template <class T>
struct FlatState {
  const FlatParameters* layout = nullptr;
  bool tied = false;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  T* weights = nullptr;              ///< all; null for units at ZeRO-3
  T* own_weights = nullptr;          ///< the own part
  Wide<T>* gradients = nullptr;      ///< all; null for units at ZeRO-2 and 3
  Wide<T>* own_gradients = nullptr;  ///< the own part
  Wide<T>* master = nullptr;         ///< own part; the weights themselves where T is wide
  std::array<Wide<T>*, kOptimizerStates> states{};  ///< own part, as OptimizerStep::kStates

  [[nodiscard]] std::int64_t own() const { return end - begin; }
};

/// Whether sums include parameters of which each tensor-parallel rank has only part of the
/// gradient.
enum class Partial { with, without };

/// State of all flat parameters of a chunk, on the rank's processor; work is enqueued on
/// `on`. ZeRO stage z divides: 1 master weights and moments, 2 gradients too, 3 weights too.
/// Source: arXiv 1910.02054, section 3. The tied word embedding keeps whole weights and gradients
/// at every stage, for it is used at both ends of the model. Of frozen parameters there are weights
/// alone.
template <class T>
class OptimizerState {
 public:
  /// Keeps references to `parameters`. `of_experts`: of flat parameters that hold experts alone.
  OptimizerState(const ChunkParameters& parameters, const ZeroGroups& zero_groups,
                 const ZeroGroups& of_experts, Memory& memory);

  [[nodiscard]] std::vector<FlatState<T>>& flat_states() { return flat_states_; }
  [[nodiscard]] const ZeroGroups& zero_groups() const { return zero_groups_; }
  [[nodiscard]] const ZeroGroups& groups_of(const FlatState<T>& flat) const {
    return flat.layout->experts ? of_experts_ : zero_groups_;
  }
  /// Of a unit's experts, where these are apart; else null.
  [[nodiscard]] FlatState<T>* experts_of(int unit) {
    const std::optional<std::size_t> number = parameters_.experts_of(unit);
    return number ? &flat_states_[*number] : nullptr;
  }
  /// Of a unit's frozen parameters; null: it has none.
  [[nodiscard]] FlatState<T>* frozen_of(int unit) {
    const std::optional<std::size_t> number = parameters_.frozen_of(unit);
    return number ? &flat_states_[*number] : nullptr;
  }
  /// What is gathered with a unit at ZeRO-3, behind its own: its experts where these are apart and
  /// divided, or its frozen parameters; null: nothing.
  [[nodiscard]] FlatState<T>* gathered_with(int unit) {
    FlatState<T>* const other = experts_of(unit) != nullptr ? experts_of(unit) : frozen_of(unit);
    return other != nullptr && other->weights == nullptr ? other : nullptr;
  }
  /// Whether a unit's gradients of a microbatch are made elsewhere and then reduced into the own
  /// part (ZeRO-2 and 3).
  [[nodiscard]] bool merges(const FlatState<T>& flat) const { return groups_of(flat).zero >= 2; }

  /// ZeRO-3: gathers all weights into `whole` (padded elements).
  void gather(const FlatState<T>& flat, T* whole) const;
  /// Sums `whole`, this rank's gradients of one or all microbatches, over all data-parallel ranks.
  /// ZeRO-0, 1: `whole` is flat.gradients, called once a step; own part or all of it is then the
  /// sum. ZeRO-2, 3: adds to the own part; `last`: of this step, when replicas are summed too;
  /// `whole` is cleared.
  void reduce(Kernels<T>& on, FlatState<T>& flat, Wide<T>* whole, bool last) const;
  /// To *total, of the own part after reduction, each parameter of the model once over all ranks:
  /// replicas and tensor-parallel copies contribute nothing.
  void add_squares(Kernels<T>& on, const FlatState<T>& flat, Partial partial, double* total) const;
  /// To *total, of a rank's own gradients before any reduction, without partial ones and without
  /// tensor-parallel copies.
  static void add_local_squares(Kernels<T>& on, const FlatParameters& flat, const Wide<T>* whole,
                                double* total);
  /// Optimizer step on the own part. At ZeRO-3 the tied embedding is gathered again at once.
  void update(Kernels<T>& on, FlatState<T>& flat, const OptimizerStep& step,
              const Wide<T>* scale) const;
  /// ZeRO-1, 2: gathers all updated parts; otherwise there are none.
  void gather_updated(FlatState<T>& flat) const;
  void clear_gradients(Kernels<T>& on, FlatState<T>& flat) const;
  /// After weights were filled: the master weights take their values.
  void take_weights_as_master(Kernels<T>& on, FlatState<T>& flat) const;

 private:
  const ChunkParameters& parameters_;
  ZeroGroups zero_groups_;
  ZeroGroups of_experts_;
  std::vector<FlatState<T>> flat_states_;
};

}  // namespace echelon
