#include "planner/explain/why_not.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/expects.hpp"
#include "core/base/saturated_product.hpp"
#include "planner/space/candidates.hpp"
#include "planner/space/constraints_of_plan.hpp"
#include "planner/space/plan_from_constraints.hpp"

namespace echelon {
namespace {

using enum RejectionReason;

/// "tp 4 × pp 3 = 12", of the degrees that are given.
std::string product_of(const PlanConstraints& c) {
  std::string factors;
  std::optional<std::int64_t> product = 1;
  int count = 0;
  const auto add = [&](const char* name, std::optional<int> degree) {
    if (!degree) return;
    factors += fmt::format("{}{} {}", count++ > 0 ? " × " : "", name, *degree);
    product = product ? checked_product({*product, *degree}) : std::nullopt;
  };
  // Not a list of fields: the degrees whose product is the number of GPUs.
  add("tp", c.get<&ParallelPlan::tp>());
  add("cp", c.get<&ParallelPlan::cp>());
  add("pp", c.get<&ParallelPlan::pp>());
  add("dp", c.get<&ParallelPlan::dp>());
  if (count < 2) return factors;
  return product ? fmt::format("{} = {}", factors, *product)
                 : fmt::format("{} = more than 9.2e18", factors);
}

/// The rule behind a request without a legal plan, as precisely as the asked values allow.
Rejection broken_rule(const PlanRequest& request) {
  const PlanConstraints& c = request.constraints;
  const std::int64_t gpus = request.cluster.gpus();
  if (c.has<&ParallelPlan::tp>()) {
    if (auto rejection = check_tensor_parallel(request.model, c.values().tp)) return *rejection;
  }
  const std::int64_t product = c.values().gpus();
  if (gpus % product != 0 || (c.has<&ParallelPlan::tp>() && c.has<&ParallelPlan::pp>() &&
                              c.has<&ParallelPlan::dp>() && product != gpus)) {
    return {gpus_mismatch, fmt::format("{}, which {} {} GPUs", product_of(c),
                                       gpus % product != 0 ? "does not divide" : "is not", gpus)};
  }
  if (c.has<&ParallelPlan::pp>() &&
      request.model.layers < std::int64_t{c.values().pp} * c.values().vpp) {
    return {too_few_layers, fmt::format("{} layers for pp {} × vpp {} chunks", request.model.layers,
                                        c.values().pp, c.values().vpp)};
  }
  if (c.has<&ParallelPlan::tp>() && c.has<&ParallelPlan::pp>() && c.values().cp == 1 &&
      !c.has<&ParallelPlan::dp>()) {
    const std::int64_t unit =
        gpus / (std::int64_t{c.values().tp} * c.values().pp) * c.values().microbatch;
    if (request.job.global_batch % unit != 0) {
      return {
          batch_not_divisible,
          fmt::format("global batch {} is not a multiple of dp {} × microbatch {}",
                      request.job.global_batch,
                      gpus / (std::int64_t{c.values().tp} * c.values().pp), c.values().microbatch)};
    }
  }
  const int experts = request.model.moe.experts;
  if (c.has<&ParallelPlan::ep>() && c.values().ep > 1 &&
      (experts == 0 || experts % c.values().ep != 0)) {
    return {experts_not_divisible,
            fmt::format("ep {} does not divide {} experts", c.values().ep, experts)};
  }
  // The rest by example: fill what is open with the defaults and see what is said.
  std::optional<RejectionReason> broken;
  const Result<ParallelPlan> plan = plan_from_constraints(request, &broken);
  if (!plan) {
    const Error& error = plan.error();
    return {broken.value_or(contradictory),
            error.found + (error.expected.empty() ? "" : ": ") + error.expected};
  }
  const Result<SearchOutcome> report = search(request);
  return {contradictory, report ? "no legal plan" : report.error().hint};
}

/// One asked value: how to free it, and the values it may take instead, nearest first.
struct AskedValue {
  std::function<void(PlanConstraints&)> release;
  std::vector<std::function<void(PlanConstraints&)>> others;
};

/// Other values of a degree among `values`, nearest by ratio first.
template <auto member>
AskedValue degree(int asked, std::vector<int> values) {
  const auto distance = [asked](int value) {
    return std::abs(std::log(static_cast<double>(value) / asked));
  };
  std::erase(values, asked);
  std::stable_sort(values.begin(), values.end(),
                   [&](int a, int b) { return distance(a) < distance(b); });
  AskedValue out{[](PlanConstraints& c) { c.release<member>(); }, {}};
  for (const int value : values) {
    out.others.push_back([value](PlanConstraints& c) { c.pin<member>(value); });
  }
  return out;
}

std::vector<int> small_divisors(std::int64_t n) {
  std::vector<int> out;
  for (const std::int64_t d : divisors(n)) {
    if (d <= std::numeric_limits<int>::max()) out.push_back(static_cast<int>(d));
  }
  return out;
}

/// A choice of few values: any other that a search finds.
template <auto member>
void add_free(const PlanConstraints& asked, std::vector<AskedValue>& out) {
  if (!asked.has<member>()) return;
  const auto release = [](PlanConstraints& c) { c.release<member>(); };
  out.push_back({release, {release}});
}

std::vector<AskedValue> values_of(const PlanRequest& request, const PlanConstraints& asked) {
  const std::vector<int> degrees = small_divisors(request.cluster.gpus());
  std::vector<AskedValue> out;
  const auto add = [&]<auto member>(std::vector<int> values) {
    const std::optional<int> value = asked.get<member>();
    if (value) out.push_back(degree<member>(*value, std::move(values)));
  };
  add.operator()<&ParallelPlan::dp>(degrees);
  add.operator()<&ParallelPlan::tp>(degrees);
  add.operator()<&ParallelPlan::cp>(degrees);
  add.operator()<&ParallelPlan::pp>(degrees);
  if (request.model.moe.experts > 0) {
    add.operator()<&ParallelPlan::ep>(small_divisors(request.model.moe.experts));
  }
  std::vector<int> chunks;
  for (int vpp = 1; vpp <= request.model.layers; ++vpp) chunks.push_back(vpp);
  add.operator()<&ParallelPlan::vpp>(chunks);
  add.operator()<&ParallelPlan::microbatch_group>(small_divisors(request.job.global_batch));
  add.operator()<&ParallelPlan::microbatch>(small_divisors(request.job.global_batch));
  if (asked.has<&ParallelPlan::zero>()) {
    AskedValue zero{[](PlanConstraints& c) { c.release<&ParallelPlan::zero>(); }, {}};
    for (int away = 1; away <= 3; ++away) {
      for (const int value : {asked.values().zero + away, asked.values().zero - away}) {
        if (value >= 0 && value <= 3) {
          zero.others.push_back([value](PlanConstraints& c) { c.pin<&ParallelPlan::zero>(value); });
        }
      }
    }
    out.push_back(std::move(zero));
  }
  if (asked.has<&ParallelPlan::recompute, &ParallelPlan::recompute_modules,
                &ParallelPlan::recompute_layers, &ParallelPlan::selective_layers>()) {
    const auto release = [](PlanConstraints& c) {
      c.release<&ParallelPlan::recompute, &ParallelPlan::recompute_modules>();
      c.release<&ParallelPlan::recompute_layers>();
      c.release<&ParallelPlan::selective_layers>();
    };
    out.push_back({release, {release}});
  }
  if (asked.has<&ParallelPlan::sequence_parallel>()) {
    const bool other = !asked.values().sequence_parallel;
    out.push_back(
        {[](PlanConstraints& c) { c.release<&ParallelPlan::sequence_parallel>(); },
         {[other](PlanConstraints& c) { c.pin<&ParallelPlan::sequence_parallel>(other); }}});
  }
  add_free<&ParallelPlan::overlap_ep>(asked, out);
  add_free<&ParallelPlan::cuda_graphs>(asked, out);
  add_free<&ParallelPlan::dispatcher>(asked, out);
  return out;
}

std::optional<Candidate> best_with(const PlanRequest& request, const PlanConstraints& pinned,
                                   const Progress& progress) {
  if (!progress(0)) return std::nullopt;
  PlanRequest changed = request;
  changed.constraints = pinned;
  const Result<SearchResult> choice = optimize(changed, progress);
  if (!choice || choice->report.fitting_winner() == nullptr) return std::nullopt;
  return *choice->report.fitting_winner();
}

struct Neighbor {
  Candidate plan;
  int changes = 0;
};

/// One value changed to the nearest that works (of several such values the better plan); else two
/// values freed; else the winner.
std::optional<Neighbor> nearest(const PlanRequest& request, const PlanConstraints& asked,
                                const Candidate* winner, const Progress& progress) {
  const std::vector<AskedValue> values = values_of(request, asked);
  std::optional<Neighbor> best;
  const auto consider = [&](std::optional<Candidate> plan, int changes) {
    if (!plan) return false;
    const bool better = !best || objective_key(request, *plan) < objective_key(request, best->plan);
    if (better) best = Neighbor{*std::move(plan), changes};
    return true;
  };
  for (const AskedValue& value : values) {
    for (const auto& other : value.others) {
      PlanConstraints pinned = asked;
      other(pinned);
      if (consider(best_with(request, pinned, progress), 1)) break;
    }
  }
  if (best) return best;
  for (std::size_t i = 0; i < values.size(); ++i) {
    for (std::size_t j = i + 1; j < values.size(); ++j) {
      PlanConstraints pinned = asked;
      values[i].release(pinned);
      values[j].release(pinned);
      consider(best_with(request, pinned, progress), 2);
    }
  }
  if (best || winner == nullptr) return best;
  return Neighbor{*winner, static_cast<int>(values.size())};
}

}  // namespace

WhyNot why_not(const PlanRequest& request, const PlanConstraints& asked, const Candidate* winner,
               const Progress& progress) {
  WhyNot out;
  const Progress keep_going = [&](double) {
    out.whole = out.whole && (!progress || progress(0));
    return out.whole;
  };
  PlanRequest changed = request;
  changed.max_gpus.reset();
  changed.no_worse_than.reset();
  changed.constraints = overlaid(request.constraints, asked);
  const Result<SearchResult> choice = optimize(changed, keep_going);
  const Candidate* best = choice ? choice->report.winner() : nullptr;
  if (best != nullptr && best->fits) {
    out.asked = *best;
    if (winner == nullptr) {
      out.verdict = WhyNot::Verdict::better;
      return out;
    }
    const TimePrediction& ours = winner->prediction.time;
    const TimePrediction& theirs = out.asked->prediction.time;
    out.tied = tied(ours, theirs, request.calibration.time_band);
    // What the request allows was searched: with a smaller key it lost by being much slower than
    // the fastest plan that certainly fits (kMostGivenUp).
    const bool searched = overlaid(changed.constraints, request.constraints) == changed.constraints;
    const bool better =
        !searched && objective_key(changed, *out.asked) < objective_key(request, *winner);
    out.verdict = out.asked->plan == winner->plan ? WhyNot::Verdict::winner
                  : better                        ? WhyNot::Verdict::better
                                                  : WhyNot::Verdict::slower;
    return out;
  }
  if (choice && !out.whole) {
    out.verdict = WhyNot::Verdict::unknown;
    return out;
  }
  if (best != nullptr) {  // all there is, but unlikely to fit
    const MemoryPrediction& memory = best->prediction.memory;
    out.verdict = WhyNot::Verdict::too_large;
    out.asked = *best;
    out.stage = memory.tightest_stage;
    out.missing = memory.peak_reserved - changed.usable_memory();
  } else if (choice) {
    EXPECTS(!choice->report.nearest_infeasible.empty(),
            "a finished search that fits nothing has misses");
    const NearestInfeasible& miss = choice->report.nearest_infeasible.front();
    out.verdict = WhyNot::Verdict::too_large;
    out.asked = miss.candidate;
    out.stage = miss.stage;
    out.missing = miss.missing;
  } else {
    out.verdict = WhyNot::Verdict::illegal;
    out.rule = broken_rule(changed);
  }
  if (auto neighbor = nearest(changed, changed.constraints, winner, keep_going)) {
    out.neighbor = std::move(neighbor->plan);
    out.changes = neighbor->changes;
  }
  return out;
}

}  // namespace echelon
