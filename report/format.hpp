// Numbers and plans as people read them. Units are always spelled out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/units.hpp"
#include "core/model/model.hpp"
#include "core/plan/cost.hpp"
#include "core/plan/job.hpp"
#include "core/plan/parallel_plan.hpp"
#include "core/plan/plan_fields.hpp"
#include "costmodel/calibration/memory_band.hpp"
#include "report/terminal_style.hpp"

namespace echelon {

[[nodiscard]] std::string grouped(std::int64_t value);   ///< "4,194,304"
[[nodiscard]] std::string percent(double ratio);         ///< 0.475 -> "47.5 %"
[[nodiscard]] std::string signed_percent(double ratio);  ///< "+3.1 %"
/// "93 %", "99.4 %"; never 0 or 100 %: "> 99.9 %".
[[nodiscard]] std::string probability(double value);
/// "93 % likely to fit", "over 99.9 % likely to fit".
[[nodiscard]] std::string likely_to_fit(double probability);
/// "measured, logistic, bias +18.3 %, spread 2.1 %".
[[nodiscard]] std::string words_of(const MemoryBand& band);
[[nodiscard]] std::string gib(Bytes bytes);       ///< "61.24" (no unit: for tables)
[[nodiscard]] std::string with_gib(Bytes bytes);  ///< "61.2 GiB"; "4.15 MiB" below 0.1 GiB
/// The unit of a table whose largest number this is: GiB, or MiB below 0.1 GiB.
struct MemoryUnit {
  Bytes size;
  const char* name;
  [[nodiscard]] std::string of(Bytes bytes) const;  ///< "61.24"
};
[[nodiscard]] MemoryUnit memory_unit(Bytes largest);
/// Three significant digits with the unit that suits: "5.83 s", "412 ms", "37.2 us".
[[nodiscard]] std::string duration(Seconds time);
[[nodiscard]] std::string signed_duration(Seconds time);
/// What MFU counts: "6N + 12LhT FLOPs per token"; within documents "6N + 12LhD FLOPs per token,
/// D = 2,345", the mean length of the document that a token lies in. Of sparse attention K, the
/// keys that a query attends to, and the indexer.
[[nodiscard]] std::string flops_formula(const ModelSpec& model, const TrainingJob& job);
/// MFU that counts only the scores that a causal mask needs, as Megatron-LM's log does, over MFU by
/// that formula: 0.93.
[[nodiscard]] double causal_share(const ModelSpec& model, const TrainingJob& job);
/// "64 GPUs", "1 GPU".
[[nodiscard]] std::string counted(std::int64_t count, std::string_view noun);

/// One part of a step, as the tables name it.
struct TimePart {
  std::string_view name;
  Seconds time;
};
/// All parts in the order they are shown; they sum to total().
[[nodiscard]] std::vector<TimePart> parts_of(const CostBreakdown& time);

/// The part of a step that takes most more in one plan than in another.
struct PartIncrease {
  std::string_view name;
  Seconds from, to;
  [[nodiscard]] Seconds more() const { return to - from; }
};
/// Of `to` over `from`; nothing where no part takes more. Not the wait for the slowest node, which
/// follows from the others.
[[nodiscard]] std::optional<PartIncrease> largest_increase(const CostBreakdown& from,
                                                           const CostBreakdown& to);

struct MemoryPart {
  std::string_view name;
  Bytes bytes;
};
[[nodiscard]] std::vector<MemoryPart> parts_of(const MemoryBreakdown& memory);

/// "tp 4 · pp 2 · dp 8 · microbatch 1 · ZeRO 1 · sequence parallel · no recompute".
[[nodiscard]] std::string described(const ParallelPlan& plan, const TextStyle& style);
/// A value of a plan as comparisons show it: "yes", "50 %", "16 x 4" (layers of 16 stages).
[[nodiscard]] std::string field_text(const PlanField& field, const ParallelPlan& plan);
/// "microbatch 4, ZeRO 2": values of `other` that `plan` has not, without those that follow from
/// others (chosen_differences); "" when they are the same.
[[nodiscard]] std::string differences(const ParallelPlan& plan, const ParallelPlan& other);
/// "none", "selective", "full", "full 4 of 8" (layers per stage), "full 4-6 of 8".
[[nodiscard]] std::string recompute_text(const ParallelPlan& plan);

}  // namespace echelon
