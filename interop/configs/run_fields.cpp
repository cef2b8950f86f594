// The fields of a run by name.
#include "interop/configs/run_config.hpp"

namespace echelon {

namespace {

using M = ModelSpec;
using X = MixtureOfExperts;
using L = LatentAttention;
using I = SparseAttention;
using D = GatedDeltaNet;
using S = StateSpace;
using G = GlobalAttention;
using K = ShortConvolution;
using C = ModelConstants;
using R = RotaryEmbedding;

}  // namespace

const std::vector<NamedConfigField>& job_fields() {
  static const std::vector<NamedConfigField> kFields = {
      {&RunConfig::model_name, "model", "model"},
      {&RunConfig::framework, "framework", "framework"},
      {&RunConfig::gpus, "GPUs", "gpus"},
      {&RunConfig::gpus_per_node, "GPUs per node"},
      {&RunConfig::sequence, "sequence length", "seq"},
      {&RunConfig::global_batch, "global batch", "global-batch"},
      {&RunConfig::precision, "precision", "precision"},
      {&RunConfig::flash_attention, "flash attention", "flash-attention"},
      {&RunConfig::layer_code, "code of the layers", "layer-code"},
      {&RunConfig::packed_documents, "attention within documents"},
      {&RunConfig::adapters, "adapters (LoRA)", "lora"},
      {&RunConfig::quantized, "quantised weights", "quantized-weights"},
  };
  return kFields;
}

const std::vector<NamedConfigField>& model_fields() {
  static const std::vector<NamedConfigField> kFields = {
      {&M::layers, "layers", "model"},
      {&M::hidden, "hidden size", "model"},
      {&M::heads, "attention heads", "model"},
      {&M::kv_heads, "key/value heads", "model"},
      {&M::head_dim, "head width", "model"},
      {&M::ffn_hidden, "MLP width", "model"},
      {&M::vocab, "vocabulary", "model"},
      {&M::max_positions, "context length", "model"},
      {&M::prediction_modules, "modules for multi-token prediction", "model"},
      {&M::normalization, "normalization", "model"},
      {&M::activation, "activation", "model"},
      {&M::position, "position embedding", "model"},
      {&M::gated_mlp, "gated MLP", "model"},
      {&M::tied_embeddings, "tied embeddings", "model"},
      {&M::qkv_bias, "biases of query, key and value", "model"},
      {&M::attention_output_bias, "bias of the attention output", "model"},
      {&M::mlp_bias, "biases of the MLP", "model"},
      {&M::head_bias, "bias of the output head", "model"},
      {&M::qk_norm, "QK-norm", "model"},
      {&M::qk_norm_all_heads, "QK-norm over all heads", "model"},
      {&M::value_norm, "norm of the values", "model"},
      {&M::attention_output_gate, "gate of the attention output", "model"},
      {&M::parallel_block, "parallel attention and MLP", "model"},
      {&M::post_norms, "norms after attention and MLP", "model"},
      {&M::embedding_norm, "norm of the embedding", "model"},
      {&M::hidden_dropout, "hidden dropout", "model"},
      {&M::attention_dropout, "attention dropout", "model"},
      {&M::sliding_window, "sliding window", "model"},
      {&M::windowed_layers, "windowed layers", "model"},
      {&M::attention_sinks, "attention sinks", "model"},
      {&X::experts, "experts", "model"},
      {&X::experts_per_token, "experts per token", "model"},
      {&X::expert_ffn_hidden, "expert width", "model"},
      {&X::latent_hidden, "width of the experts' latent", "model"},
      {&X::shared_ffn_hidden, "shared expert width", "model"},
      {&X::first_dense_layers, "first dense layers", "model"},
      {&X::every, "every how many layers have experts", "model"},
      {&X::expert_bias, "biases of the experts", "model"},
      {&X::router_bias, "bias of the router", "model"},
      {&X::shared_expert_gate, "gate of the shared experts", "model"},
      {&X::branch_norms, "norms of routed and shared experts", "model"},
      {&X::router_groups, "groups of experts", "model"},
      {&X::router_group_topk, "groups per token", "model"},
      {&L::kv_lora_rank, "width of the keys' and values' latent", "model"},
      {&L::q_lora_rank, "width of the queries' latent", "model"},
      {&L::qk_nope_head_dim, "head width without position", "model"},
      {&L::qk_rope_head_dim, "head width with position", "model"},
      {&L::v_head_dim, "head width of values", "model"},
      {&I::topk, "keys of a query in sparse attention", "model"},
      {&I::index_heads, "heads of the indexer", "model"},
      {&I::index_head_dim, "head width of the indexer", "model"},
      {&I::rope_interleaved, "rotary pairs of the indexer", "model"},
      {&I::hadamard, "Hadamard transform of the indexer", "model"},
      {&G::layers, "layers with global attention", "model"},
      {&G::kv_heads, "key/value heads of global attention", "model"},
      {&G::head_dim, "head width of global attention", "model"},
      {&G::keys_are_values, "one projection of keys and values in global attention", "model"},
      {&D::layers, "layers with a gated delta net", "model"},
      {&D::key_heads, "key heads of delta nets", "model"},
      {&D::value_heads, "value heads of delta nets", "model"},
      {&D::key_head_dim, "key width of delta nets", "model"},
      {&D::value_head_dim, "value width of delta nets", "model"},
      {&D::conv_kernel, "convolution of delta nets", "model"},
      {&D::gate_rank, "width of the gates' latent in Kimi delta attention", "model"},
      {&S::layers, "layers with a state space", "model"},
      {&S::heads, "heads of state spaces", "model"},
      {&S::head_dim, "head width of state spaces", "model"},
      {&S::groups, "groups of state spaces' heads", "model"},
      {&S::state_dim, "width of the states", "model"},
      {&S::conv_kernel, "convolution of state spaces", "model"},
      {&S::gated_norm, "norm of the state spaces' output", "model"},
      {&S::beside_attention, "state spaces beside attention", "model"},
      {&K::layers, "layers with a short convolution", "model"},
      {&K::kernel, "width of short convolutions", "model"},
      {&K::bias, "biases of short convolutions", "model"},
      {&M::mlp_only_layers, "layers of an MLP alone", "model"},
      {&M::layer_pattern, "order of the layers", "model"},
  };
  return kFields;
}

const std::vector<NamedConfigField>& arithmetic_fields() {
  static const std::vector<NamedConfigField> kFields = {
      {&X::router_score, "scores of the router", "model"},
      {&X::router_normalized, "normalized weights of experts", "model"},
      {&X::router_scaling, "factor of the experts' weights", "model"},
      {&C::norm_epsilon, "epsilon of the norms", "model"},
      {&C::other_arithmetic, "other arithmetic", "model"},
      {&R::theta, "rotary base", "model"},
      {&R::rotated_part, "rotated part of a head", "model"},
      {&R::scaling, "scaling of rotary positions", "model"},
      {&R::factor, "extension of the context", "model"},
      {&R::original_positions, "context before the extension", "model"},
      {&R::low_frequency_factor, "low frequency factor", "model"},
      {&R::high_frequency_factor, "high frequency factor", "model"},
      {&R::beta_fast, "beta fast", "model"},
      {&R::beta_slow, "beta slow", "model"},
      {&R::whole_pairs, "bounds in whole pairs", "model"},
      {&R::attention_factor, "factor of cosines and sines", "model"},
      {&R::score_mscale, "mscale of the scores", "model"},
  };
  return kFields;
}

}  // namespace echelon
