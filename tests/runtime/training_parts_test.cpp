// Learning rate, watch over the loss, noise scale, counted memory.
#include <cmath>
#include <limits>
#include <vector>

#include "runtime/failure.hpp"
#include "runtime/training/gradient_noise.hpp"
#include "runtime/training/learning_rate.hpp"
#include "runtime/training/loss_watch.hpp"
#include "runtime/training/memory.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/numbers.hpp"

using namespace echelon;

TEST_CASE("the learning rate rises to its peak and falls along half a cosine") {
  const LearningRate rate{.peak = 1, .least = 0.1, .warmup = 4, .total = 14};
  CHECK(rate.at(0) == Approx(0.25));
  CHECK(rate.at(3) == Approx(1));
  CHECK(rate.at(4) == Approx(1));
  CHECK(rate.at(9) == Approx(0.55));  // half way: cos(π/2) = 0
  CHECK(rate.at(13) > rate.at(14));
  CHECK(rate.at(14) == 0.1);
  CHECK(rate.at(1000) == 0.1);
  CHECK((LearningRate{.peak = 1, .least = 1, .warmup = 0, .total = 1}.at(0)) == 1);
}

TEST_CASE("a loss that jumps is a spike, a noisy one is not") {
  LossWatch watch;
  Numbers draw(3);
  for (int i = 0; i < 200; ++i) {
    const double loss = 4 - 0.01 * i + 0.05 * (draw.unit() - 0.5);
    REQUIRE(watch.look(loss, 1).verdict == LossWatch::Verdict::fine);
  }
  const LossWatch::Judgement spike = watch.look(4, 1);
  CHECK(spike.verdict == LossWatch::Verdict::spike);
  CHECK(spike.what.starts_with("loss spike: 4.000 after 2."));
  CHECK(watch.look(2, 1).verdict == LossWatch::Verdict::fine);
}

TEST_CASE("no number, and a loss that stays far above its beginning, are divergence") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(LossWatch().look(nan, 1).what == "the loss is NaN");
  CHECK(LossWatch().look(1, std::numeric_limits<double>::infinity()).what ==
        "the gradient norm is infinite");
  LossWatch watch;
  for (std::size_t i = 0; i < LossWatch::kWindow; ++i) (void)watch.look(4, 1);
  int steps = 0;
  while (watch.look(7, 1).verdict != LossWatch::Verdict::diverged) REQUIRE(++steps < 100);
  CHECK(steps == LossWatch::kPatience - 1);
}

TEST_CASE("the noise scale of gradients with known mean and noise is found") {
  // Samples' gradients are G + noise of variance σ² in each of n numbers: tr(Σ)/|G|² = nσ²/|G|².
  constexpr int kNumbers = 50;
  constexpr double kSigma = 2;
  Numbers draw(11);
  NoiseScale scale;
  CHECK(scale.estimate().batch == 0);
  const auto gradient = [&](int samples) {
    std::vector<double> sum(kNumbers, 1.0);  // |G|² = 50
    for (double& each : sum) {
      for (int s = 0; s < samples; ++s)
        each += kSigma * std::sqrt(12.0) * (draw.unit() - 0.5) / samples;
    }
    return sum;
  };
  for (int step = 0; step < 400; ++step) {
    std::vector<double> large(kNumbers);
    double small_norm = 0;
    for (int part = 0; part < 8; ++part) {
      const std::vector<double> small = gradient(4);
      for (int i = 0; i < kNumbers; ++i) {
        const auto at = static_cast<std::size_t>(i);
        large[at] += small[at] / 8;
        if (part == 0) small_norm += small[at] * small[at];
      }
    }
    double large_norm = 0;
    for (const double each : large) large_norm += each * each;
    scale.add(small_norm, 4, large_norm, 32);
  }
  CHECK(scale.estimate().estimates == 400);
  CHECK(scale.estimate().batch == Approx(kSigma * kSigma).epsilon(0.1));
  const std::vector<std::string> advice = batch_advice({.estimates = 9, .batch = 64}, 16, 1e-3);
  REQUIRE(advice.size() == 2);
  CHECK(advice[0].find("about 25 % more tokens") != std::string::npos);
  CHECK(advice[1].find("0.002 instead of 0.001") != std::string::npos);
}

TEST_CASE("memory is counted by what it is for, and its lack is told with what is held") {
  Memory memory("rank 3");
  float* block = memory.allocate<float>(&MemoryBreakdown::weights, 1000, "weights");
  CHECK(block[999] == 0);
  CHECK(memory.held().weights.in(kByte) == 4000);
  CHECK(memory.allocate<float>(&MemoryBreakdown::weights, 0, "nothing") == nullptr);
  try {
    (void)memory.allocate<double>(&MemoryBreakdown::activations, std::int64_t{1} << 50, "saved");
    FAIL("there cannot be so much memory");
  } catch (const RunFailure& failure) {
    CHECK(failure.kind() == RunFailure::Kind::out_of_memory);
    CHECK(std::string(failure.what())
              .starts_with("rank 3: no memory for saved (8589934592.0 MiB of activations)"));
  }
}
