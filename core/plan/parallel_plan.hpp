// ParallelPlan: the complete layout of a job on the GPUs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"
#include "core/base/saturated_product.hpp"
#include "core/base/units.hpp"
#include "core/plan/offload_modules.hpp"
#include "core/plan/recompute_modules.hpp"

namespace echelon {

/// Activation recomputation policy of a stage; with `mixed` every stage has its own numbers of
/// fully and of selectively recomputed layers.
enum class Recompute { none, selective, full, mixed };
/// Context-parallel attention: keys and values are sent around a ring, overlapped with the
/// attention kernels, or an all-to-all exchanges the split of the sequence for a split of the heads
/// (Ulysses).
enum class CpComm { ring, all_to_all, all_gather };
enum class ScheduleKind { gpipe, one_f_one_b, interleaved, zero_bubble_h1, dualpipe_v, dualpipe };
/// Whether microbatches pass a rank's two chunks in opposite directions: DualPipeV, DualPipe.
[[nodiscard]] inline bool runs_both_ways(ScheduleKind schedule) {
  return schedule == ScheduleKind::dualpipe_v || schedule == ScheduleKind::dualpipe;
}

/// How tokens reach the ranks that hold their experts, and come back: an all-to-all with one copy
/// per expert of a token; an all-gather of all tokens; or kernels that send a token once to each
/// NVLink domain and rank that holds one of its experts (DeepEP, HybridEP). Source: Megatron-LM
/// --moe-token-dispatcher-type alltoall, allgather, flex, and --moe-flex-dispatcher-backend.
enum class Dispatcher { alltoall, allgather, deepep, hybridep };
inline constexpr std::size_t kDispatchers = 4;

/// Kernels that the host launches as CUDA graphs: none; of each layer what has static shapes
/// (Megatron-LM --cuda-graph-scope attn, mlp, moe_router, moe_preprocess); all of a step.
enum class CudaGraphs { none, layers, full_iteration };

/// Which of the two outer axes, dp and pp, is the inner one. Source: Megatron-LM's default order
/// and its --use-tp-pp-dp-mapping.
enum class RankOrder { dp_inside_pp, pp_inside_dp };

[[nodiscard]] std::string_view name_of(RankOrder order);  ///< "tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"
[[nodiscard]] Result<RankOrder> parse_rank_order(std::string_view name, std::string_view where);
[[nodiscard]] std::string_view name_of(Recompute recompute);
[[nodiscard]] std::string_view name_of(ScheduleKind schedule);
[[nodiscard]] std::string_view name_of(CpComm comm);  ///< "p2p", "a2a", "all_gather" (Megatron's
                                                      ///< --cp-comm-type)
[[nodiscard]] Result<CpComm> parse_cp_comm(std::string_view name, std::string_view where);
[[nodiscard]] std::string_view name_of(Dispatcher dispatcher);
[[nodiscard]] Result<Dispatcher> parse_dispatcher(std::string_view name, std::string_view where);
[[nodiscard]] std::string_view name_of(CudaGraphs graphs);
[[nodiscard]] Result<CudaGraphs> parse_cuda_graphs(std::string_view name, std::string_view where);
[[nodiscard]] Result<Recompute> parse_recompute(std::string_view name, std::string_view where);
[[nodiscard]] Result<ScheduleKind> parse_schedule(std::string_view name, std::string_view where);

/// How one layer is cut over ranks: all that its operators depend on besides the model.
struct LayerSharding {
  int tp = 1;
  int cp = 1;
  CpComm cp_comm = CpComm::ring;
  int microbatch = 1;  ///< samples per forward pass of one rank
  int ep = 1;          ///< expert parallel: routed experts split over ep ranks …
  int etp = 1;         ///< … each over etp (both lie inside tp·cp·dp)
  Dispatcher dispatcher = Dispatcher::alltoall;  ///< where ep > 1
  bool sequence_parallel = false;
  bool overlap_tp = false;  ///< tensor-parallel collectives are split and run beside their GEMMs
  bool overlap_ep = false;  ///< dispatch and combine run beside another microbatch's compute
  bool overlap_shared = false;  ///< … beside the shared experts of their own microbatch
  auto operator<=>(const LayerSharding&) const = default;
};

/// Degrees per axis, and every choice that changes memory or time. gpus = tp·cp·dp·pp.
/// core/plan/plan_fields.hpp is the one list of its members, those of its base included: a new
/// member gets its row there, and whoever reads, writes, compares or pins plans walks that table.
struct ParallelPlan : LayerSharding {
  int dp = 1;
  int pp = 1;
  /// Model chunks per rank: interleaved any number, DualPipeV and DualPipe two, others one.
  int vpp = 1;
  /// Interleaved: microbatches that one chunk computes before the rank's next chunk takes its turn;
  /// at least pp, which 1 stands for. Other schedules: 1.
  /// Megatron-LM: --microbatch-group-size-per-virtual-pipeline-stage.
  int microbatch_group = 1;
  int zero = 0;  ///< 0..3
  /// Ranks over which ZeRO state is sharded (divides dp·cp); smaller than dp·cp if hybrid. Of
  /// DualPipe's ranks, those of one of a stage's two copies; the other's hold as many parts again.
  int shard_group = 1;
  Recompute recompute = Recompute::none;
  RecomputeModules recompute_modules;  ///< of selective recomputation; none: the framework's own
  ScheduleKind schedule = ScheduleKind::one_f_one_b;
  RankOrder rank_order = RankOrder::dp_inside_pp;
  double offload_optimizer = 0;    ///< fraction of master weights and moments kept in host memory
  OffloadModules offload_modules;  ///< whose saved inputs wait in host memory for the backward
  /// Size pp; layers in all chunks of a rank. DualPipe, whose ranks s and pp − 1 − s hold stages s
  /// and pp − 1 − s both: layers of stage s.
  std::vector<int> layers_per_stage;
  std::vector<int> recompute_layers;  ///< size pp; fully recomputed layers
  std::vector<int> selective_layers;  ///< size pp if mixed, else empty; the layers after those
  bool overlap_dp = true;   ///< gradient reduction and parameter gather overlap with compute
  bool overlap_pp = false;  ///< pipeline sends overlap with compute
  CudaGraphs cuda_graphs = CudaGraphs::none;
  /// Bytes of gradients per collective of the data-parallel reduction, in the reduced type; empty:
  /// the framework's default.
  std::optional<Bytes> bucket;

  bool operator==(const ParallelPlan&) const = default;

  /// Saturates where the product exceeds 64 bits.
  [[nodiscard]] std::int64_t gpus() const { return saturated_product({tp, cp, dp, pp}); }
  /// Ranks that hold the same experts: tp·cp·dp / (ep·etp).
  [[nodiscard]] std::int64_t expert_dp() const {
    return saturated_product({tp, cp, dp}) / (std::int64_t{ep} * etp);
  }
  /// Pipeline ranks that hold a stage: two under DualPipe, whose microbatches run in both
  /// directions, else one.
  [[nodiscard]] int copies() const { return schedule == ScheduleKind::dualpipe ? 2 : 1; }
  /// Parts into which the pipeline divides the model's layers.
  [[nodiscard]] std::int64_t model_stages() const { return std::int64_t{pp} * vpp / copies(); }
  /// Groups are never smaller than a round of all pipeline ranks.
  [[nodiscard]] int group_size() const { return std::max(pp, microbatch_group); }
  /// Copies of the sharded state: dp·cp / shard group (Megatron-LM:
  /// --num-distributed-optimizer-instances).
  [[nodiscard]] std::int64_t instances() const { return std::int64_t{dp} * cp / shard_group; }
  /// Microbatches per step and data-parallel rank. `check_plan` requires an exact division;
  /// rounding up is for measured runs of frameworks that pad the last microbatch.
  [[nodiscard]] std::int64_t microbatches_rounded_up(std::int64_t global_batch) const {
    const std::int64_t samples = std::int64_t{dp} * microbatch;
    return (global_batch + samples - 1) / samples;
  }
  /// … and chunk: of DualPipe's two directions each has half of them.
  [[nodiscard]] std::int64_t microbatches_of_chunk(std::int64_t global_batch) const {
    return (microbatches_rounded_up(global_batch) + copies() - 1) / copies();
  }
};

/// The part of the plan that one layer depends on.
[[nodiscard]] inline const LayerSharding& sharding_of(const ParallelPlan& plan) { return plan; }

/// Layers of one chunk of one rank. A rank's chunks differ by at most one layer, the larger ones
/// last; the loss behind the very last chunk (stage_placement.hpp) counts as a layer, so that the
/// very first chunk (embedding) and the very last are the shorter ones. Both may be left with none.
/// DualPipe: all layers of the stage that the chunk is.
[[nodiscard]] int layers_in_chunk(const ParallelPlan& plan, int rank, int chunk);
/// The same for a rank of `layers` layers in `vpp` chunks, `last`: the one with the loss.
[[nodiscard]] int layers_in_chunk(int layers, int vpp, bool last, int chunk);

/// How many of the `size` layers after the first `before` layers of a pipeline rank are recomputed:
/// the rank's first layers are recomputed fully, the next ones selectively.
struct RecomputedLayers {
  int full = 0;
  int selective = 0;
};
[[nodiscard]] RecomputedLayers recomputed_layers(const ParallelPlan& plan, int rank, int before,
                                                 int size);

}  // namespace echelon
