// Chunk: a layer. The forward is in parts that a recomputing backward calls again. The backward
// always computes the gradient of the layer's input; gradients of its matrices and biases follow at
// once, or later from the weight inputs, by the same calls.
#include "runtime/model/chunk.hpp"

namespace echelon {

template <class T>
void Chunk<T>::project_qkv(int layer, const ChunkArguments<T>& args,
                           const SavedActivations<T>& activations, const SumBefore<T>& left) const {
  const ChunkShape& s = shape();
  const LayerOffsets& at = layout_.layer(layer);
  const Workspace<T> work = layout_.workspace(args);
  const ModelSpec& model = spec().model;
  norm_forward(layout_.state(layer, args), left, args.weights + at.attention_norm,
               args.weights + at.attention_norm_bias, work);
  const T* const in = gathered(work.normed, work.gathered);
  if (model.latent()) {
    latent_heads(layer, args, activations, in);
  } else {
    k_.multiply({in, s.rows, s.hidden}, args.weights + at.qkv, s.qkv,
                model.qkv_bias ? args.weights + at.qkv_bias : nullptr, nullptr, activations.qkv);
    add_adapter(AdapterTarget::linear_qkv, layer, args, in, activations.qkv);
  }
  if (spec().splits_heads()) scatter_heads(of_qkv_, activations.qkv, activations.qkv, args);
  if (!model.qk_norm && !model.latent()) rotate(activations.qkv, 1);
}

template <class T>
HeadNorms<T> Chunk<T>::head_norms(int layer, const ChunkArguments<T>& args) const {
  const LayerOffsets& at = layout_.layer(layer);
  return {args.weights + at.q_norm, args.weights + at.k_norm, spec().model.constants->norm_epsilon};
}

template <class T>
const T* Chunk<T>::attention_input(int layer, const ChunkArguments<T>& args, const T* qkv) const {
  if (!spec().model.qk_norm) return qkv;
  T* const normed = layout_.workspace(args).normed_qkv;
  k_.normalize_heads(attention_, head_norms(layer, args), qkv, normed);
  rotate(normed, 1);
  return normed;
}

template <class T>
void Chunk<T>::rotate(T* qkv, int direction) const {
  if (spec().model.position != PositionEmbedding::rope) return;
  for (const TokenRun& run : attended_tokens_) {
    AttentionShape rows = attention_;
    rows.sequence = run.count;
    k_.rotate(rows, rotary_, run.position, qkv + run.at * rows.samples * rows.qkv_stride,
              direction);
  }
}

template <class T>
void Chunk<T>::attention_core(int layer, const ChunkArguments<T>& args,
                              const SavedActivations<T>& activations) const {
  const T* const qkv = attention_input(layer, args, activations.qkv);
  if (spec().passes_keys()) return ring_forward(qkv, activations, layout_.workspace(args).ring);
  k_.attention_forward(attention_, qkv, activations.attention, activations.log_sum);
  if (spec().splits_heads())
    gather_heads(of_attended_, activations.attention, activations.attended, args);
}

template <class T>
SumBefore<T> Chunk<T>::output_projection(int layer, const ChunkArguments<T>& args,
                                         const SavedActivations<T>& activations) const {
  const LayerOffsets& at = layout_.layer(layer);
  const T* const bias =
      spec().model.attention_output_bias ? args.weights + at.output_bias : nullptr;
  return row_parallel({activations.attended, shape().attended, args.weights + at.output, bias,
                       layout_.state(layer, args), AdapterTarget::linear_proj, layer},
                      args, activations.middle);
}

template <class T>
typename Chunk<T>::Exchange Chunk<T>::project_up(int layer, const ChunkArguments<T>& args,
                                                 const SavedActivations<T>& activations,
                                                 const SumBefore<T>& left) const {
  const ChunkShape& s = shape();
  const LayerOffsets& at = layout_.layer(layer);
  const Workspace<T> work = layout_.workspace(args);
  norm_forward(activations.middle, left, args.weights + at.mlp_norm,
               args.weights + at.mlp_norm_bias, work);
  const T* const in = gathered(work.normed, work.gathered);
  if (layout_.has_experts(layer)) return experts_up(layer, args, activations, in);
  k_.multiply({in, s.rows, s.hidden}, args.weights + at.up, s.up,
              spec().model.mlp_bias ? args.weights + at.up_bias : nullptr, nullptr, activations.up);
  add_adapter(AdapterTarget::linear_fc1, layer, args, in, activations.up);
  return {};
}

template <class T>
void Chunk<T>::activate(const T* up, T* activated, std::int64_t rows, std::int64_t width) const {
  const ModelSpec& model = spec().model;
  k_.activation_forward(model.activation, model.gated_mlp, up, activated, rows, width);
}

template <class T>
SumBefore<T> Chunk<T>::down_projection(int layer, const ChunkArguments<T>& args,
                                       const SavedActivations<T>& activations,
                                       const Exchange& exchange) const {
  if (layout_.has_experts(layer)) return experts_down(layer, args, activations, exchange);
  const LayerOffsets& at = layout_.layer(layer);
  const Workspace<T> work = layout_.workspace(args);
  activate(activations.up, work.activated, shape().rows, shape().ffn);
  const T* const bias = spec().model.mlp_bias ? args.weights + at.down_bias : nullptr;
  return row_parallel({work.activated, shape().ffn, args.weights + at.down, bias,
                       activations.middle, AdapterTarget::linear_fc2, layer},
                      args, layout_.new_state(layer + 1, args));
}

// ---- Backward

template <class T>
void Chunk<T>::layer_backward(int layer, const ChunkArguments<T>& args, Weights weights) const {
  SavedActivations<T> activations = layout_.saved_activations(layer, args);
  WeightInputs<T> later;
  if (weights == Weights::later) {
    later = layout_.weight_inputs(layer, args);
    if (later.attended != nullptr) {
      if (!spec().splits_heads()) activations.attention = later.attended;
      activations.attended = later.attended;
    }
    if (later.middle != nullptr) activations.middle = later.middle;
    if (later.latents != nullptr) activations.latents = later.latents;
    if (later.routing.counts != nullptr) activations.routing = later.routing;
  }
  Exchange exchange;
  if (layout_.recompute(layer) != Recompute::none) exchange = recompute(layer, args, activations);
  if (layout_.has_experts(layer)) {
    if (layout_.recompute(layer) != Recompute::full) {
      exchange = exchanges_.at(activations.routing.counts);
    }
    experts_backward(layer, args, activations, exchange, later, weights);
  } else {
    mlp_backward(layer, args, activations, later, weights);
  }
  attention_backward(layer, args, activations, later, weights);
}

template <class T>
typename Chunk<T>::Exchange Chunk<T>::recompute(int layer, const ChunkArguments<T>& args,
                                                const SavedActivations<T>& activations) const {
  const ScopedSubSpan sub_span(k_, Within::recompute);
  const bool full = layout_.recompute(layer) == Recompute::full;
  if (full) project_qkv(layer, args, activations, {});
  attention_core(layer, args, activations);
  if (!full) return {};
  return project_up(layer, args, activations, output_projection(layer, args, activations));
}

template <class T>
void Chunk<T>::mlp_backward(int layer, const ChunkArguments<T>& args,
                            const SavedActivations<T>& activations, const WeightInputs<T>& later,
                            Weights weights) const {
  const ChunkShape& s = shape();
  const ModelSpec& model = spec().model;
  const LayerOffsets& at = layout_.layer(layer);
  const Workspace<T> work = layout_.workspace(args);
  const bool now = weights == Weights::now;
  const T* const whole = gathered(args.gradient, work.partial);
  k_.multiply_back({whole, s.rows, s.hidden}, args.weights + at.down, s.ffn,
                   work.activated_gradient);
  adapter_backward(AdapterTarget::linear_fc2, layer, args, whole, work.activated_gradient);
  T* const up_gradient = now ? work.up_gradient : later.up_gradient;
  const bool reads = !freezes() || layout_.adapts(AdapterTarget::linear_fc2);
  T* const activated = !reads ? nullptr : now ? work.activated : later.activated;
  k_.activation_backward(model.activation, model.gated_mlp, activations.up, work.activated_gradient,
                         up_gradient, activated, s.rows, s.ffn);
  if (layout_.recompute(layer) == Recompute::full)
    narrow(AdapterTarget::linear_fc2, layer, args, activated);  // the down projection's was not
  norm_forward(activations.middle, {}, args.weights + at.mlp_norm, args.weights + at.mlp_norm_bias,
               work);
  const ColumnParallel up = up_matrix(layer, up_gradient, activations.middle);
  if (now) {
    const Coming in = begin_input_gather(AdapterTarget::linear_fc1, work);
    down_weights(layer, args, args.gradient, whole, work.activated);
    return column_parallel_backward(up, &in, args);
  }
  k_.copy(args.gradient, later.mlp_gradient, boundary_count());
  column_parallel_backward(up, nullptr, args);
}

template <class T>
void Chunk<T>::attention_backward(int layer, const ChunkArguments<T>& args,
                                  const SavedActivations<T>& activations,
                                  const WeightInputs<T>& later, Weights weights) const {
  const ChunkShape& s = shape();
  const LayerOffsets& at = layout_.layer(layer);
  const Workspace<T> work = layout_.workspace(args);
  const bool now = weights == Weights::now;
  const bool ring = spec().passes_keys();
  const T* qkv = nullptr;
  Pending pending;
  if (ring) {
    qkv = attention_input(layer, args, activations.qkv);
    pending = begin_ring_backward(qkv, work.ring);
  }
  const T* const whole = gathered(args.gradient, work.partial);
  k_.multiply_back({whole, s.rows, s.hidden}, args.weights + at.output, s.attended,
                   work.attended_gradient);
  adapter_backward(AdapterTarget::linear_proj, layer, args, whole, work.attended_gradient);
  if (spec().splits_heads())
    scatter_heads(of_attended_, work.attended_gradient, work.attended_gradient, args);
  const bool latent = spec().model.latent();
  T* const qkv_gradient = now || latent ? work.qkv_gradient : later.qkv_gradient;
  if (ring) {
    ring_backward(qkv, activations, work, pending, qkv_gradient);
  } else {
    k_.attention_backward(attention_, attention_input(layer, args, activations.qkv),
                          activations.attention, activations.log_sum, work.attended_gradient,
                          qkv_gradient);
  }
  if (!latent) rotate(qkv_gradient, -1);
  if (spec().model.qk_norm) {
    k_.normalize_heads_backward(attention_, head_norms(layer, args), activations.qkv, qkv_gradient,
                                gradient_at(at.q_norm, args), gradient_at(at.k_norm, args));
  }
  if (spec().splits_heads()) gather_heads(of_qkv_, qkv_gradient, qkv_gradient, args);
  norm_forward(layout_.state(layer, args), {}, args.weights + at.attention_norm,
               args.weights + at.attention_norm_bias, work);
  Coming in;
  if (now) {
    in = begin_input_gather(AdapterTarget::linear_qkv, work);
    output_weights(layer, args, args.gradient, whole, activations.attended);
  } else {
    k_.copy(args.gradient, later.attention_gradient, boundary_count());
  }
  if (latent) {
    return latent_backward(layer, args, activations.latents, now ? work.latent : later.latent,
                           qkv_gradient, now ? &in : nullptr);
  }
  column_parallel_backward(qkv_matrix(layer, qkv_gradient, args), now ? &in : nullptr, args);
}

template <class T>
typename Chunk<T>::ColumnParallel Chunk<T>::qkv_matrix(int layer, const T* dy,
                                                       const ChunkArguments<T>& args) const {
  const LayerOffsets& at = layout_.layer(layer);
  return {dy,
          shape().qkv,
          at.qkv,
          spec().model.qkv_bias ? std::optional(at.qkv_bias) : std::nullopt,
          AdapterTarget::linear_qkv,
          layer,
          layout_.state(layer, args),
          at.attention_norm,
          at.attention_norm_bias};
}

template <class T>
typename Chunk<T>::ColumnParallel Chunk<T>::up_matrix(int layer, const T* dy,
                                                      const T* middle) const {
  const LayerOffsets& at = layout_.layer(layer);
  return {dy,
          shape().up,
          at.up,
          spec().model.mlp_bias ? std::optional(at.up_bias) : std::nullopt,
          AdapterTarget::linear_fc1,
          layer,
          middle,
          at.mlp_norm,
          at.mlp_norm_bias};
}

/// The sum goes to the memory of the normed input, whose gather is over: both are collectives of
/// one stream.
template <class T>
void Chunk<T>::column_parallel_backward(const ColumnParallel& matrix, const Coming* in,
                                        const ChunkArguments<T>& args) const {
  const ChunkShape& s = shape();
  const Workspace<T> work = layout_.workspace(args);
  k_.multiply_back({matrix.dy, s.rows, matrix.width}, args.weights + matrix.weight, s.hidden,
                   work.partial);
  adapter_backward(matrix.target, matrix.layer, args, matrix.dy, work.partial);
  const Coming dx = begin_reduce(work.partial, work.normed);
  if (in != nullptr) column_parallel_weights(matrix, arrived(*in), args);
  k_.norm_backward(norm_of(matrix.x, args.weights + matrix.norm, nullptr, work), arrived(dx),
                   args.gradient, args.gradient, gradient_at(matrix.norm, args),
                   gradient_at(matrix.norm_bias, args));
}

template <class T>
void Chunk<T>::column_parallel_weights(const ColumnParallel& matrix, const T* in,
                                       const ChunkArguments<T>& args) const {
  if (freezes()) return adapter_weights(matrix.target, matrix.layer, args, in, matrix.dy);
  const ChunkShape& s = shape();
  k_.add_weight_gradient({matrix.dy, s.rows, matrix.width}, {in, s.rows, s.hidden},
                         args.gradients + matrix.weight);
  if (matrix.bias) {
    k_.bias_gradient({matrix.dy, s.rows, matrix.width}, args.gradients + *matrix.bias);
  }
}

template <class T>
void Chunk<T>::down_weights(int layer, const ChunkArguments<T>& args, const T* gradient,
                            const T* whole, const T* activated) const {
  if (freezes()) return adapter_weights(AdapterTarget::linear_fc2, layer, args, activated, whole);
  const ChunkShape& s = shape();
  const LayerOffsets& at = layout_.layer(layer);
  k_.add_weight_gradient({whole, s.rows, s.hidden}, {activated, s.rows, s.ffn},
                         args.gradients + at.down);
  if (spec().model.mlp_bias) {
    k_.bias_gradient({gradient, s.local, s.hidden}, args.gradients + at.down_bias);
  }
}

template <class T>
void Chunk<T>::output_weights(int layer, const ChunkArguments<T>& args, const T* gradient,
                              const T* whole, const T* attended) const {
  if (freezes()) return adapter_weights(AdapterTarget::linear_proj, layer, args, attended, whole);
  const ChunkShape& s = shape();
  const LayerOffsets& at = layout_.layer(layer);
  k_.add_weight_gradient({whole, s.rows, s.hidden}, {attended, s.rows, s.attended},
                         args.gradients + at.output);
  if (spec().model.attention_output_bias) {
    k_.bias_gradient({gradient, s.local, s.hidden}, args.gradients + at.output_bias);
  }
}

/// What a matrix needs is gathered beside the product for the matrix before it: the upstream
/// gradients, all in work.partial, and the normed inputs, all in work.gathered, in turn.
template <class T>
void Chunk<T>::backward_weight(int unit, const ChunkArguments<T>& args) const {
  const Workspace<T> work = layout_.workspace(args);
  const int first = spec().first_layer_of(unit);
  int layer = spec().first_layer_of(unit + 1) - 1;
  if (layer < first) return;
  Coming whole = begin_gather(layout_.weight_inputs(layer, args).mlp_gradient, work.partial);
  for (; layer >= first; --layer) {
    const LayerOffsets& at = layout_.layer(layer);
    const SavedActivations<T> activations = layout_.saved_activations(layer, args);
    const WeightInputs<T> kept = layout_.weight_inputs(layer, args);
    const T* const middle = kept.middle != nullptr ? kept.middle : activations.middle;
    const T* activated = kept.activated;
    norm_forward(middle, {}, args.weights + at.mlp_norm, args.weights + at.mlp_norm_bias, work);
    Coming in = begin_gather(work.normed, work.gathered);
    if (layout_.has_experts(layer)) {
      whole = experts_backward_weight(layer, args, whole, in);
    } else {
      if (activated == nullptr) {
        activate(activations.up, work.activated, shape().rows, shape().ffn);
        activated = work.activated;
      }
      down_weights(layer, args, kept.mlp_gradient, arrived(whole), activated);
      whole = begin_gather(kept.attention_gradient, work.partial);
      column_parallel_weights(up_matrix(layer, kept.up_gradient, middle), arrived(in), args);
    }
    norm_forward(layout_.state(layer, args), {}, args.weights + at.attention_norm,
                 args.weights + at.attention_norm_bias, work);
    in = begin_gather(work.normed, work.gathered);
    output_weights(layer, args, kept.attention_gradient, arrived(whole),
                   kept.attended != nullptr ? kept.attended : activations.attended);
    if (layer > first)
      whole = begin_gather(layout_.weight_inputs(layer - 1, args).mlp_gradient, work.partial);
    if (spec().model.latent()) {
      latent_up_weights(layer, args, kept.latents != nullptr ? kept.latents : activations.latents,
                        kept.latent);
      latent_down_weights(layer, args, kept.latent, arrived(in));
    } else {
      column_parallel_weights(qkv_matrix(layer, kept.qkv_gradient, args), arrived(in), args);
    }
  }
}

#define ECHELON_CHUNK_LAYER(T)                                                                    \
  template void Chunk<T>::project_qkv(int, const ChunkArguments<T>&, const SavedActivations<T>&,  \
                                      const SumBefore<T>&) const;                                 \
  template void Chunk<T>::rotate(T*, int) const;                                                  \
  template HeadNorms<T> Chunk<T>::head_norms(int, const ChunkArguments<T>&) const;                \
  template const T* Chunk<T>::attention_input(int, const ChunkArguments<T>&, const T*) const;     \
  template void Chunk<T>::attention_core(int, const ChunkArguments<T>&,                           \
                                         const SavedActivations<T>&) const;                       \
  template SumBefore<T> Chunk<T>::output_projection(int, const ChunkArguments<T>&,                \
                                                    const SavedActivations<T>&) const;            \
  template typename Chunk<T>::Exchange Chunk<T>::project_up(                                      \
      int, const ChunkArguments<T>&, const SavedActivations<T>&, const SumBefore<T>&) const;      \
  template void Chunk<T>::activate(const T*, T*, std::int64_t, std::int64_t) const;               \
  template SumBefore<T> Chunk<T>::down_projection(                                                \
      int, const ChunkArguments<T>&, const SavedActivations<T>&, const Exchange&) const;          \
  template void Chunk<T>::layer_backward(int, const ChunkArguments<T>&, Weights) const;           \
  template void Chunk<T>::mlp_backward(int, const ChunkArguments<T>&, const SavedActivations<T>&, \
                                       const WeightInputs<T>&, Weights) const;                    \
  template void Chunk<T>::attention_backward(                                                     \
      int, const ChunkArguments<T>&, const SavedActivations<T>&, const WeightInputs<T>&, Weights) \
      const;                                                                                      \
  template void Chunk<T>::backward_weight(int, const ChunkArguments<T>&) const;
ECHELON_CHUNK_LAYER(double)
ECHELON_CHUNK_LAYER(float)
ECHELON_CHUNK_LAYER(Bfloat16)
#undef ECHELON_CHUNK_LAYER

}  // namespace echelon
