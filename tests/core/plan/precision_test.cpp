#include <set>
#include <string>

#include "core/plan/cost.hpp"
#include "core/plan/job.hpp"
#include "core/plan/parallel_plan.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

double bytes_per_parameter(const char* name) {
  const PrecisionRecipe recipe = find_precision(name).value();
  return recipe.weight + recipe.gradient + recipe.main_gradient + recipe.master + recipe.moments;
}

}  // namespace

TEST_CASE("bytes per parameter match the documentation of the frameworks") {
  CHECK(bytes_per_parameter("bf16:textbook") == 12);          // 2 + 2 + 8
  CHECK(bytes_per_parameter("bf16:pure") == 8);               // 2 + 2 + 4
  CHECK(bytes_per_parameter("bf16:adam-fp32-master") == 18);  // Megatron: 6 + 12
  CHECK(bytes_per_parameter("bf16:deepspeed-zero") == 16);    // ZeRO: 2 + 2 + 12
  CHECK(bytes_per_parameter("bf16:fsdp-fp32-shards") == 16);  // fp32 weight, gradient, moments
  CHECK(bytes_per_parameter("bf16:nanotron") == 20);          // 2 + 2 + 4 + 12
  CHECK(bytes_per_parameter("bf16:adam-bf16-states") == 14);
  CHECK(bytes_per_parameter("bf16:adam-bf16-gradients") == 16);
  CHECK(bytes_per_parameter("bf16:precision-aware") == 12);
  CHECK(bytes_per_parameter("bf16:muon") == 14);
  CHECK(bytes_per_parameter("fp8:primary-weights") == 18);
  CHECK(find_precision("fp8:adam-fp32-master")->layer_weight == 2);
  CHECK(find_precision("fp8:primary-weights")->layer_weight == 0);
  CHECK(bytes_per_parameter("fp8:bf16-gradients") == 16);
  CHECK(bytes_per_parameter("fp8:precision-aware") == 12);
  // fp8 copies of bf16 weights in both layouts; of mxfp8 each with 1/32 byte of scales.
  CHECK(find_precision("fp8:blockwise")->layer_weight == 2);
  CHECK(find_precision("mxfp8:muon")->layer_weight == 2.0625);
  CHECK(bytes_per_parameter("mxfp8:muon") == 12);
  // Primary weights: 1 + 1/32 in each layout.
  const PrecisionRecipe mx = find_precision("mxfp8:bf16-gradients").value();
  CHECK(mx.weight + mx.layer_weight == 2.0625);
  CHECK(mx.fp8_input == 1 + 1.0 / 32);
  const PrecisionRecipe fp4 = find_precision("nvfp4:bf16-gradients").value();  // 1/2 + 1/16 each
  CHECK(fp4.weight + fp4.layer_weight == 1.125);
  CHECK(fp4.fp8_rate == find_precision("nvfp4")->fp8_rate);
  CHECK(find_precision("fp8:blockwise")->fp8_input == 1 + 4.0 / 128);
  CHECK(find_precision("fp8")->fp8_input == 1);
  CHECK(bytes_per_parameter("bf16:adam-8bit") == 12.03125);  // 10 + 2 · (1 + 4/256)
  CHECK(bytes_per_parameter("fp16:adam-fp32-master") == 18);
  CHECK(bytes_per_parameter("fp8:adam-fp32-master") == 18);
  CHECK(bytes_per_parameter("fp32") == 16);
}

TEST_CASE("every fp8 recipe says how it scales, and casts accordingly") {
  for (const PrecisionRecipe& recipe : precision_recipes()) {
    INFO(recipe.name);
    CHECK((recipe.compute == Dtype::fp8) == (recipe.scaling != Fp8Scaling::none));
    // One scale per tensor needs no room; those of blocks are kept with the values.
    const bool per_tensor =
        recipe.scaling == Fp8Scaling::delayed || recipe.scaling == Fp8Scaling::tensorwise;
    if (recipe.compute == Dtype::fp8) CHECK((recipe.fp8_input == 1) == per_tensor);
    if (recipe.scaling == Fp8Scaling::delayed) CHECK(recipe.cast == kDelayedCast);
    if (recipe.scaling == Fp8Scaling::tensorwise) CHECK(recipe.cast == kCurrentCast);
    if (recipe.primary_weights) CHECK(recipe.scaling != Fp8Scaling::none);
  }
  CHECK(find_precision("fp8")->scaling == Fp8Scaling::delayed);  // the default of --fp8-recipe
}

TEST_CASE("names of earlier releases are still found") {
  CHECK(find_precision("fp8:mxfp8")->name == "mxfp8:bf16-gradients");
  CHECK(find_precision("fp8:mxfp8-muon")->name == "mxfp8:muon");
}

TEST_CASE("a dtype selects its default recipe") {
  CHECK(find_precision("bf16")->name == "bf16:adam-fp32-master");
  CHECK(find_precision("fp16")->name == "fp16:adam-fp32-master");
  CHECK(find_precision("fp8")->name == "fp8:adam-fp32-master");
  CHECK(find_precision("fp32")->name == "fp32");
}

TEST_CASE("every recipe is found by its name, has a source, and computes in the dtype it names") {
  std::set<std::string> names;
  for (const PrecisionRecipe& recipe : precision_recipes()) {
    INFO(recipe.name);
    CHECK(names.insert(recipe.name).second);
    CHECK(find_precision(recipe.name).value() == recipe);
    CHECK_FALSE(recipe.source.empty());
    // Scaled formats of 8 and 4 bits are recipes of the format that tensor cores take.
    const bool scaled = recipe.name.starts_with("mxfp8:") || recipe.name.starts_with("nvfp4:");
    CHECK(
        (scaled ? recipe.compute == Dtype::fp8 : recipe.name.starts_with(name_of(recipe.compute))));
    CHECK(recipe.weight + recipe.master >= 2);  // the weights are stored at least once
    CHECK(recipe.gradient + recipe.main_gradient >= 2);
  }
}

TEST_CASE("the error for an unknown precision suggests the nearest and lists all") {
  const Result<PrecisionRecipe> recipe = find_precision("bf61");
  REQUIRE_FALSE(recipe.ok());
  CHECK(recipe.error().hint == "did you mean 'bf16'?");
  CHECK(recipe.error().expected.find("bf16:deepspeed-zero") != std::string::npos);
  CHECK_FALSE(find_precision("").ok());
  CHECK_FALSE(find_precision("BF16:").ok());
}

TEST_CASE("the width of an element is that of its dtype") {
  CHECK(width_of(Dtype::fp32) == 4);
  CHECK(width_of(Dtype::bf16) == 2);
  CHECK(width_of(Dtype::fp16) == 2);
  CHECK(width_of(Dtype::fp8) == 1);
}

TEST_CASE("recompute policies and schedules are read by the names they print") {
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    CHECK(parse_recompute(name_of(recompute), "--recompute").value() == recompute);
  }
  for (const ScheduleKind schedule : {ScheduleKind::gpipe, ScheduleKind::one_f_one_b,
                                      ScheduleKind::interleaved, ScheduleKind::zero_bubble_h1}) {
    CHECK(parse_schedule(name_of(schedule), "--schedule").value() == schedule);
  }
  const Result<Recompute> recompute = parse_recompute("selectiv", "--recompute");
  REQUIRE_FALSE(recompute.ok());
  CHECK(recompute.error().message() ==
        "--recompute: unknown recompute policy 'selectiv'; expected one of none, selective, full, "
        "mixed; "
        "did you mean 'selective'?");
  CHECK_FALSE(parse_schedule("2f2b-zero", "--schedule").ok());
}

TEST_CASE("evidence has names") {
  CHECK(name_of(Evidence::measured) == "measured");
  CHECK(name_of(Evidence::calibrated) == "calibrated");
  CHECK(name_of(Evidence::extrapolated) == "extrapolated");
}

TEST_CASE("tokens of a step are sequence times batch, without overflow") {
  TrainingJob job;
  job.sequence = 1 << 20;
  job.global_batch = std::int64_t{1} << 40;
  CHECK(job.tokens_per_step() == 0x1p60);
}
