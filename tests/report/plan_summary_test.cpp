// A plan at a glance.
#include "report/plan_summary.hpp"

#include "core/model/model_io.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "report/format.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/text.hpp"

using namespace echelon;
using echelon::test::lacks;

namespace {

PlanRequest request_of_7b(int tp, int microbatch) {
  PlanRequest r{.model = load_model("7b").value(),
                .job = {},
                .cluster = ClusterTopology::load("dgx-h100", 64).value(),
                .framework = find_framework("megatron-core").value(),
                .calibration = {},
                .constraints = {}};
  r.job.sequence = 4096;
  r.job.global_batch = 1024;
  r.job.precision = find_precision("bf16").value();
  r.calibration = pick_calibration(r.cluster.gpu(), r.framework).value();
  r.constraints.pin<&ParallelPlan::tp>(tp);
  r.constraints.pin<&ParallelPlan::microbatch>(microbatch);
  return r;
}

}  // namespace

TEST_CASE("figures equal those of the prediction") {
  PlanRequest request = request_of_7b(2, 1);
  const Candidate plan = predict(request).value();
  request.job.token_budget = 2e12;
  const auto figures = stat_tiles_of(request, plan, nullptr);
  REQUIRE(figures.size() == 6);
  const char* names[] = {"Step", "Tokens/s", "MFU", "Bubble", "Reserved", "Training"};
  for (std::size_t i = 0; i < figures.size(); ++i) {
    CHECK(figures[i].name == names[i]);
    CHECK_FALSE(figures[i].value.empty());
    CHECK_FALSE(figures[i].formula.empty());
  }
  CHECK(figures[4].paint == Paint::good);
  CHECK(figures[4].detail == likely_to_fit(*plan.score.fits_probability));
  CHECK(lacks(figures[4].formula, "to spare") == "");
  CHECK(lacks(figures[5].value, "days") == "");
  const Candidate best = predict(request_of_7b(1, 1)).value();
  REQUIRE(best.fits);
  CHECK(lacks(stat_tiles_of(request, plan, &best)[0].detail, "to the best") == "");
}

TEST_CASE("the rate of processor cores, a fraction of a TFLOP/s, is not shown as zero") {
  const PlanRequest request = request_of_7b(4, 1);
  Candidate plan = predict(request).value();
  const std::string fast = stat_tiles_of(request, plan, nullptr)[2].detail;
  CHECK(lacks(fast, " TFLOP/s") == "");
  CHECK(lacks(fast, ".") != "");
  plan.prediction.model_flops_per_gpu /= 10'000;
  CHECK(stat_tiles_of(request, plan, nullptr)[2].detail.starts_with("0.0"));
}

TEST_CASE("the bubble's tile is the mean over the stages, and imbalance is not called one") {
  PlanRequest request = request_of_7b(4, 1);
  request.constraints.pin<&ParallelPlan::pp>(4);
  request.constraints.pin<&ParallelPlan::vpp>(1);
  request.constraints.pin<&ParallelPlan::layers_per_stage>({14, 6, 6, 6});
  const Candidate plan = predict(request).value();
  const TimePrediction& time = plan.prediction.time;
  const StatTile bubble = stat_tiles_of(request, plan, nullptr)[3];
  CHECK(bubble.value == percent(time.parts.bubble() / time.step));
  // A narrow tile shows only the beginning: the larger part.
  const std::string fill_drain = percent(time.parts.fill_drain / time.step) + " fill/drain";
  const std::string imbalance = percent(time.parts.imbalance / time.step) + " imbalance";
  CHECK(bubble.detail == imbalance + ", " + fill_drain);
  CHECK(time.parts.imbalance / time.step > 0.2);
  request.constraints.pin<&ParallelPlan::layers_per_stage>({8, 8, 8, 8});
  request.model.vocab = 128;  // a head of negligible cost
  const std::string even = stat_tiles_of(request, predict(request).value(), nullptr)[3].detail;
  CHECK(even.find("fill/drain, ") != std::string::npos);
  CHECK(even.ends_with("% imbalance"));
  CHECK(lacks(summary_of(request, plan, nullptr).limit, "Stages that wait for slower ones idle") ==
        "");
}

TEST_CASE("a summary shows whether a plan fits, and its cost relative to the best") {
  const PlanRequest request = request_of_7b(8, 1);
  const Candidate slow = predict(request).value();
  const Candidate best = predict(request_of_7b(1, 2)).value();
  const PlanSummary verdict = summary_of(request, slow, &best);
  CHECK(verdict.good);
  CHECK(lacks(verdict.fits, "to spare") == "");
  CHECK(lacks(verdict.fits, "likely to fit") == "");
  CHECK(verdict.against.starts_with("+"));
  CHECK(summary_of(request, best, &best).against == "The best plan");
  CHECK(summary_of(request, best, nullptr).against.empty());
  CHECK(lacks(verdict.evidence, "calibrated") == "");
  const Candidate large = predict(request_of_7b(1, 16)).value();
  REQUIRE_FALSE(large.fits);
  const PlanSummary no = summary_of(request, large, &best);
  CHECK_FALSE(no.good);
  CHECK(lacks(no.fits, "short") == "");
  CHECK(lacks(no.limit, "Memory") == "");
}
