// Megatron-LM of 2021 and 2022 and its forks; with DeepSpeed: megatron_deepspeed.cpp.
#include <array>
#include <string_view>

#include "core/framework/model_features.hpp"
#include "core/framework/tables.hpp"

namespace echelon {

namespace {

constexpr std::array kMegatron2021Defaults = {
    FrameworkDefaults{.software = "megatron-2021",
                      .family = "megatron",
                      .first_year = 2019,
                      .last_year = 2022,
                      .why = "Megatron-LM before Megatron Core",
                      .recompute = Recompute::full,
                      .flash_attention = false,
                      .dropout = 0.1},
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

constexpr std::string_view kItsLayers = "Megatron-LM v2.6, megatron/model/transformer.py";

constexpr std::array kMegatron2021Rules = {
    FrameworkRule{RulePart::degrees, in_model<has_experts>, "layers with experts", kItsLayers},
    FrameworkRule{RulePart::degrees, in_model<has_state_spaces>, "layers with state spaces",
                  kItsLayers},
    FrameworkRule{RulePart::degrees, in_model<has_delta_nets>, "gated delta nets", kItsLayers},
    FrameworkRule{RulePart::degrees, in_model<has_latent_attention>, "latent attention",
                  kItsLayers},
    FrameworkRule{RulePart::degrees, in_model<has_windows>, "attention within a window",
                  kItsLayers},
    FrameworkRule{RulePart::schedule,
                  [](const ModelSpec&, const ParallelPlan& p) { return p.vpp > 1 && p.pp == 2; },
                  "interleaving on 2 stages", "Megatron-LM v2.6, megatron/arguments.py:126"},
};

}  // namespace

Framework megatron_2021() {
  constexpr int kGptVocabulary = 50'257;  // GPT-2's byte pair encoding, Megatron-LM's default
  Framework f;
  f.name = "megatron-2021";
  f.kernels = KernelLibrary::megatron;
  f.source =
      "Megatron-LM of the SC'21 and sequence-parallel papers (arXiv 2104.04473, "
      "2205.05198): ZeRO-0/1, reduction not overlapped with backward";
  f.zero_allowed[2] = f.zero_allowed[3] = false;
  f.overlaps_dp = false;
  f.overlaps_gather = false;
  // Megatron-LM v2.6, megatron/model/transformer.py:545, 558
  f.stage_layers = StageLayers::equal;
  // Megatron-LM v2.5 to v3.0, megatron/p2p_communication.py, scatter_gather_tensors_in_pipeline
  f.scatters_messages = true;
  f.default_vocab = kGptVocabulary;
  f.defaults = kMegatron2021Defaults;
  f.rules = kMegatron2021Rules;
  return f;
}

}  // namespace echelon
