#include "cli/commands/run_relief.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <variant>
#include <vector>

#include "core/plan/plan_fields.hpp"
#include "planner/explain/why_not.hpp"
#include "planner/space/constraints_of_plan.hpp"
#include "report/format.hpp"
#include "report/text/text.hpp"

namespace echelon::cli {
namespace {

/// The fields of a plan that a user chooses; the others follow from them or belong to the
/// framework.
PlanConstraints choices_of(const ParallelPlan& plan) {
  using P = ParallelPlan;
  PlanConstraints c = pinned_to(plan);
  c.release<&P::shard_group, &P::layers_per_stage, &P::schedule, &P::rank_order, &P::bucket,
            &P::microbatch_group>();
  for (const PlanField& field : plan_fields()) {
    if (field.kind == PlanFieldKind::listed) c.release(field);
  }
  return c;
}

}  // namespace

std::string changed_flags(const ParallelPlan& from, const ParallelPlan& to) {
  std::vector<std::string> texts;
  for (const PlanField* field : chosen_differences(from, to)) {
    std::string text;
    if (field->kind == PlanFieldKind::on_off) {
      const bool on = to.*std::get<bool ParallelPlan::*>(field->member);
      text = fmt::format("--{}{}", on ? "" : "no-", field->flag);
    } else {
      text = fmt::format("--{} {} instead of {}", field->flag, flag_text(*field, to),
                         flag_text(*field, from));
    }
    if (std::ranges::find(texts, text) == texts.end()) texts.push_back(std::move(text));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::string cheapest_relief(const PlanRequest& request, const ParallelPlan& plan, Bytes available) {
  PlanRequest smaller = request;
  smaller.constraints = {};
  smaller.max_memory = available;
  smaller.top = 1;
  const WhyNot answer = why_not(smaller, choices_of(plan), nullptr);
  const std::optional<Candidate>& near =
      answer.verdict == WhyNot::Verdict::better ? answer.asked : answer.neighbor;
  const std::string changes = near ? changed_flags(plan, near->plan) : "";
  if (changes.empty()) {
    return "no change of one or two values is enough on this number of ranks: use more ranks, a "
           "shorter --seq or a smaller model";
  }
  return fmt::format("{} needs {} per rank and takes {} per step", changes,
                     with_gib(near->prediction.memory.peak_reserved),
                     duration(near->prediction.time.step));
}

}  // namespace echelon::cli
