#include "cli/flags/plan_filter.hpp"

#include "tests/planner/requests.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;
using cli::PlanFilter;

namespace {

struct Filtered {
  PlanRequest request = request_for("7b", "dgx-h100", 64);
  Candidate candidate;
  RankedPlan plan;

  Filtered() {
    candidate.plan.tp = 4;
    candidate.plan.pp = 2;
    candidate.plan.dp = 8;
    candidate.plan.sequence_parallel = true;
    candidate.plan.schedule = ScheduleKind::one_f_one_b;
    candidate.plan.layers_per_stage = {16, 16};
    candidate.prediction.time.step = Seconds{1.5};
    candidate.prediction.memory.peak_reserved = 60_GiB;
    candidate.prediction.mfu = 0.42;
    candidate.prediction.tokens_per_second = 400e3;
    candidate.fits = true;
    plan.candidate = &candidate;
    plan.on_front = true;
  }
  Filtered(const Filtered&) = delete;
  Filtered& operator=(const Filtered&) = delete;
  [[nodiscard]] bool keeps(const char* text) const {
    const Result<PlanFilter> filter = PlanFilter::parse(text, "filter");
    INFO(text);
    REQUIRE(filter.ok());
    TimePrediction time;
    time.step = time.parts.compute = Seconds{1.5};
    return filter->keeps(plan, request, economics_of(request, time));
  }
};

std::string refused(const char* text) {
  const Result<PlanFilter> filter = PlanFilter::parse(text, "filter");
  INFO(text);
  REQUIRE_FALSE(filter.ok());
  return filter.error().message();
}

}  // namespace

TEST_CASE("a filter of plans compares degrees, metrics and choices") {
  const Filtered f;
  for (const char* yes : {"",
                          "  ",
                          "tp=4",
                          "TP=4",
                          "tp>=4 pp<3",
                          "tp!=8",
                          "step<2s",
                          "step>=1500ms",
                          "memory<=60GiB",
                          "headroom>1GiB",
                          "mfu>40%",
                          "mfu>0.4",
                          "tokens>=400k",
                          "gpus=64",
                          "cost>0",
                          "gpu-hours>0",
                          "energy>0",
                          "sp=yes",
                          "sp!=no",
                          "recompute=none",
                          "schedule=1f1b",
                          "schedule!=gpipe",
                          "fits",
                          "front",
                          "tp=4,pp=2 fits",
                          "tp = 4, pp <3,fits",  // as rows are filtered
                          "sequence",
                          "dp"})
    CHECK(f.keeps(yes));
  for (const char* no : {"tp=8", "tp>4", "tp=4 pp=4", "step<1s", "memory<60GiB", "mfu>50%",
                         "tokens>400k", "sp=no", "recompute=full", "tied", "interleaved", "zero>0"})
    CHECK_FALSE(f.keeps(no));
}

TEST_CASE("an unknown value meets no condition") {
  const Filtered f;
  const PlanFilter filter = PlanFilter::parse("cost>=0", "filter").value();
  CHECK_FALSE(filter.keeps(f.plan, f.request, {}));
}

TEST_CASE("the error for an invalid filter gives the cause and the nearest name") {
  CHECK(refused("microbach=2").find("did you mean 'microbatch'?") != std::string::npos);
  CHECK(refused("tp=x").find("'x' is not a number") != std::string::npos);
  CHECK(refused("tp=").find("is not a condition") != std::string::npos);
  CHECK(refused("=4").find("is not a condition") != std::string::npos);
  CHECK(refused("tp!4").find("is not a condition") != std::string::npos);
  CHECK(refused("step<2").find("a time such as") != std::string::npos);
  CHECK(refused("memory<many").find("many") != std::string::npos);
  CHECK(refused("mfu>140%").find("140") != std::string::npos);
  CHECK(refused("recompute<full").find("orders words") != std::string::npos);
  CHECK(refused("schedule=zigzag").find("zigzag") != std::string::npos);
  CHECK(refused("sp=perhaps").find("perhaps") != std::string::npos);
  CHECK(refused("tp=4 pq=2").starts_with("filter: unknown name 'pq'"));
}
