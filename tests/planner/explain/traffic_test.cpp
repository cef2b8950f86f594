#include "planner/explain/traffic.hpp"

#include "planner/explain/chain.hpp"
#include "tests/planner/requests.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

Candidate priced(PlanRequest& request, int tp, int pp) {
  request.constraints.pin<&ParallelPlan::tp>(tp);
  request.constraints.pin<&ParallelPlan::pp>(pp);
  request.constraints.pin<&ParallelPlan::zero>(0);
  return predict(request).value();
}

const LinkLoad& load_of(const std::vector<LinkLoad>& loads, Axis axis) {
  for (const LinkLoad& load : loads) {
    if (load.axis == axis) return load;
  }
  FAIL("no load of " << name_of(axis));
  return loads.front();
}

}  // namespace

TEST_CASE("axes of degree 1 have no traffic") {
  PlanRequest request = request_for("llama2-7b", "dgx-h100", 8);
  const Candidate candidate = priced(request, 8, 1);
  CHECK(link_loads(request, candidate.plan).size() == 1);
  CHECK(traffic_of(request, candidate.plan, Axis::dp).empty());
  CHECK(traffic_of(request, candidate.plan, Axis::pp).empty());
  CHECK_FALSE(traffic_of(request, candidate.plan, Axis::tp).empty());
}

TEST_CASE("layers of one part send what those that have the part send") {
  PlanRequest request = request_for("nemotron-3-nano-30b-a3b", "dgx-h100", 16);
  request.constraints.pin<&ParallelPlan::ep>(8);
  const Candidate candidate = priced(request, 2, 1);
  const auto sent = [&](Axis axis) {
    double bytes = 0;
    for (const Traffic& each : traffic_of(request, candidate.plan, axis)) {
      bytes += each.times * each.payload.in(kByte);
    }
    return bytes;
  };
  const ParallelPlan& plan = candidate.plan;
  const auto microbatches =
      static_cast<double>(request.job.global_batch / (std::int64_t{plan.dp} * plan.microbatch));
  const double tokens = static_cast<double>(plan.microbatch) * request.job.sequence;
  // 23 layers with experts dispatch and combine, forward and backward, 6 rows of 2,688 values.
  CHECK(sent(Axis::ep) == Approx(microbatches * 23 * 4 * 2 * tokens / 2 * 6 * 2688));
  // 52 layers gather and reduce once each way; the saved half is gathered again.
  const double whole = 2 * tokens * 2688;
  CHECK(sent(Axis::tp) > microbatches * 29 * 5 * whole);
  CHECK(sent(Axis::tp) <= microbatches * 52 * 5 * whole);
}

TEST_CASE("the traffic of groups equals that of the explanation") {
  PlanRequest request = request_for("llama2-7b", "dgx-h100", 32);
  const Candidate candidate = priced(request, 2, 4);
  for (const AxisLayout& axis : layout_of(request, candidate)) {
    Bytes sent;
    for (const Traffic& t : traffic_of(request, candidate.plan, axis.axis)) {
      sent += t.times * bus_factor(t.kind, axis.ranks) * t.payload;
    }
    CHECK(sent == axis.sent);
  }
}

TEST_CASE("a ring inside one domain loads its links and no NIC") {
  PlanRequest request = request_for("llama2-7b", "dgx-h100", 8);
  const Candidate candidate = priced(request, 1, 1);
  const std::vector<Traffic> traffic = traffic_of(request, candidate.plan, Axis::dp);
  REQUIRE(traffic.size() == 1);  // ZeRO 0: one all-reduce
  const LinkLoad& load = load_of(link_loads(request, candidate.plan), Axis::dp);
  CHECK(load.per_gpu.in(kByte) == Approx((2 * 7.0 / 8 * traffic[0].payload).in(kByte)));
  CHECK(load.per_domain == Bytes{});
}

TEST_CASE("data-parallel rings of all tensor ranks leave a node together") {
  PlanRequest request = request_for("llama2-7b", "dgx-h100", 32);
  const Candidate candidate = priced(request, 8, 1);
  const Bytes gradients = traffic_of(request, candidate.plan, Axis::dp).at(0).payload;
  const std::vector<LinkLoad> loads = link_loads(request, candidate.plan);
  const LinkLoad& data = load_of(loads, Axis::dp);
  CHECK(data.domains == 4);  // one member of four in every node: all of the traffic leaves
  CHECK(data.per_gpu == Bytes{});
  CHECK(data.per_domain.in(kByte) == Approx((8 * (2 * 3.0 / 4) * gradients).in(kByte)));
  CHECK(load_of(loads, Axis::tp).per_domain == Bytes{});
}

TEST_CASE("messages between nodes leave once in each direction") {
  PlanRequest request = request_for("llama2-7b", "dgx-h100", 32);
  const Candidate candidate = priced(request, 8, 4);
  const Traffic messages = traffic_of(request, candidate.plan, Axis::pp).at(0);
  CHECK(messages.kind == CollectiveKind::send_recv);
  const LinkLoad& load = load_of(link_loads(request, candidate.plan), Axis::pp);
  CHECK(load.per_domain.in(kByte) == Approx((8 * messages.times * messages.payload).in(kByte)));
}

TEST_CASE("tokens of experts go to every rank of the group") {
  PlanRequest request = request_for("mixtral-8x7b", "dgx-h100", 8);
  request.constraints.pin<&ParallelPlan::ep>(8);
  const Candidate candidate = priced(request, 1, 1);
  Bytes payload;
  for (const Traffic& t : traffic_of(request, candidate.plan, Axis::ep)) {
    CHECK(t.kind == CollectiveKind::all_to_all);
    payload += t.times * t.payload;
  }
  const LinkLoad& load = load_of(link_loads(request, candidate.plan), Axis::ep);
  CHECK(load.per_gpu.in(kByte) == Approx((7.0 / 8 * payload).in(kByte)));
}

TEST_CASE("experts exchange four times per layer and microbatch, six with moe recomputed") {
  PlanRequest request = request_for("mixtral-8x7b", "dgx-h100", 16);
  request.constraints.pin<&ParallelPlan::ep>(8);
  ParallelPlan plan = priced(request, 1, 1).plan;
  const auto exchanges = [&] {
    double times = 0;
    for (const Traffic& t : traffic_of(request, plan, Axis::ep)) times += t.times;
    const std::int64_t m = plan.microbatches_rounded_up(request.job.global_batch);
    return times / static_cast<double>(request.model.layers * m);
  };
  CHECK(exchanges() == Approx(4));
  plan.recompute = Recompute::selective;
  plan.recompute_modules = {RecomputeModule::moe_act};
  CHECK(exchanges() == Approx(4));
  plan.recompute_modules = {RecomputeModule::moe};
  CHECK(exchanges() == Approx(6));
}
