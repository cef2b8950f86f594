// Precisions in Megatron-LM's options, and what such options say that a precision does not.
#include <fmt/format.h>

#include "core/base/text.hpp"
#include "core/plan/job.hpp"
#include "interop/configs/precisions.hpp"
#include "interop/configs/rows.hpp"

namespace echelon {

namespace {

constexpr std::size_t kDecides = 8;  ///< more than all settings of the states of a precision

/// Read in any format, which changes no price; written as the recipe has it.
ConfigSetting any_fp8_format(std::string_view written = "hybrid") {
  return {.key = "fp8-format", .value = "*", .if_any = written, .weight = kDecides};
}

/// States that the file asks for and that the precision of its fp8 recipe has otherwise.
void add_other_states(const ConfigReading& reading, std::vector<std::string>& out) {
  const ConfigEntry* recipe = reading.find("fp8-recipe");
  const Result<PrecisionRecipe> priced = find_precision(reading.config.precision);
  if (recipe == nullptr || !priced || priced->scaling == Fp8Scaling::none || priced->muon) return;
  PrecisionRecipe run = *priced;
  run.primary_weights = says(reading, "fp8-param-gather", "true");
  if (run.primary_weights != priced->primary_weights) {
    run.layer_weight = run.primary_weights ? 0 : 2;
    run.gathered_weight = run.primary_weights ? 1 : 2;
  }
  run.main_gradient = says(reading, "grad-reduce-in-bf16", "true") ? 2 : 4;
  const auto moment = [&](std::string_view key) {
    const ConfigEntry* type = reading.find(key);
    return type == nullptr || type->value.first().text == "fp32" ? 4.0
           : type->value.first().text == "fp8"                   ? 1.0
                                                                 : 2.0;
  };
  run.moments = moment("exp-avg-dtype") + moment("exp-avg-sq-dtype");
  const std::string difference = precision_difference(*priced, run);
  if (difference.empty()) return;
  out.push_back(fmt::format("{} = {} with other states than {}: priced are {}",
                            reading.place(*recipe), recipe->value.first().text, priced->name,
                            difference));
}

/// The numbers of layers count with the switch alone. Source: Megatron-LM core_v0.16.1,
/// megatron/core/transformer/transformer_config.py, first_last_layers_bf16.
void add_layers_in_bf16(const ConfigReading& reading, std::vector<std::string>& out) {
  const ConfigEntry* on = reading.find("first-last-layers-bf16");
  if (on == nullptr || lower_case(on->value.first().text) == "false") return;
  const auto layers = [&](std::string_view key) {
    const ConfigEntry* entry = reading.find(key);
    return entry == nullptr ? std::string("1") : entry->value.first().text;
  };
  out.push_back(fmt::format(
      "{}: --num-layers-at-start-in-bf16 {} and --num-layers-at-end-in-bf16 {}; priced are all "
      "layers in fp8",
      reading.place(*on), layers("num-layers-at-start-in-bf16"),
      layers("num-layers-at-end-in-bf16")));
}

}  // namespace

ConfigRow megatron_precision_row() {
  return choice(
      &RunConfig::precision,
      {{"bf16:adam-fp32-master", {{"bf16", "true"}}},
       {"bf16:precision-aware",
        {{"bf16", "true"},
         {"grad-reduce-in-bf16", "true"},
         {"use-precision-aware-optimizer", "true", false, true},
         {"exp-avg-dtype", "bf16"},
         {"exp-avg-sq-dtype", "bf16"}}},
       {"bf16:adam-bf16-states",
        {{"bf16", "true"},
         {"use-precision-aware-optimizer", "true", false, true},
         {"exp-avg-dtype", "bf16"},
         {"exp-avg-sq-dtype", "bf16"}}},
       // Moments of as many bytes.
       {"bf16:precision-aware",
        {{"bf16", "true"},
         {"grad-reduce-in-bf16", "true"},
         {"exp-avg-dtype", "fp16"},
         {"exp-avg-sq-dtype", "fp16"}}},
       {"bf16:adam-bf16-states",
        {{"bf16", "true"}, {"exp-avg-dtype", "fp16"}, {"exp-avg-sq-dtype", "fp16"}}},
       {"bf16:adam-bf16-gradients", {{"bf16", "true"}, {"grad-reduce-in-bf16", "true"}}},
       {"bf16:muon", {{"bf16", "true"}, {"optimizer", "muon"}}},
       {"bf16:muon", {{"bf16", "true"}, {"optimizer", "dist_muon"}}},
       {"mxfp8:muon",
        {{"bf16", "true"},
         any_fp8_format("e4m3"),
         {"fp8-recipe", "mxfp8"},
         {"grad-reduce-in-bf16", "true"},
         {"optimizer", "muon"}}},
       {"fp8:deepseek-v3",
        {{"bf16", "true"},
         any_fp8_format("e4m3"),
         {"fp8-recipe", "blockwise"},
         {"fp8-param-gather", "true"},
         {"use-precision-aware-optimizer", "true", false, true},
         {"exp-avg-dtype", "bf16"},
         {"exp-avg-sq-dtype", "bf16"}}},
       {"mxfp8:bf16-gradients",
        {{"bf16", "true"},
         any_fp8_format("e4m3"),
         {"fp8-recipe", "mxfp8"},
         {"fp8-param-gather", "true"},
         {"grad-reduce-in-bf16", "true"},
         {"reuse-grad-buf-for-mxfp8-param-ag", "true", false, true}}},
       {"mxfp8:adam-fp32-master",
        {{"bf16", "true"}, any_fp8_format("e4m3"), {"fp8-recipe", "mxfp8"}}},
       {"nvfp4:bf16-gradients",
        {{"bf16", "true"},
         {.key = "fp4-format", .value = "e2m1", .weight = kDecides},
         {"fp4-recipe", "nvfp4", false, true},
         {"fp4-param-gather", "true"},
         {"grad-reduce-in-bf16", "true"}}},
       {"nvfp4:adam-fp32-master",
        {{"bf16", "true"},
         {.key = "fp4-format", .value = "e2m1", .weight = kDecides},
         {"fp4-recipe", "nvfp4", false, true}}},
       {"fp8:precision-aware",
        {{"bf16", "true"},
         any_fp8_format(),
         {"fp8-recipe", "tensorwise"},
         {"fp8-param-gather", "true"},
         {"grad-reduce-in-bf16", "true"},
         {"use-precision-aware-optimizer", "true", false, true},
         {"exp-avg-dtype", "bf16"},
         {"exp-avg-sq-dtype", "bf16"}}},
       {"fp8:bf16-gradients",
        {{"bf16", "true"},
         any_fp8_format(),
         {"fp8-recipe", "tensorwise"},
         {"fp8-param-gather", "true"},
         {"grad-reduce-in-bf16", "true"}}},
       {"fp8:blockwise",
        {{"bf16", "true"},
         any_fp8_format("e4m3"),
         {"fp8-recipe", "blockwise"},
         {"grad-reduce-in-bf16", "true"}}},
       // Of one scaling with other states, which are named.
       {"fp8:precision-aware",
        {{"bf16", "true"},
         any_fp8_format(),
         {"fp8-recipe", "tensorwise"},
         {"exp-avg-dtype", "bf16"},
         {"exp-avg-sq-dtype", "bf16"}}},
       {"fp8:bf16-gradients", {{"bf16", "true"}, any_fp8_format(), {"fp8-recipe", "tensorwise"}}},
       {"fp8:deepseek-v3",
        {{"bf16", "true"},
         any_fp8_format(),
         {"fp8-recipe", "blockwise"},
         {"fp8-param-gather", "true"}}},
       {"fp8:blockwise", {{"bf16", "true"}, any_fp8_format(), {"fp8-recipe", "blockwise"}}},
       {"fp16:adam-fp32-master", {{"fp16", "true"}}},
       // Without a recipe it is delayed scaling; what is written says so.
       {"fp8:primary-weights",
        {{"bf16", "true"},
         any_fp8_format(),
         {"fp8-recipe", "delayed"},
         {"fp8-param-gather", "true"}}},
       {"fp8:primary-weights", {{"bf16", "true"}, any_fp8_format(), {"fp8-param-gather", "true"}}},
       {"fp8:adam-fp32-master", {{"bf16", "true"}, any_fp8_format(), {"fp8-recipe", "delayed"}}},
       {"fp8:adam-fp32-master", {{"bf16", "true"}, any_fp8_format()}},
       {"fp32", {}},
       {"fp32", {{"optimizer", "*"}}}});
}

void add_what_fp8_leaves_open(const ConfigReading& reading, std::vector<std::string>& out) {
  add_other_states(reading, out);
  add_layers_in_bf16(reading, out);
}

}  // namespace echelon
