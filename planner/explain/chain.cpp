// Over 400 lines because the remedies, the choice of the next step and its searches share one
// state.
#include "planner/explain/chain.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace echelon {
namespace {

constexpr double kMinGain = 0.005;
constexpr double kOpenAfterSearch = 0.95;  ///< for progress alone: a chain takes 10 to 100 searches

// Fields are named one by one below: each technique of the chain is about some of them.

/// Techniques enabled so far.
struct EnabledTechniques {
  bool recompute = false;
  int zero = 0;           ///< highest stage
  bool any_zero = false;  ///< every stage may be used: once something fits
  bool tensor = false;
  bool pipeline = false;
  bool interleaving = false;
  bool context = false;
  bool experts = false;
  bool offload = false;
};

/// The user's constraints with only these techniques enabled: the degree of any other axis is 1.
PlanConstraints constraints_with(const PlanConstraints& user, const EnabledTechniques& enabled) {
  PlanConstraints out = user;
  out.release<&ParallelPlan::dp, &ParallelPlan::shard_group>();  // follow from the others
  if (!enabled.recompute) {
    out.pin<&ParallelPlan::recompute>(Recompute::none);
    out.release<&ParallelPlan::recompute_layers, &ParallelPlan::selective_layers>();
  }
  if (!enabled.any_zero) out.pin<&ParallelPlan::zero>(enabled.zero);
  if (!enabled.context) out.pin<&ParallelPlan::cp>(1);
  if (!enabled.experts) {
    out.pin<&ParallelPlan::ep>(1);
    out.pin<&ParallelPlan::etp>(1);
  }
  if (!enabled.offload) out.pin<&ParallelPlan::offload_optimizer>(0.0);
  if (!enabled.tensor) {
    out.pin<&ParallelPlan::tp>(1);
    out.release<&ParallelPlan::sequence_parallel>();
  }
  if (!enabled.pipeline) {
    out.pin<&ParallelPlan::pp>(1);
    out.pin<&ParallelPlan::vpp>(1);
    out.release<&ParallelPlan::layers_per_stage, &ParallelPlan::schedule,
                &ParallelPlan::microbatch_group>();
  } else if (!enabled.interleaving) {
    out.pin<&ParallelPlan::vpp>(1);
    out.release<&ParallelPlan::microbatch_group>();
    const auto schedule = out.get<&ParallelPlan::schedule>();
    if (schedule && (schedule == ScheduleKind::interleaved || runs_both_ways(*schedule))) {
      out.release<&ParallelPlan::schedule>();
    }
  }
  return out;
}

/// A step from a search's answer.
ChainStep step_of(Technique technique, const PlanRequest& request,
                  const Result<SearchOutcome>& report) {
  ChainStep step;
  step.technique = technique;
  step.gpus = request.cluster.gpus();
  if (!report) {
    step.illegal = report.error().hint.empty() ? report.error().found : report.error().hint;
    const bool batch = request.job.global_batch % request.cluster.gpus() != 0;
    step.limit.bottleneck = batch ? Bottleneck::batch : Bottleneck::shapes;
    return step;
  }
  if (const Candidate* fitting = report->fitting_winner()) {
    step.plan = *fitting;
    step.stage = step.plan->prediction.memory.tightest_stage;
  } else if (!report->nearest_infeasible.empty()) {
    const NearestInfeasible& miss = report->nearest_infeasible.front();
    step.plan = miss.candidate;
    step.missing = miss.missing;
    step.stage = miss.stage;
  } else {  // the search was stopped, or had a limit on the step, before it met a plan
    step.illegal = "no plan was priced";
    return step;
  }
  step.limit = limit_of(*step.plan, request.usable_memory());
  const auto& stages = step.plan->prediction.memory.stages;
  step.pressing = pressing_of(stages[static_cast<std::size_t>(step.stage)]);
  return step;
}

/// Builds the chain; holds the techniques enabled so far.
class Chain {
 public:
  Chain(const PlanRequest& request, std::vector<ChainStep>& steps, const Progress& progress)
      : request_(request), steps_(steps), progress_(progress) {}

  void one_gpu();
  void build(const SearchOutcome& last);

 private:
  struct NextStep {
    Technique technique{};
    std::optional<Technique> also;
    EnabledTechniques enabled;
  };
  [[nodiscard]] PlanRequest request_with(const NextStep& next);
  [[nodiscard]] ChainStep search_with(const NextStep& next);
  [[nodiscard]] static ChainStep step_after(const NextStep& next, const PlanRequest& request,
                                            const Result<SearchOutcome>& report);
  [[nodiscard]] std::vector<NextStep> remaining() const;
  [[nodiscard]] std::optional<NextStep> remedy(MemoryCategory category) const;
  [[nodiscard]] std::optional<NextStep> next_zero(int least) const;
  void append(const NextStep& next, ChainStep step);
  bool extend_until_it_fits();
  bool append_best(const std::vector<NextStep>& candidates);
  [[nodiscard]] std::vector<NextStep> open_steps() const;
  [[nodiscard]] std::vector<NextStep> pairs() const;
  void extend_while_faster(Seconds goal);

  /// Of a search in the chain: it ends when the explanation is stopped.
  [[nodiscard]] Progress search_progress() {
    return [this](double) { return keep_going(); };
  }
  bool keep_going() {
    stopped_ = stopped_ || (progress_ && !progress_(1 - open_));
    return !stopped_;
  }

  const PlanRequest& request_;
  std::vector<ChainStep>& steps_;
  const Progress& progress_;
  bool stopped_ = false;
  double open_ = 1;  ///< share of the work that is taken to remain
  EnabledTechniques enabled_;
};

/// Nothing split, the whole batch by accumulation: priced even where it does not fit.
void Chain::one_gpu() {
  const Result<ClusterTopology> one = request_.cluster.resized(1);
  if (!one) return;
  PlanRequest alone = request_;
  alone.cluster = *one;
  alone.constraints = constraints_with(request_.constraints, {});
  const Result<SearchOutcome> report = search(alone);
  steps_.push_back(step_of(Technique::one_gpu, alone, report));
}

PlanRequest Chain::request_with(const NextStep& next) {
  keep_going();
  open_ *= kOpenAfterSearch;
  PlanRequest request = request_;
  request.top = 1;
  request.constraints = constraints_with(request_.constraints, next.enabled);
  return request;
}

ChainStep Chain::search_with(const NextStep& next) {
  const PlanRequest request = request_with(next);
  return step_after(next, request, search(request, search_progress()));
}

ChainStep Chain::step_after(const NextStep& next, const PlanRequest& request,
                            const Result<SearchOutcome>& report) {
  ChainStep step = step_of(next.technique, request, report);
  step.also = next.also;
  step.zero = next.enabled.zero;
  return step;
}

/// The lowest ZeRO stage from `least` on that the framework has and the user allows.
std::optional<Chain::NextStep> Chain::next_zero(int least) const {
  const auto pinned = request_.constraints.get<&ParallelPlan::zero>();
  for (int zero = std::max(least, enabled_.zero + 1); zero <= 3; ++zero) {
    if (!request_.framework.zero_allowed[zero] || (pinned && *pinned != zero)) continue;
    NextStep next{Technique::zero, {}, enabled_};
    next.enabled.zero = zero;
    return next;
  }
  return std::nullopt;
}

std::vector<Chain::NextStep> Chain::remaining() const {
  const PlanConstraints& user = request_.constraints;
  std::vector<NextStep> out;
  const auto add = [&](bool open, Technique technique, bool EnabledTechniques::*flag) {
    if (!open || enabled_.*flag) return;
    NextStep next{technique, {}, enabled_};
    next.enabled.*flag = true;
    out.push_back(next);
  };
  add(user.get<&ParallelPlan::recompute>() != Recompute::none, Technique::recompute,
      &EnabledTechniques::recompute);
  add(user.get<&ParallelPlan::tp>() != 1, Technique::tensor, &EnabledTechniques::tensor);
  add(user.get<&ParallelPlan::pp>() != 1, Technique::pipeline, &EnabledTechniques::pipeline);
  add(enabled_.pipeline && user.get<&ParallelPlan::vpp>() != 1, Technique::interleaving,
      &EnabledTechniques::interleaving);
  const Framework& framework = request_.framework;
  add(user.get<&ParallelPlan::cp>() != 1 && framework.offers_cp(), Technique::context,
      &EnabledTechniques::context);
  add(user.get<&ParallelPlan::ep>() != 1 && framework.expert_parallel &&
          request_.model.moe.experts > 0,
      Technique::experts, &EnabledTechniques::experts);
  const bool may_offload =
      framework.offload_optimizer && user.value_or<&ParallelPlan::offload_optimizer>(1) > 0;
  add(may_offload && (enabled_.zero > 0 || enabled_.any_zero), Technique::offload,
      &EnabledTechniques::offload);
  return out;
}

/// The usual remedy for a memory category, cheapest first.
std::optional<Chain::NextStep> Chain::remedy(MemoryCategory category) const {
  const std::vector<NextStep> open = remaining();
  const auto pick = [&](Technique technique) -> std::optional<NextStep> {
    const auto at = std::find_if(open.begin(), open.end(),
                                 [&](const NextStep& t) { return t.technique == technique; });
    return at == open.end() ? std::nullopt : std::optional(*at);
  };
  std::optional<NextStep> next;
  if (category == MemoryCategory::activations) next = pick(Technique::recompute);
  if (category == MemoryCategory::optimizer) next = next_zero(1);
  if (category == MemoryCategory::gradients) next = next_zero(2);
  if (category == MemoryCategory::weights) next = next_zero(3);
  // Most weights, gradients and states of a mixture are its experts'.
  if (category != MemoryCategory::activations && !enabled_.experts) {
    if (const auto split = pick(Technique::experts)) next = split;
  }
  if (!next) next = pick(Technique::tensor);
  if (!next) next = pick(Technique::pipeline);
  if (!next) next = pick(Technique::recompute);
  if (!next) next = next_zero(1);
  return next;
}

void Chain::append(const NextStep& next, ChainStep step) {
  enabled_ = next.enabled;
  // Model parallelism and high ZeRO stages exclude each other in many frameworks: leave the stage
  // open.
  if (enabled_.pipeline) enabled_.any_zero = true;
  steps_.push_back(std::move(step));
}

/// False when the remedies ran out.
bool Chain::extend_until_it_fits() {
  while (true) {
    const ChainStep& now = steps_.back();
    if (now.plan && now.plan->fits) return true;
    if (stopped_) return false;
    const auto next = remedy(now.pressing ? now.pressing->category : MemoryCategory::buffers);
    if (!next) return false;
    NextStep with = *next;
    if (with.technique == Technique::pipeline) with.enabled.any_zero = true;
    append(with, search_with(with));
  }
}

/// Whether the plan has what the technique adds: a search that is open for it may find a better
/// plan without.
bool has(const ParallelPlan& plan, Technique technique) {
  switch (technique) {
    case Technique::recompute: return plan.recompute != Recompute::none;
    case Technique::tensor: return plan.tp > 1;
    case Technique::pipeline: return plan.pp > 1;
    case Technique::interleaving: return plan.vpp > 1;
    case Technique::context: return plan.cp > 1;
    case Technique::experts: return plan.ep > 1;
    case Technique::offload: return plan.offload_optimizer > 0;
    default: return true;
  }
}

/// Appends the candidate with the least expected step, if it gains.
bool Chain::append_best(const std::vector<NextStep>& candidates) {
  Seconds goal = (1 - kMinGain) * steps_.back().plan->expected();
  std::optional<NextStep> best;
  ChainStep best_step;
  for (NextStep next : candidates) {
    next.enabled.any_zero = next.enabled.any_zero || enabled_.zero > 0 || next.enabled.pipeline;
    PlanRequest request = request_with(next);
    request.no_worse_than = goal;
    const Result<SearchOutcome> report = search(request, search_progress());
    const Candidate* winner = report ? report->fitting_winner() : nullptr;
    if (stopped_) return false;
    if (winner == nullptr || winner->expected() > goal) continue;
    if (!has(winner->plan, next.technique) || (next.also && !has(winner->plan, *next.also)))
      continue;
    if (best && winner->expected() == goal) continue;  // the first of equals
    goal = winner->expected();
    best = next;
    best_step = step_after(next, request, report);
    best_step.zero = winner->plan.zero;
  }
  if (best) append(*best, std::move(best_step));
  return best.has_value();
}

/// Candidates for the next step once something fits: every open technique, and any ZeRO stage.
std::vector<Chain::NextStep> Chain::open_steps() const {
  std::vector<NextStep> out = remaining();
  if (!enabled_.any_zero) {
    NextStep zero{Technique::zero, {}, enabled_};
    zero.enabled.any_zero = true;
    out.push_back(zero);
  }
  return out;
}

/// Every open technique together with every one that is open after it.
std::vector<Chain::NextStep> Chain::pairs() const {
  std::vector<NextStep> out;
  for (const NextStep& first : open_steps()) {
    Chain after = *this;
    after.enabled_ = first.enabled;
    for (NextStep second : after.open_steps()) {
      second.also = second.technique;
      second.technique = first.technique;
      out.push_back(second);
    }
  }
  return out;
}

/// Adds the technique that gains most, or the best pair where no single one gains, until none does.
void Chain::extend_while_faster(Seconds goal) {
  while (steps_.back().plan->expected() > goal) {
    if (!append_best(open_steps()) && !append_best(pairs())) return;
  }
}

void Chain::build(const SearchOutcome& last) {
  const Candidate* winner = last.fitting_winner();
  const NextStep plain{Technique::data_parallel, {}, {}};
  if (request_.cluster.gpus() > 1 || steps_.empty()) append(plain, search_with(plain));
  const bool fits = extend_until_it_fits();
  if (fits && winner != nullptr) extend_while_faster(winner->expected());
  const Candidate* end_of_search = winner;
  if (winner == nullptr && !last.nearest_infeasible.empty()) {
    end_of_search = &last.nearest_infeasible.front().candidate;
  }
  const bool there = end_of_search != nullptr && steps_.back().plan &&
                     steps_.back().plan->plan == end_of_search->plan;
  if (!there) {
    ChainStep end = step_of(Technique::everything, request_, last);
    if (end.plan) end.zero = end.plan->plan.zero;
    steps_.push_back(std::move(end));
  }
}

}  // namespace

LargestMemory pressing_of(const MemoryBreakdown& memory) {
  const std::array<LargestMemory, 5> all = {
      {{MemoryCategory::activations, memory.activations + memory.workspace},
       {MemoryCategory::optimizer, memory.optimizer},
       {MemoryCategory::gradients, memory.gradients},
       {MemoryCategory::weights, memory.weights},
       {MemoryCategory::buffers, memory.communication + memory.context}}};
  return *std::max_element(
      all.begin(), all.end(),
      [](const LargestMemory& a, const LargestMemory& b) { return a.bytes < b.bytes; });
}

Limit limit_of(const Candidate& candidate, Bytes usable) {
  const PlanCosts& p = candidate.prediction;
  if (!candidate.fits) return {Bottleneck::memory, p.memory.peak_reserved / usable};
  const CostBreakdown& t = p.time.parts;
  const std::array<std::pair<Bottleneck, Seconds>, 5> losses = {
      {{Bottleneck::recompute, t.recompute},
       {Bottleneck::bandwidth, t.communication()},
       {Bottleneck::fill_drain, t.fill_drain},
       {Bottleneck::imbalance, t.imbalance},
       {Bottleneck::overhead, t.optimizer + t.host + t.data}}};
  const auto worst =
      std::max_element(losses.begin(), losses.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  const double share = worst->second / p.time.step;
  if (share < kWorthMentioning) return {Bottleneck::compute, t.compute / p.time.step};
  return {worst->first, share};
}

Result<Explanation> explain(const PlanRequest& request, const Progress& progress) {
  bool stopped = false;
  // Shares of the three parts, about as measured.
  const auto part = [&](double from, double to) {
    return [&progress, &stopped, from, to](double share) {
      stopped = stopped || (progress && !progress(from + (to - from) * share));
      return !stopped;
    };
  };
  Result<SearchResult> choice = optimize(request, part(0, 0.2));
  if (!choice) return choice.error();
  Explanation out{*std::move(choice), {}, {}, {}, {}};
  if (stopped) {
    out.unfinished = {"the search", "the chain", "the changes"};
    return out;
  }
  PlanRequest sized = out.choice.request;
  sized.max_gpus.reset();
  const Progress in_chain = part(0.2, 0.7);
  Chain chain(sized, out.chain, in_chain);
  chain.one_gpu();
  chain.build(out.choice.report);
  if (stopped) out.unfinished = {"the chain"};
  if (const Candidate* winner = out.choice.report.winner()) {
    out.layout = layout_of(sized, *winner);
    if (!stopped) out.sensitivities = sensitivities(sized, *winner, part(0.7, 1));
  }
  if (stopped) out.unfinished.emplace_back("the changes");
  return out;
}

}  // namespace echelon
