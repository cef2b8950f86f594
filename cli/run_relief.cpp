#include "cli/run_relief.hpp"

#include <fmt/format.h>

#include <string>

#include "planner/pinning.hpp"
#include "planner/why_not.hpp"
#include "report/text.hpp"
#include "report/words.hpp"

namespace echelon::cli {
namespace {

/// What a user chooses of a plan: the rest may follow.
PlanConstraints choices_of(const ParallelPlan& plan) {
  PlanConstraints c = pinned_to(plan);
  c.shard_group.reset();
  c.layers_per_stage.reset();
  c.schedule.reset();
  c.rank_order.reset();
  c.overlap_dp.reset();
  c.overlap_tp.reset();
  c.overlap_pp.reset();
  return c;
}

/// "--zero 3 instead of 0, --microbatch 1 instead of 2"
std::string changed_flags(const ParallelPlan& from, const ParallelPlan& to) {
  std::string text;
  const auto say = [&](const char* flag, const auto& before, const auto& after) {
    if (before == after) return;
    text += fmt::format("{}--{} {} instead of {}", text.empty() ? "" : ", ", flag, after, before);
  };
  say("tp", from.tp, to.tp);
  say("cp", from.cp, to.cp);
  say("pp", from.pp, to.pp);
  say("dp", from.dp, to.dp);
  say("vpp", from.vpp, to.vpp);
  say("microbatch", from.microbatch, to.microbatch);
  say("zero", from.zero, to.zero);
  say("sequence-parallel", from.sequence_parallel ? "on" : "off",
      to.sequence_parallel ? "on" : "off");
  say("recompute", name_of(from.recompute), name_of(to.recompute));
  return text;
}

}  // namespace

std::string cheapest_relief(const PlanRequest& request, const ParallelPlan& plan, Bytes available) {
  PlanRequest smaller = request;
  smaller.constraints = {};
  smaller.max_memory = available;
  smaller.without_front = true;
  smaller.top = 1;
  const WhyNot answer = why_not(smaller, choices_of(plan), nullptr);
  const std::optional<Candidate>& near =
      answer.verdict == WhyNot::Verdict::better ? answer.asked : answer.neighbor;
  const std::string changes = near ? changed_flags(plan, near->plan) : "";
  if (changes.empty()) {
    return "no change of one or two values needs so little on as many ranks: more ranks, a "
           "shorter --seq or a smaller model do";
  }
  return fmt::format("{} needs {} a rank and takes {} a step", changes,
                     with_gib(near->prediction.memory.peak_reserved),
                     duration(near->prediction.time.step));
}

}  // namespace echelon::cli
