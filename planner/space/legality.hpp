// Which plans make sense at all: one rule, one reason, one sentence.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/framework/framework.hpp"
#include "core/model/model.hpp"
#include "core/plan/job.hpp"
#include "core/plan/parallel_plan.hpp"
#include "topologies/topology.hpp"

namespace echelon {

/// Why a point is not a plan, or not a good enough one. The order is the order of checking.
enum class RejectionReason {
  gpus_mismatch,  ///< tp·cp·dp·pp is not the number of GPUs
  heads_not_divisible,
  kv_heads_not_divisible,
  ffn_not_divisible,
  sequence_not_divisible,
  batch_not_divisible,
  experts_not_divisible,       ///< experts and the expert grid
  rank_order,                  ///< pp inside dp, and groups that would be torn apart
  shard_group,                 ///< optimizer instances and the ranks that hold the same experts
  too_few_layers,              ///< a chunk without layers
  layers_not_divisible,        ///< the framework deals the layers by its own rule
  microbatches_not_divisible,  ///< microbatches do not make groups for interleaving
  framework_lacks_feature,
  no_price,       ///< no formula for it here, whatever the framework does
  contradictory,  ///< vpp without pipeline, recomputed layers without recompute ...
  memory,         ///< does not fit
};
[[nodiscard]] std::string_view name_of(RejectionReason reason);   ///< "heads-not-divisible"
[[nodiscard]] std::string_view describe(RejectionReason reason);  ///< one sentence

struct Rejection {
  RejectionReason reason{};
  std::string detail;  ///< with the numbers: "tp 3 does not divide 32 attention heads"
};

/// The rule that the plan's policy of recomputation breaks, alone: its modules, and what overlap
/// of expert communication, CUDA graphs and the precision exclude.
[[nodiscard]] std::optional<Rejection> check_policy(const ModelSpec& model, const TrainingJob& job,
                                                    const Framework& framework,
                                                    const ParallelPlan& plan);

/// The rule that the plan's offloaded activations break, alone.
[[nodiscard]] std::optional<Rejection> check_offload(const ModelSpec& model,
                                                     const Framework& framework,
                                                     const ParallelPlan& plan);

/// Targets of adapters where none are named: all; of models with experts the first two, whose
/// products are those of every token.
[[nodiscard]] AdapterTargets usual_targets(const ModelSpec& model);

/// Why frozen weights cannot be kept as the job's quantized_weights, or have no price: whatever the
/// plan is, with its degrees, its ZeRO stage, its recomputation (quantized_legality.cpp).
[[nodiscard]] std::optional<Rejection> check_quantized_weights(const ModelSpec& model,
                                                               const TrainingJob& job,
                                                               const Framework& framework);
[[nodiscard]] std::optional<Rejection> check_degrees_of_quantized(const TrainingJob& job,
                                                                  const ParallelPlan& plan);
[[nodiscard]] std::optional<Rejection> check_zero_of_quantized(const TrainingJob& job,
                                                               const ParallelPlan& plan);
[[nodiscard]] std::optional<Rejection> check_recompute_of_quantized(const TrainingJob& job,
                                                                    const ParallelPlan& plan);

/// Why these adapters are not trained, or have no price, whatever the plan is.
[[nodiscard]] std::optional<Rejection> check_adapters(const ModelSpec& model,
                                                      const Adapters& adapters,
                                                      const Framework& framework);

/// The first rule a plan breaks, or nothing. Does not look at memory.
[[nodiscard]] std::optional<Rejection> check_plan(const ModelSpec& model, const TrainingJob& job,
                                                  const ClusterTopology& cluster,
                                                  const Framework& framework,
                                                  const ParallelPlan& plan);

/// The part that asks whether the ranks can be laid out in the plan's order. With stages inside dp
/// the data-parallel ranks of experts must be those of the rest: ep·etp = tp·cp (of a dense model
/// cp = 1). Then no group of a layer sharding depends on the order.
/// Source: Megatron-LM d98e8a64, core/parallel_state.py: order.endswith("pp") or
/// pipeline_model_parallel_size == 1 or expert_data_parallel_size == data_parallel_size.
[[nodiscard]] std::optional<Rejection> check_rank_order(const ModelSpec& model,
                                                        const ParallelPlan& plan);

/// Whether pipeline messages can overlap with compute under the schedule.
/// Source: Megatron-LM d98e8a64, training/arguments.py: without interleaving overlap_p2p_comm is
/// set to False.
[[nodiscard]] bool overlaps_messages(const Framework& framework, ScheduleKind schedule);

/// Whether the framework replays the job's model as such CUDA graphs: where it wraps those of
/// transformers and PEFT, loops without graphs train them (transformers' Trainer, accelerate).
[[nodiscard]] bool offers_graphs(const Framework& framework, const TrainingJob& job,
                                 CudaGraphs scope);

/// Whether the framework has the dispatcher, and the cluster's GPUs run it: DeepEP's and HybridEP's
/// kernels are written for Hopper and later, with NVLink between all GPUs of a node.
/// Source: DeepEP dd758ca, README.md (requirements); HybridEP 94a9f8f, docs/README_Hybrid-EP.md.
[[nodiscard]] bool offers_dispatcher(const Framework& framework, const ClusterTopology& cluster,
                                     Dispatcher dispatcher);

/// Whether the dispatcher exchanges among so many ranks of the cluster, ep x etp.
///
/// DeepEP has a configuration for some numbers alone, and its kernels between nodes take eight
/// ranks of a node as joined by NVLink: in domains of a size that is no multiple of eight it
/// exchanges inside a domain alone. Source: DeepEP dd758ca, deep_ep/buffers/legacy.py,
/// get_dispatch_config, which Megatron-LM d98e8a64 asks (moe/fused_a2a.py, get_buffer); csrc,
/// rdma_rank = rank / NUM_MAX_NVL_PEERS, 8.
///
/// Groups that cross NVLink domains need mlx5 NICs (NodeSpec::has_mlx5), by which the GPUs send
/// themselves (IBGDA), for both libraries. Source: NVIDIA-NeMo/Megatron-Bridge issue 3343 (on EFA
/// Megatron-Core dies in HybridEP's select_net(), which finds no mlx5 NIC; neither library has EFA
/// between nodes); DeepEP issues 9 (IBGDA is necessary, RoCE should do), 369 (EFA) and 759
/// (NVSHMEM's IBGDA is for mlx5 alone); uccl issue 956 (Slingshot has no IBGDA); ai-dynamo/nixl
/// pull request 2276 (A3 High and A3 Mega have IPUs of Google and Intel). Replacements of the
/// libraries run on EFA through a processor thread, mostly slower than all-to-all:
/// awslabs/awsome-distributed-ai pull request 1144.
[[nodiscard]] bool takes_ranks(Dispatcher dispatcher, int ranks, const ClusterTopology& cluster);

/// The part of check_plan that depends on the model and tp alone: a search asks it once per tp.
[[nodiscard]] std::optional<Rejection> check_tensor_parallel(const ModelSpec& model, int tp);

/// The part that depends on the degrees and the microbatch alone: a search asks it once for
/// all plans with these degrees.
[[nodiscard]] std::optional<Rejection> check_degrees(const ModelSpec& model, const TrainingJob& job,
                                                     const ClusterTopology& cluster,
                                                     const Framework& framework,
                                                     const ParallelPlan& plan);

/// The part that says nothing of ZeRO, its shard group or offload: degrees are taken as legal.
[[nodiscard]] std::optional<Rejection> check_schedule(const ModelSpec& model,
                                                      const TrainingJob& job,
                                                      const Framework& framework,
                                                      const ParallelPlan& plan);
/// … and the part that says nothing of schedule, rank order or layers.
[[nodiscard]] std::optional<Rejection> check_sharding(const ModelSpec& model,
                                                      const TrainingJob& job,
                                                      const ClusterTopology& cluster,
                                                      const Framework& framework,
                                                      const ParallelPlan& plan);
/// States of the optimizer that a plan keeps in the memory of each node's host: 16 bytes for each
/// of their parameters, fp32 copies of weight and gradient and both moments, whatever the GPU keeps
/// of the others. Every data-parallel replica of a shard holds those of all that is trained.
/// Source: Megatron-LM, megatron/core/optimizer/cpu_offloading/hybrid_optimizer.py
/// (param_to_fp32_param, cpu_copy_map_grad and torch's Adam, all pinned); DeepSpeed,
/// deepspeed/runtime/zero/stage_1_and_2.py, estimate_zero2_model_states_mem_needs. Assumes nodes
/// with as many parameters each.
[[nodiscard]] Bytes offloaded_states(const ModelSpec& model, const TrainingJob& job,
                                     const ClusterTopology& cluster, const Framework& framework,
                                     const ParallelPlan& plan);

/// The fewest layers a stage may hold: one per chunk, but none next to the embedding and the loss
/// where the framework lays out chunks freely. Source: Megatron-Core
/// pipeline_model_parallel_layout.
[[nodiscard]] int fewest_layers(const Framework& framework, int pp, int vpp, int stage);

/// Whether an interleaved schedule runs `microbatches` in groups of `group`: pp ≤ group ≤
/// microbatches, and the last group is whole or has at least pp.
/// Source: Megatron-LM d98e8a64, core/pipeline_parallel/schedules.py,
/// forward_backward_pipelining_with_interleaving.
[[nodiscard]] bool groups_fill(std::int64_t microbatches, int pp, std::int64_t group);
/// The smallest such group from `at_least` on; the largest if there is none; nothing for fewer
/// microbatches than pp.
[[nodiscard]] std::optional<int> smallest_group(std::int64_t microbatches, int pp,
                                                std::int64_t at_least);

/// Layers per stage as equal as they can be; a remainder goes to the stages before the last one
/// (the last holds the output head, the first the embedding and most microbatches in flight).
[[nodiscard]] std::vector<int> balanced_layers(int layers, int pp);

}  // namespace echelon
