// Enumeration: the points a request leaves open, and the plans they stand for.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "costmodel/cost_model.hpp"
#include "planner/space/recompute_policy.hpp"
#include "planner/space/request.hpp"

namespace echelon {

/// One point of the search space, small enough to keep by the hundred thousand. What is not in it,
/// layers per stage, their recomputation, overlap and buckets, follows from it and the request
/// (fill_plan) unless a split was searched for it.
struct SearchPoint {
  LayerSharding sharding;
  int pp = 1, dp = 1, vpp = 1;
  int microbatch_group = 1;
  ScheduleKind schedule = ScheduleKind::one_f_one_b;
  int zero = 0, shard_group = 1;
  RankOrder rank_order = RankOrder::dp_inside_pp;
  double offload_optimizer = 0;
  CudaGraphs cuda_graphs = CudaGraphs::none;
  RecomputePolicy recompute;
  int recompute_layers = 0;  ///< fully, on every stage
  auto operator<=>(const SearchPoint&) const = default;
};

/// Divisors of n in ascending order.
[[nodiscard]] std::vector<std::int64_t> divisors(std::int64_t n);

/// Layers per stage of pp·vpp chunks. Without interleaving: balanced, or as the framework deals
/// them. With it: equal chunks; for a framework with any layout else one layer less on the first
/// and on the last stage, or what is nearest. DualPipeV's first stage holds both ends. Nothing when
/// there is no such split.
[[nodiscard]] std::optional<std::vector<int>> split_layers(
    const Framework& framework, const ModelSpec& model, int pp, int vpp,
    ScheduleKind schedule = ScheduleKind::interleaved);

/// Whether overlapping communication with compute is never slower: hiding a second of it costs the
/// compute no more than that second. Else not overlapping is never slower; either way one value of
/// `overlap_dp` and `overlap_pp` is enough (docs/search.md).
[[nodiscard]] bool overlap_pays(const Calibration& calibration);

/// The plan of a point but for its layers per stage and recomputed layers.
[[nodiscard]] ParallelPlan degrees_of(const PlanRequest& request, const SearchPoint& point);

/// Fills `plan` (vectors reused) with the point's plan. False when its layers cannot be split.
bool fill_plan(const PlanRequest& request, const SearchPoint& point, ParallelPlan& plan);

/// The point a plan was made from (its layer partition aside).
[[nodiscard]] SearchPoint point_of(const ParallelPlan& plan);

// Values of each axis the request leaves open, for given outer ones. Ascending, not yet checked.
/// Divisors of `ranks`, or the pinned value.
[[nodiscard]] std::vector<int> degree_values(std::optional<int> pinned, std::int64_t ranks);
[[nodiscard]] std::vector<int> tp_values(const PlanRequest& request, std::int64_t ranks);
[[nodiscard]] std::vector<int> pp_values(const PlanRequest& request, std::int64_t ranks);
[[nodiscard]] std::vector<int> cp_values(const PlanRequest& request, std::int64_t ranks);
[[nodiscard]] std::vector<CpComm> cp_comm_values(const PlanRequest& request, int cp);
/// The sharding with every grid of the experts over the `ranks` (tp·cp·dp) of a stage; tensor
/// parallelism inside experts is 1 or tp unless pinned.
[[nodiscard]] std::vector<LayerSharding> expert_shardings(const PlanRequest& request,
                                                          const LayerSharding& sharding, int ranks);
/// Whether dispatch and combine run beside another microbatch: no, or yes where the framework can.
[[nodiscard]] std::vector<bool> overlap_ep_values(const PlanRequest& request,
                                                  const LayerSharding& sharding);
/// None, and what gains most of what the framework can: of a whole step, which costs no memory and
/// forbids no recomputation; with experts, whose shapes are not static, of layers where it has
/// them.
[[nodiscard]] std::vector<CudaGraphs> graph_values(const PlanRequest& request);
[[nodiscard]] std::vector<int> microbatch_values(const PlanRequest& request, int dp);
/// Chunks per rank with the schedule they run under.
struct Chunks {
  int vpp = 1;
  ScheduleKind schedule = ScheduleKind::one_f_one_b;
};
[[nodiscard]] std::vector<Chunks> chunk_values(const PlanRequest& request, int pp);
/// Microbatches per group of an interleaved point with its sharding, rank order and vpp: the
/// smallest legal group, and the smallest that hides all messages (exposed_rounds, pipeline.hpp)
/// where the smallest leaves more than `kExposedShare` of the step exposed. Larger ones take as
/// long and need more memory. `hop`: one message; `slowest`: the least that the slowest stage takes
/// per microbatch.
inline constexpr double kExposedShare = 0.01;
[[nodiscard]] std::vector<int> group_values(const PlanRequest& request, const SearchPoint& point,
                                            Seconds hop, Seconds slowest);
[[nodiscard]] std::vector<int> zero_values(const PlanRequest& request, const SearchPoint& point);
/// Ranks that ZeRO splits its state over: all data-parallel ones, then every other divisor of them
/// down to 2 where the framework can and each group holds whole copies of the experts. Largest
/// first: the first needs least memory.
[[nodiscard]] std::vector<int> shard_values(const PlanRequest& request, const SearchPoint& point);
[[nodiscard]] std::vector<bool> sequence_parallel_values(const PlanRequest& request, int tp);
/// Those that check_rank_order allows, unless pinned.
[[nodiscard]] std::vector<RankOrder> rank_order_values(const PlanRequest& request,
                                                       const SearchPoint& point);
[[nodiscard]] std::vector<double> offload_values(const PlanRequest& request, int zero);
/// Whether the framework's own selective recomputation frees more than attention's scores: with
/// flash attention, which keeps none, the others would free only the log-sum-exp, 4 bytes per head
/// and token, for the price of another attention forward.
[[nodiscard]] bool selective_frees_more(const Framework& framework);
/// The last one, with every layer recomputed, needs least memory. Sets of modules by rising time.
[[nodiscard]] std::vector<RecomputePolicy> recompute_values(const PlanRequest& request,
                                                            const CostModel& cost_model);
/// Those of `policies` that the point's overlap of expert communication and CUDA graphs allow.
[[nodiscard]] std::vector<RecomputePolicy> policies_beside(
    const PlanRequest& request, const std::vector<RecomputePolicy>& policies, bool overlap_ep,
    CudaGraphs graphs);

/// What a whole number of `plan` may be set to by hand, ascending and not all legal: axes over the
/// GPUs at the divisors of their number, the axes of experts at those of their number and width,
/// microbatch of the samples, groups of the data-parallel ranks, the others at every value. Empty
/// for fields that are no whole numbers.
[[nodiscard]] std::vector<std::int64_t> values_to_offer(const PlanRequest& request,
                                                        const ParallelPlan& plan,
                                                        const PlanField& field);

}  // namespace echelon
