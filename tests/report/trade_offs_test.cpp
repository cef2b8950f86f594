// What one plan gives up against another.
#include "report/trade_offs.hpp"

#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

/// A plan whose only parts are compute and communication between tensor-parallel ranks.
Candidate plan_of(double compute, double exchange, std::optional<double> likely,
                  std::initializer_list<UnusualFeature> unusual = {}) {
  Candidate out;
  out.prediction.time.parts.compute = Seconds{compute};
  out.prediction.time.parts.exposed[Axis::tp] = Seconds{exchange};
  out.prediction.time.step = Seconds{compute + exchange};
  out.score.fits_probability = likely;
  for (const UnusualFeature each : unusual) out.score.unusual.add(each);
  return out;
}

}  // namespace

TEST_CASE("a faster plan's drawbacks are its probability and its unusual features") {
  using enum UnusualFeature;
  const Candidate best = plan_of(2, 1, 0.99);
  CHECK(drawbacks(plan_of(2, 0.9, 0.61), best) == "is only 61 % likely to fit");
  CHECK(drawbacks(plan_of(2, 0.9, 0.99, {many_chunks}), best) == "has more than 8 chunks per rank");
  CHECK(drawbacks(plan_of(2, 0.9, 0.985), best) == "is less likely to fit (98 % against 99 %)");
  CHECK(
      drawbacks(plan_of(2, 0.9, 0.61, {unequal_chunks, own_layout, many_chunks}), best) ==
      "is only 61 % likely to fit and has chunks of unequal size and more than 8 chunks per rank");
  CHECK(drawbacks(plan_of(2, 0.9, {}, {own_layout}), plan_of(2, 1, {})) ==
        "has a pipeline layout of its own");
  CHECK(drawbacks(plan_of(2, 0.9, 0.98999), best) == "has less memory to spare");
}

TEST_CASE("a plan of the list trades time for features, or the other way round") {
  using enum UnusualFeature;
  const Candidate best = plan_of(2, 1, 0.99, {offload});
  CHECK(trade_of(best, plan_of(2, 1.5, 0.99, {offload})) == "500 ms more tp communication");
  CHECK(trade_of(best, plan_of(2, 1.5, 0.99)) ==
        "500 ms more tp communication; without optimizer states in host memory");
  CHECK(trade_of(best, plan_of(2, 1.5, 0.99, {offload, many_chunks})) ==
        "500 ms more tp communication; has more than 8 chunks per rank");
  CHECK(trade_of(best, plan_of(2, 0.5, 0.6, {offload})) ==
        "faster, but is only 60 % likely to fit");
}

TEST_CASE("parts of a sentence are joined") {
  CHECK(enumerated({}).empty());
  CHECK(enumerated({"a"}) == "a");
  CHECK(enumerated({"a", "b"}) == "a and b");
  CHECK(enumerated({"a", "b", "c"}) == "a, b and c");
}
