#include "planner/search.hpp"

#include <algorithm>

#include "planner/candidates.hpp"
#include "tests/planner/requests.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

/// Every legal plan that fits, by nested loops that know nothing of the search's shortcuts: all
/// recompute counts, all degrees, priced one by one.
Seconds brute_force_best(const PlanRequest& r) {
  const Pricer pricer(r.model, r.job, r.cluster, r.stack, r.calibration);
  Seconds best{1e30};
  for (int tp = 1; tp <= r.cluster.gpus(); ++tp) {
    for (int pp = 1; pp <= r.cluster.gpus(); ++pp) {
      if (r.cluster.gpus() % (tp * pp) != 0) continue;
      for (std::int64_t mb = 1; mb <= r.job.global_batch; ++mb) {
        for (int vpp = 1; vpp <= r.model.layers; ++vpp) {
          for (int zero = 0; zero <= 3; ++zero) {
            for (const bool sp : {false, true}) {
              for (int k = 0; k <= r.model.layers / pp + 1; ++k) {
                Tuple t{.tp = tp,
                        .pp = pp,
                        .vpp = vpp,
                        .dp = r.cluster.gpus() / (tp * pp),
                        .microbatch = static_cast<int>(mb),
                        .zero = zero,
                        .shard_group = r.cluster.gpus() / (tp * pp),
                        .sequence_parallel = sp,
                        .recompute = k > 0 ? Recompute::full : Recompute::none,
                        .recompute_layers = k};
                ParallelPlan plan;
                if (!fill_plan(r, t, plan)) continue;
                if (k % vpp != 0) continue;
                if (check_plan(r.model, r.job, r.cluster, r.stack, plan)) continue;
                const Prediction p = pricer.price(plan);
                if (p.memory.peak_reserved > r.usable_memory()) continue;
                best = std::min(best, p.time.step);
              }
            }
          }
        }
      }
    }
  }
  return best;
}

}  // namespace

TEST_CASE("the winner is the fastest of all plans enumerated by brute force") {
  struct Case {
    const char* model;
    int gpus;
    double memory_gib;
    const char* stack;
  };
  for (const Case& c :
       {Case{"gpt2-xl", 8, 76, "megatron-core"}, Case{"gpt2-xl", 8, 12, "megatron-core"},
        Case{"gpt2-xl", 4, 20, "deepspeed"}, Case{"llama3.2-3b", 8, 30, "torchtitan"},
        Case{"gpt2", 2, 4, "nanotron"}}) {
    PlanRequest r = request_for(c.model, "dgx-h100", c.gpus, c.stack);
    r.job.sequence = 1024;
    r.job.global_batch = 16;
    r.max_memory = Bytes{c.memory_gib * 0x1p30};
    const Result<PlanReport> report = search(r);
    REQUIRE(report.ok());
    INFO(c.model << " on " << c.gpus << " GPUs, " << c.memory_gib << " GiB, " << c.stack);
    const Seconds best = brute_force_best(r);
    if (report->winner() == nullptr) {
      CHECK(best == Seconds{1e30});
    } else {
      CHECK(report->winner()->prediction.time.step == best);
    }
  }
}

TEST_CASE("candidates are ranked, fit, and are legal") {
  for (const auto& [model, gpus] :
       {std::pair{"7b", 64}, std::pair{"70b", 256}, std::pair{"13b", 24}}) {
    const PlanRequest r = request_for(model, "dgx-h100", gpus);
    const PlanReport report = search(r).value();
    REQUIRE(report.winner() != nullptr);
    Seconds last;
    for (const Candidate& c : report.candidates) {
      CHECK(c.fits);
      CHECK(c.prediction.memory.peak_reserved <= r.usable_memory());
      CHECK(c.prediction.time.step >= last);
      CHECK_FALSE(check_plan(r.model, r.job, r.cluster, r.stack, c.plan));
      last = c.prediction.time.step;
    }
  }
}

TEST_CASE("no point of the Pareto front is dominated, and the winner is on it") {
  const PlanReport report = search(request_for("70b", "dgx-h100", 256)).value();
  REQUIRE(report.pareto.size() > 3);
  CHECK(report.pareto.front().plan == report.winner()->plan);
  for (std::size_t i = 1; i < report.pareto.size(); ++i) {
    CHECK(report.pareto[i].prediction.time.step > report.pareto[i - 1].prediction.time.step);
    CHECK(report.pareto[i].prediction.memory.peak_reserved <
          report.pareto[i - 1].prediction.memory.peak_reserved);
  }
}

TEST_CASE("every tuple is priced, too large, or rejected for a reason") {
  const PlanReport report = search(request_for("7b", "dgx-h100", 64)).value();
  std::int64_t rejected = 0;
  for (const RejectionCount& r : report.rejected) {
    CHECK(r.count > 0);
    CHECK_FALSE(r.nearest.empty());
    if (r.reason != RejectionReason::memory) rejected += r.count;
  }
  CHECK(report.counts.tuples == report.counts.priced + report.counts.too_large + rejected);
}

TEST_CASE("pinned axes are kept") {
  PlanRequest r = request_for("70b", "dgx-h100", 256);
  r.constraints.tp = 8;
  r.constraints.pp = 4;
  r.constraints.recompute = Recompute::full;
  const PlanReport report = search(r).value();
  REQUIRE(report.winner() != nullptr);
  for (const Candidate& c : report.candidates) {
    CHECK(c.plan.tp == 8);
    CHECK(c.plan.pp == 4);
    CHECK(c.plan.recompute == Recompute::full);
  }
}

TEST_CASE("a winner found under a constraint is never faster than the free one") {
  const PlanRequest r = request_for("70b", "dgx-h100", 64);
  const Seconds best = search(r).value().winner()->prediction.time.step;
  for (const int tp : {2, 4, 8}) {
    PlanRequest pinned = r;
    pinned.constraints.tp = tp;
    const PlanReport report = search(pinned).value();
    if (report.winner() != nullptr) CHECK(report.winner()->prediction.time.step >= best);
  }
}

TEST_CASE("when nothing fits, each near miss names stage, missing bytes and a change that helps") {
  const PlanRequest r = request_for("gpt3-175b", "dgx-h100", 8);
  const PlanReport report = search(r).value();
  CHECK(report.winner() == nullptr);
  REQUIRE_FALSE(report.near_misses.empty());
  for (const NearMiss& miss : report.near_misses) {
    CHECK(miss.missing > Bytes{});
    CHECK(miss.stage >= 0);
    CHECK(miss.stage < miss.candidate.plan.pp);
    CHECK(miss.fix.find("GPUs instead of 8") != std::string::npos);
  }
}

TEST_CASE("a pinned choice that alone prevents a fit is named as the fix") {
  PlanRequest r = request_for("7b", "dgx-h100", 8);
  r.constraints.recompute = Recompute::none;
  r.constraints.microbatch = 8;
  r.constraints.tp = 1;
  r.constraints.pp = 1;
  const PlanReport report = search(r).value();
  REQUIRE(report.winner() == nullptr);
  CHECK(report.near_misses.front().fix.find("--recompute full") != std::string::npos);
}

TEST_CASE("GPUs with enough memory are the last resort") {
  PlanRequest r = request_for("gpt2-xl", "dgx-h100", 1);
  r.max_memory = 1_GiB;
  r.constraints.dp = 1;
  const PlanReport report = search(r).value();
  REQUIRE_FALSE(report.near_misses.empty());
  CHECK_FALSE(report.near_misses.front().fix.empty());
}

TEST_CASE("constraints that leave nothing are an error that names every reason") {
  PlanRequest r = request_for("7b", "dgx-h100", 64);
  r.constraints.tp = 64;
  const Result<PlanReport> report = search(r);
  REQUIRE_FALSE(report.ok());
  CHECK(report.error().message().find("32 attention heads") != std::string::npos);
}

TEST_CASE("a search for a model with experts says that it is not priced") {
  const auto result = search(request_for("mixtral-8x7b", "dgx-h100", 64));
  REQUIRE_FALSE(result.ok());
  CHECK(result.error().message().find("mixture-of-experts models are not priced by this version") !=
        std::string::npos);
}

TEST_CASE("contradictory constraints are found before the search") {
  PlanRequest r = request_for("7b", "dgx-h100", 64);
  r.constraints.recompute = Recompute::none;
  r.constraints.recompute_layers = std::vector<int>{2};
  CHECK(search(r).error().where == "--recompute-layers");
  r = request_for("7b", "dgx-h100", 64);
  r.constraints.schedule = ScheduleKind::one_f_one_b;
  r.constraints.vpp = 2;
  CHECK(search(r).error().where == "--vpp");
}

TEST_CASE("the same request gives the same report") {
  const PlanReport a = search(request_for("70b", "dgx-h100", 64)).value();
  const PlanReport b = search(request_for("70b", "dgx-h100", 64)).value();
  REQUIRE(a.candidates.size() == b.candidates.size());
  for (std::size_t i = 0; i < a.candidates.size(); ++i) {
    CHECK(a.candidates[i].plan == b.candidates[i].plan);
    CHECK(a.candidates[i].prediction.time.step == b.candidates[i].prediction.time.step);
  }
}

TEST_CASE("a stopped search says that it is not exhaustive") {
  const PlanReport report =
      search(request_for("7b", "dgx-h100", 64), [](double) { return false; }).value();
  CHECK_FALSE(report.exhaustive);
}

TEST_CASE("a prediction fills in what is not given") {
  PlanRequest r = request_for("7b", "dgx-h100", 64);
  r.constraints.tp = 4;
  r.constraints.pp = 2;
  const Candidate c = predict(r).value();
  CHECK(c.plan.dp == 8);
  CHECK(c.plan.zero == 1);
  CHECK(c.plan.sequence_parallel);
  CHECK(c.plan.layers_per_stage == std::vector<int>{16, 16});
}

TEST_CASE("a prediction of an impossible configuration names flag and nearest values") {
  const auto error = [](auto change) {
    PlanRequest r = request_for("7b", "dgx-h100", 64);
    change(r);
    const Result<Candidate> c = predict(r);
    REQUIRE_FALSE(c.ok());
    return c.error();
  };
  const Error heads = error([](PlanRequest& r) { r.constraints.tp = 64; });
  CHECK(heads.where == "--tp");
  CHECK(heads.message().find("32") != std::string::npos);
  const Error gpus = error([](PlanRequest& r) { r.constraints.tp = 3; });
  CHECK(gpus.where == "--gpus");
  CHECK(gpus.message().find("2 or 4") != std::string::npos);
  const Error batch = error([](PlanRequest& r) { r.constraints.microbatch = 7; });
  CHECK(batch.where == "--global-batch");
  const Error list = error([](PlanRequest& r) {
    r.constraints.pp = 4;
    r.constraints.layers_per_stage = std::vector<int>{16, 16};
  });
  CHECK(list.where == "--layers-per-stage");
  const Error layers = error([](PlanRequest& r) { r.constraints.pp = 64; });
  CHECK(layers.where == "--pp");
}
