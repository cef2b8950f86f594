#include "planner/run_habits.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>

namespace echelon {

namespace {

bool mentions(std::string_view text, std::string_view words) {
  return text.find(words) != std::string_view::npos;
}

const std::array kHabits = {
    RunHabits{.software = "megatron-core",
              .stack = "megatron-core",
              .why = "the same software",
              .zero = 1,
              .ends_hold_fewer = true},
    RunHabits{.software = "nemo",
              .stack = "megatron-core",
              .why = "NeMo trains with Megatron Core",
              .zero = 1,
              .ends_hold_fewer = true},
    RunHabits{.software = "nemo-mlperf",
              .stack = "megatron-core",
              .why = "NeMo as tuned for MLPerf trains with Megatron Core",
              .zero = 1,
              .ends_hold_fewer = true},
    RunHabits{.software = "megatron",
              .stack = "megatron-core",
              .same_code = false,
              .why = "Megatron-LM forks of 2022-2023, nearer to Core than to 2021",
              .zero = 0},
    RunHabits{.software = "megatron-2021",
              .stack = "megatron-2021",
              .why = "the same software",
              .recompute = Recompute::full,
              .flash_attention = false,
              .dropout = 0.1},
    RunHabits{.software = "megatron-2022",
              .stack = "megatron-2021",
              .why = "Megatron-LM before Megatron Core, as in arXiv 2205.05198",
              .recompute = Recompute::full,
              .flash_attention = false,
              .dropout = 0.1},
    RunHabits{.software = "megatron-deepspeed",
              .stack = "megatron-2021",
              .why = "Megatron-LM of 2021 with DeepSpeed's ZeRO-1",
              .recompute = Recompute::full,
              .flash_attention = false,
              .zero = 1,
              .dropout = 0.1,
              .ends_hold_fewer = true},
    RunHabits{.software = "megatron-zero-bubble",
              .stack = "megatron-2021",
              .why = "a Megatron-LM fork without flash attention and distributed optimizer",
              .flash_attention = false,
              .dropout = 0.1,
              .ends_hold_fewer = true},
    RunHabits{.software = "nanotron", .stack = "nanotron", .why = "the same software", .zero = 1},
    RunHabits{
        .software = "llm-foundry", .stack = "llm-foundry", .why = "the same software", .zero = 3},
    RunHabits{.software = "fsdp1",
              .stack = "llm-foundry",
              .same_code = false,
              .why = "PyTorch FSDP1, which LLM Foundry wraps",
              .recompute = Recompute::full,
              .zero = 3},
    RunHabits{.software = "torchtitan",
              .stack = "torchtitan",
              .why = "the same software",
              .recompute = Recompute::selective,
              .zero = 3},
    RunHabits{.software = "torchtune",
              .stack = "torchtitan",
              .same_code = false,
              .why = "PyTorch FSDP2 with the same building blocks",
              .recompute = Recompute::full,
              .zero = 3},
    RunHabits{.software = "olmo-core",
              .stack = "torchtitan",
              .same_code = false,
              .why = "PyTorch FSDP2 with torch.compile",
              .zero = 3},
    RunHabits{.software = "nemo-automodel",
              .stack = "torchtitan",
              .same_code = false,
              .why = "PyTorch FSDP2 around HuggingFace models",
              .zero = 3},
    RunHabits{.software = "ddp",
              .stack = "torchtitan",
              .same_code = false,
              .why = "plain PyTorch with torch.compile"},
    RunHabits{.software = "deepspeed",
              .stack = "deepspeed",
              .why = "the same software",
              .recompute = Recompute::full,
              .zero = 2},
    RunHabits{.software = "other",
              .stack = "deepspeed",
              .same_code = false,
              .why = "eager PyTorch, as DeepSpeed runs it",
              .recompute = Recompute::full},
    RunHabits{.software = "maxtext",
              .stack = "megatron-core",
              .same_code = false,
              .why = "JAX with the same fused kernels; its default remat policy is full",
              .recompute = Recompute::full,
              .zero = 3},
    RunHabits{.software = "paddlenlp",
              .stack = "megatron-2021",
              .same_code = false,
              .why = "its hybrid parallelism follows Megatron-LM",
              .recompute = Recompute::full},
    RunHabits{.software = "llmq",
              .stack = "echelon",
              .same_code = false,
              .why = "a C++ trainer, like our runtime",
              .zero = 1},
    RunHabits{.software = "llm.c",
              .stack = "echelon",
              .same_code = false,
              .why = "a C trainer, like our runtime",
              .zero = 1},
    RunHabits{.software = "echelon",
              .stack = "echelon",
              .why = "the same software",
              .zero = 1,
              .ends_hold_fewer = true},
};

/// A software that is not in the list, by what it evidently does.
RunHabits habits_of_unknown(const RunRow& row) {
  const auto more_than_one = [](const WholeCell& cell) { return cell.value_or(1) > 1; };
  RunHabits habits{.software = "", .stack = "torchtitan", .same_code = false, .why = "", .zero = 3};
  if (more_than_one(row.tp) || more_than_one(row.pp) || more_than_one(row.ep)) {
    habits.stack = "megatron-core";
    habits.zero = 1;
    habits.why = "an unknown software; most that split models do it as Megatron Core does";
  } else if (row.zero && (*row.zero == 1 || *row.zero == 2)) {
    habits.stack = "deepspeed";
    habits.zero = static_cast<int>(*row.zero);
    habits.why = "an unknown software; ZeRO-1 and ZeRO-2 alone are most like DeepSpeed's";
  } else {
    habits.why = "an unknown software; what only splits data is most like PyTorch FSDP2";
  }
  return habits;
}

/// "bf16 grad reduce", "grad reduce bf16", "bf16 params/compute bf16 reduce", "reduce_dtype=bf16",
/// FSDP1's mixed_precision=PURE.
bool reduces_16_bit(const RunRow& row) {
  if (mentions(row.precision_detail, "mixed_precision=PURE")) return true;
  for (const std::string* detail :
       {&row.overlap_detail, &row.stack_detail, &row.precision_detail}) {
    std::string text = *detail;
    for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
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

RunHabits habits_of(const RunRow& row) {
  const auto* known = std::ranges::find(kHabits, row.stack, &RunHabits::software);
  if (known == kHabits.end()) return habits_of_unknown(row);
  // The containers of 2022 hold Megatron-LM with apex, before Megatron Core.
  const bool old_nemo = row.stack == "nemo" && mentions(row.stack_detail, "container of 2022");
  if (!old_nemo) return *known;
  RunHabits old = *known;
  old.stack = "megatron-2021";
  old.why = "NeMo-Megatron of 2022 is Megatron-LM with apex";
  old.flash_attention = false;
  old.dropout = 0.1;
  return old;
}

Result<PrecisionRecipe> recipe_of(const RunRow& row, const RunHabits& habits,
                                  const Framework& stack) {
  // Autocast and MaxText keep fp32 weights and compute on 16-bit copies.
  const bool fp32_weights = row.precision == "fp32-autocast" || habits.software == "maxtext";
  std::string name = fp32_weights ? "bf16:fsdp-fp32-shards" : stack.default_precision;
  if (habits.software == "megatron-deepspeed") name = "bf16:deepspeed-zero";
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
    return input_error("precision", fmt::format("precision '{}'", row.precision.substr(0, 40)),
                       "bf16, fp16, fp8, mxfp8 or fp32");
  }
  if (habits.software == "megatron-deepspeed" &&
      mentions(row.precision_detail, "fp32 grad accumulation")) {
    recipe.main_gradient = 4;  // an fp32 accumulator beside the 16-bit gradients
  }
  if (reduces_16_bit(row)) {
    recipe.reduced_gradient = 2;
    // Megatron keeps its gradient buffer in the format it reduces; FSDP's shards stay fp32.
    if (stack.name == "megatron-core") recipe.main_gradient = 2;
  }
  return recipe;
}

}  // namespace echelon
