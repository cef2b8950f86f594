#include "planner/explain/sensitivity.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "planner/economics.hpp"
#include "planner/search/optimize.hpp"
#include "planner/space/constraints_of_plan.hpp"

namespace echelon {
namespace {

constexpr double kLessMemory = 0.95;
constexpr double kMoreMemory = 1.25;
constexpr double kLessNetwork = 0.8;
constexpr double kMoreCompute = 1.2;
constexpr double kLeastChange = 0.01;
constexpr int kGroupedHeads = 8;

struct NamedChange {
  Change change;
  std::string_view name;
  ChangedThing thing;
};
constexpr std::array<NamedChange, 15> kChanges = {
    {{Change::less_memory, "less-memory", ChangedThing::machine},
     {Change::more_memory, "more-memory", ChangedThing::machine},
     {Change::less_network, "less-network", ChangedThing::machine},
     {Change::double_network, "double-network", ChangedThing::machine},
     {Change::double_hbm, "double-hbm", ChangedThing::machine},
     {Change::more_compute, "more-compute", ChangedThing::machine},
     {Change::one_more_node, "one-more-node", ChangedThing::machine},
     {Change::double_gpus, "double-gpus", ChangedThing::machine},
     {Change::fewer_gpus, "fewer-gpus", ChangedThing::machine},
     {Change::rounded_batch, "rounded-batch", ChangedThing::batch},
     {Change::double_batch, "double-batch", ChangedThing::batch},
     {Change::half_batch, "half-batch", ChangedThing::batch},
     {Change::half_sequence, "half-sequence", ChangedThing::batch},
     {Change::fp8, "fp8", ChangedThing::model},
     {Change::grouped_query, "grouped-query", ChangedThing::model}}};

std::optional<ClusterTopology> with_network(const ClusterTopology& cluster, double factor) {
  if (cluster.nodes() < 2) return std::nullopt;
  return cluster.with_node_network(cluster.node().nic * (cluster.node().nics * factor));
}

ClusterTopology with_compute(const ClusterTopology& cluster, double factor) {
  GpuSpec gpu = cluster.gpu();
  for (FlopsPerSecond* rate : {&gpu.fp64, &gpu.fp32, &gpu.tf32, &gpu.bf16, &gpu.fp16, &gpu.fp8}) {
    *rate *= factor;
  }
  gpu.watts *= factor;  // else the clock that its power sustains would fall (power_factor)
  return cluster.with_gpu(std::move(gpu));
}

/// By which a cluster grows and shrinks.
int unit_of(const ClusterTopology& cluster) {
  return cluster.gpus() < cluster.node().gpus ? 1 : cluster.node().gpus;
}

/// The next sizes of the cluster one node at a time, until one has a legal plan. Where the batch
/// has few divisors none of thousands may have one: the first thousand are enough to ask.
std::optional<ClusterTopology> one_more_node(const PlanRequest& request) {
  const ClusterTopology& cluster = request.cluster;
  const int unit = unit_of(cluster);
  constexpr std::int64_t kMostSizes = 1024;
  const std::int64_t end =
      std::min(2 * std::int64_t{cluster.gpus()}, cluster.gpus() + (kMostSizes + 1) * unit);
  for (std::int64_t gpus = std::int64_t{cluster.gpus()} + unit; gpus < end; gpus += unit) {
    const Result<ClusterTopology> larger = cluster.resized(gpus);
    if (!larger) return std::nullopt;
    PlanRequest changed = request;
    changed.cluster = *larger;
    if (search(changed).ok()) return *larger;
  }
  return std::nullopt;
}

/// From half of the units on.
std::optional<ClusterTopology> fewer_gpus(const PlanRequest& request) {
  if (!batch_is_uneven(request)) return std::nullopt;
  const int unit = unit_of(request.cluster);
  const int units = request.cluster.gpus() / unit;
  for (int fewer = units - 1; 2 * fewer >= units; --fewer) {
    if (request.job.global_batch % fewer != 0) continue;
    if (const Result<ClusterTopology> smaller =
            request.cluster.resized(std::int64_t{fewer} * unit)) {
      return *smaller;
    }
  }
  return std::nullopt;
}

/// A quarter more or less at most.
std::optional<std::int64_t> rounded_batch(const PlanRequest& request) {
  const std::int64_t batch = request.job.global_batch;
  const std::int64_t gpus = request.cluster.gpus();
  const std::int64_t rounded = (batch + gpus / 2) / gpus * gpus;
  if (!batch_is_uneven(request) || 4 * std::abs(rounded - batch) > batch) return std::nullopt;
  return rounded;
}

/// The request under a change, or nothing where the change does not apply.
std::optional<PlanRequest> changed_by(const PlanRequest& request, Change change) {
  PlanRequest out = request;
  const auto take = [&](std::optional<ClusterTopology> cluster) -> std::optional<PlanRequest> {
    if (!cluster) return std::nullopt;
    out.cluster = *std::move(cluster);
    return out;
  };
  const auto when = [&](bool applies) { return applies ? std::optional(out) : std::nullopt; };
  switch (change) {
    case Change::less_memory:
    case Change::more_memory: {
      const double factor = change == Change::less_memory ? kLessMemory : kMoreMemory;
      if (request.max_memory) {
        out.max_memory = factor * *request.max_memory;
        return out;
      }
      GpuSpec gpu = request.cluster.gpu();
      gpu.memory *= factor;
      return take(request.cluster.with_gpu(std::move(gpu)));
    }
    case Change::less_network: return take(with_network(request.cluster, kLessNetwork));
    case Change::double_network: return take(with_network(request.cluster, 2));
    case Change::double_hbm: {
      GpuSpec gpu = request.cluster.gpu();
      gpu.hbm *= 2;
      return take(request.cluster.with_gpu(std::move(gpu)));
    }
    case Change::more_compute: return take(with_compute(request.cluster, kMoreCompute));
    case Change::one_more_node: return take(one_more_node(request));
    case Change::double_gpus: {
      const Result<ClusterTopology> larger =
          request.cluster.resized(2 * std::int64_t{request.cluster.gpus()});
      return take(larger ? std::optional(*larger) : std::nullopt);
    }
    case Change::fewer_gpus: return take(fewer_gpus(request));
    case Change::rounded_batch: {
      const std::optional<std::int64_t> rounded = rounded_batch(request);
      out.job.global_batch = rounded.value_or(request.job.global_batch);
      return when(rounded.has_value());
    }
    case Change::double_batch: out.job.global_batch *= 2; return out;
    case Change::half_batch:
      out.job.global_batch /= 2;
      return when(request.job.global_batch % 2 == 0);
    case Change::half_sequence:
      out.job.sequence /= 2;
      out.job.global_batch *= 2;
      return when(request.job.sequence % 2 == 0);
    case Change::fp8:
      out.job.precision = *find_precision("fp8");
      return when(request.job.precision.name == "bf16:adam-fp32-master" &&
                  request.cluster.gpu().peak(Dtype::fp8) > FlopsPerSecond{});
    case Change::grouped_query:
      out.model.kv_heads = kGroupedHeads;
      return when(request.model.kv_heads > kGroupedHeads &&
                  request.model.heads % kGroupedHeads == 0);
  }
  return std::nullopt;
}

/// Wall time per useful token, up to a factor that no change touches.
Seconds time_per_token(const PlanRequest& request, const Candidate& candidate) {
  return candidate.prediction.time.step * token_factor(request) / request.job.tokens_per_step();
}

/// Layers follow the winner; degrees that no longer multiply to the GPUs make it illegal.
std::optional<Candidate> kept_plan(const PlanRequest& changed, const ParallelPlan& plan) {
  PlanRequest pinned = changed;
  pinned.constraints = pinned_to(plan);
  if (changed.cluster.gpus() != plan.gpus()) {  // the natural way to use more GPUs
    pinned.constraints
        .release<&ParallelPlan::dp, &ParallelPlan::shard_group, &ParallelPlan::microbatch_group>();
  }
  const Result<Candidate> candidate = predict(pinned);
  return candidate ? std::optional(*candidate) : std::nullopt;
}

double probability_of(const Candidate& candidate) {
  return candidate.score.fits_probability.value_or(1);
}

/// Whether the plan that is there, under the change, is as likely to fit as before and takes no
/// longer than `best`, or fits where there is none: one that wins only by being plainer is no
/// reason to leave it.
bool stays(const Candidate& kept, const Candidate& before, const Candidate* best) {
  if (!kept.fits || best == nullptr) return kept.fits;
  return probability_of(kept) >= probability_of(before) &&
         kept.prediction.time.step <= best->prediction.time.step;
}

/// One change, searched again.
std::optional<Sensitivity> sensitivity(const PlanRequest& request, const Candidate& winner,
                                       Change change, const Progress& progress) {
  if (request.objective == Objective::memory_headroom) return std::nullopt;
  PlanRequest base = request;
  base.max_gpus.reset();
  base.top = 1;
  if (progress && !progress(0)) return std::nullopt;
  std::optional<PlanRequest> changed = changed_by(base, change);
  if (!changed) return std::nullopt;
  Sensitivity s;
  s.change = change;
  s.gpus = changed->cluster.gpus();
  s.global_batch = changed->job.global_batch;
  s.kept = kept_plan(*changed, winner.plan);
  // The winner is no slower than a plan that is there to be found.
  if (s.kept && s.kept->fits) changed->no_worse_than = s.kept->expected();
  const Result<SearchResult> choice = optimize(*changed, progress);
  if (!choice) return std::nullopt;
  const Candidate* best = choice->report.fitting_winner();
  if (s.kept && stays(*s.kept, winner, best)) {
    s.winner = s.kept;
  } else if (best != nullptr) {
    s.winner = *best;
  }
  if (s.winner) {
    s.other_plan = !s.kept || !(s.kept->plan == s.winner->plan);
    s.time = time_per_token(*changed, *s.winner) / time_per_token(request, winner);
    s.gpu_time = s.time * s.gpus / request.cluster.gpus();
  }
  return s;
}

}  // namespace

std::string_view name_of(Change change) {
  for (const NamedChange& entry : kChanges) {
    if (entry.change == change) return entry.name;
  }
  return "?";
}

ChangedThing thing_of(Change change) {
  for (const NamedChange& entry : kChanges) {
    if (entry.change == change) return entry.thing;
  }
  return ChangedThing::machine;
}

bool batch_is_uneven(const PlanRequest& request) {
  return request.job.global_batch % (request.cluster.gpus() / unit_of(request.cluster)) != 0;
}

std::vector<Sensitivity> sensitivities(const PlanRequest& request, const Candidate& winner,
                                       const Progress& progress) {
  std::vector<Sensitivity> out;
  for (const NamedChange& entry : kChanges) {
    const double done =
        static_cast<double>(&entry - kChanges.data()) / static_cast<double>(kChanges.size());
    bool stopped = false;
    std::optional<Sensitivity> found = sensitivity(request, winner, entry.change, [&](double) {
      stopped = progress && !progress(done);
      return !stopped;
    });
    if (stopped) return out;
    if (found) out.push_back(*std::move(found));
  }
  return out;
}

std::vector<Sensitivity> even_batches(const PlanRequest& request, const Candidate& winner) {
  std::vector<Sensitivity> out;
  if (request.max_gpus) return out;
  for (const Change change : {Change::fewer_gpus, Change::rounded_batch}) {
    std::optional<Sensitivity> found = sensitivity(request, winner, change, {});
    if (found && found->winner && found->gpu_time <= 1 - kLeastChange) {
      out.push_back(*std::move(found));
    }
  }
  return out;
}

namespace {

template <class Counts>
const Sensitivity* cheapest(const std::vector<Sensitivity>& all, Counts counts) {
  const Sensitivity* best = nullptr;
  for (const Sensitivity& s : all) {
    if (!s.winner || s.gpu_time > 1 - kLeastChange || !counts(s)) continue;
    if (best == nullptr || s.gpu_time < best->gpu_time) best = &s;
  }
  return best;
}

}  // namespace

const Sensitivity* most_valuable(const std::vector<Sensitivity>& all) {
  return cheapest(all, [](const Sensitivity&) { return true; });
}

const Sensitivity* most_valuable(const std::vector<Sensitivity>& all, ChangedThing thing) {
  return cheapest(all, [&](const Sensitivity& s) { return thing_of(s.change) == thing; });
}

}  // namespace echelon
