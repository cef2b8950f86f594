// Pricing: memory of every stage and every part of the step time of one plan, in closed form.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/framework/framework.hpp"
#include "core/model/model.hpp"
#include "core/plan/cost.hpp"
#include "core/plan/job.hpp"
#include "core/plan/parallel_plan.hpp"
#include "core/plan/process_grid.hpp"
#include "costmodel/calibration/calibration.hpp"
#include "costmodel/collectives/collectives.hpp"
#include "costmodel/operators/operators.hpp"
#include "topologies/topology.hpp"

namespace echelon {

/// Layers of one rank's stage, by kind.
struct LayerCounts {
  int dense = 0;
  int moe = 0;
  [[nodiscard]] int total() const { return dense + moe; }
  LayerCounts& operator+=(const LayerCounts& other) {
    dense += other.dense;
    moe += other.moe;
    return *this;
  }
  bool operator==(const LayerCounts&) const = default;
};

/// One stage of a pipeline, or one of its chunks: where it stands, what it holds, what of that is
/// recomputed.
struct Stage {
  /// Layers of one of its chunks, of those of the stage.
  struct Part {
    LayerCounts layers, recomputed, selective;
    bool operator==(const Part&) const = default;
  };
  int index = 0;
  LayerCounts layers;
  LayerCounts recomputed{};    ///< fully
  LayerCounts selective{};     ///< selectively: their attention core, or the plan's modules
  std::optional<int> chunk{};  ///< none: all chunks of the stage
  /// DualPipe, whose chunks are two stages of the model: the first one's layers. None: half of all.
  std::optional<Part> first_chunk{};
  /// Which layer of the model each of its chunks begins with. Known where memory is planned
  /// (Framework::fixed_blocks) for layers of two kinds; elsewhere empty.
  std::vector<int> begins{};
  bool operator==(const Stage&) const = default;
};

/// Memory of all stages of a plan.
struct MemoryPrediction {
  std::vector<MemoryBreakdown> stages;
  std::vector<Stage> contents;  ///< layers each stage holds and recomputes
  Bytes capacity;               ///< of the GPU
  Bytes peak;                   ///< largest total over the stages
  Bytes peak_reserved;          ///< … with the caching allocator's reserve on top
  Bytes allocator_reserve;      ///< that reserve, on the stage with the largest reserved peak
  int tightest_stage = 0;
  /// What frameworks count against their own allocator on the tightest stage (no context, no NCCL).
  Bytes peak_allocated;
};

/// The part of a step from the first forward to the last backward.
struct PipelineTime {
  Seconds sum;      ///< of all stages' times per microbatch
  Seconds slowest;  ///< of the slowest stage
  Seconds taken;    ///< what was taken: the closed form, or a simulated time
  /// A second of it lengthens the step by so much: others wait for stragglers.
  double stretch = 1;
};

/// Time of one optimizer step.
struct TimePrediction {
  CostBreakdown parts;            ///< means over the stages
  std::vector<StageTime> stages;  ///< each stage; its total() is the step
  Seconds step;                   ///< = parts.total()
  PipelineTime pipeline;
  Seconds closed_form;  ///< the same with the pipeline's closed form: `step`, if not simulated
  Seconds low;          ///< 80 % band
  Seconds high;
  Seconds shared;     ///< all ranks' work over the cores they share; zero: each has its own
  Seconds turns;      ///< of the step (its compute): by which `shared` exceeds the critical path
  Seconds data_load;  ///< reading the step's tokens, next to the step before: parts.data is more
  double bubble_share() const { return parts.bubble() / step; }
};

struct PlanCosts {
  MemoryPrediction memory;
  TimePrediction time;
  Evidence evidence = Evidence::extrapolated;
  double tokens_per_second = 0;
  FlopsPerSecond model_flops_per_gpu;  ///< mfu_formula(), ModelSpec::flops_per_token
  double mfu = 0;                      ///< of the dense peak of the compute dtype
};

/// Kernels and exposed collectives of one pass, by the axis they serve.
struct PassCosts {
  Seconds device;                 ///< kernels
  AxisArray<Seconds, 3> exposed;  ///< collectives the compute queue waits on: tp, cp, ep
  double ring_steps = 0;          ///< of all collectives, one after the other: a stalled host waits
  double network_steps = 0;       ///< those of them between domains
  [[nodiscard]] Seconds total() const {
    Seconds sum = device;
    for (const Seconds each : exposed.values) sum += each;
    return sum;
  }
  [[nodiscard]] friend PassCosts operator*(double count, PassCosts pass) {
    pass.device *= count;
    for (Seconds& each : pass.exposed.values) each *= count;
    pass.ring_steps *= count;
    pass.network_steps *= count;
    return pass;
  }
  PassCosts& operator+=(const PassCosts& other) {
    device += other.device;
    for (std::size_t i = 0; i < exposed.values.size(); ++i) {
      exposed.values[i] += other.exposed.values[i];
    }
    ring_steps += other.ring_steps;
    network_steps += other.network_steps;
    return *this;
  }
};

/// What recomputing a part of a layer repeats in the backward, and what is kept no longer.
struct RecomputedPart {
  PassCosts repeated;
  Bytes freed;
  RecomputedPart& operator+=(const RecomputedPart& other) {
    repeated += other.repeated;
    freed += other.freed;
    return *this;
  }
};

/// A tensor that waits for the backward and that offloading `module` moves to the host, unless one
/// of the recomputed modules `freed_by` drops it.
struct OffloadableTensor {
  OffloadModule module{};
  RecomputeModules freed_by{};
  Bytes bytes;
};

/// One layer, or the mean of layers that differ in their mixer: times and bytes per microbatch on
/// one rank.
struct LayerCosts {
  /// Of one layer of each mixer: what a buffer for one layer has to hold.
  struct OfMixer {
    Bytes saved, freed_selective;
    std::array<Bytes, kRecomputeModules.size()> freed{};
    double parameters = 0;  ///< with routed experts
    double shapes = 0;      ///< … of which one of each shape: experts are alike
  };
  std::vector<OfMixer> of_mixers{};
  PassCosts forward, backward;
  /// More of dispatch and combine that is exposed where a pass runs alone (overlap_ep), else none.
  Seconds alone_forward, alone_backward;
  /// More of tensor-parallel collectives that is exposed where the gradients of weights are
  /// computed apart from those of inputs (ZB-H1): the sum of an input's gradient has no product
  /// beside it.
  Seconds apart_backward;
  PassCosts selective;  ///< what selective recomputation repeats
  PassCosts once;       ///< of the forward, what full recomputation does not run twice
  Bytes saved;          ///< activations, nothing recomputed
  Bytes saved_selective;
  /// Of each module that the framework can recompute.
  std::array<RecomputedPart, kRecomputeModules.size()> modules;
  std::vector<OffloadableTensor> offloadable{};
  Bytes transient;
  Bytes weight_inputs;            ///< from input gradient to weight gradient, where those are apart
  Bytes weight_inputs_selective;  ///< … more of a layer recomputed so
  Bytes weight_inputs_full;
  Bytes held;               ///< by collectives that have not run yet, of one microbatch
  double parameters = 0;    ///< without routed experts
  double experts = 0;       ///< routed experts
  double adapters = 0;      ///< of `parameters`, those of adapters: then no others are trained
  double quantized = 0;     ///< of `parameters`, those in 4 bits (QuantizedWeights)
  double launches = 1;      ///< the host's, in those of a layer with a mixer and an MLP
  double with_experts = 0;  ///< share of the layers that have experts
};

/// What selective recomputation of a layer repeats and frees: of these modules where the framework
/// has modules, core_attn if none is named; else as the framework does it. Modules are disjoint but
/// for moe, which holds moe_act and shared_experts.
[[nodiscard]] RecomputedPart selective_part(const LayerCosts& layer, const Framework& framework,
                                            RecomputeModules modules);

/// What it frees of the layer of which it frees most.
[[nodiscard]] Bytes most_freed(const LayerCosts& layer, const Framework& framework,
                               RecomputeModules modules);

/// Bytes that a layer's modules move to the host, of tensors that recomputing `dropped` leaves.
[[nodiscard]] Bytes offloaded_bytes(const LayerCosts& layer, OffloadModules modules,
                                    RecomputeModules dropped);

/// What depends only on the sharding (tp, cp, ep, microbatch, sequence parallel): computed once per
/// sharding, used by all plans that share it.
struct ShardingCosts {
  LayerSharding sharding;
  LayerCosts dense;
  LayerCosts moe;  ///< zero for dense models
  PassCosts embedding_forward, embedding_backward;
  PassCosts head_forward, head_backward;
  /// More of the head's backward where it does not follow its forward at once, and the framework
  /// keeps no logits: they are computed again, from an input that is gathered again.
  Seconds head_repeated, head_regathered;
  Bytes layer_input;      ///< what full recomputation keeps of a layer, and a boundary message
  Bytes embedding_saved;  ///< dropout mask
  Bytes head_saved;
  Bytes head_transient;  ///< logits that exist at once, where the framework has few of them
  double embedding_parameters = 0;
  double head_parameters = 0;       ///< pp = 1 (a tied head costs nothing)
  double head_parameters_last = 0;  ///< pp > 1 (a tied head is a second copy)
  double head_experts = 0;          ///< routed experts of the prediction modules
  double head_adapters = 0;         ///< of them, in head_parameters
  [[nodiscard]] const LayerCosts& of(LayerKind kind) const {
    return kind == LayerKind::moe ? moe : dense;
  }
};

/// What a job's own benchmark said about its network, before it trained. Overrides the description
/// for data-parallel groups that span domains: a benchmark over the whole job says little about
/// groups of two nodes.
struct MeasuredNetwork {
  BytesPerSecond bus;  ///< all-reduce over the whole job, as nccl-tests counts bus bandwidth
  Seconds hop;         ///< per step between nodes of a ring over the whole job; zero: not measured

  /// The one definition of a slow network: of 1,067 published runs on several nodes 256 show at
  /// most 0.38 ms, 811 at least 1.33 ms (most of them 2.0-2.6), none anything between. Then every
  /// collective also blocks the host, even one that stays inside a node.
  [[nodiscard]] bool stalls() const { return hop > 800_us; }
  /// Bandwidth of what does not wait. A slow network's benchmark measured its waits, which `hop`
  /// counts already: what remains is the plateau of the same runs' all-gathers on healthy networks.
  [[nodiscard]] BytesPerSecond bandwidth() const {
    return stalls() ? std::max(bus, kUnhindered) : bus;
  }
  static constexpr BytesPerSecond kUnhindered{226e9};
  /// What the device sees of it inside nodes: a healthy network's at most.
  [[nodiscard]] Seconds device_hop() const { return std::min(hop, 250_us); }
};

/// Structure of the model that no rate can take away, made simpler. For ablations alone.
enum class AblatedFeature {
  nothing,
  unshared_nics,  ///< every group between nodes has all NICs of its nodes
  single_nics,    ///< … one NIC per node, that of one GPU
  no_bubble       ///< every stage is busy from the first microbatch to the last
};

/// Prices plans of one (model, job, cluster, framework, calibration). Pure: same arguments, same
/// result. Plans must be legal (planner/space/legality.hpp); illegal ones are a programming error.
class CostModel {
 public:
  CostModel(const ModelSpec& model, const TrainingJob& job, const ClusterTopology& cluster,
            const Framework& framework, const Calibration& calibration);

  /// The same job under other rates.
  void recalibrate(const Calibration& calibration) { calibration_ = calibration; }
  void set_network(const MeasuredNetwork& network) { network_ = network; }
  void ablate(AblatedFeature what) { ablated_ = what; }

  /// The links of a group of a process grid (core/plan/process_grid.hpp) under this calibration.
  [[nodiscard]] GroupLinks links(RankGroup group) const;
  /// The same for groups over which gradients are reduced and parameters gathered.
  [[nodiscard]] GroupLinks data_links(RankGroup of) const;
  /// Host time that a collective over so many ranks costs besides its launch.
  [[nodiscard]] Seconds host_ring_step() const;
  /// The same per step of it between domains: a healthy network's collectives hold up the host too,
  /// by the same time whatever the ring over the whole job measured. Published runs of tensor
  /// parallelism over 16 and 32 GPUs show a floor of 8 and 15-20 ms per layer that neither the
  /// microbatch nor the number of GPUs moves.
  [[nodiscard]] Seconds host_network_step() const;

  /// Groups where the plan's rank order puts them. `but_for_experts`: costs of a sharding that
  /// splits and exchanges nothing but experts in another way; what does not depend on that is taken
  /// from it. Checked by: tests/costmodel/operators/experts_test.cpp.
  [[nodiscard]] ShardingCosts sharding_costs(const ParallelPlan& plan,
                                             const ShardingCosts* but_for_experts = nullptr) const;
  /// The same of all legal plans with this sharding: none of its groups depends on their rank order
  /// (check_rank_order in planner/space/legality.hpp).
  [[nodiscard]] ShardingCosts sharding_costs(LayerSharding sharding) const;
  /// Dispatch and combine of one layer and microbatch, forward and backward, without overlap.
  [[nodiscard]] Seconds exchange_time(LayerSharding sharding) const;
  [[nodiscard]] PlanCosts price(const ParallelPlan& plan) const;
  /// The same into `out` (its vectors are reused): what the search calls. `costs` must belong to
  /// the plan's sharding.
  void price(const ParallelPlan& plan, const ShardingCosts& costs, PlanCosts& out) const;
  /// Memory only, the cheap first half of a price.
  void price_memory(const ParallelPlan& plan, const ShardingCosts& costs,
                    MemoryPrediction& out) const;
  /// Time only, of the stages price_memory has found. `pipeline`: time from the first forward to
  /// the last backward, as simulated; without it the closed form is taken. A time that is not
  /// finite is a programming error: it would be sorted among the others.
  void price_time(const ParallelPlan& plan, const ShardingCosts& costs,
                  std::span<const Stage> stages, TimePrediction& out,
                  std::optional<Seconds> pipeline = std::nullopt) const;
  /// What follows from the step: throughput and MFU.
  void price_throughput(const ParallelPlan& plan, PlanCosts& out) const;

  /// MoE layers among the first `layers` ones.
  [[nodiscard]] int moe_before(int layers) const {
    return moe_before_[static_cast<std::size_t>(layers)];
  }
  /// All layers dense, or all with experts.
  [[nodiscard]] bool one_kind() const {
    return moe_before_.back() == 0 || moe_before_.back() == model_.layers;
  }
  /// The same counts for every number of layers.
  [[nodiscard]] std::span<const int> moe_before() const { return moe_before_; }
  [[nodiscard]] const ModelSpec& model() const { return model_; }
  [[nodiscard]] const TrainingJob& job() const { return job_; }
  [[nodiscard]] const ClusterTopology& cluster() const { return cluster_; }
  [[nodiscard]] const Framework& framework() const { return framework_; }
  [[nodiscard]] const Calibration& calibration() const { return calibration_; }
  [[nodiscard]] AblatedFeature ablated() const { return ablated_; }

  /// Reading the tokens of one step from the cluster's storage, on the node that reads most:
  ///
  ///   t = R · w · s · B/dp / N
  ///
  ///   R    ranks of a node that read: one of every tp group, all context-parallel ones
  ///   w    bytes of a token: 2 for a vocabulary below 65,500, else 4
  ///   B/dp·s  tokens of a data-parallel rank per step
  ///   N    storage bandwidth of a node
  ///
  /// Workers read the next step's tokens while a step runs: max(0, t − step) is exposed.
  /// Source: Megatron-LM d98e8a64, pretrain_gpt.py (is_dataset_built_on_rank),
  /// core/datasets/indexed_dataset.py (optimal_dtype). Assumes tokens, not text, in the files, and
  /// workers that keep the storage busy; of a node all of whose GPUs are in the first or the last
  /// pipeline stage, which alone read. Checked by: tests/costmodel/time/data_loading_test.cpp.
  [[nodiscard]] Seconds data_loading(const ParallelPlan& plan) const;

 private:
  [[nodiscard]] Seconds shared_cores(const ParallelPlan& plan, Seconds busy, Seconds chunk) const;

  ModelSpec model_;
  TrainingJob job_;
  ClusterTopology cluster_;
  Framework framework_;
  Calibration calibration_;
  std::optional<MeasuredNetwork> network_;
  AblatedFeature ablated_ = AblatedFeature::nothing;
  std::vector<int> moe_before_;
  FlopsPerSecond peak_;  ///< dense peak of the job's dtype
  Flops flops_per_token_;
};

}  // namespace echelon
