// Our names of parameters and HuggingFace's.
#include <array>
#include <string_view>

#include "runtime/io/weights/huggingface.hpp"

namespace echelon {
namespace {

struct ForeignName {
  std::string_view ours;  ///< behind "layers.N.", or whole; without .weight and .bias
  std::string_view theirs;
  int part = 0;  ///< of the parts of a fused tensor,
  int of = 1;    ///< of so many
  bool conv1d = false;
};

constexpr std::array kGpt2Layer = {ForeignName{"attention.norm", "ln_1"},
                                   ForeignName{"attention.q", "attn.c_attn", 0, 3, true},
                                   ForeignName{"attention.k", "attn.c_attn", 1, 3, true},
                                   ForeignName{"attention.v", "attn.c_attn", 2, 3, true},
                                   ForeignName{"attention.output", "attn.c_proj", 0, 1, true},
                                   ForeignName{"mlp.norm", "ln_2"},
                                   ForeignName{"mlp.up", "mlp.c_fc", 0, 1, true},
                                   ForeignName{"mlp.down", "mlp.c_proj", 0, 1, true}};
constexpr std::array kGpt2Rest = {ForeignName{"embedding.word", "wte"},
                                  ForeignName{"embedding.position", "wpe"},
                                  ForeignName{"final_norm", "ln_f"}};
constexpr std::array kLlamaLayer = {
    ForeignName{"attention.norm", "input_layernorm"},
    ForeignName{"attention.q", "self_attn.q_proj"},
    ForeignName{"attention.k", "self_attn.k_proj"},
    ForeignName{"attention.v", "self_attn.v_proj"},
    ForeignName{"attention.q_norm", "self_attn.q_norm"},
    ForeignName{"attention.k_norm", "self_attn.k_norm"},
    ForeignName{"attention.q_down", "self_attn.q_a_proj"},
    ForeignName{"attention.q_latent_norm", "self_attn.q_a_layernorm"},
    ForeignName{"attention.q_up", "self_attn.q_b_proj"},
    ForeignName{"attention.kv_down", "self_attn.kv_a_proj_with_mqa"},
    ForeignName{"attention.kv_latent_norm", "self_attn.kv_a_layernorm"},
    ForeignName{"attention.kv_up", "self_attn.kv_b_proj"},
    ForeignName{"attention.output", "self_attn.o_proj"},
    ForeignName{"mlp.norm", "post_attention_layernorm"},
    ForeignName{"mlp.gate", "mlp.gate_proj"},
    ForeignName{"mlp.up", "mlp.up_proj"},
    ForeignName{"mlp.down", "mlp.down_proj"}};
constexpr std::array kLlamaRest = {ForeignName{"embedding.word", "embed_tokens"},
                                   ForeignName{"final_norm", "norm"}};

/// Of a layer's router and experts; of Mixtral, which has none, no shared ones.
struct ExpertNames {
  std::string_view router, experts, gate, up, down, shared, shared_gate;
};
constexpr ExpertNames kMixtralExperts = {
    "block_sparse_moe.gate", "block_sparse_moe.experts.", "w1", "w3", "w2", "", ""};
constexpr ExpertNames kQwenExperts = {
    "mlp.gate",           "mlp.experts.",          "gate_proj", "up_proj", "down_proj",
    "mlp.shared_expert.", "mlp.shared_expert_gate"};
constexpr ExpertNames kDeepseekExperts = {
    "mlp.gate", "mlp.experts.", "gate_proj", "up_proj", "down_proj", "mlp.shared_experts.", ""};

const ExpertNames& expert_names(HuggingFaceNames names) {
  if (names == HuggingFaceNames::mixtral) return kMixtralExperts;
  return names == HuggingFaceNames::deepseek ? kDeepseekExperts : kQwenExperts;
}

/// Theirs of "moe.router", "moe.experts.N.gate", "moe.shared.gate" or "moe.shared_gate".
std::string foreign_expert(const ExpertNames& names, std::string_view ours) {
  constexpr std::string_view kExperts = "moe.experts.";
  constexpr std::string_view kShared = "moe.shared.";
  if (ours == "moe.router") return std::string(names.router);
  if (ours == "moe.shared_gate") return std::string(names.shared_gate);
  const std::string_view matrix = ours.substr(ours.rfind('.') + 1);
  const std::string theirs(matrix == "gate" ? names.gate : matrix == "up" ? names.up : names.down);
  if (ours.starts_with(kShared)) return std::string(names.shared) + theirs;
  ours.remove_prefix(kExperts.size());
  return std::string(names.experts) + std::string(ours.substr(0, ours.find('.') + 1)) + theirs;
}

template <std::size_t N>
const ForeignName& named_so(const std::array<ForeignName, N>& names, std::string_view ours) {
  for (const ForeignName& name : names) {
    if (name.ours == ours) return name;
  }
  EXPECTS(false, "a parameter of the family: " + std::string(ours));
  return names.front();
}

}  // namespace

ForeignPlace foreign_place(HuggingFaceNames names, const Parameter& parameter) {
  std::string_view ours = parameter.name;
  const std::size_t dot = ours.rfind('.');
  const std::string_view ending = ours.substr(dot);  // ".weight" or ".bias"
  ours = ours.substr(0, dot);
  ForeignPlace place;
  if (ours == "head") {
    place.name = "lm_head" + std::string(ending);
    place.inside = false;
    place.shape = shape_of(parameter);
    return place;
  }
  const bool gpt2 = names == HuggingFaceNames::gpt2;
  std::string at;
  const ForeignName* found = nullptr;
  if (constexpr std::string_view kLayers = "layers."; ours.starts_with(kLayers)) {
    ours.remove_prefix(kLayers.size());
    const std::size_t end = ours.find('.');
    at = (gpt2 ? "h." : "layers.") + std::string(ours.substr(0, end)) + ".";
    ours.remove_prefix(end + 1);
    if (ours.starts_with("moe.")) {
      const bool bias = ending == ".bias";  // the router's correction of scores
      place.name = at + foreign_expert(expert_names(names), ours) +
                   (bias ? ".e_score_correction_bias" : std::string(ending));
      place.shape =
          bias ? std::vector{parameter.rows} : std::vector{parameter.rows, parameter.columns};
      return place;
    }
    found = gpt2 ? &named_so(kGpt2Layer, ours) : &named_so(kLlamaLayer, ours);
  } else {
    found = gpt2 ? &named_so(kGpt2Rest, ours) : &named_so(kLlamaRest, ours);
  }
  place.name = at + std::string(found->theirs) + std::string(ending);
  place.first = found->part * parameter.rows;
  const std::int64_t rows = found->of * parameter.rows;
  place.transposed = found->conv1d && parameter.columns > 1;
  place.shape = place.transposed        ? std::vector{parameter.columns, rows}
                : parameter.columns > 1 ? std::vector{rows, parameter.columns}
                                        : std::vector{rows};
  return place;
}

}  // namespace echelon
