// Why this plan: the order in which a framework takes up its techniques, from one GPU to the
// winner, each step a search with the techniques so far.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/explain/layout.hpp"
#include "planner/explain/sensitivity.hpp"
#include "planner/search/optimize.hpp"

namespace echelon {

/// The technique that a step of the chain adds.
enum class Technique {
  one_gpu,
  data_parallel,  ///< on all GPUs, nothing split
  recompute,
  zero,    ///< the stage is in ChainStep::zero
  tensor,  ///< with sequence parallelism where it helps
  pipeline,
  interleaving,
  context,     ///< every sequence split over ranks
  experts,     ///< the experts of a mixture split over ranks
  offload,     ///< optimizer states in host memory
  everything,  ///< all axes free: the winner
};
[[nodiscard]] std::string_view name_of(Technique technique);  ///< "one-gpu", ...

/// The bottleneck of a step.
enum class Bottleneck {
  memory,
  batch,
  shapes,
  compute,
  recompute,
  bandwidth,
  fill_drain,  ///< of the pipeline
  imbalance,   ///< of its stages
  overhead
};
[[nodiscard]] std::string_view name_of(Bottleneck bottleneck);

enum class MemoryCategory { weights, gradients, optimizer, activations, buffers };
[[nodiscard]] std::string_view name_of(MemoryCategory category);
/// The largest category of a stage; activations include the running layer's transients.
struct LargestMemory {
  MemoryCategory category{};
  Bytes bytes;
};
[[nodiscard]] LargestMemory pressing_of(const MemoryBreakdown& memory);

/// Memory when the plan does not fit. Else the largest loss of the step, or compute where no loss
/// takes `kWorthMentioning` of it.
struct Limit {
  Bottleneck bottleneck{};
  double share = 0;  ///< of the step; of usable memory when that is the bottleneck
};
inline constexpr double kWorthMentioning = 0.05;
[[nodiscard]] Limit limit_of(const Candidate& candidate, Bytes usable);

/// One step: the best plan with the techniques so far, or the one that misses by least.
struct ChainStep {
  Technique technique{};
  std::optional<Technique> also;  ///< added with it: neither gains by itself
  int zero = 0;                   ///< highest ZeRO stage so far
  int gpus = 0;
  std::optional<Candidate> plan;  ///< nothing when no plan is legal
  std::string illegal;            ///< then: why
  Bytes missing;                  ///< when it does not fit, of stage `stage`
  int stage = 0;
  Limit limit;
  std::optional<LargestMemory> pressing;  ///< on that stage, or on the fullest
};

struct Explanation {
  SearchResult choice;  ///< the search; its winner ends the chain
  std::vector<ChainStep> chain;
  std::vector<AxisLayout> layout;          ///< empty when nothing fits
  std::vector<Sensitivity> sensitivities;  ///< empty when nothing fits
  /// What was stopped before all of it was looked at: "the search", "the chain", "the changes".
  std::vector<std::string_view> unfinished;
};

/// The chain adds one technique at a time. While nothing fits it takes the usual remedy of the
/// largest memory category (activations: recompute; optimizer, gradients, weights: ZeRO 1, 2, 3;
/// then tensor, then pipeline). Once something fits it takes the technique that gains most time
/// (two at once where no single one gains), until none gains 0.5 %; the last step is the remaining
/// difference to the winner. Every step is exact: a search with the other axes at 1. Errors are
/// those of search(). `progress` gets an estimate: how long the chain becomes is not known before.
/// When it returns false the rest is left out.
[[nodiscard]] Result<Explanation> explain(const PlanRequest& request,
                                          const Progress& progress = {});

}  // namespace echelon
