// The table of core/plan/plan_fields.hpp: one row for each member of ParallelPlan.
// Over 400 lines because the rows are read together.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "core/plan/parallel_plan.hpp"

namespace echelon {

using PlanMember =
    std::variant<int ParallelPlan::*, bool ParallelPlan::*, double ParallelPlan::*,
                 CpComm ParallelPlan::*, Dispatcher ParallelPlan::*, CudaGraphs ParallelPlan::*,
                 Recompute ParallelPlan::*, ScheduleKind ParallelPlan::*, RankOrder ParallelPlan::*,
                 std::vector<int> ParallelPlan::*, std::optional<Bytes> ParallelPlan::*,
                 RecomputeModules ParallelPlan::*, OffloadModules ParallelPlan::*>;

/// What a field's values are, and so how they are read, written and offered.
enum class PlanFieldKind {
  degree,     ///< int: ranks along a parallel axis
  count,      ///< int: chunks, samples, a stage of ZeRO
  group,      ///< int: ranks, or microbatches, of a group; its default follows from other fields
  on_off,     ///< bool with a flag of its own: --NAME, --no-NAME
  listed,     ///< bool, a word (`part`) in the list that several fields share: --overlap dp,tp
  name,       ///< an enumeration
  share,      ///< double from 0 to 1 of the thing that `part` names: --offload optimizer=0.5
  per_stage,  ///< list of int, one for each pipeline stage
  size,       ///< bytes, or none: the framework's own
  modules,    ///< parts of a layer, or none
};

struct PlanField {
  std::string_view key;      ///< in CSV and in the constraints of JSON: "zero_group_size"
  std::string_view flag;     ///< without dashes: "zero-group-size"; fields of a list share one
  std::string_view label;    ///< in comparisons: "ZeRO group size"
  std::string_view title{};  ///< of its control in the window
  PlanMember member;
  PlanFieldKind kind = PlanFieldKind::degree;
  bool in_layer_sharding = false;  ///< belongs to the part of a plan that one layer depends on
  std::string_view part{};         ///< listed, share: the word in the flag's value
  bool always_shown = false;       ///< in tables and descriptions, even where it is its default
  int min = 1;                     ///< degree, count, group
  int max = 0;                     ///< the same; 0: whatever the model and the machine allow
  std::string_view value{};        ///< placeholder of the flag's value: "N"; "" for a switch
  std::string_view choices{};      ///< of the flag, separated by blanks, for completion and lists
  std::string_view help{};         ///< of the flag, which its first row holds
  std::string_view
      aliases{};          ///< further spellings of the flag, separated by blanks, shown nowhere
  int place_in_json = 0;  ///< rows sorted by it: the keys of a plan in JSON
  int place_in_help = 0;  ///< … the flags in help and in commands to copy

  template <class T, class Owner>
  [[nodiscard]] constexpr bool is(T Owner::*other) const {
    T ParallelPlan::*const wanted = other;
    const auto* mine = std::get_if<T ParallelPlan::*>(&member);
    return mine != nullptr && *mine == wanted;
  }
};

namespace plan_field_table {

using P = ParallelPlan;
using enum PlanFieldKind;

// The order of the rows is that of columns in CSV files and of rows in comparisons. The default of
// a field is what ParallelPlan initializes it to; plan_from_constraints (planner/space/request.hpp)
// says which defaults follow from other fields or from the framework instead.
inline constexpr std::array<PlanField, 30> kRows = {{
    {.key = "tp",
     .flag = "tp",
     .label = "tp",
     .title = "Tensor",
     .member = &P::tp,
     .kind = degree,
     .in_layer_sharding = true,
     .always_shown = true,
     .value = "N",
     .help = "tensor-parallel ranks: each holds a part of every layer",
     .place_in_json = 10,
     .place_in_help = 10},
    {.key = "cp",
     .flag = "cp",
     .label = "cp",
     .title = "Context",
     .member = &P::cp,
     .kind = degree,
     .in_layer_sharding = true,
     .value = "N",
     .help = "context-parallel ranks: each holds a part of every sequence",
     .place_in_json = 20,
     .place_in_help = 50},
    {.key = "ep",
     .flag = "ep",
     .label = "ep",
     .title = "Experts",
     .member = &P::ep,
     .kind = degree,
     .in_layer_sharding = true,
     .value = "N",
     .help = "expert-parallel ranks: each holds a part of the experts",
     .place_in_json = 40,
     .place_in_help = 70},
    {.key = "etp",
     .flag = "etp",
     .label = "etp",
     .title = "Expert tp",
     .member = &P::etp,
     .kind = degree,
     .in_layer_sharding = true,
     .value = "N",
     .help = "tensor-parallel ranks within an expert",
     .place_in_json = 50,
     .place_in_help = 80},
    {.key = "pp",
     .flag = "pp",
     .label = "pp",
     .title = "Pipeline",
     .member = &P::pp,
     .kind = degree,
     .always_shown = true,
     .value = "N",
     .help = "pipeline stages: each holds some of the layers",
     .place_in_json = 70,
     .place_in_help = 20},
    {.key = "vpp",
     .flag = "vpp",
     .label = "vpp",
     .title = "Chunks (vpp)",
     .member = &P::vpp,
     .kind = count,
     .value = "N",
     .help = "model chunks per pipeline rank (interleaved schedule; dualpipev, dualpipe: 2)",
     .place_in_json = 80,
     .place_in_help = 40},
    {.key = "microbatch_group_size",
     .flag = "microbatch-group-size",
     .label = "microbatch group size",
     .title = "Group size",
     .member = &P::microbatch_group,
     .kind = group,
     .value = "N",
     .help = "microbatches that a chunk computes before the next chunk's turn (interleaved); "
             "default: pp",
     .place_in_json = 85,
     .place_in_help = 45},
    {.key = "dp",
     .flag = "dp",
     .label = "dp",
     .title = "Data",
     .member = &P::dp,
     .kind = degree,
     .always_shown = true,
     .value = "N",
     .help = "data-parallel ranks: each processes a part of the batch",
     .place_in_json = 60,
     .place_in_help = 30},
    {.key = "microbatch",
     .flag = "microbatch",
     .label = "microbatch",
     .title = "Microbatch",
     .member = &P::microbatch,
     .kind = count,
     .in_layer_sharding = true,
     .always_shown = true,
     .value = "N",
     .help = "sequences per forward pass of one rank",
     .aliases = "micro-batch-size",
     .place_in_json = 90,
     .place_in_help = 90},
    {.key = "zero",
     .flag = "zero",
     .label = "ZeRO",
     .title = "ZeRO",
     .member = &P::zero,
     .kind = count,
     .always_shown = true,
     .min = 0,
     .max = 3,
     .value = "0-3",
     .choices = "0 1 2 3",
     .help = "ZeRO stage: training state partitioned over the data-parallel ranks",
     .place_in_json = 110,
     .place_in_help = 110},
    {.key = "zero_group_size",
     .flag = "zero-group-size",
     .label = "ZeRO group size",
     .title = "ZeRO group",
     .member = &P::shard_group,
     .kind = group,
     .value = "N",
     .help = "ranks over which ZeRO partitions state; default: dp x cp",
     .aliases = "shard-group",
     .place_in_json = 170,
     .place_in_help = 120},
    {.key = "sequence_parallel",
     .flag = "sequence-parallel",
     .label = "sequence parallel",
     .title = "Seq. parallel",
     .member = &P::sequence_parallel,
     .kind = on_off,
     .in_layer_sharding = true,
     .help = "partition norms and dropout over the tensor-parallel ranks",
     .place_in_json = 120,
     .place_in_help = 130},
    {.key = "recompute",
     .flag = "recompute",
     .label = "recompute",
     .title = "Recompute",
     .member = &P::recompute,
     .kind = name,
     .value = "POLICY",
     .choices = "none selective full mixed",
     .help = "activation recomputation policy: none, selective, full (every layer), mixed; "
             "selective:LIST names modules",
     .place_in_json = 130,
     .place_in_help = 140},
    {.key = "recompute_modules",
     .flag = "recompute-modules",
     .label = "recomputed modules",
     .title = "Modules",
     .member = &P::recompute_modules,
     .kind = modules,
     .value = "LIST",
     .help = "modules that selective recomputation repeats: a list of core_attn, layernorm, "
             "mla_up_proj, moe_act, shared_experts, mlp, moe",
     .place_in_json = 135,
     .place_in_help = 145},
    {.key = "recompute_layers",
     .flag = "recompute-layers",
     .label = "recomputed layers",
     .title = "Full layers",
     .member = &P::recompute_layers,
     .kind = per_stage,
     .value = "N|A,B,...",
     .help = "fully recomputed layers per stage, with --recompute full (default: every layer) or "
             "mixed",
     .place_in_json = 140,
     .place_in_help = 150},
    {.key = "selective_layers",
     .flag = "selective-layers",
     .label = "selectively recomputed layers",
     .title = "Selective",
     .member = &P::selective_layers,
     .kind = per_stage,
     .value = "N|A,B,...",
     .help = "layers per stage that recompute only attention, with --recompute mixed",
     .place_in_json = 210,
     .place_in_help = 160},
    {.key = "schedule",
     .flag = "schedule",
     .label = "schedule",
     .title = "Schedule",
     .member = &P::schedule,
     .kind = name,
     .value = "NAME",
     .choices = "gpipe 1f1b interleaved zb-h1 dualpipev dualpipe",
     .help = "pipeline schedule: gpipe, 1f1b, interleaved, zb-h1, dualpipev, dualpipe",
     .place_in_json = 150,
     .place_in_help = 170},
    {.key = "layers_per_stage",
     .flag = "layers-per-stage",
     .label = "layers per stage",
     .title = "Stage layers",
     .member = &P::layers_per_stage,
     .kind = per_stage,
     .value = "A,B,...",
     .help = "layers of each pipeline stage",
     .place_in_json = 100,
     .place_in_help = 100},
    {.key = "cp_comm",
     .flag = "cp-comm",
     .label = "cp communication",
     .title = "CP comm.",
     .member = &P::cp_comm,
     .kind = name,
     .in_layer_sharding = true,
     .value = "KIND",
     .choices = "p2p a2a all_gather",
     .help = "context-parallel attention: p2p (ring), a2a (Ulysses, by heads) or, with sparse "
             "attention, all_gather",
     .place_in_json = 30,
     .place_in_help = 60},
    {.key = "dispatcher",
     .flag = "dispatcher",
     .label = "token dispatcher",
     .title = "Dispatcher",
     .member = &P::dispatcher,
     .kind = name,
     .in_layer_sharding = true,
     .value = "KIND",
     .choices = "alltoall allgather deepep hybridep",
     .help = "exchange that brings tokens to their experts: alltoall, allgather, deepep, hybridep",
     .aliases = "moe-token-dispatcher-type moe-dispatch",
     .place_in_json = 55,
     .place_in_help = 85},
    {.key = "rank_order",
     .flag = "rank-order",
     .label = "rank order",
     .title = "Rank order",
     .member = &P::rank_order,
     .kind = name,
     .value = "ORDER",
     .choices = "tp-cp-ep-dp-pp tp-cp-ep-pp-dp",
     .help = "order of the axes in the rank, innermost first: tp-cp-ep-dp-pp or tp-cp-ep-pp-dp",
     .place_in_json = 160,
     .place_in_help = 190},
    {.key = "offload_optimizer",
     .flag = "offload",
     .label = "offloaded optimizer",
     .title = "Offload",
     .member = &P::offload_optimizer,
     .kind = share,
     .part = "optimizer",
     .value = "LIST",
     .help = "training state kept in host memory: optimizer=SHARE, for example optimizer=1",
     .place_in_json = 190,
     .place_in_help = 200},
    {.key = "offload_modules",
     .flag = "offload-modules",
     .label = "offloaded activations",
     .title = "Act. offload",
     .member = &P::offload_modules,
     .kind = modules,
     .value = "LIST",
     .help = "modules whose saved inputs wait in host memory for their backward (never chosen by "
             "a search): a list of attn_norm, qkv_linear, core_attn, attn_proj, mlp_norm, "
             "expert_fc1, moe_act",
     .place_in_json = 195,
     .place_in_help = 205},
    {.key = "overlap_dp",
     .flag = "overlap",
     .label = "overlap of dp",
     .title = "Overlap",
     .member = &P::overlap_dp,
     .kind = listed,
     .part = "dp",
     .value = "AXES",
     .choices = "dp tp pp ep shared dp,tp dp,pp dp,tp,pp dp,pp,ep dp,shared none",
     .help = "communication overlapped with compute: a list of dp, tp, pp, ep (beside another "
             "microbatch), shared (experts' exchange beside shared experts; never chosen by a "
             "search), or none",
     .place_in_json = 180,
     .place_in_help = 180},
    {.key = "overlap_tp",
     .flag = "overlap",
     .label = "overlap of tp",
     .member = &P::overlap_tp,
     .kind = listed,
     .in_layer_sharding = true,
     .part = "tp",
     .place_in_json = 181,
     .place_in_help = 181},
    {.key = "overlap_pp",
     .flag = "overlap",
     .label = "overlap of pp",
     .member = &P::overlap_pp,
     .kind = listed,
     .part = "pp",
     .place_in_json = 182,
     .place_in_help = 182},
    {.key = "overlap_ep",
     .flag = "overlap",
     .label = "overlap of ep",
     .member = &P::overlap_ep,
     .kind = listed,
     .in_layer_sharding = true,
     .part = "ep",
     .place_in_json = 183,
     .place_in_help = 183},
    {.key = "overlap_shared",
     .flag = "overlap",
     .label = "overlap of shared experts",
     .member = &P::overlap_shared,
     .kind = listed,
     .in_layer_sharding = true,
     .part = "shared",
     .place_in_json = 184,
     .place_in_help = 184},
    {.key = "cuda_graphs",
     .flag = "cuda-graphs",
     .label = "CUDA graphs",
     .title = "CUDA graphs",
     .member = &P::cuda_graphs,
     .kind = name,
     .value = "SCOPE",
     .choices = "none layers full_iteration",
     .help = "kernels launched as CUDA graphs: none, layers (attn, mlp, moe_router, "
             "moe_preprocess) or full_iteration",
     .place_in_json = 220,
     .place_in_help = 220},
    {.key = "bucket",
     .flag = "bucket",
     .label = "gradient bucket",
     .title = "Grad. bucket",
     .member = &P::bucket,
     .kind = size,
     .value = "SIZE",
     .help = "gradient bucket size of the data-parallel reduction, for example 25MB (ZeRO 0 and "
             "1); default: the framework's own rule",
     .place_in_json = 200,
     .place_in_help = 210},
}};

}  // namespace plan_field_table

}  // namespace echelon
