// Weights, gradients and optimizer states of one rank's chunk, and how ZeRO divides them.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/communicator.hpp"
#include "runtime/element.hpp"
#include "runtime/kernels.hpp"
#include "runtime/model/parameters.hpp"
#include "runtime/training/memory.hpp"

namespace echelon {

/// How states are divided: over `shards` ranks, repeated on `replicas` such groups; shards·replicas
/// are all data-parallel ranks. Communicators of size 1 may be null.
struct Sharing {
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

/// One region (parameters.hpp) as this rank keeps it. `begin`..`end` is its own part, of which it
/// holds master weights and moments; the whole region without ZeRO.
template <class T>
struct RegionState {
  const Region* region = nullptr;
  bool tied = false;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  T* weights = nullptr;              ///< the whole region; null for units at ZeRO-3
  T* own_weights = nullptr;          ///< the own part
  Wide<T>* gradients = nullptr;      ///< the whole region; null for units at ZeRO-2 and 3
  Wide<T>* own_gradients = nullptr;  ///< the own part
  Wide<T>* master = nullptr;         ///< own part; the weights themselves where T is wide
  Wide<T>* first_moment = nullptr;   ///< own part
  Wide<T>* second_moment = nullptr;  ///< own part

  [[nodiscard]] std::int64_t own() const { return end - begin; }
};

/// Whether sums take in parameters of which each tensor-parallel rank has only part of the
/// gradient.
enum class Partial { with, without };

/// States of all regions of a chunk, on the rank's processor; work is put on the queue `on`. ZeRO
/// stage z divides: 1 master weights and moments, 2 gradients too, 3 weights too. Source: arXiv
/// 1910.02054, section 3. The tied word embedding keeps whole weights and gradients at every stage,
/// for it is used at both ends of the model.
template <class T>
class States {
 public:
  /// Keeps references to `parameters`.
  States(const ChunkParameters& parameters, const Sharing& sharing, Memory& memory);

  [[nodiscard]] std::vector<RegionState<T>>& regions() { return regions_; }
  [[nodiscard]] const Sharing& sharing() const { return sharing_; }

  /// ZeRO-3: the whole region into `whole` (padded elements).
  void gather(const RegionState<T>& region, T* whole) const;
  /// Sums `whole`, this rank's gradients of one or all microbatches, over all data-parallel ranks.
  /// ZeRO-0, 1: `whole` is region.gradients, called once a step; own part or all of it is then the
  /// sum. ZeRO-2, 3: adds to the own part; `last`: of this step, when replicas are summed too;
  /// `whole` is cleared.
  void reduce(Kernels<T>& on, RegionState<T>& region, Wide<T>* whole, bool last) const;
  /// To *total, of the own part after reduction, each parameter of the model once over all ranks:
  /// replicas and tensor-parallel copies contribute nothing.
  void add_squares(Kernels<T>& on, const RegionState<T>& region, Partial partial,
                   double* total) const;
  /// To *total, of a rank's own gradients before any reduction, without partial ones and without
  /// tensor-parallel copies.
  static void add_local_squares(Kernels<T>& on, const Region& region, const Wide<T>* whole,
                                double* total);
  /// Adam on the own part. The tied embedding at ZeRO-3 is gathered again at once.
  void update(Kernels<T>& on, RegionState<T>& region, const AdamStep& step,
              const Wide<T>* scale) const;
  /// ZeRO-1, 2: everybody's updated part.
  void gather_updated(RegionState<T>& region) const;
  void clear_gradients(Kernels<T>& on, RegionState<T>& region) const;
  /// After weights were filled: the master weights take their values.
  void take_weights_as_master(Kernels<T>& on, RegionState<T>& region) const;

 private:
  Sharing sharing_;
  std::vector<RegionState<T>> regions_;
};

}  // namespace echelon
