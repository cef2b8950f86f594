#include "core/framework/framework.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "core/base/did_you_mean.hpp"
#include "core/base/text.hpp"
#include "core/framework/tables.hpp"

namespace echelon {

namespace {

std::vector<std::string> names_of_frameworks() {
  std::vector<std::string> names;
  for (const Framework& framework : frameworks()) names.push_back(framework.name);
  return names;
}

std::vector<std::string> all_names_of_frameworks() {
  std::vector<std::string> names = names_of_frameworks();
  for (const Framework& framework : frameworks()) {
    names.insert(names.end(), framework.also_called.begin(), framework.also_called.end());
  }
  return names;
}

/// Software that runs one of the frameworks: what to ask for in its place.
struct Runner {
  std::string_view name;  ///< lower case
  std::string_view ask;
};
constexpr std::string_view kMegatronRunner =
    "it runs Megatron-Core: --framework megatron-core; plan export and plan import have its format";
constexpr std::string_view kTrainerRunner =
    "ask for what it trains with: --framework deepspeed, or fsdp1 or fsdp2 for PyTorch's FSDP";
constexpr std::array<Runner, 14> kRunners = {{{"nemo", kMegatronRunner},
                                              {"megatron-bridge", kMegatronRunner},
                                              {"megatron-lm", kMegatronRunner},
                                              {"accelerate", kTrainerRunner},
                                              {"axolotl", kTrainerRunner},
                                              {"fsdp", kTrainerRunner},
                                              {"hf", kTrainerRunner},
                                              {"huggingface", kTrainerRunner},
                                              {"lightning", kTrainerRunner},
                                              {"llama-factory", kTrainerRunner},
                                              {"peft", kTrainerRunner},
                                              {"pytorch", kTrainerRunner},
                                              {"transformers", kTrainerRunner},
                                              {"trl", kTrainerRunner}}};

/// What to ask for in place of `name`, where that is known.
std::string asked_instead(std::string_view name, const std::vector<std::string>& known) {
  const std::string lower = lower_case(name);
  const auto* const at = std::ranges::find(kRunners, lower, &Runner::name);
  return at != kRunners.end() ? std::string(at->ask) : did_you_mean(name, known);
}

}  // namespace

std::string why_no_buckets(const Framework& framework, const ParallelPlan& plan) {
  if (plan.dp == 1 && plan.cp == 1 && plan.copies() == 1) return "dp 1: no gradients are reduced";
  if (plan.zero >= 2) {
    return fmt::format("ZeRO-{}: gradients are reduced layer by layer", plan.zero);
  }
  if (!framework.overlaps_dp) return fmt::format("{}, which reduces all at once", framework.name);
  if (framework.reduces_in_ddp && plan.zero > 0) {
    return fmt::format("{} at ZeRO-{}, which reduces all at once", framework.name, plan.zero);
  }
  if (!plan.overlap_dp) return "no overlap of dp: one reduction follows the backward";
  return {};
}

const std::vector<Framework>& frameworks() {
  static const std::vector<Framework> all = {megatron_core(), megatron_2021(), megatron_deepspeed(),
                                             nanotron(),      torchtitan(),    llm_foundry(),
                                             deepspeed(),     hai_llm(),       own_runtime()};
  return all;
}

const std::string& framework_choices() {
  static const std::string all = fmt::format("{}", fmt::join(names_of_frameworks(), " "));
  return all;
}

Result<Framework> find_framework(std::string_view name) {
  for (const Framework& framework : frameworks()) {
    if (framework.name == name || std::ranges::count(framework.also_called, name) > 0) {
      return framework;
    }
  }
  const std::vector<std::string> known = all_names_of_frameworks();
  return input_error("--framework", "unknown framework " + in_quotes(name),
                     fmt::format("one of {}", fmt::join(known, ", ")), asked_instead(name, known));
}

const Framework& executing_framework() {
  static const Framework own = own_runtime();
  return own;
}

}  // namespace echelon
