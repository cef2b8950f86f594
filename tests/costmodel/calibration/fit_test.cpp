// Fitting by robust least squares, on data generated with known rates.
#include "costmodel/calibration/fit/fit.hpp"

#include <cmath>

#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

constexpr int kObservations = 20;

Calibration prior() {
  Calibration c;
  c.gemm_efficiency = 0.7;
  c.nic_efficiency = 0.8;
  c.inter_hop = 10_us;
  c.host_layer_forward = 100_us;
  c.host_layer_backward = 200_us;
  c.straggler_per_doubling = 0;
  return c;
}

/// Seconds of observation i: compute, network and latency in proportions that differ.
double seconds(const Calibration& c, int i) {
  return (1 + i % 3) / c.gemm_efficiency + 0.5 * (1 + i % 4) / c.nic_efficiency +
         0.02 * (1 + i % 5) * c.inter_hop.in(1_us);
}

const std::vector<FitParameter>& parameters() {
  static const std::vector<FitParameter> all = {
      {"gemm_efficiency", "", 0.3, false, 0.2, 1.0},
      {"nic_efficiency", "", 0.3, false, 0.2, 1.0},
      {"inter_hop", "", 0.5, false, 1, 500},
  };
  return all;
}

struct Data {
  std::vector<double> measured;
  explicit Data(const Calibration& truth) {
    for (int i = 0; i < kObservations; ++i) measured.push_back(seconds(truth, i));
  }
  [[nodiscard]] Fit fit(const std::vector<FitParameter>& of = parameters(),
                        const FitOptions& options = {.noise = 0.001}) const {
    const std::vector<double> weights(measured.size(), 1.0);
    return fit_rates(
        prior(), of, weights,
        [&](const Calibration& c, std::span<double> errors) {
          for (std::size_t i = 0; i < errors.size(); ++i) {
            errors[i] = std::log(seconds(c, static_cast<int>(i)) / measured[i]);
          }
        },
        options);
  }
};

Calibration planted() {
  Calibration c = prior();
  c.gemm_efficiency = 0.55;
  c.nic_efficiency = 0.6;
  c.inter_hop = 17_us;
  return c;
}

}  // namespace

TEST_CASE("the fit recovers known rates") {
  const Fit fit = Data(planted()).fit();
  CHECK(fit.calibration.gemm_efficiency == Approx(0.55).epsilon(0.001));
  CHECK(fit.calibration.nic_efficiency == Approx(0.6).epsilon(0.001));
  CHECK(fit.calibration.inter_hop.in(1_us) == Approx(17).epsilon(0.002));
  REQUIRE(fit.errors.size() == kObservations);
  for (const double error : fit.errors) CHECK(std::abs(error) < 1e-4);
  for (const FittedRate& rate : fit.rates) {
    CHECK(rate.learned > 0.99);
    CHECK(rate.low < rate.value);
    CHECK(rate.value < rate.high);
  }
  CHECK(fit.rates[2].key == "inter_hop");
  CHECK(fit.rates[2].prior == Approx(10));
}

TEST_CASE("one stalled run of twenty does not distort the rates") {
  Data data(planted());
  data.measured[7] *= 3;
  const Fit fit = data.fit();
  CHECK(fit.calibration.gemm_efficiency == Approx(0.55).epsilon(0.005));
  CHECK(fit.calibration.nic_efficiency == Approx(0.6).epsilon(0.005));
  CHECK(fit.errors[7] == Approx(-std::log(3)).epsilon(0.01));
}

TEST_CASE("a rate without data is unchanged and marked as such") {
  std::vector<FitParameter> of = parameters();
  of.push_back({"memory_efficiency", "", 0.25, false, 0.2, 1.0});
  Data data(planted());
  const std::vector<double> weights(data.measured.size(), 1.0);
  Calibration base = prior();
  base.memory_efficiency = 0.85;
  const Fit fit = fit_rates(base, of, weights, [&](const Calibration& c, std::span<double> errors) {
    for (std::size_t i = 0; i < errors.size(); ++i) {
      errors[i] = std::log(seconds(c, static_cast<int>(i)) / data.measured[i]);
    }
  });
  CHECK(fit.calibration.memory_efficiency == Approx(0.85).epsilon(1e-12));
  CHECK(fit.rates[3].learned == Approx(0).margin(1e-9));
  CHECK(fit.rates[3].high / fit.rates[3].value == Approx(std::exp(0.25)).epsilon(0.1));
}

TEST_CASE("no rate leaves its range, whatever the data suggest") {
  Calibration beyond = planted();
  beyond.gemm_efficiency = 1.15;  // the range ends at 1
  beyond.inter_hop = 0.2_us;      // … begins at 1
  const Fit fit = Data(beyond).fit();
  CHECK(fit.calibration.gemm_efficiency == Approx(1.0));
  CHECK(fit.calibration.gemm_efficiency <= 1.0);
  CHECK(fit.calibration.inter_hop >= 1_us);
  for (const FittedRate& rate : fit.rates) {
    CHECK(std::isfinite(rate.low));
    CHECK(std::isfinite(rate.high));
  }
  CHECK(fit.rates[0].at_bound);
  for (const FittedRate& rate : Data(planted()).fit().rates) CHECK_FALSE(rate.at_bound);
  CHECK_FALSE(at_bound({"dp_overlap", "", 0.3, true, 0, 1}, 0));
  CHECK(at_bound({"dp_overlap", "", 0.3, true, 0, 1}, 1));
}

TEST_CASE("two linked rates keep their ratio") {
  const std::vector<FitParameter> of = {
      {"host_layer_forward", "host_layer_backward", 0.7, false, 5, 20000}};
  const std::vector<double> weights(3, 1.0);
  const Fit fit = fit_rates(prior(), of, weights,
                            [&](const Calibration& c, std::span<double> errors) {
                              for (double& error : errors)
                                error = std::log(c.host_layer_forward.in(1_us) / 150);
                            },
                            {.noise = 0.001});
  CHECK(fit.calibration.host_layer_forward.in(1_us) == Approx(150).epsilon(1e-3));
  CHECK(fit.calibration.host_layer_backward / fit.calibration.host_layer_forward == Approx(2));
}

TEST_CASE("a rate that may be zero moves by steps, not by factors") {
  const std::vector<FitParameter> of = {{"straggler_per_doubling", "", 0.007, true, 0, 0.05}};
  const std::vector<double> weights(kObservations, 1.0);
  const Fit fit = fit_rates(prior(), of, weights,
                            [&](const Calibration& c, std::span<double> errors) {
                              for (double& error : errors)
                                error = std::log((1 + 3 * c.straggler_per_doubling) / 1.03);
                            },
                            {.noise = 0.001});
  CHECK(fit.calibration.straggler_per_doubling == Approx(0.01).epsilon(0.01));
}

TEST_CASE("the same data give the same bits") {
  const Fit a = Data(planted()).fit();
  const Fit b = Data(planted()).fit();
  CHECK(a.errors == b.errors);
  CHECK(a.iterations == b.iterations);
  CHECK(a.calibration.inter_hop == b.calibration.inter_hop);
}
