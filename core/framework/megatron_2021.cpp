// Megatron-LM of 2021 and 2022 and its forks, Megatron-DeepSpeed among them.
#include <array>

#include "core/framework/tables.hpp"

namespace echelon {

namespace {

constexpr std::array kMegatron2021Defaults = {
    FrameworkDefaults{.software = "megatron-2021",
                      .why = "the same software",
                      .recompute = Recompute::full,
                      .flash_attention = false,
                      .dropout = 0.1},
    FrameworkDefaults{.software = "megatron-2022",
                      .why = "Megatron-LM before Megatron Core, as in arXiv 2205.05198",
                      .recompute = Recompute::full,
                      .flash_attention = false,
                      .dropout = 0.1},
    FrameworkDefaults{.software = "megatron-deepspeed",
                      .why = "Megatron-LM of 2021 with DeepSpeed's ZeRO-1",
                      .recompute = Recompute::full,
                      .flash_attention = false,
                      .zero = 1,
                      .dropout = 0.1,
                      .precision = "bf16:deepspeed-zero",
                      .fp32_accumulator = "fp32 grad accumulation",
                      .split = StageSplit::ends_hold_fewer},
    FrameworkDefaults{.software = "megatron-zero-bubble",
                      .why = "a Megatron-LM fork without flash attention and distributed optimizer",
                      .flash_attention = false,
                      .dropout = 0.1,
                      .split = StageSplit::ends_hold_fewer},
    // The containers of 2022 hold Megatron-LM with apex, before Megatron Core.
    FrameworkDefaults{.software = "nemo",
                      .detail = "container of 2022",
                      .why = "NeMo-Megatron of 2022 is Megatron-LM with apex",
                      .flash_attention = false,
                      .zero = 1,
                      .dropout = 0.1,
                      .split = StageSplit::ends_hold_fewer},
    FrameworkDefaults{.software = "paddlenlp",
                      .same_code = false,
                      .why = "its hybrid parallelism follows Megatron-LM",
                      .recompute = Recompute::full},
};

}  // namespace

Framework megatron_2021() {
  constexpr int kGptVocabulary = 50'257;  // GPT-2's byte pair encoding, Megatron-LM's default
  Framework f;
  f.name = "megatron-2021";
  f.source =
      "Megatron-LM of the SC'21 and sequence-parallel papers (arXiv 2104.04473, "
      "2205.05198), Megatron-DeepSpeed: ZeRO-0/1, reduction not overlapped with backward";
  f.zero_allowed[2] = f.zero_allowed[3] = false;
  f.overlaps_dp = false;
  f.overlaps_gather = false;
  f.default_vocab = kGptVocabulary;
  f.defaults = kMegatron2021Defaults;
  return f;
}

}  // namespace echelon
