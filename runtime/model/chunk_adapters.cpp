// Chunk: adapters, y = W·x + s·B·(A·x) with s = α/r (LoRA, arXiv 2106.09685, section 4.1).
// Backward:
//
//   dx += A'·g,  dA += g·x',  dB += dy·(s·A·x)'     where g = s·B'·dy, and ' transposes
//
// Of tensor-parallel ranks each has these of its part of the matrix (chunk.hpp).
#include "runtime/model/chunk.hpp"

namespace echelon {

template <class T>
T* Chunk<T>::narrow_of(AdapterTarget target, int layer, const ChunkArguments<T>& args) const {
  return layout_.saved_activations(layer, args).narrow[static_cast<std::size_t>(target)];
}

template <class T>
T* Chunk<T>::narrow_gradient_of(AdapterTarget target, const ChunkArguments<T>& args) const {
  const Workspace<T> work = layout_.workspace(args);
  const bool of_mlp = target == AdapterTarget::linear_fc1 || target == AdapterTarget::linear_fc2;
  return of_mlp ? work.mlp_narrow : work.attention_narrow;
}

template <class T>
void Chunk<T>::scale_narrow(T* x) const {
  const double scale = spec().adapter_scale;
  if (scale != 1) k_.scale(x, scale, shape().rows * shape().rank);
}

template <class T>
void Chunk<T>::narrow(AdapterTarget target, int layer, const ChunkArguments<T>& args,
                      const T* x) const {
  if (!layout_.adapts(target)) return;
  const AdapterPlace& at = layout_.adapter(layer, target);
  T* const out = narrow_of(target, layer, args);
  k_.multiply({x, shape().rows, at.matrix.in}, args.adapters + at.a, shape().rank, nullptr, nullptr,
              out);
  scale_narrow(out);
}

template <class T>
void Chunk<T>::add_adapter(AdapterTarget target, int layer, const ChunkArguments<T>& args,
                           const T* x, T* y) const {
  if (!layout_.adapts(target)) return;
  narrow(target, layer, args, x);
  const ChunkShape& s = shape();
  const AdapterPlace& at = layout_.adapter(layer, target);
  k_.multiply({narrow_of(target, layer, args), s.rows, s.rank}, args.adapters + at.b, at.matrix.out,
              nullptr, y, y);
}

template <class T>
void Chunk<T>::adapter_backward(AdapterTarget target, int layer, const ChunkArguments<T>& args,
                                const T* dy, T* dx) const {
  if (!layout_.adapts(target)) return;
  const ChunkShape& s = shape();
  const AdapterPlace& at = layout_.adapter(layer, target);
  T* const gradient = narrow_gradient_of(target, args);
  k_.multiply_back({dy, s.rows, at.matrix.out}, args.adapters + at.b, s.rank, gradient);
  scale_narrow(gradient);
  k_.add_input_gradient({gradient, s.rows, s.rank}, args.adapters + at.a, at.matrix.in, dx);
}

template <class T>
void Chunk<T>::adapter_weights(AdapterTarget target, int layer, const ChunkArguments<T>& args,
                               const T* x, const T* dy) const {
  if (!layout_.adapts(target)) return;
  const ChunkShape& s = shape();
  const AdapterPlace& at = layout_.adapter(layer, target);
  k_.add_weight_gradient({dy, s.rows, at.matrix.out},
                         {narrow_of(target, layer, args), s.rows, s.rank}, args.gradients + at.b);
  k_.add_weight_gradient({narrow_gradient_of(target, args), s.rows, s.rank},
                         {x, s.rows, at.matrix.in}, args.gradients + at.a);
}

template <class T>
typename Chunk<T>::Coming Chunk<T>::begin_input_gather(AdapterTarget target,
                                                       const Workspace<T>& work) const {
  const bool needed = !freezes() || layout_.adapts(target);
  return needed ? begin_gather(work.normed, work.gathered) : Coming{};
}

#define ECHELON_CHUNK_ADAPTERS(T)                                                                  \
  template void Chunk<T>::narrow(AdapterTarget, int, const ChunkArguments<T>&, const T*) const;    \
  template void Chunk<T>::add_adapter(AdapterTarget, int, const ChunkArguments<T>&, const T*, T*)  \
      const;                                                                                       \
  template void Chunk<T>::adapter_backward(AdapterTarget, int, const ChunkArguments<T>&, const T*, \
                                           T*) const;                                              \
  template void Chunk<T>::adapter_weights(AdapterTarget, int, const ChunkArguments<T>&, const T*,  \
                                          const T*) const;
ECHELON_CHUNK_ADAPTERS(double)
ECHELON_CHUNK_ADAPTERS(float)
ECHELON_CHUNK_ADAPTERS(Bfloat16)
#undef ECHELON_CHUNK_ADAPTERS

}  // namespace echelon
