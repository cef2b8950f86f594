// What a framework refuses and what it asks for, as data of its table: each entry has its source.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/model/model.hpp"
#include "core/plan/job.hpp"
#include "core/plan/parallel_plan.hpp"

namespace echelon {

/// Who decides how many layers a pipeline stage without interleaving holds.
enum class StageLayers {
  chosen,      ///< the user, stage by stage
  equal,       ///< nobody: every stage holds the same number
  first_more,  ///< as equally as can be, a remainder one by one on the first stages
  by_cost,     ///< by cost of layers and head (layers_by_cost)
};

/// The part of a plan that a rule looks at: a search asks each part separately
/// (planner/space/legality.hpp).
enum class RulePart {
  degrees,        ///< degrees, the sharding of a layer, and CUDA graphs
  schedule,       ///< … and schedule, chunks, rank order, overlap of messages
  sharding,       ///< degrees, and ZeRO, its group and offload
  recomputation,  ///< overlap of expert communication, CUDA graphs, and the policy
};

/// A combination that the framework refuses although it offers each of its parts.
struct FrameworkRule {
  RulePart part = RulePart::degrees;
  /// Whether the plan is such a combination. May read only `part` of the plan.
  bool (*broken)(const ModelSpec& model, const ParallelPlan& plan) = nullptr;
  std::string_view what;    ///< is missing: "<framework> has no <what>"
  std::string_view source;  ///< file, line and version that refuses it
  /// The precisions of the jobs whose plans it refuses; null: those of all.
  bool (*in)(const PrecisionRecipe& precision) = nullptr;
};

/// How the framework speaks of a plan that it accepts.
enum class RemarkKind {
  needs,  ///< a setting besides those that the fields of the plan name; without it, it refuses the
          ///< plan or runs another one
  warns,  ///< it warns, and runs the plan
};
[[nodiscard]] std::string_view name_of(RemarkKind kind);  ///< "requires", "warns"

/// One entry of a framework's table of remarks.
struct RemarkRule {
  RemarkKind kind = RemarkKind::needs;
  /// The setting or the warning; "" where the plan calls for none.
  std::string (*text)(const ModelSpec& model, const ParallelPlan& plan) = nullptr;
  std::string_view source;
  std::string_view environment = "";  ///< line of the script that starts it
  bool of_flash = false;              ///< concerns flash attention alone
  bool before_blackwell = false;      ///< concerns GPUs before Blackwell alone
  /// In place of `text`, where the states and formats of the precision call for it.
  std::string (*of_precision)(const PrecisionRecipe& precision, const ParallelPlan& plan) = nullptr;
};

/// A remark on a certain plan.
struct FrameworkRemark {
  RemarkKind kind = RemarkKind::needs;
  std::string text;         ///< "--use-precision-aware-optimizer, for --optimizer-cpu-offload"
  std::string_view source;  ///< "Megatron-LM core_v0.16.1, megatron/training/arguments.py:1191"
  /// Line of the script that starts it: "export CUDA_DEVICE_MAX_CONNECTIONS=1"; "" for none.
  std::string_view environment = "";
};

/// Parts of a layer that graphs of layers hold, as Megatron-LM's --cuda-graph-scope names them:
/// those with static shapes that the model has. The MLP of dense layers is left out where expert
/// communication overlaps another microbatch.
/// Source: Megatron-LM core_v0.16.1, megatron/core/transformer/transformer_config.py:1758, 1898;
/// d98e8a64, docs/user-guide/features/cuda_graph.md.
[[nodiscard]] std::vector<std::string_view> graphed_parts(const ModelSpec& model,
                                                          const ParallelPlan& plan);

/// Whether a key/value head would be held by more than one tensor-parallel rank, which several
/// frameworks refuse.
[[nodiscard]] bool replicates_kv_heads(const ModelSpec& model, const ParallelPlan& plan);

}  // namespace echelon
