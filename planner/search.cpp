#include "planner/search.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "core/expects.hpp"
#include "planner/candidates.hpp"
#include "planner/near_miss.hpp"

namespace echelon {
namespace {

/// A priced tuple that fits.
struct Scored {
  Seconds step;
  Bytes memory;
  Tuple tuple;
  auto operator<=>(const Scored&) const = default;  // time, then memory, then the tuple itself
};

/// A tuple that does not fit, and by how much.
struct TooLarge {
  Bytes missing;
  Tuple tuple;
  auto operator<=>(const TooLarge&) const = default;
};

class Search {
 public:
  explicit Search(const PlanRequest& request)
      : request_(request),
        pricer_(request.model, request.job, request.cluster, request.stack, request.calibration),
        usable_(request.usable_memory()) {}

  /// False when stopped by the caller.
  bool run(const Progress& progress);
  PlanReport report();
  [[nodiscard]] bool found_legal() const { return counts_.priced + counts_.too_large > 0; }
  [[nodiscard]] std::vector<RejectionCount> rejections() const;

 private:
  void visit_degrees(int tp, int pp);
  void visit_cut(Tuple tuple, const CutCosts& costs);
  void visit_recompute(Tuple tuple, const CutCosts& costs);
  void price(const Tuple& tuple, const CutCosts& costs);
  [[nodiscard]] int fewest_recomputed(Tuple tuple, const CutCosts& costs);
  [[nodiscard]] Bytes missing(const Tuple& tuple, const CutCosts& costs);
  const CutCosts& costs_of(int tp, int microbatch, bool sequence_parallel);
  void reject(const Rejection& rejection);
  [[nodiscard]] Candidate candidate(const Tuple& tuple) const;

  const PlanRequest& request_;
  Pricer pricer_;
  Bytes usable_;
  SearchCounts counts_;
  std::vector<Scored> fitting_;
  std::map<std::pair<int, int>, TooLarge> closest_;  ///< per (tp, pp)
  std::map<RejectionReason, RejectionCount> rejected_;
  std::map<std::tuple<int, int, bool>, CutCosts> cuts_;
  ParallelPlan plan_;
  MemoryPrediction memory_;
  TimePrediction time_;
};

void Search::reject(const Rejection& rejection) {
  RejectionCount& entry = rejected_[rejection.reason];
  entry.reason = rejection.reason;
  if (entry.count++ == 0) entry.nearest = rejection.detail;
  ++counts_.tuples;
}

const CutCosts& Search::costs_of(int tp, int microbatch, bool sequence_parallel) {
  const auto key = std::make_tuple(tp, microbatch, sequence_parallel);
  auto found = cuts_.find(key);
  if (found == cuts_.end()) {
    const Cut cut{.tp = tp,
                  .microbatch = microbatch,
                  .sequence_parallel = sequence_parallel,
                  .overlap_tp = request_.constraints.overlap_tp.value_or(false)};
    found = cuts_.emplace(key, pricer_.cut_costs(cut)).first;
  }
  return found->second;
}

bool Search::run(const Progress& progress) {
  const AxisValues axes = AxisValues::of(request_);
  double done = 0;
  for (const int tp : axes.tp) {
    done += 1.0 / static_cast<double>(axes.tp.size());
    if (const auto rejection = check_tensor_parallel(request_.model, tp)) {
      reject(*rejection);
      continue;
    }
    for (const int pp : axes.pp) visit_degrees(tp, pp);
    if (progress && !progress(done)) return false;
  }
  return true;
}

void Search::visit_degrees(int tp, int pp) {
  const std::int64_t gpus = request_.cluster.gpus();
  const std::int64_t product = std::int64_t{tp} * pp;
  if (pp > request_.model.layers) {
    return reject({RejectionReason::too_few_layers,
                   fmt::format("{} layers for pp {}", request_.model.layers, pp)});
  }
  const int dp = request_.constraints.dp.value_or(static_cast<int>(gpus / product));
  if (gpus % product != 0 || product * dp != gpus) {
    if (request_.constraints.dp || request_.constraints.tp || request_.constraints.pp) {
      reject({RejectionReason::gpus_mismatch,
              fmt::format("tp {} × dp {} × pp {} is not {} GPUs", tp, dp, pp, gpus)});
    }
    return;
  }
  Tuple tuple{.tp = tp, .pp = pp, .dp = dp};
  tuple.shard_group = request_.constraints.shard_group.value_or(dp);
  for (const int microbatch : microbatch_values(request_, dp)) {
    for (const bool sequence_parallel : sequence_parallel_values(request_, tp)) {
      tuple.microbatch = microbatch;
      tuple.sequence_parallel = sequence_parallel;
      visit_cut(tuple, costs_of(tp, microbatch, sequence_parallel));
    }
  }
}

void Search::visit_cut(Tuple tuple, const CutCosts& costs) {
  for (const int vpp : vpp_values(request_, tuple.pp)) {
    for (const int zero : zero_values(request_, tuple.dp)) {
      tuple.vpp = vpp;
      tuple.zero = zero;
      visit_recompute(tuple, costs);
    }
  }
}

/// Recomputation costs time, so of the counts of fully recomputed layers only two matter: the
/// fewest that fit (the fastest), and all (the smallest, for the Pareto front).
void Search::visit_recompute(Tuple tuple, const CutCosts& costs) {
  tuple.recompute = Recompute::none;
  tuple.recompute_layers = 0;
  if (!fill_plan(request_, tuple, plan_)) {
    return reject({RejectionReason::layers_not_divisible,
                   fmt::format("{} layers on pp {} × vpp {}", request_.model.layers, tuple.pp,
                               tuple.vpp)});
  }
  if (const auto rejection = check_plan(request_.model, request_.job, request_.cluster,
                                        request_.stack, plan_)) {
    return reject(*rejection);
  }
  for (const Recompute recompute : recompute_values(request_)) {
    tuple.recompute = recompute;
    tuple.recompute_layers = 0;
    if (recompute != Recompute::full) {
      price(tuple, costs);
      continue;
    }
    const int all = *std::max_element(plan_.layers_per_stage.begin(), plan_.layers_per_stage.end());
    if (!request_.constraints.recompute_layers) {
      const int fewest = fewest_recomputed(tuple, costs);
      if (fewest > 0 && fewest < all) {
        tuple.recompute_layers = fewest;
        price(tuple, costs);
      }
    }
    tuple.recompute_layers = all;
    price(tuple, costs);
  }
}

Bytes Search::missing(const Tuple& tuple, const CutCosts& costs) {
  EXPECTS(fill_plan(request_, tuple, plan_), "a tuple that was legal before");
  pricer_.price_memory(plan_, costs, memory_);
  return memory_.peak_reserved - usable_;
}

/// Fewest recomputed layers per stage with which the tuple fits (a multiple of vpp: every chunk
/// alike), or 0 when none are needed, or more than the stage has when even all do not help.
/// Bisection: memory falls with every further layer.
int Search::fewest_recomputed(Tuple tuple, const CutCosts& costs) {
  const int all = *std::max_element(plan_.layers_per_stage.begin(), plan_.layers_per_stage.end());
  tuple.recompute = Recompute::none;
  if (missing(tuple, costs) <= Bytes{}) return 0;
  tuple.recompute = Recompute::full;
  const auto fits = [&](int chunks) {
    tuple.recompute_layers = std::min(all, chunks * tuple.vpp);
    return missing(tuple, costs) <= Bytes{};
  };
  int low = 0;  // does not fit
  int high = (all + tuple.vpp - 1) / tuple.vpp;
  if (!fits(high)) return all + 1;
  while (high - low > 1) {
    const int middle = std::midpoint(low, high);
    (fits(middle) ? high : low) = middle;
  }
  return std::min(all, high * tuple.vpp);
}

void Search::price(const Tuple& tuple, const CutCosts& costs) {
  ++counts_.tuples;
  const Bytes shortage = missing(tuple, costs);
  if (request_.constraints.recompute_layers) {  // pinned counts were not checked with the rest
    if (const auto rejection = check_plan(request_.model, request_.job, request_.cluster,
                                          request_.stack, plan_)) {
      --counts_.tuples;
      return reject(*rejection);
    }
  }
  if (shortage > Bytes{}) {
    ++counts_.too_large;
    const TooLarge entry{shortage, tuple};
    const auto [at, inserted] = closest_.try_emplace({tuple.tp, tuple.pp}, entry);
    if (!inserted) at->second = std::min(at->second, entry);
    return;
  }
  pricer_.price_time(plan_, costs, memory_.contents, time_);
  ++counts_.priced;
  fitting_.push_back({time_.step, memory_.peak_reserved, tuple});
}

Candidate Search::candidate(const Tuple& tuple) const {
  Candidate out;
  EXPECTS(fill_plan(request_, tuple, out.plan), "a tuple that was legal before");
  out.prediction = pricer_.price(out.plan);
  out.fits = out.prediction.memory.peak_reserved <= usable_;
  return out;
}

std::vector<RejectionCount> Search::rejections() const {
  std::vector<RejectionCount> out;
  for (const auto& [reason, entry] : rejected_) out.push_back(entry);
  if (counts_.too_large > 0) {
    const TooLarge* best = nullptr;
    for (const auto& [degrees, entry] : closest_) {
      if (best == nullptr || entry < *best) best = &entry;
    }
    const Tuple& t = best->tuple;
    out.push_back({RejectionReason::memory, counts_.too_large,
                   fmt::format("tp {} pp {} dp {} microbatch {} zero {}: short by {:.2f} GiB", t.tp,
                               t.pp, t.dp, t.microbatch, t.zero, best->missing.in(1_GiB))});
  }
  return out;
}

PlanReport Search::report() {
  PlanReport out;
  std::sort(fitting_.begin(), fitting_.end());
  const auto top = std::min(fitting_.size(), static_cast<std::size_t>(request_.top));
  for (std::size_t i = 0; i < top; ++i) out.candidates.push_back(candidate(fitting_[i].tuple));
  Bytes smallest{-1};
  for (const Scored& scored : fitting_) {  // fastest first: the front is the running minimum
    if (smallest >= Bytes{} && scored.memory >= smallest) continue;
    smallest = scored.memory;
    out.pareto.push_back(candidate(scored.tuple));
  }
  out.rejected = rejections();
  out.counts = counts_;
  if (fitting_.empty()) {
    std::vector<TooLarge> misses;
    for (const auto& [degrees, entry] : closest_) misses.push_back(entry);
    std::sort(misses.begin(), misses.end());
    constexpr std::size_t kShown = 3;
    for (std::size_t i = 0; i < std::min(kShown, misses.size()); ++i) {
      out.near_misses.push_back(near_miss(request_, misses[i].tuple));
    }
  }
  return out;
}

/// Constraints that no tuple can meet, said before anything is enumerated.
std::optional<Error> contradiction(const PlanRequest& request) {
  const PlanConstraints& c = request.constraints;
  if (c.recompute_layers && c.recompute && *c.recompute != Recompute::full) {
    return input_error("--recompute-layers", fmt::format("with --recompute {}", name_of(*c.recompute)),
                       "--recompute full", "drop one of the two flags");
  }
  if (c.layers_per_stage && !c.pp) {
    return input_error("--layers-per-stage", "no --pp", "--pp with as many stages",
                       fmt::format("add --pp {}", c.layers_per_stage->size()));
  }
  if (c.schedule && *c.schedule != ScheduleKind::interleaved && c.vpp && *c.vpp > 1) {
    return input_error("--vpp", fmt::format("{} with --schedule {}", *c.vpp, name_of(*c.schedule)),
                       "--schedule interleaved", "drop one of the two flags");
  }
  return {};
}

}  // namespace

Result<PlanReport> search(const PlanRequest& request, const Progress& progress) {
  if (auto error = contradiction(request)) return *error;
  Search search(request);
  const bool finished = search.run(progress);
  if (finished && !search.found_legal()) {
    std::string reasons;
    for (const RejectionCount& entry : search.rejections()) {
      reasons += fmt::format("{}{} ({}; {} tuple{})", reasons.empty() ? "" : "; ",
                             describe(entry.reason), entry.nearest, entry.count,
                             entry.count == 1 ? "" : "s");
    }
    return input_error("the constraints", "no legal configuration",
                       "degrees that divide the model, the batch and the GPUs", reasons);
  }
  PlanReport report = search.report();
  report.exhaustive = finished;
  return report;
}

Result<Candidate> predict(const PlanRequest& request) {
  Result<ParallelPlan> plan = plan_from_constraints(request);
  if (!plan) return plan.error();
  const Pricer pricer(request.model, request.job, request.cluster, request.stack,
                      request.calibration);
  Candidate out;
  out.plan = *std::move(plan);
  out.prediction = pricer.price(out.plan);
  out.fits = out.prediction.memory.peak_reserved <= request.usable_memory();
  return out;
}

}  // namespace echelon
