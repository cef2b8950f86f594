#include "costmodel/calibration/calibration_io.hpp"

#include <cmath>

#include "core/base/embedded.hpp"
#include "costmodel/calibration/calibration_fields.hpp"
#include "tests/support/catch.hpp"
#include "topologies/import/this_machine.hpp"

using namespace echelon;

namespace {

GpuSpec gpu(const char* cluster) { return ClusterTopology::load(cluster, 8).value().gpu(); }

std::string pick(const char* cluster, const char* framework) {
  return pick_calibration(gpu(cluster), find_framework(framework).value()).value().name;
}

}  // namespace

TEST_CASE("every shipped calibration can be read, and each of its rates has a source") {
  for (const EmbeddedFile& file : embedded_calibrations()) {
    INFO(file.name);
    const Result<Calibration> c = parse_calibration(file.content, file.name);
    REQUIRE(c.ok());
    CHECK(c->name == file.name);
    CHECK(c->gemm_efficiency > 0);
    CHECK(c->sources.size() == calibration_fields().size());
    for (const auto& source : c->sources) CHECK_FALSE(source.text.empty());
    CHECK_FALSE(c->fitted_to.empty());
  }
}

TEST_CASE("a framework without calibrations takes its nearest relative's, as extrapolated") {
  const Framework own = find_framework("megatron-2021").value();
  const Framework relative = find_framework("megatron-deepspeed").value();
  const Calibration fitted = pick_calibration(gpu("dgx-a100"), own).value();
  const Calibration taken = pick_calibration(gpu("dgx-a100"), relative).value();
  CHECK(fitted.evidence == Evidence::calibrated);
  CHECK(taken.name == fitted.name);
  CHECK(taken.evidence == Evidence::extrapolated);
}

TEST_CASE("every pair of family and framework has its calibration, other GPUs take priors") {
  CHECK(pick("dgx-h100", "nanotron") == "hopper-nanotron");
  CHECK(pick("dgx-h100", "megatron-core") == "hopper-megatron-core");
  CHECK(pick("dgx-h200", "megatron-core") == "hopper-megatron-core");
  CHECK(pick("dgx-h100", "deepspeed") == "hopper-deepspeed");
  CHECK(pick("dgx-a100", "megatron-2021") == "ampere-megatron-2021");
  CHECK(pick("dgx-b200", "nanotron") == "blackwell-nanotron");
  CHECK(pick("rtx-4090", "echelon") == "ada-echelon");
  CHECK(pick_calibration(GpuSpec{}, frameworks().front()).value().name == "generic");
}

TEST_CASE("a GPU has the family of its data, else that of the next lower compute capability") {
  GpuSpec named;
  named.family = "rubin";
  named.compute_capability = 9;
  CHECK(gpu_family(named) == "rubin");
  const auto family = [](double capability) {
    GpuSpec spec;
    spec.compute_capability = capability;
    return gpu_family(spec);
  };
  CHECK(family(0) == "generic");
  CHECK(family(6.1) == "generic");
  CHECK(family(7.2) == "volta");
  CHECK(family(8 + 0.1 * 0) == "ampere");
  CHECK(family(8 + 0.1 * 6) == "ada");
  CHECK(family(8 + 0.1 * 7) == "ada");
  CHECK(family(9) == "hopper");
  CHECK(family(10.5) == "blackwell");
  CHECK(family(12) == "ada");  // cards of Blackwell have no tensor memory: kernels are as on Ada
  GpuSpec rank;
  rank.name = kCpuRank;
  CHECK(gpu_family(rank) == "cpu");
}

TEST_CASE("GPUs of which no rate is known take those of the nearest family, extrapolated") {
  const Framework megatron = find_framework("megatron-core").value();
  const auto taken = [&](const char* cluster) {
    return pick_calibration(gpu(cluster), megatron).value();
  };
  const Calibration near = taken("gb300-nvl72");
  const Calibration rubin = taken("vr-nvl72");
  CHECK(gpu_family(gpu("vr-nvl72")) == "rubin");
  CHECK(rubin.name == "blackwell-megatron-core");
  CHECK(rubin.gemm_efficiency == near.gemm_efficiency);
  CHECK(near.evidence == Evidence::calibrated);
  CHECK(near.stands_in_for.empty());
  CHECK(rubin.evidence == Evidence::extrapolated);
  CHECK(rubin.stands_in_for == "rubin");
  CHECK(rubin.time_band == Approx(std::hypot(near.time_band, kUnseenBand)));
  CHECK(prior_calibration(gpu("vr-nvl72"), megatron).value().name == "blackwell");
  const Calibration helios = taken("helios");
  CHECK(helios.name == "cdna4");
  CHECK(helios.stands_in_for == "cdna5");
  CHECK(helios.time_band == Approx(std::hypot(taken("mi355x").time_band, kUnseenBand)));
  // Named by the user, rates of Blackwell are those of another family as well.
  CHECK(named_calibration(near, gpu("vr-nvl72"), megatron).foreign == "blackwell/megatron-core");
  // A GPU that CUDA describes without a name of the catalog is of Rubin by its capability.
  GpuSpec unnamed;
  unnamed.compute_capability = 10.7;
  CHECK(gpu_family(unnamed) == "rubin");
  CHECK(rates_family(unnamed) == "blackwell");
}

TEST_CASE("priors are based on no run, whatever was fitted") {
  const auto prior = [](const char* cluster, const char* framework) {
    return prior_calibration(gpu(cluster), find_framework(framework).value()).value();
  };
  CHECK(prior("dgx-h100", "nanotron").name == "prior-hopper-nanotron");
  CHECK(prior("dgx-h100", "megatron-core").name == "hopper");
  CHECK(prior("dgx-a100", "megatron-2021").name == "prior-ampere-megatron-2021");
  for (const EmbeddedFile& file : embedded_calibrations()) {
    const Calibration c = parse_calibration(file.content, file.name).value();
    const bool is_prior =
        file.name.starts_with("prior-") || file.name.find('-') == std::string_view::npos;
    INFO(file.name);
    // Pairs without runs take what software with the same kernels has in common.
    const bool without_runs = c.fitted_to.starts_with("no run");
    if (is_prior) CHECK(without_runs);
    const bool of_others = c.fitted_to.find(", for which ") != std::string::npos;
    CHECK((c.evidence == Evidence::extrapolated) == (without_runs || of_others));
  }
}

TEST_CASE("rates from runs of other software are extrapolated, and say from which") {
  const Calibration own =
      pick_calibration(gpu("dgx-h100"), find_framework("echelon").value()).value();
  CHECK(own.evidence == Evidence::extrapolated);
  CHECK(own.fitted_to ==
        "16 published runs of hopper GPUs under llm.c and llmq, for which echelon stands");
}

TEST_CASE("what is the software's own is the same on every GPU family") {
  for (const char* cluster : {"dgx-h100", "dgx-a100", "dgx-b200", "dgx-v100"}) {
    INFO(cluster);
    const auto prior = [&](const char* framework) {
      return prior_calibration(gpu(cluster), find_framework(framework).value()).value();
    };
    const Calibration family = prior("megatron-core");
    const Calibration own = prior("echelon");
    CHECK(own.host_layer_forward == 60_us);
    CHECK(own.step_fixed == 1000_us);
    CHECK(own.allocator_reserve == 0);
    CHECK(own.gemm_efficiency == family.gemm_efficiency);
    CHECK(own.attention_forward == family.attention_forward);
    CHECK(own.gpu_family == family.gpu_family);
    CHECK(prior("nanotron").host_layer_forward == 1800_us);
    CHECK(prior("nanotron").allocator_reserve == 0.15);
  }
  // FlashAttention-2 is slow on Hopper alone.
  const auto attention = [](const char* cluster, const char* framework) {
    return prior_calibration(gpu(cluster), find_framework(framework).value())
        .value()
        .attention_forward;
  };
  CHECK(attention("dgx-h100", "nanotron") < attention("dgx-h100", "megatron-core"));
  CHECK(attention("dgx-a100", "nanotron") == attention("dgx-a100", "megatron-core"));
}

TEST_CASE("a calibration is unchanged after writing and reading") {
  const Calibration c = pick_calibration(gpu("dgx-h100"), frameworks().front()).value();
  const Result<Calibration> again = parse_calibration(calibration_to_json(c), "copy");
  REQUIRE(again.ok());
  CHECK(calibration_to_json(*again) == calibration_to_json(c));
}

TEST_CASE("a calibration that extends another changes only its own entries") {
  const Calibration base = parse_calibration(
                               [] {
                                 for (const EmbeddedFile& f : embedded_calibrations()) {
                                   if (f.name == "hopper") return f.content;
                                 }
                                 return std::string_view{};
                               }(),
                               "hopper")
                               .value();
  const Result<Calibration> mine = parse_calibration(R"({"schema": 1, "kind": "calibration",
      "name": "mine", "gpu": "hopper", "stack": "any", "evidence": "calibrated",
      "fitted_to": "my runs", "extends": "hopper",
      "rates": {"gemm_efficiency": {"value": 0.5, "unit": "ratio", "source": "me"}}})",
                                                     "mine.json");
  REQUIRE(mine.ok());
  CHECK(mine->gemm_efficiency == 0.5);
  CHECK(mine->nic_efficiency == base.nic_efficiency);
  CHECK(mine->evidence == Evidence::calibrated);
}

TEST_CASE("a calibration file of schema 1 is read by the keys of that schema only") {
  const auto mine = [](int schema, const std::string& key) {
    const std::string framework = schema == 1 ? "stack" : "framework";
    return parse_calibration("{\"schema\": " + std::to_string(schema) + R"(, "kind": "calibration",
        "name": "mine", "gpu": "hopper", ")" +
                                 framework + R"(": "any", "evidence": "calibrated",
        "fitted_to": "my runs", "extends": "hopper", "rates": {")" +
                                 key + R"(": {"value": 0.5, "unit": "ratio", "source": "me"}}})",
                             "mine.json");
  };
  int renamed = 0;
  for (const CalibrationField& field : calibration_fields()) {
    if (field.schema1_key == nullptr) continue;
    ++renamed;
    const Result<Calibration> old = mine(1, field.schema1_key);
    REQUIRE(old.ok());
    CHECK(rate_of(*old, field) == 0.5);
    CHECK(calibration_to_json(*old) == calibration_to_json(mine(2, field.key).value()));
    CHECK_FALSE(mine(1, field.key).ok());
    CHECK_FALSE(mine(2, field.schema1_key).ok());
  }
  CHECK(renamed == 7);
}

TEST_CASE("the error for an invalid calibration gives the place and the expected value") {
  const auto message = [](const char* text) {
    const Result<Calibration> c = parse_calibration(text, "c.json");
    REQUIRE_FALSE(c.ok());
    return c.error().message();
  };
  const std::string head =
      R"({"schema": 2, "kind": "calibration", "name": "x", "gpu": "g", "framework": "any",
          "evidence": "calibrated", "fitted_to": "runs", )";
  CHECK(message((head + R"("rates": {}})").c_str()).find("kernel_speed_factor") !=
        std::string::npos);
  CHECK(message((head + R"("extends": "hoper", "rates": {}})").c_str()).find("hopper") !=
        std::string::npos);
  CHECK(message((head + R"("extends": "hopper", "rates": {"gemm_eficiency":
      {"value": 1, "unit": "ratio", "source": "s"}}})")
                    .c_str())
            .find("gemm_efficiency") != std::string::npos);
  CHECK(message((head + R"("extends": "hopper", "rates": {"gemm_efficiency":
      {"value": 7, "unit": "ratio", "source": "s"}}})")
                    .c_str())
            .find("7") != std::string::npos);
  CHECK(message((head + R"("extends": "hopper", "rates": {"kernel_fixed":
      {"value": 7, "unit": "ms", "source": "s"}}})")
                    .c_str())
            .find("us") != std::string::npos);
  // The file is named once, and an unknown base gets the names that there are.
  CHECK(message((head + R"("extends": "hopper", "rates": {"gemm_efficiency":
      {"value": "a", "unit": "ratio", "source": "s"}}})")
                    .c_str())
            .starts_with("c.json at /rates/gemm_efficiency/value: the string"));
  const std::string unknown = message((head + R"("extends": "foo", "rates": {}})").c_str());
  CHECK(unknown.starts_with("c.json at /extends: 'foo'; expected"));
  CHECK(unknown.find("ampere") != std::string::npos);
}

TEST_CASE("a calibration of another GPU family or framework is extrapolated, with a wider band") {
  const auto taken = [](Calibration given, const char* cluster, const char* framework) {
    return named_calibration(std::move(given), gpu(cluster), find_framework(framework).value());
  };
  const Calibration hopper = shipped_calibration("hopper-megatron-core").value();
  const NamedCalibration own = taken(hopper, "dgx-h200", "megatron-core");
  CHECK(own.foreign.empty());
  CHECK(own.calibration.evidence == Evidence::calibrated);
  CHECK(own.calibration.time_band == hopper.time_band);
  for (const auto& [cluster, framework] :
       {std::pair("mi300x", "megatron-core"), std::pair("dgx-h100", "torchtitan")}) {
    CAPTURE(cluster, framework);
    const NamedCalibration other = taken(hopper, cluster, framework);
    CHECK(other.foreign == "hopper/megatron-core");
    CHECK(other.calibration.evidence == Evidence::extrapolated);
    const Calibration usual =
        pick_calibration(gpu(cluster), find_framework(framework).value()).value();
    CHECK(other.calibration.time_band >= usual.time_band);
    CHECK(other.calibration.time_band > hopper.time_band);
  }
  // A GPU by its full name, and rates for any framework.
  Calibration named = hopper;
  named.gpu_family = gpu("dgx-h100").name;
  named.framework = "any";
  CHECK(taken(named, "dgx-h200", "torchtitan").foreign.empty());
  CHECK(taken(named, "mi300x", "torchtitan").foreign == named.gpu_family + "/any");
}

TEST_CASE("rates that a file takes from another family's calibration are that family's") {
  const auto mine = [](const std::string& base, const std::string& rates) {
    return parse_calibration(R"({"schema": 3, "kind": "calibration", "name": "mine",
        "gpu": "cdna3", "framework": "megatron-core", "evidence": "calibrated",
        "fitted_to": "my runs", "extends": ")" +
                                 base + R"(", "rates": {)" + rates + "}}",
                             "mine.json")
        .value();
  };
  const Framework framework = find_framework("megatron-core").value();
  CHECK(named_calibration(mine("hopper-megatron-core", ""), gpu("mi300x"), framework).foreign ==
        "hopper/megatron-core");
  CHECK(named_calibration(mine("generic", ""), gpu("mi300x"), framework).foreign.empty());
  // All rates are the file's own: whatever it extends plays no part.
  Calibration whole = shipped_calibration("hopper-megatron-core").value();
  whole.gpu_family = "cdna3";
  const Calibration read = parse_calibration(calibration_to_json(whole), "mine.json").value();
  CHECK(named_calibration(read, gpu("mi300x"), framework).foreign.empty());
}
