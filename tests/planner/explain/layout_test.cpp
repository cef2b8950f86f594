// The layout on the network that an explanation shows.
#include <algorithm>

#include "planner/explain/layout.hpp"
#include "planner/explain/traffic.hpp"
#include "tests/planner/requests.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

/// Mixtral on 64 GPUs of DGX H100 with the given degrees.
Candidate mixture(PlanRequest& request, int tp, int ep, int etp, int pp = 1) {
  request.constraints.pin<&ParallelPlan::tp>(tp);
  request.constraints.pin<&ParallelPlan::ep>(ep);
  request.constraints.pin<&ParallelPlan::etp>(etp);
  request.constraints.pin<&ParallelPlan::pp>(pp);
  return predict(request).value();
}

const AxisLayout* row_of(const std::vector<AxisLayout>& layout, Axis axis) {
  const auto row = std::ranges::find(layout, axis, &AxisLayout::axis);
  return row == layout.end() ? nullptr : &*row;
}

Bytes sent_over(const PlanRequest& request, const ParallelPlan& plan, Axis axis) {
  Bytes sent;
  const int ranks = traffic_group(ProcessGrid(plan), axis).ranks;
  for (const Traffic& t : traffic_of(request, plan, axis)) {
    sent += t.times * bus_factor(t.kind, ranks) * t.payload;
  }
  return sent;
}

}  // namespace

TEST_CASE("the layout of a mixture has rows for the experts' groups") {
  PlanRequest request = request_for("mixtral-8x7b", "dgx-h100", 64);
  const Candidate plan = mixture(request, 4, 4, 2);
  const std::vector<AxisLayout> layout = layout_of(request, plan);
  REQUIRE(row_of(layout, Axis::ep) != nullptr);
  CHECK(row_of(layout, Axis::ep)->ranks == 4);
  CHECK(row_of(layout, Axis::ep)->domains == 1);
  CHECK(row_of(layout, Axis::ep)->other_domains == 4);
  CHECK(row_of(layout, Axis::ep)->elsewhere > row_of(layout, Axis::ep)->placed);
  REQUIRE(row_of(layout, Axis::etp) != nullptr);
  CHECK(row_of(layout, Axis::etp)->ranks == 2);
  REQUIRE(row_of(layout, Axis::expert_dp) != nullptr);
  CHECK(row_of(layout, Axis::expert_dp)->ranks == 8);
  for (const AxisLayout& row : layout) {
    INFO(name_of(row.axis));
    CHECK(row.sent > Bytes{});
    CHECK(row.sent == sent_over(request, plan.plan, row.axis));
    CHECK(row.ranks == ProcessGrid(plan.plan).degree(row.axis));
  }
}

TEST_CASE("experts' groups that are those of tp and dp are part of their rows") {
  PlanRequest request = request_for("mixtral-8x7b", "dgx-h100", 64);
  const Candidate plan = mixture(request, 4, 1, 4);
  const std::vector<AxisLayout> layout = layout_of(request, plan);
  CHECK(layout.size() == 2);
  REQUIRE(row_of(layout, Axis::tp) != nullptr);
  REQUIRE(row_of(layout, Axis::dp) != nullptr);
  const auto both = [&](Axis axis, Axis experts) {
    return sent_over(request, plan.plan, axis) + sent_over(request, plan.plan, experts);
  };
  CHECK(row_of(layout, Axis::tp)->sent.in(1_GB) == Approx(both(Axis::tp, Axis::etp).in(1_GB)));
  CHECK(row_of(layout, Axis::dp)->sent.in(1_GB) ==
        Approx(both(Axis::dp, Axis::expert_dp).in(1_GB)));
  CHECK(sent_over(request, plan.plan, Axis::expert_dp) > sent_over(request, plan.plan, Axis::dp));
}

TEST_CASE("the layout of a model without experts has none of their groups") {
  PlanRequest request = request_for("7b", "dgx-h100", 64);
  request.constraints.pin<&ParallelPlan::tp>(8);
  request.constraints.pin<&ParallelPlan::pp>(2);
  const Candidate plan = predict(request).value();
  std::vector<Axis> axes;
  for (const AxisLayout& row : layout_of(request, plan)) axes.push_back(row.axis);
  CHECK(axes == std::vector<Axis>{Axis::tp, Axis::dp, Axis::pp});
}

// Llama 3 8B over 8 slices of its sequence: the ranks of cp hold the same weights, whatever dp is.
TEST_CASE("weights and gradients go to the ranks of dp and cp, also where dp is 1") {
  for (const int dp : {1, 2}) {
    CAPTURE(dp);
    PlanRequest request = request_for("llama3-8b", "dgx-h100", 32 * dp);
    request.job.global_batch = 4;
    request.constraints.pin<&ParallelPlan::tp>(4);
    request.constraints.pin<&ParallelPlan::cp>(8);
    request.constraints.pin<&ParallelPlan::pp>(1);
    request.constraints.pin<&ParallelPlan::zero>(1);
    const Candidate plan = predict(request).value();
    REQUIRE(plan.plan.dp == dp);
    const std::vector<AxisLayout> layout = layout_of(request, plan);
    const AxisLayout* row = row_of(layout, Axis::dp);
    REQUIRE(row != nullptr);
    CHECK(row->with_cp);
    CHECK(row->ranks == 8 * dp);
    // fp32 gradients out and 16-bit weights back, of a quarter of the model.
    const double share = (8 * dp - 1) / (8.0 * dp);
    CHECK(row->sent.in(kByte) == Approx(share * 6 * 8.03e9 / 4).epsilon(0.07));
  }
}
