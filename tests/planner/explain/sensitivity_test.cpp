#include "planner/explain/sensitivity.hpp"

#include <algorithm>

#include "planner/search/optimize.hpp"
#include "tests/planner/requests.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

struct Case {
  PlanRequest request;
  Candidate winner;
  std::vector<Sensitivity> all;
};

Case of(const char* model, int gpus) {
  Case c{request_for(model, "dgx-h100", gpus), {}, {}};
  c.winner = *search(c.request)->winner();
  c.all = sensitivities(c.request, c.winner);
  return c;
}

const Sensitivity* find(const std::vector<Sensitivity>& all, Change change) {
  const auto at = std::find_if(all.begin(), all.end(),
                               [&](const Sensitivity& s) { return s.change == change; });
  return at == all.end() ? nullptr : &*at;
}

}  // namespace

TEST_CASE("more of any resource is never slower, less is never faster") {
  for (const auto& [model, gpus] : {std::pair{"7b", 64}, std::pair{"70b", 256}}) {
    const Case c = of(model, gpus);
    for (const Change more : {Change::more_memory, Change::double_network, Change::double_hbm,
                              Change::more_compute, Change::fp8}) {
      const Sensitivity* s = find(c.all, more);
      INFO(model << " " << name_of(more));
      REQUIRE(s != nullptr);
      CHECK(s->time <= 1 + 1e-12);
    }
    for (const Change less : {Change::less_memory, Change::less_network}) {
      const Sensitivity* s = find(c.all, less);
      REQUIRE(s != nullptr);
      if (s->winner) CHECK(s->time >= 1 - 1e-12);
    }
  }
}

TEST_CASE(
    "20 % more compute saves at most a sixth of the time, and most of it where compute binds") {
  const Case c = of("7b", 64);
  CHECK(find(c.all, Change::more_compute)->time >= 1 / 1.2 - 1e-12);
  // 0.883 where the board's power stayed behind the peaks and the clock fell.
  CHECK(find(c.all, Change::more_compute)->time < 0.87);
}

TEST_CASE("the previous plan is never better than the new winner") {
  const Case c = of("70b", 256);
  for (const Sensitivity& s : c.all) {
    if (!s.kept || !s.kept->fits || !s.winner) continue;
    // No winner takes much longer than the fastest safe plan, however likely it is to fit.
    CHECK((s.winner->expected() <= s.kept->expected() ||
           s.winner->prediction.time.step < s.kept->prediction.time.step));
  }
}

TEST_CASE("another plan wins exactly when the winners differ") {
  const Case c = of("70b", 256);
  for (const Sensitivity& s : c.all) {
    if (s.kept && s.winner) CHECK(s.other_plan == !(s.kept->plan == s.winner->plan));
  }
}

TEST_CASE("a doubled batch is worth less the smaller the critical batch is") {
  PlanRequest r = request_for("7b", "dgx-h100", 512);
  const Candidate winner = *search(r)->winner();
  const double plain = find(sensitivities(r, winner), Change::double_batch)->time;
  r.economics.critical_batch = r.job.tokens_per_step();
  const double costly = find(sensitivities(r, winner), Change::double_batch)->time;
  CHECK(plain < 1);
  CHECK(costly > plain);
  CHECK(costly / plain == Approx(3.0 / 2));  // (1 + 2) / (1 + 1)
}

TEST_CASE("one node has no network to change, and 8-bit GEMMs need hardware support") {
  const PlanRequest r = request_for("gpt2-xl", "dgx-a100", 8);
  const auto all = sensitivities(r, *search(r)->winner());
  CHECK(find(all, Change::less_network) == nullptr);
  CHECK(find(all, Change::double_network) == nullptr);
  CHECK(find(all, Change::fp8) == nullptr);
}

TEST_CASE("the next size is the next one that divides the work") {
  const Case c = of("7b", 64);
  const Sensitivity* s = find(c.all, Change::one_more_node);
  REQUIRE(s != nullptr);
  CHECK(s->gpus > 64);
  CHECK(s->gpus < 128);
  CHECK(s->gpu_time == Approx(s->time * s->gpus / 64));
}

TEST_CASE("an uneven batch is offered fewer GPUs, and a batch that they divide") {
  PlanRequest r = request_for("7b", "dgx-h100", 88);  // 11 nodes
  r.job.global_batch = 1024;
  const Candidate winner = *search(r)->winner();
  CHECK(batch_is_uneven(r));
  const std::vector<Sensitivity> all = sensitivities(r, winner);
  const Sensitivity* fewer = find(all, Change::fewer_gpus);
  REQUIRE(fewer != nullptr);
  CHECK(fewer->gpus == 64);
  CHECK(fewer->global_batch == 1024);
  const Sensitivity* rounded = find(all, Change::rounded_batch);
  REQUIRE(rounded != nullptr);
  CHECK(rounded->gpus == 88);
  CHECK(rounded->global_batch == 1056);
  // dp may be 88, not 8: 32 layers leave no other use of a factor of 11.
  REQUIRE(rounded->winner);
  CHECK(rounded->winner->plan.dp % 11 == 0);
  CHECK(rounded->gpu_time < 0.97);
  std::vector<Change> even;
  for (const Sensitivity& s : even_batches(r, winner)) even.push_back(s.change);
  CHECK(even == std::vector<Change>{Change::fewer_gpus, Change::rounded_batch});
  r.max_gpus = 88;
  CHECK(even_batches(r, winner).empty());
}

TEST_CASE("an even batch is left as it is, and none is changed by more than a quarter") {
  PlanRequest r = request_for("7b", "dgx-h100", 64);
  r.job.global_batch = 1000;  // 8 nodes
  CHECK_FALSE(batch_is_uneven(r));
  const Candidate winner = *search(r)->winner();
  CHECK(find(sensitivities(r, winner), Change::fewer_gpus) == nullptr);
  CHECK(even_batches(r, winner).empty());
  PlanRequest few = request_for("7b", "dgx-h100", 24);
  few.job.global_batch = 32;
  CHECK(batch_is_uneven(few));
  const auto all = sensitivities(few, *search(few)->winner());
  CHECK(find(all, Change::rounded_batch)->global_batch == 24);  // a quarter less
  CHECK(find(all, Change::fewer_gpus)->gpus == 16);
  PlanRequest part = request_for("gpt2-xl", "dgx-h100", 6);
  part.job.global_batch = 32;
  CHECK(batch_is_uneven(part));
  CHECK(find(sensitivities(part, *search(part)->winner()), Change::fewer_gpus)->gpus == 4);
}

TEST_CASE("the most valuable change saves the most GPU time") {
  const Case c = of("70b", 256);
  const Sensitivity* best = most_valuable(c.all);
  REQUIRE(best != nullptr);
  for (const Sensitivity& s : c.all) {
    if (s.winner) CHECK(best->gpu_time <= s.gpu_time);
  }
}

TEST_CASE("a plan chosen for its memory has no times to compare") {
  PlanRequest r = request_for("7b", "dgx-h100", 64);
  r.objective = Objective::memory_headroom;
  CHECK(sensitivities(r, *optimize(r)->report.winner()).empty());
}
