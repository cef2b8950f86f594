// Chunk: the shared experts of a layer, which every row visits: one MLP, split over the
// tensor-parallel ranks as that of a dense layer is. Its sum over the ranks is that of the routed
// experts, to which its output is added before. With a gate (Qwen2-MoE) each row has a weight, the
// sigmoid of a product with the layer's normed input, which multiplies the input of the down
// projection, as the weights of routed experts do.
// Source: transformers, Qwen2MoeSparseMoeBlock (models/qwen2_moe/modeling_qwen2_moe.py) and
// DeepseekV3MoE (models/deepseek_v3/modeling_deepseek_v3.py).
#include "runtime/model/chunk.hpp"

namespace echelon {

template <class T>
void Chunk<T>::shared_up(int layer, const ChunkArguments<T>& args,
                         const SavedActivations<T>& activations, const T* in) const {
  const ChunkShape& s = shape();
  const LayerOffsets& at = layout_.layer(layer);
  if (s.shared_ffn == 0) return;
  k_.multiply({in, s.rows, s.hidden}, args.weights + at.shared_up, s.shared_up, nullptr, nullptr,
              activations.shared_up);
  if (s.gates > 0) {
    k_.multiply({in, s.rows, s.hidden}, args.weights + at.shared_gate, 1, nullptr, nullptr,
                activations.shared_gate);
  }
}

template <class T>
void Chunk<T>::activate_shared(const ChunkArguments<T>& args,
                               const SavedActivations<T>& activations, T* activated) const {
  const ChunkShape& s = shape();
  if (s.shared_ffn == 0) return;
  activate(activations.shared_up, activated, s.rows, s.shared_ffn);
  if (s.gates == 0) return;
  const Workspace<T> work = layout_.workspace(args, LayerKind::moe);
  k_.gate_forward(activations.shared_gate, work.gate_weights, s.gates);
  k_.weight_rows(activated, work.gate_weights, s.rows, s.shared_ffn);
}

template <class T>
const T* Chunk<T>::shared_down(int layer, const ChunkArguments<T>& args,
                               const SavedActivations<T>& activations, T* y) const {
  const ChunkShape& s = shape();
  if (s.shared_ffn == 0) return nullptr;
  const Workspace<T> work = layout_.workspace(args, LayerKind::moe);
  activate_shared(args, activations, work.activated);
  k_.multiply({work.activated, s.rows, s.shared_ffn},
              args.weights + layout_.layer(layer).shared_down, s.hidden, nullptr, nullptr, y);
  return y;
}

// ---- Backward

template <class T>
typename Chunk<T>::SharedGradients Chunk<T>::shared_backward(
    int layer, const ChunkArguments<T>& args, const SavedActivations<T>& activations,
    const T* whole, const WeightInputs<T>& later, Weights weights) const {
  const ChunkShape& s = shape();
  const ModelSpec& model = spec().model;
  if (s.shared_ffn == 0) return {};
  const Workspace<T> work = layout_.workspace(args, LayerKind::moe);
  const bool now = weights == Weights::now;
  const SharedGradients to =
      now ? SharedGradients{work.shared_up_gradient, work.shared_gate_gradient}
          : SharedGradients{later.shared_up_gradient, later.shared_gate_gradient};
  k_.multiply_back({whole, s.rows, s.hidden}, args.weights + layout_.layer(layer).shared_down,
                   s.shared_ffn, work.activated_gradient);
  T* const activated = later.shared_activated != nullptr ? later.shared_activated : work.activated;
  activate(activations.shared_up, activated, s.rows, s.shared_ffn);
  if (s.gates > 0) {
    k_.gate_forward(activations.shared_gate, work.gate_weights, s.gates);
    k_.weight_rows_backward(activated, work.activated_gradient, work.gate_weights,
                            work.gate_weight_gradients, s.rows, s.shared_ffn);
    k_.gate_backward(work.gate_weights, work.gate_weight_gradients, to.gate, s.gates);
  }
  if (now) shared_down_weights(layer, args, whole, activated);
  k_.activation_backward(model.activation, model.gated_mlp, activations.shared_up,
                         work.activated_gradient, to.up, nullptr, s.rows, s.shared_ffn);
  return to;
}

/// The rows of the routed experts are combined: their memory is free.
template <class T>
void Chunk<T>::add_shared_input_gradient(int layer, const ChunkArguments<T>& args,
                                         const SharedGradients& of, T* dx) const {
  const ChunkShape& s = shape();
  const LayerOffsets& at = layout_.layer(layer);
  if (s.shared_ffn == 0) return;
  T* const more = layout_.workspace(args, LayerKind::moe).routed;
  const auto add_from = [&](const T* dy, std::int64_t width, std::int64_t weight) {
    k_.multiply_back({dy, s.rows, width}, args.weights + weight, s.hidden, more);
    k_.add(dx, more, s.rows * s.hidden);
  };
  add_from(of.up, s.shared_up, at.shared_up);
  if (s.gates > 0) add_from(of.gate, 1, at.shared_gate);
}

template <class T>
void Chunk<T>::shared_down_weights(int layer, const ChunkArguments<T>& args, const T* whole,
                                   const T* activated) const {
  const ChunkShape& s = shape();
  if (s.shared_ffn == 0) return;
  k_.add_weight_gradient({whole, s.rows, s.hidden}, {activated, s.rows, s.shared_ffn},
                         args.gradients + layout_.layer(layer).shared_down);
}

template <class T>
void Chunk<T>::shared_up_weights(int layer, const ChunkArguments<T>& args, const T* in,
                                 const SharedGradients& of) const {
  const ChunkShape& s = shape();
  const LayerOffsets& at = layout_.layer(layer);
  if (s.shared_ffn == 0) return;
  k_.add_weight_gradient({of.up, s.rows, s.shared_up}, {in, s.rows, s.hidden},
                         args.gradients + at.shared_up);
  if (s.gates > 0) {
    k_.add_weight_gradient({of.gate, s.rows, 1}, {in, s.rows, s.hidden},
                           args.gradients + at.shared_gate);
  }
}

#define ECHELON_CHUNK_SHARED_EXPERTS(T)                                                            \
  template void Chunk<T>::shared_up(int, const ChunkArguments<T>&, const SavedActivations<T>&,     \
                                    const T*) const;                                               \
  template void Chunk<T>::activate_shared(const ChunkArguments<T>&, const SavedActivations<T>&,    \
                                          T*) const;                                               \
  template const T* Chunk<T>::shared_down(int, const ChunkArguments<T>&,                           \
                                          const SavedActivations<T>&, T*) const;                   \
  template typename Chunk<T>::SharedGradients Chunk<T>::shared_backward(                           \
      int, const ChunkArguments<T>&, const SavedActivations<T>&, const T*, const WeightInputs<T>&, \
      Weights) const;                                                                              \
  template void Chunk<T>::add_shared_input_gradient(int, const ChunkArguments<T>&,                 \
                                                    const SharedGradients&, T*) const;             \
  template void Chunk<T>::shared_down_weights(int, const ChunkArguments<T>&, const T*, const T*)   \
      const;                                                                                       \
  template void Chunk<T>::shared_up_weights(int, const ChunkArguments<T>&, const T*,               \
                                            const SharedGradients&) const;
ECHELON_CHUNK_SHARED_EXPERTS(double)
ECHELON_CHUNK_SHARED_EXPERTS(float)
ECHELON_CHUNK_SHARED_EXPERTS(Bfloat16)
#undef ECHELON_CHUNK_SHARED_EXPERTS

}  // namespace echelon
