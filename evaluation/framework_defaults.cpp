#include "evaluation/framework_defaults.hpp"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>

#include "core/base/expects.hpp"
#include "core/base/text.hpp"

namespace echelon {

namespace {

bool mentions(std::string_view text, std::string_view words) {
  return text.find(words) != std::string_view::npos;
}

/// Defaults of a software without a description.
Evident evidence_of(const MeasuredRun& row) {
  const auto more_than_one = [](const WholeCell& cell) { return cell.value_or(1) > 1; };
  if (more_than_one(row.tp) || more_than_one(row.pp) || more_than_one(row.ep)) {
    return Evident::splits_model;
  }
  const bool optimizer = row.zero && (*row.zero == 1 || *row.zero == 2);
  return optimizer ? Evident::splits_optimizer : Evident::splits_data;
}

/// The first entry of any framework that `fits`, if there is one.
template <class Fits>
std::optional<Software> first_software(const Fits& fits) {
  for (const Framework& framework : frameworks()) {
    for (const FrameworkDefaults& defaults : framework.defaults) {
      if (fits(defaults)) return Software{&framework, &defaults};
    }
  }
  return std::nullopt;
}

/// "bf16 grad reduce", "grad reduce bf16", "bf16 params/compute bf16 reduce", "reduce_dtype=bf16",
/// FSDP1's mixed_precision=PURE.
bool reduces_16_bit(const MeasuredRun& row) {
  if (mentions(row.precision_detail, "mixed_precision=PURE")) return true;
  for (const std::string* detail :
       {&row.overlap_detail, &row.framework_detail, &row.precision_detail}) {
    const std::string text = lower_case(*detail);
    for (const std::string_view format : {"bf16", "bfloat16", "fp16", "float16"}) {
      for (const std::string_view pattern :
           {"{} reduce", "{} reduction", "{} grad reduce", "{} gradient reduction", "reduce {}",
            "reduce in {}", "reduction in {}", "reduce_dtype={}", "reduce_dtype {}"}) {
        if (mentions(text, fmt::format(fmt::runtime(pattern), format))) return true;
      }
    }
  }
  return false;
}

}  // namespace

Software software_of(const MeasuredRun& row) {
  const auto named = [&](const FrameworkDefaults& each) {
    return each.evident == Evident::nothing && each.software == row.framework;
  };
  if (const auto release = first_software([&](const FrameworkDefaults& each) {
        return named(each) && !each.detail.empty() &&
               (mentions(row.framework_detail, each.detail) || mentions(row.locator, each.detail));
      })) {
    return *release;
  }
  if (const auto any = first_software(
          [&](const FrameworkDefaults& each) { return named(each) && each.detail.empty(); })) {
    return *any;
  }
  const Evident evident = evidence_of(row);
  const auto like =
      first_software([&](const FrameworkDefaults& each) { return each.evident == evident; });
  EXPECTS(like.has_value(), "a framework stands for every kind of unknown software");
  return *like;
}

Result<PrecisionRecipe> recipe_of(const MeasuredRun& row, const Software& software) {
  const FrameworkDefaults& defaults = *software.defaults;
  // Autocast keeps fp32 weights and computes on 16-bit copies.
  const bool fp32_weights = row.precision == "fp32-autocast";
  std::string name = fp32_weights ? "bf16:fsdp-fp32-shards" : software.framework->default_precision;
  if (!defaults.precision.empty()) name = defaults.precision;
  if (row.precision == "fp32") name = "fp32";
  Result<PrecisionRecipe> found = find_precision(name);
  if (!found) return found.error();
  PrecisionRecipe recipe = *found;
  if (row.precision == "fp16") {
    recipe.compute = Dtype::fp16;
  } else if (row.precision == "fp8" || row.precision == "mxfp8") {
    recipe.compute = Dtype::fp8;
  } else if (row.precision == "nvfp4") {
    return input_error("precision", "precision nvfp4", "a format of 8 bits or more");
  } else if (!row.precision.empty() && row.precision != "bf16" && row.precision != "fp32" &&
             row.precision != "fp32-autocast") {
    return input_error("precision", "precision " + in_quotes(row.precision, 40),
                       "bf16, fp16, fp8, mxfp8 or fp32");
  }
  if (!defaults.fp32_accumulator.empty() &&
      mentions(row.precision_detail, defaults.fp32_accumulator)) {
    recipe.main_gradient = 4;  // an fp32 accumulator next to the 16-bit gradients
  }
  if (reduces_16_bit(row)) {
    recipe.reduced_gradient = 2;
    if (software.framework->gradients_as_reduced) recipe.main_gradient = 2;
  }
  return recipe;
}

}  // namespace echelon
