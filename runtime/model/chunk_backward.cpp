// Chunk: backward of a layer. Gradients of its input always; those of its matrices and biases now,
// or later from what is kept for them, by the same calls.
#include "runtime/model/chunk.hpp"

namespace echelon {

template <class T>
void Chunk<T>::layer_backward(int layer, const Pass<T>& pass, Weights weights) const {
  LayerTape<T> tape = layout_.tape(layer, pass);
  WeightInputs<T> later;
  if (weights == Weights::later) {
    later = layout_.weight_inputs(layer, pass);
    if (later.attended != nullptr) tape.attended = later.attended;
    if (later.middle != nullptr) tape.middle = later.middle;
  }
  if (layout_.recompute(layer) != Recompute::none) make_again(layer, pass, tape);
  mlp_backward(layer, pass, tape, later, weights);
  attention_backward(layer, pass, tape, later, weights);
}

template <class T>
void Chunk<T>::make_again(int layer, const Pass<T>& pass, const LayerTape<T>& tape) const {
  const Spending spending(k_, Within::recompute);
  const bool full = layout_.recompute(layer) == Recompute::full;
  if (full) project_qkv(layer, pass, tape, {});
  attend(tape);
  if (full) project_up(layer, pass, tape, leave_attention(layer, pass, tape));
}

template <class T>
void Chunk<T>::mlp_backward(int layer, const Pass<T>& pass, const LayerTape<T>& tape,
                            const WeightInputs<T>& later, Weights weights) const {
  const ChunkShape& s = shape();
  const ModelSpec& model = spec().model;
  const LayerOffsets& at = layout_.layer(layer);
  const Workspace<T> work = layout_.workspace(pass);
  const bool now = weights == Weights::now;
  const T* const whole = gathered(pass.gradient, work.partial);
  k_.multiply_back({whole, s.rows, s.hidden}, pass.weights + at.down, s.ffn,
                   work.activated_gradient);
  T* const up_gradient = now ? work.up_gradient : later.up_gradient;
  k_.activation_backward(model.activation, model.gated_mlp, tape.up, work.activated_gradient,
                         up_gradient, s.rows, s.ffn);
  norm_forward(tape.middle, {}, pass.weights + at.mlp_norm, pass.weights + at.mlp_norm_bias, work);
  if (now) {
    activate(tape.up, work.activated);
    mlp_weights(layer, pass, pass.gradient, whole, work.activated, up_gradient);
  } else {
    k_.copy(pass.gradient, later.mlp_gradient, boundary_count());
    if (later.activated != nullptr) activate(tape.up, later.activated);
  }
  leave_backward({up_gradient, s.up, pass.weights + at.up}, tape.middle, at.mlp_norm,
                 at.mlp_norm_bias, pass);
}

template <class T>
void Chunk<T>::attention_backward(int layer, const Pass<T>& pass, const LayerTape<T>& tape,
                                  const WeightInputs<T>& later, Weights weights) const {
  const ChunkShape& s = shape();
  const LayerOffsets& at = layout_.layer(layer);
  const Workspace<T> work = layout_.workspace(pass);
  const bool now = weights == Weights::now;
  const T* const input = layout_.state(layer, pass);
  const T* const whole = gathered(pass.gradient, work.partial);
  k_.multiply_back({whole, s.rows, s.hidden}, pass.weights + at.output, s.query,
                   work.attended_gradient);
  T* const qkv_gradient = now ? work.qkv_gradient : later.qkv_gradient;
  k_.attention_backward(attention_shape(), tape.qkv, tape.attended, tape.log_sum,
                        work.attended_gradient, qkv_gradient);
  rotate(qkv_gradient, -1);
  norm_forward(input, {}, pass.weights + at.attention_norm, pass.weights + at.attention_norm_bias,
               work);
  if (now) {
    attention_weights(layer, pass, pass.gradient, whole, tape.attended, qkv_gradient);
  } else {
    k_.copy(pass.gradient, later.attention_gradient, boundary_count());
  }
  leave_backward({qkv_gradient, s.qkv, pass.weights + at.qkv}, input, at.attention_norm,
                 at.attention_norm_bias, pass);
}

template <class T>
void Chunk<T>::leave_backward(const ColumnParallel& from, const T* x, std::int64_t norm,
                              std::int64_t norm_bias, const Pass<T>& pass) const {
  const ChunkShape& s = shape();
  const Workspace<T> work = layout_.workspace(pass);
  k_.multiply_back({from.dy, s.rows, from.width}, from.weight, s.hidden, work.partial);
  const T* const dy = reduced(work.partial, work.gathered);
  k_.norm_backward(norm_of(x, pass.weights + norm, nullptr, work), dy, pass.gradient, pass.gradient,
                   pass.gradients + norm, pass.gradients + norm_bias);
}

template <class T>
void Chunk<T>::mlp_weights(int layer, const Pass<T>& pass, const T* gradient, const T* whole,
                           const T* activated, const T* up_gradient) const {
  const ChunkShape& s = shape();
  const LayerOffsets& at = layout_.layer(layer);
  const Workspace<T> work = layout_.workspace(pass);
  k_.add_weight_gradient({whole, s.rows, s.hidden}, {activated, s.rows, s.ffn},
                         pass.gradients + at.down);
  const T* const in = gathered(work.normed, work.gathered);
  k_.add_weight_gradient({up_gradient, s.rows, s.up}, {in, s.rows, s.hidden},
                         pass.gradients + at.up);
  if (!spec().model.mlp_bias) return;
  k_.bias_gradient({gradient, s.local, s.hidden}, pass.gradients + at.down_bias);
  k_.bias_gradient({up_gradient, s.rows, s.up}, pass.gradients + at.up_bias);
}

template <class T>
void Chunk<T>::attention_weights(int layer, const Pass<T>& pass, const T* gradient, const T* whole,
                                 const T* attended, const T* qkv_gradient) const {
  const ChunkShape& s = shape();
  const LayerOffsets& at = layout_.layer(layer);
  const Workspace<T> work = layout_.workspace(pass);
  const ModelSpec& model = spec().model;
  k_.add_weight_gradient({whole, s.rows, s.hidden}, {attended, s.rows, s.query},
                         pass.gradients + at.output);
  if (model.attention_output_bias) {
    k_.bias_gradient({gradient, s.local, s.hidden}, pass.gradients + at.output_bias);
  }
  const T* const in = gathered(work.normed, work.gathered);
  k_.add_weight_gradient({qkv_gradient, s.rows, s.qkv}, {in, s.rows, s.hidden},
                         pass.gradients + at.qkv);
  if (model.qkv_bias) {
    k_.bias_gradient({qkv_gradient, s.rows, s.qkv}, pass.gradients + at.qkv_bias);
  }
}

template <class T>
void Chunk<T>::backward_weight(int unit, const Pass<T>& pass) const {
  const Workspace<T> work = layout_.workspace(pass);
  for (int layer = spec().first_layer_of(unit + 1); layer-- > spec().first_layer_of(unit);) {
    const LayerOffsets& at = layout_.layer(layer);
    const LayerTape<T> tape = layout_.tape(layer, pass);
    const WeightInputs<T> kept = layout_.weight_inputs(layer, pass);
    const T* activated = kept.activated;
    if (activated == nullptr) {
      activate(tape.up, work.activated);
      activated = work.activated;
    }
    norm_forward(kept.middle != nullptr ? kept.middle : tape.middle, {}, pass.weights + at.mlp_norm,
                 pass.weights + at.mlp_norm_bias, work);
    mlp_weights(layer, pass, kept.mlp_gradient, gathered(kept.mlp_gradient, work.partial),
                activated, kept.up_gradient);
    norm_forward(layout_.state(layer, pass), {}, pass.weights + at.attention_norm,
                 pass.weights + at.attention_norm_bias, work);
    attention_weights(layer, pass, kept.attention_gradient,
                      gathered(kept.attention_gradient, work.partial),
                      kept.attended != nullptr ? kept.attended : tape.attended, kept.qkv_gradient);
  }
}

#define ECHELON_CHUNK_BACKWARD(T)                                                                  \
  template void Chunk<T>::layer_backward(int, const Pass<T>&, Weights) const;                      \
  template void Chunk<T>::mlp_backward(int, const Pass<T>&, const LayerTape<T>&,                   \
                                       const WeightInputs<T>&, Weights) const;                     \
  template void Chunk<T>::attention_backward(int, const Pass<T>&, const LayerTape<T>&,             \
                                             const WeightInputs<T>&, Weights) const;               \
  template void Chunk<T>::leave_backward(const ColumnParallel&, const T*, std::int64_t,            \
                                         std::int64_t, const Pass<T>&) const;                      \
  template void Chunk<T>::mlp_weights(int, const Pass<T>&, const T*, const T*, const T*, const T*) \
      const;                                                                                       \
  template void Chunk<T>::attention_weights(int, const Pass<T>&, const T*, const T*, const T*,     \
                                            const T*) const;                                       \
  template void Chunk<T>::backward_weight(int, const Pass<T>&) const;
ECHELON_CHUNK_BACKWARD(double)
ECHELON_CHUNK_BACKWARD(float)
ECHELON_CHUNK_BACKWARD(Bfloat16)
#undef ECHELON_CHUNK_BACKWARD

}  // namespace echelon
