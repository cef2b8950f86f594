// The module whose offload moves what an operator saves.
#include <array>
#include <utility>

#include "costmodel/operators/build.hpp"

namespace echelon::operators {
namespace {

using Place = std::pair<std::string_view, OffloadModule>;

/// What Megatron-Core's groups catch: all that autograd saves while a module's forward runs, but
/// for tensors below 1,048,576 elements (log-sum-exp, probabilities of experts). The projections of
/// latent attention and their norms are one group, that of qkv_linear.
constexpr std::array kPlaces = {Place{"qkv", OffloadModule::qkv_linear},
                                Place{"qk_norm", OffloadModule::qkv_linear},
                                Place{"q_down", OffloadModule::qkv_linear},
                                Place{"q_latent_norm", OffloadModule::qkv_linear},
                                Place{"kv_down", OffloadModule::qkv_linear},
                                Place{"kv_latent_norm", OffloadModule::qkv_linear},
                                Place{"q_up", OffloadModule::qkv_linear},
                                Place{"kv_up", OffloadModule::qkv_linear},
                                Place{"attention_inputs", OffloadModule::core_attn},
                                Place{"projection", OffloadModule::attn_proj},
                                Place{"expert_up", OffloadModule::expert_fc1},
                                Place{"expert_activation", OffloadModule::moe_act}};

constexpr bool of_attention(OffloadModule module) {
  using enum OffloadModule;
  return module == qkv_linear || module == core_attn || module == attn_proj;
}

}  // namespace

/// Norms before attention are kernels of their own with latent attention, else part of the
/// projection behind them; before the MLP with experts, else part of its first projection, which is
/// no module. Gated delta nets have none, sparse attention its norm alone. Source: Megatron-LM
/// d98e8a64, core/transformer/attention.py, multi_latent_attention.py, transformer_layer.py,
/// moe/experts.py (off_interface). Checked by: tests/costmodel/operators/offload_modules_test.cpp.
void mark_offload(OperatorList& list, const ModelSpec& model, LayerKind kind, TokenMixer mixer) {
  for (Operator& op : list.edit()) {
    for (const auto& [name, module] : kPlaces) {
      if (op.name == name && !(model.sparse() && of_attention(module))) op.offloaded_by = module;
    }
    const bool scores = op.attention_core && op.kind != OperatorKind::attention && !model.sparse();
    if (scores) op.offloaded_by = OffloadModule::core_attn;
    if (op.name == "input_norm" && mixer == TokenMixer::attention) {
      op.offloaded_by = model.latent() ? OffloadModule::attn_norm : OffloadModule::qkv_linear;
    }
    if (op.name == "post_attention_norm" && kind == LayerKind::moe) {
      op.offloaded_by = OffloadModule::mlp_norm;
    }
  }
}

}  // namespace echelon::operators
