// One plan's stages as functions of the layers they hold: what the price of a whole plan and the
// split of layers over stages are both built from.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/plan/stage_placement.hpp"
#include "costmodel/collectives/collectives.hpp"
#include "costmodel/cost_model.hpp"
#include "costmodel/time/pipeline_model.hpp"

namespace echelon {

struct PipelineShape;

/// Forward and backward of one microbatch through all chunks of one stage.
struct StageTimes {
  Seconds compute, recompute, host;
  AxisArray<Seconds> exposed;  ///< communication; dp: ZeRO-2/3 traffic of every microbatch
  Seconds forward;
  Seconds backward;
  [[nodiscard]] Seconds total() const { return forward + backward; }
};

/// What one stage, all its chunks, moves and keeps, for whoever writes down its instructions.
struct StageTraffic {
  Bytes gradients;     ///< reduced over the data-parallel group, once
  Bytes parameters;    ///< gathered, once
  Bytes saved;         ///< kept from forward to backward, one microbatch
  double buckets = 1;  ///< collectives the gradients are reduced in
  Seconds reduce;      ///< of all gradients, without overlap
  Seconds gather;      ///< of all parameters, without overlap
};

/// The closed forms of one plan's degrees, with the groups' networks looked up once. Layers per
/// stage are arguments; those of the plan are not looked at.
class StageModel : public PipelineModel {
 public:
  /// `plan` and `costs` must outlive the model; `costs` belongs to the plan's sharding.
  StageModel(const CostModel& cost_model, const ParallelPlan& plan, const ShardingCosts& costs);

  /// After the plan's policy of recomputation, or its modules, have changed.
  void follow_policy();
  [[nodiscard]] StageTimes times(const Stage& stage) const;
  [[nodiscard]] MemoryBreakdown memory(const Stage& stage) const;
  /// Part of memory() that comes back when the device has caught up with the host.
  [[nodiscard]] Bytes held(const Stage& stage) const;
  /// What is there between two steps: states, the copy of ZeRO-1's gather, buffers that stay.
  [[nodiscard]] Bytes standing(const Stage& stage) const;
  /// What the framework's allocator hands out: all but the CUDA context and NCCL's buffers.
  [[nodiscard]] Bytes allocated(const MemoryBreakdown& memory) const;
  /// Blocks that nvidia-smi shows besides reserved memory; no part of any other figure.
  [[nodiscard]] Bytes nvidia_smi_cache() const { return c_.nvidia_smi_cache; }
  /// total() with the allocator's reserve on top.
  [[nodiscard]] Bytes reserved(const MemoryBreakdown& memory) const;
  /// Exposed after the last backward: gradients' reduction and the sync of tied embeddings.
  [[nodiscard]] Seconds reduction(const Stage& stage, const StageTimes& times) const;
  /// Exposed before the first forward: gather of updated (ZeRO-1/2) or first (ZeRO-3) parameters.
  [[nodiscard]] Seconds gather(const Stage& stage, const StageTimes& times) const;
  [[nodiscard]] Seconds optimizer(const Stage& stage) const;
  /// The part of it that is the gradient's norm: one pass over the gradients that a rank owns, and
  /// an all-reduce of a number over all ranks.
  [[nodiscard]] Seconds norm(const Stage& stage) const;
  [[nodiscard]] StageTraffic traffic(const Stage& stage) const;
  /// Tied embedding's gradients, between the first and the last stage.
  [[nodiscard]] Seconds tied_sync() const { return tied_sync_; }

 private:
  struct Parameters {
    double replicated = 0;  ///< over the data-parallel group: everything but routed experts
    double experts = 0;     ///< over the expert data-parallel group
    double ends = 0;        ///< of the replicated ones: embedding and head
    double quantized = 0;   ///< … those in 4 bits
    [[nodiscard]] double all() const { return replicated + experts; }
  };
  /// What a stage needs besides its states, at one moment of the step.
  struct Moving {
    Bytes activations, workspace, communication;
  };
  /// Data-parallel traffic of one layer that is repeated for every microbatch (ZeRO-2 and 3).
  struct LayerTraffic {
    Seconds forward;
    Seconds backward;
  };
  /// Of one microbatch on one stage; `recompute` is what recomputation repeats.
  struct Passes {
    PassCosts forward, backward, recompute;
  };
  /// What a layer keeps in host memory from its forward to its backward.
  struct HostCopies {
    Bytes plain;      ///< nothing recomputed
    Bytes selective;  ///< recomputed selectively
    int tensors = 0;  ///< copied one by one
  };
  /// Of one layer of a kind, wherever it lies: what follows from the plan's degrees alone.
  struct LayerPasses {
    PassCosts forward, backward;  ///< with what is exposed beside no other microbatch
    Seconds forward_total, backward_total;
    std::array<Seconds, 2> wait_forward, wait_backward;  ///< for the host; second: replayed passes
    Seconds wait_recompute;
  };
  /// Waiting for copies to the host and back.
  struct CopyWaits {
    Seconds forward, backward;
  };
  [[nodiscard]] Bytes peer_buffers(const ProcessGrid& grid) const;
  [[nodiscard]] Bytes dispatcher_buffers(const ProcessGrid& grid) const;
  [[nodiscard]] CopyWaits copy_waits(Bytes copied, Seconds forward, Seconds backward) const;
  [[nodiscard]] Bytes copies_on_device(const Stage& stage) const;
  [[nodiscard]] LayerPasses layer_passes(const LayerCosts& layer, const LayerTraffic& traffic,
                                         const HostCopies& copies) const;
  void add_layers(const Stage& stage, const LayerCosts& layer, const LayerPasses& own,
                  const LayerTraffic& traffic, const RecomputedPart& part, const HostCopies& copies,
                  int LayerCounts::*kind, Passes& passes, StageTimes& t) const;
  [[nodiscard]] Parameters parameters(const Stage& stage) const;
  /// Those of them that have gradients and states: all, or those of adapters.
  [[nodiscard]] Parameters trained(const Stage& stage) const;
  [[nodiscard]] bool freezes() const { return cost_model_.job().adapters.has_value(); }
  [[nodiscard]] double owned(const Parameters& p, int from_zero) const;
  /// A copy that ZeRO-3 gathers of so many parameters, `quantized` of them packed.
  [[nodiscard]] Bytes gathered(double parameters, double quantized) const {
    return Bytes{(parameters - quantized) * recipe_.gathered_weight +
                 quantized * QuantizedWeights::kPayload};
  }
  [[nodiscard]] Bytes frozen_weights(const Parameters& p, const Parameters& t, int from_zero) const;
  /// Whether the head's backward computes again what its forward did not keep.
  [[nodiscard]] bool repeats_head() const;
  /// Whether more than one rank holds a part of the states.
  [[nodiscard]] bool splits_states() const {
    return std::int64_t{shard_ranks_} * expert_shard_ > 1;
  }
  [[nodiscard]] LayerTraffic layer_traffic(const LayerCosts& layer) const;
  [[nodiscard]] Bytes kept_by_layers(const Stage& stage) const;
  [[nodiscard]] double in_flight(const Stage& stage) const;
  [[nodiscard]] double microbatches_in_flight(int stage, double built) const;
  [[nodiscard]] Bytes graphs(const Stage& stage) const;
  [[nodiscard]] Bytes kept_in_flight(const Stage& stage) const;
  [[nodiscard]] double dualpipe_in_flight(const Stage& stage, int chunk) const;
  [[nodiscard]] double logits_in_flight(const Stage& stage) const;
  [[nodiscard]] Moving largest_moment(const Stage& stage, const Parameters& trained) const;
  /// `trained` are those of the stage.
  [[nodiscard]] Bytes gather_buffers(const Stage& stage, const Parameters& trained) const;
  [[nodiscard]] MemoryBreakdown block_memory(const Stage& stage) const;
  [[nodiscard]] Stage chunk_of(const Stage& stage, int chunk) const;
  [[nodiscard]] std::optional<PipelineShape> followed_shape() const;
  [[nodiscard]] Bytes saved_block(const Stage& chunk) const;
  [[nodiscard]] std::vector<Stage> chunks_of(const Stage& stage) const;
  [[nodiscard]] Bytes saved_blocks(const Stage& stage, const std::vector<Stage>& chunks) const;
  [[nodiscard]] Bytes schedule_buffers(const Stage& stage, const std::vector<Stage>& chunks) const;
  [[nodiscard]] Bytes chunk_workspace(const Stage& chunk) const;
  [[nodiscard]] Bytes instruction_workspace(const Stage& stage,
                                            const std::vector<Stage>& chunks) const;
  /// Of one stage, in parameters: the largest unit of ZeRO, and all buffers of gathered ones.
  struct MovedUnits {
    double largest = 0;
    double gathered = 0;
  };
  [[nodiscard]] double moved_experts() const {
    return plan_.ep == 1 || expert_shard_ > 1 ? costs_.moe.experts : 0;
  }
  [[nodiscard]] std::vector<double> moved_units(const Stage& stage,
                                                const std::vector<Stage>& chunks, int units) const;
  [[nodiscard]] double trained_units(const std::vector<Stage>& chunks, int units) const;
  [[nodiscard]] double gathered_units(const Stage& stage, const std::vector<double>& moved,
                                      int units) const;
  [[nodiscard]] MovedUnits units_alike(const Stage& stage, int units) const;
  [[nodiscard]] Bytes zero_buffers(const Stage& stage, const std::vector<Stage>& chunks,
                                   int zero) const;
  [[nodiscard]] double tied_parameters(const Stage& stage) const;
  [[nodiscard]] Seconds reduce(const Stage& stage, double parameters, const GroupLinks& shard,
                               const GroupLinks& replicas) const;
  [[nodiscard]] Seconds reduce(const Stage& stage, const Parameters& p) const;
  [[nodiscard]] double buckets(const Stage& stage, double parameters) const;
  /// Whether it is a chunk of DualPipe, or a rank with both, for which `is_end` of a stage holds.
  [[nodiscard]] bool of_copies(const Stage& stage,
                               bool (StagePlacement::*is_end)(int) const) const {
    const auto at = [&](int chunk) {
      return stage.index < plan_.pp && stage.chunk.value_or(chunk) == chunk &&
             (placement_.*is_end)(placement_.stage(stage.index, chunk));
    };
    return at(0) || at(1);
  }
  /// Whether the stage (the chunk) holds the embedding.
  [[nodiscard]] bool first(const Stage& stage) const {
    if (copies_ > 1) return of_copies(stage, &StagePlacement::enters);
    return stage.index == 0 && stage.chunk.value_or(0) == 0;
  }
  /// Whether it holds the head and the loss.
  [[nodiscard]] bool last(const Stage& stage) const {
    if (copies_ > 1) return of_copies(stage, &StagePlacement::leaves);
    return stage.index == placement_.last_rank() &&
           stage.chunk.value_or(plan_.vpp - 1) == plan_.vpp - 1;
  }
  /// Parameters of the head, its embedding's where the stage holds both ends of a tied one.
  [[nodiscard]] double head_parameters(const Stage& stage) const {
    const bool both = stage.index == 0 || copies_ > 1;
    return both ? costs_.head_parameters : costs_.head_parameters_last;
  }

  StagePlacement placement_;
  const ShardingCosts& costs_;
  const PrecisionRecipe& recipe_;
  int copies_;            ///< pipeline ranks that hold a stage
  int shard_ranks_ = 1;   ///< ranks over which ZeRO state is split, DualPipe's copies among them
  int expert_dp_ = 1;     ///< ranks that hold the same experts
  int expert_shard_ = 1;  ///< … over which their ZeRO state is split
  GroupLinks shard_, replicas_, expert_shard_links_, expert_replicas_;
  Seconds tied_sync_;
  Seconds norm_sync_;
  Seconds host_ring_step_, host_network_step_;
  BytesPerSecond optimizer_rate_;
  LayerTraffic dense_traffic_, moe_traffic_;
  LayerPasses dense_passes_, moe_passes_;
  std::vector<double> in_flight_;             ///< of each of several stages
  RecomputedPart dense_part_, moe_part_;      ///< of layers recomputed selectively
  Bytes dense_freed_, moe_freed_;             ///< … of the layer that this frees most of
  Bytes dense_saved_, moe_saved_;             ///< of the layer that saves most
  double largest_layer_ = 0;                  ///< parameters …
  double largest_quantized_ = 0;              ///< … and those in 4 bits of such a layer
  double largest_trained_ = 0;                ///< … and those with gradients
  double dense_shapes_ = 0, moe_shapes_ = 0;  ///< parameters of all shapes, each once
  HostCopies dense_copies_, moe_copies_;
  BytesPerSecond host_link_;  ///< of one GPU, one direction, where activations are offloaded
  BytesPerSecond memory_rate_;
  double layers_of_chunk_ = 1;  ///< mean over all chunks
  Bytes nccl_;
  double unpaired_ = 0;  ///< share of passes that run beside no other microbatch (overlap_ep)
};

/// What each chunk of a plan holds and recomputes, in the order of the virtual stages
/// (core/plan/stage_placement.hpp), its size layers_in_chunk(). A rank's recomputed layers are its
/// first ones, whole blocks before attention cores. `index` is the rank's.
void chunks_of(const CostModel& cost_model, const ParallelPlan& plan, std::vector<Stage>& out);

/// The same summed over the chunks of each rank.
void stages_of(const CostModel& cost_model, const ParallelPlan& plan, std::vector<Stage>& out);

}  // namespace echelon
