// The probability of fitting, by hand arithmetic.
#include "costmodel/calibration/memory_band.hpp"

#include <cmath>

#include "core/framework/framework.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "tests/support/catch.hpp"
#include "topologies/description/catalog.hpp"

using namespace echelon;

namespace {

MemoryBand band(MemoryBandKind kind, double bias, double spread) {
  return {kind, bias, spread, "test"};
}

}  // namespace

TEST_CASE("a normal band gives the standard normal distribution at so many spreads below") {
  const MemoryBand b = band(MemoryBandKind::extrapolated, 0.03, 0.05);
  CHECK(b.distribution() == "normal");
  const Bytes capacity = 80_GiB;
  // ln(need / capacity) = −0.03: the bias alone is left, Φ(0). Then one and two spreads more:
  // Φ(1) = 0.841345, Φ(2) = 0.977250; and one less: 1 − 0.841345.
  CHECK(fit_probability(b, capacity * std::exp(-0.03), capacity) == Approx(0.5));
  CHECK(fit_probability(b, capacity * std::exp(-0.08), capacity) == Approx(0.841345).epsilon(1e-5));
  CHECK(fit_probability(b, capacity * std::exp(-0.13), capacity) == Approx(0.977250).epsilon(1e-5));
  CHECK(fit_probability(b, capacity * std::exp(0.02), capacity) == Approx(0.158655).epsilon(1e-4));
}

TEST_CASE("a measured band gives the logistic function of ln(need/capacity)") {
  const MemoryBand b = band(MemoryBandKind::measured, 0.2, 0.04);
  CHECK(b.distribution() == "logistic");
  const Bytes capacity = 80_GiB;
  // 80 · e^−0.2 = 65.4985 GiB is even. One spread below: 1 / (1 + 1/e) = 0.731059, three:
  // 1 / (1 + e^−3) = 0.952574. The whole GPU: 1 / (1 + e^5) = 0.006693.
  CHECK(fit_probability(b, 65.4985 * 1_GiB, capacity) == Approx(0.5).epsilon(1e-5));
  CHECK(fit_probability(b, capacity * std::exp(-0.24), capacity) == Approx(0.731059).epsilon(1e-5));
  CHECK(fit_probability(b, capacity * std::exp(-0.32), capacity) == Approx(0.952574).epsilon(1e-5));
  CHECK(fit_probability(b, capacity, capacity) == Approx(0.006693).epsilon(1e-3));
  // Without any capacity nothing fits.
  CHECK(fit_probability(b, 1_GiB, Bytes{}) == 0);
}

TEST_CASE("the largest need of a probability is where it is reached") {
  for (const MemoryBandKind kind :
       {MemoryBandKind::measured, MemoryBandKind::extrapolated, MemoryBandKind::assumed}) {
    const MemoryBand b = band(kind, -0.02, 0.07);
    Bytes last = 1000_GiB;
    for (const double probability : {0.001, 0.05, 0.5, 0.9, 0.999}) {
      const Bytes need = most_need(b, probability, 40_GiB);
      CHECK(fit_probability(b, need, 40_GiB) == Approx(probability).epsilon(1e-9));
      CHECK(need < last);
      last = need;
    }
  }
}

TEST_CASE("without a band in the calibration the framework's facts decide which is assumed") {
  Calibration none;
  const Framework own = find_framework("echelon").value();
  CHECK(memory_band_of(none, own).kind == MemoryBandKind::assumed);
  CHECK(memory_band_of(none, own).spread == 0.01);
  none.memory_band = band(MemoryBandKind::measured, 0.1, 0.02);
  CHECK(memory_band_of(none, own) == *none.memory_band);
}

TEST_CASE("the deviation of a logistic band is its scale times pi over the root of three") {
  CHECK(band(MemoryBandKind::measured, 0, 0.1).deviation() == Approx(0.181380).epsilon(1e-5));
  CHECK(band(MemoryBandKind::extrapolated, 0, 0.1).deviation() == 0.1);
}

TEST_CASE("the memory band of a GPU without runs is as wide as the framework's on GPUs with runs") {
  int without_runs = 0;
  for (const Framework& framework : frameworks()) {
    if (framework.fixed_blocks) continue;
    const std::optional<Calibration> hopper =
        shipped_calibration("hopper-" + framework.calibration_key());
    REQUIRE(hopper);
    REQUIRE(hopper->memory_band);
    for (const GpuSummary& gpu : list_gpus()) {
      INFO(framework.name << " on " << gpu.spec.name);
      const Calibration rates = pick_calibration(gpu.spec, framework).value();
      const MemoryBand& used = memory_band_of(rates, framework);
      CHECK(used.deviation() >= hopper->memory_band->deviation() * (1 - 1e-9));
      if (rates_family(gpu.spec).starts_with("cdna")) {
        CHECK(used.kind == MemoryBandKind::assumed);
        CHECK(used.bias == hopper->memory_band->bias);
        ++without_runs;
      }
    }
  }
  CHECK(without_runs > 0);
}

TEST_CASE("a memory band is written to the calibration's file and read back") {
  Calibration c = shipped_calibration("generic").value();
  CHECK_FALSE(c.memory_band);
  CHECK_FALSE(parse_calibration(calibration_to_json(c), "file").value().memory_band);
  for (const MemoryBandKind kind :
       {MemoryBandKind::measured, MemoryBandKind::extrapolated, MemoryBandKind::assumed}) {
    c.memory_band = band(kind, -0.0125, 0.0625);
    CHECK(parse_calibration(calibration_to_json(c), "file").value().memory_band == c.memory_band);
  }
}

TEST_CASE("a memory band that cannot be is refused with its place") {
  const auto read = [](const std::string& text) {
    return parse_calibration(R"({"schema": 3, "kind": "calibration", "name": "mine", "gpu": "g",
        "framework": "any", "evidence": "measured", "fitted_to": "f", "extends": "generic",
        "rates": {}, "memory_band": )" +
                                 text + "}",
                             "mine.json");
  };
  CHECK(read(R"({"kind": "assumed", "bias": 0, "spread": 0.1, "source": "s"})").ok());
  const auto where_of = [&](const std::string& text) {
    const Result<Calibration> got = read(text);
    REQUIRE_FALSE(got.ok());
    return got.error().where;
  };
  CHECK(where_of("3") == "mine.json at /memory_band");
  CHECK(where_of(R"({"kind": "guessed", "bias": 0, "spread": 0.1, "source": "s"})") ==
        "mine.json at /memory_band/kind");
  CHECK(where_of(R"({"kind": "assumed", "bias": 0, "spread": 0, "source": "s"})") ==
        "mine.json at /memory_band/spread");
  CHECK(where_of(R"({"kind": "assumed", "bias": 2, "spread": 0.1, "source": "s"})") ==
        "mine.json at /memory_band/bias");
}

TEST_CASE("the margin of a calibration file of schema 2 becomes a bias of the same limit") {
  const auto read = [](const std::string& rates) {
    return parse_calibration(R"({"schema": 2, "kind": "calibration", "name": "mine", "gpu": "g",
        "framework": "nanotron", "evidence": "calibrated", "fitted_to": "f", "extends": "generic",
        "rates": {)" + rates + "}}",
                             "mine.json");
  };
  const Result<Calibration> old = read(
      R"("fits_margin": {"value": 12800, "unit": "MiB", "source": "s"},
         "memory_band": {"value": 0.1, "unit": "ratio", "source": "s"})");
  REQUIRE(old.ok());
  REQUIRE(old->memory_band);
  CHECK(old->memory_band->kind == MemoryBandKind::assumed);
  // 12.5 of 79.2 GiB were kept: 66.7 GiB fit with an even chance.
  CHECK(most_need(*old->memory_band, 0.5, 79.2 * 1_GiB).in(1_GiB) == Approx(66.7));
  const Result<Calibration> none =
      read(R"("fits_margin": {"value": 0, "unit": "MiB", "source": "s"})");
  REQUIRE(none.ok());
  CHECK_FALSE(none->memory_band);
  CHECK_FALSE(read(R"("fits_margin": {"value": -1, "unit": "MiB", "source": "s"})").ok());
}
