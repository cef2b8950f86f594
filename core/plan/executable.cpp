#include "core/plan/executable.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/model/router_arithmetic.hpp"

namespace echelon {

namespace {

bool has_arithmetic(const ModelSpec& model, const char* which) {
  return model.constants && std::ranges::count(model.constants->other_arithmetic, which) > 0;
}

std::string not_executed_experts(const ModelSpec& model) {
  const MixtureOfExperts& moe = model.moe;
  const bool by_best_expert = has_arithmetic(model, kGroupsByBestExpert);
  if (moe.experts == 0) return {};
  if (moe.expert_bias) return "biases inside the experts";
  if (moe.router_bias && moe.router_score == RouterScore::softmax) {
    return "a bias of a router with softmax scores";
  }
  if (moe.latent_hidden > 0) return "experts on a latent";
  if (moe.branch_norms) return "norms of their own for routed and shared experts";
  if (moe.router_groups > 1 && moe.router_score == RouterScore::softmax && !by_best_expert) {
    return "groups of experts chosen by the sum of several softmax scores";
  }
  constexpr int kMostGroups = 64;  // bits of a number: runtime/backend/kernel_shapes.hpp
  if (moe.router_groups > kMostGroups) {
    return fmt::format("a router that chooses among {} groups of experts", moe.router_groups);
  }
  return {};
}

std::string not_executed_latents(const ModelSpec& model) {
  if (!model.latent()) return {};
  if (model.qkv_bias) return "biases in latent attention";
  if (model.qk_norm) return "QK-norm in latent attention";
  if (model.normalization != Normalization::rms_norm) return "latent attention with layer norms";
  if (model.position != PositionEmbedding::rope) return "latent attention without rotary positions";
  if (model.mla.qk_rope_head_dim % 2 != 0) return "an odd rotary part in latent attention";
  return {};
}

std::string not_executed_block(const ModelSpec& model) {
  if (std::string experts = not_executed_experts(model); !experts.empty()) return experts;
  if (std::string latents = not_executed_latents(model); !latents.empty()) return latents;
  if (model.sparse()) return "sparse attention whose indexer chooses the keys (DSA)";
  if (model.delta.channel_decay()) return "Kimi delta attention";
  if (model.delta.layers > 0) return "gated delta nets";
  if (model.ssm.layers > 0) return "state spaces";
  if (model.conv.layers > 0) return "gated short convolutions";
  if (model.global.layers > 0) return "attention whose heads differ between layers";
  if (model.value_norm) return "a norm of the values";
  if (model.mlp_only_layers > 0) return "layers of a token mixer or an MLP alone";
  if (model.attention_output_gate) return "a gate on attention's output";
  if (model.attention_sinks) return "attention sinks";
  if (model.prediction_modules > 0) return "modules that predict further tokens";
  if (model.windowed_layers > 0) return "windowed attention";
  if (model.position == PositionEmbedding::alibi) return "ALiBi positions";
  if (model.parallel_block) return "parallel attention and MLP blocks";
  if (model.post_norms) return "post-norms (after attention and MLP)";
  if (model.embedding_norm) return "a norm after the embedding";
  if (model.qk_norm_all_heads) return "QK-norm over all heads";
  if (model.qk_norm && model.normalization != Normalization::rms_norm)
    return "QK-norm by layer norms";
  if (model.hidden_dropout > 0 || model.attention_dropout > 0) return "dropout";
  return {};
}

std::string not_executed_rope(const RotaryEmbedding& rope, int head_dim) {
  const int rotated = rope.rotated_width(head_dim);
  if (rope.rotated_part != 1 && (rotated == 0 || rotated % 2 != 0)) {
    return fmt::format("a rotary embedding of {} of the {} numbers of a head", rotated, head_dim);
  }
  if (rope.scaling == RopeScaling::dynamic) return "'dynamic' scaling of the rotary embedding";
  if (rope.scaling == RopeScaling::longrope) return "'longrope' scaling of the rotary embedding";
  return {};
}

}  // namespace

std::string not_executed(const ModelSpec& model) {
  if (std::string block = not_executed_block(model); !block.empty()) return block;
  if (!model.constants) {
    return "norm_epsilon and rope (rotary embedding) are missing";
  }
  if (model.position == PositionEmbedding::rope) {
    if (std::string rope = not_executed_rope(model.constants->rope, model.head_dim); !rope.empty())
      return rope;
  }
  for (const std::string& other : model.constants->other_arithmetic) {
    if (other != kGroupsByBestExpert) return other;
  }
  return {};
}

std::optional<NotExecuted> not_executed(const ModelSpec& model, int sequence) {
  ModelSpec whole = model;  // without windows
  whole.windowed_layers = 0;
  if (const std::string why = not_executed(whole); !why.empty()) {
    return NotExecuted{fmt::format("model {}: {}", model.name, why),
                       model.constants ? "a GPT-2-like or Llama-like model"
                                       : "a model with both: from the catalog, a HuggingFace "
                                         "config.json or a model file of schema 2"};
  }
  if (model.position == PositionEmbedding::learned && sequence > model.max_positions) {
    return NotExecuted{
        fmt::format("a sequence of {}", sequence),
        fmt::format("at most {}, the learned positions of {}", model.max_positions, model.name)};
  }
  if (model.windowed_layers > 0 && sequence > model.sliding_window) {
    return NotExecuted{
        fmt::format("a sequence of {}", sequence),
        fmt::format("at most {}, the window of attention in {}", model.sliding_window, model.name)};
  }
  return std::nullopt;
}

}  // namespace echelon
