// Chunk: the projections of multi-head latent attention, as transformers' DeepseekV3Attention and
// Megatron-Core's MLASelfAttention (transformer/multi_latent_attention.py). Every tensor-parallel
// rank makes the latents of all rows and has its part of the heads: up projections are
// column-parallel, and the gradients of the latents, of their norms and of the down projections are
// parts that sum up over the ranks. Latents are saved before their norms, which the backward
// repeats.
#include "runtime/model/chunk.hpp"

namespace echelon {

namespace {

/// The norms of latents have this epsilon whatever the model's others have. Source: transformers,
/// modeling_deepseek_v2.py and modeling_deepseek_v3.py: DeepseekV3RMSNorm(kv_lora_rank), whose
/// default it is. Checked by: tests/runtime/model/chunk_golden_test.cpp.
constexpr double kLatentEpsilon = 1e-6;

}  // namespace

template <class T>
LatentNorms<T> Chunk<T>::latent_norms(int layer, const ChunkArguments<T>& args) const {
  const LayerOffsets& at = layout_.layer(layer);
  return {args.weights + at.q_latent_norm, args.weights + at.kv_latent_norm, kLatentEpsilon};
}

template <class T>
LatentShape Chunk<T>::latent_rows(const TokenRun& run) const {
  LatentShape rows = layout_.latent();
  rows.rows = run.count * rows.samples;
  rows.first_position = run.position;
  return rows;
}

template <class T>
void Chunk<T>::latent_heads(int layer, const ChunkArguments<T>& args,
                            const SavedActivations<T>& activations, const T* in) const {
  const LatentShape& m = layout_.latent();
  const LayerOffsets& at = layout_.layer(layer);
  const Workspace<T> work = layout_.workspace(args);
  const Rows<T> hidden{in, m.rows, shape().hidden};
  k_.multiply(hidden, args.weights + at.latent_down, m.latents(), nullptr, nullptr,
              activations.latents);
  k_.normalize_latents(m, latent_norms(layer, args), activations.latents, work.normed_q,
                       work.normed_kv);
  k_.multiply(m.q_rank > 0 ? Rows<T>{work.normed_q, m.rows, m.q_rank} : hidden,
              args.weights + at.q_up, m.query(), nullptr, nullptr, work.latent.q);
  k_.multiply({work.normed_kv, m.rows, m.kv_rank}, args.weights + at.kv_up, m.key_value(), nullptr,
              nullptr, work.latent.kv);
  for (const TokenRun& run : tokens_) {
    const std::int64_t at = run.at * m.samples;
    k_.join_latent_heads(latent_rows(run), rotary_, work.latent.q + at * m.query(),
                         work.latent.kv + at * m.key_value(),
                         activations.latents + at * m.latents(), activations.qkv + at * m.qkv());
  }
}

// ---- Backward

template <class T>
void Chunk<T>::latent_backward(int layer, const ChunkArguments<T>& args, const T* latents,
                               const LatentGradients<T>& gradients, const T* qkv_gradient,
                               const Coming* in) const {
  const LatentShape& m = layout_.latent();
  const LayerOffsets& at = layout_.layer(layer);
  const Workspace<T> work = layout_.workspace(args);
  const std::int64_t h = shape().hidden;
  for (const TokenRun& run : tokens_) {
    const std::int64_t at = run.at * m.samples;
    k_.split_latent_heads(latent_rows(run), rotary_, qkv_gradient + at * m.qkv(),
                          gradients.q + at * m.query(), gradients.kv + at * m.key_value(),
                          gradients.latents + at * m.latents());
  }
  if (in != nullptr) latent_up_weights(layer, args, latents, gradients);
  const Rows<T> dq{gradients.q, m.rows, m.query()};
  if (m.q_rank > 0) k_.multiply_back(dq, args.weights + at.q_up, m.q_rank, work.normed_q);
  k_.multiply_back({gradients.kv, m.rows, m.key_value()}, args.weights + at.kv_up, m.kv_rank,
                   work.normed_kv);
  k_.normalize_latents_backward(
      m, latent_norms(layer, args), latents, work.normed_q, work.normed_kv, gradients.latents,
      args.gradients + at.q_latent_norm, args.gradients + at.kv_latent_norm);
  k_.multiply_back({gradients.latents, m.rows, m.latents()}, args.weights + at.latent_down, h,
                   work.partial);
  if (m.q_rank == 0) {
    k_.multiply_back(dq, args.weights + at.q_up, h, work.from_queries);
    k_.add(work.partial, work.from_queries, m.rows * h);
  }
  const Coming dx = begin_reduce(work.partial, work.normed);
  if (in != nullptr) latent_down_weights(layer, args, gradients, arrived(*in));
  k_.norm_backward(
      norm_of(layout_.state(layer, args), args.weights + at.attention_norm, nullptr, work),
      arrived(dx), args.gradient, args.gradient, args.gradients + at.attention_norm,
      args.gradients + at.attention_norm_bias);
}

template <class T>
void Chunk<T>::latent_up_weights(int layer, const ChunkArguments<T>& args, const T* latents,
                                 const LatentGradients<T>& gradients) const {
  const LatentShape& m = layout_.latent();
  const LayerOffsets& at = layout_.layer(layer);
  const Workspace<T> work = layout_.workspace(args);
  k_.normalize_latents(m, latent_norms(layer, args), latents, work.normed_q, work.normed_kv);
  if (m.q_rank > 0) {
    k_.add_weight_gradient({gradients.q, m.rows, m.query()}, {work.normed_q, m.rows, m.q_rank},
                           args.gradients + at.q_up);
  }
  k_.add_weight_gradient({gradients.kv, m.rows, m.key_value()}, {work.normed_kv, m.rows, m.kv_rank},
                         args.gradients + at.kv_up);
}

template <class T>
void Chunk<T>::latent_down_weights(int layer, const ChunkArguments<T>& args,
                                   const LatentGradients<T>& gradients, const T* in) const {
  const LatentShape& m = layout_.latent();
  const LayerOffsets& at = layout_.layer(layer);
  const Rows<T> hidden{in, m.rows, shape().hidden};
  k_.add_weight_gradient({gradients.latents, m.rows, m.latents()}, hidden,
                         args.gradients + at.latent_down);
  if (m.q_rank == 0) {
    k_.add_weight_gradient({gradients.q, m.rows, m.query()}, hidden, args.gradients + at.q_up);
  }
}

#define ECHELON_CHUNK_LATENT(T)                                                                   \
  template void Chunk<T>::latent_heads(int, const ChunkArguments<T>&, const SavedActivations<T>&, \
                                       const T*) const;                                           \
  template void Chunk<T>::latent_backward(int, const ChunkArguments<T>&, const T*,                \
                                          const LatentGradients<T>&, const T*, const Coming*)     \
      const;                                                                                      \
  template void Chunk<T>::latent_up_weights(int, const ChunkArguments<T>&, const T*,              \
                                            const LatentGradients<T>&) const;                     \
  template void Chunk<T>::latent_down_weights(int, const ChunkArguments<T>&,                      \
                                              const LatentGradients<T>&, const T*) const;
ECHELON_CHUNK_LATENT(double)
ECHELON_CHUNK_LATENT(float)
ECHELON_CHUNK_LATENT(Bfloat16)
#undef ECHELON_CHUNK_LATENT

}  // namespace echelon
