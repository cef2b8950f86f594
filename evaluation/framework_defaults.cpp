#include "evaluation/framework_defaults.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/expects.hpp"
#include "core/base/text.hpp"
#include "evaluation/run_wording.hpp"

namespace echelon {

namespace {

/// Defaults of a software without a description.
Evident evident_of(const SoftwareEvidence& evidence) {
  if (evidence.splits_model) return Evident::splits_model;
  return evidence.splits_optimizer ? Evident::splits_optimizer : Evident::splits_data;
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

/// Takes the year out of a software's name; 0 if it has none.
int take_year(std::vector<std::string>& name) {
  int year = 0;
  std::erase_if(name, [&](const std::string& word) {
    constexpr std::string_view kDigits = "0123456789";
    const bool is_year = word.size() == 4 && word.starts_with("20") &&
                         word.find_first_not_of(kDigits) == std::string::npos;
    if (is_year) year = std::stoi(word);
    return is_year;
  });
  return year;
}

bool holds(const std::vector<std::string>& name, const std::vector<std::string>& words) {
  return !words.empty() &&
         std::search(name.begin(), name.end(), words.begin(), words.end()) != name.end();
}

/// The entry with the longest name within the row's; of those with a family the one of the year in
/// the name, or else of the software's first row.
std::optional<Software> related_software(const MeasuredRun& row, const SoftwareEvidence& evidence) {
  std::vector<std::string> name = words_of(row.framework);
  const int own_year = take_year(name);
  const int year = own_year > 0 ? own_year : evidence.first_year;
  std::optional<Software> best;
  std::size_t most = 0;
  for (const Framework& framework : frameworks()) {
    for (const FrameworkDefaults& each : framework.defaults) {
      if (!each.detail.empty() || !each.since.empty()) continue;
      const std::vector<std::string> family = words_of(each.family);
      if (year >= each.first_year && year <= each.last_year && holds(name, family) &&
          2 * family.size() + 1 > most) {
        most = 2 * family.size() + 1;
        best = Software{&framework, &each, own_year == 0 || name != family};
      }
      const std::vector<std::string> words = words_of(each.software);
      if (holds(name, words) && 2 * words.size() > most) {
        most = 2 * words.size();
        best = Software{&framework, &each, true};
      }
    }
  }
  return best;
}

}  // namespace

Software software_of(const MeasuredRun& row) {
  const auto named = [&](const FrameworkDefaults& each) {
    return each.evident == Evident::nothing && !each.software.empty() &&
           each.software == lower_case(row.framework);
  };
  if (const auto release = first_software([&](const FrameworkDefaults& each) {
        return named(each) && !each.detail.empty() &&
               (says(row.framework_detail, each.detail) || says(row.locator, each.detail));
      })) {
    return *release;
  }
  if (const auto later = first_software([&](const FrameworkDefaults& each) {
        return named(each) && !each.since.empty() && row.date >= each.since;
      })) {
    return *later;
  }
  if (const auto any = first_software([&](const FrameworkDefaults& each) {
        return named(each) && each.detail.empty() && each.since.empty();
      })) {
    return *any;
  }
  SoftwareEvidence evidence = row.of_software;
  evidence.add(row.evidence());
  if (const auto related = related_software(row, evidence)) return *related;
  const Evident evident = evident_of(evidence);
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
  if (keeps_bf16_alone(row)) name = "bf16:pure";
  Result<PrecisionRecipe> found = find_precision(name);
  if (!found) return found.error();
  PrecisionRecipe recipe = *found;
  if (row.precision == "fp16") {
    recipe.compute = Dtype::fp16;
  } else if (row.precision == "fp8" || row.precision == "mxfp8" || row.precision == "nvfp4") {
    recipe.compute = Dtype::fp8;
  } else if (!row.precision.empty() && row.precision != "bf16" && row.precision != "fp32" &&
             row.precision != "fp32-autocast") {
    return input_error("precision", "precision " + in_quotes(row.precision, 40),
                       "bf16, fp16, fp8, mxfp8, nvfp4 or fp32");
  }
  if (!defaults.fp32_accumulator.empty() && says(row.precision_detail, defaults.fp32_accumulator)) {
    recipe.main_gradient = 4;  // an fp32 accumulator next to the 16-bit gradients
  }
  if (const auto bytes = reduced_bytes(row)) {
    recipe.reduced_gradient = *bytes;
    if (software.framework->gradients_as_reduced) recipe.main_gradient = *bytes;
  }
  set_quantisation(row, recipe);
  return recipe;
}

}  // namespace echelon
