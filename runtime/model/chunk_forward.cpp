// Chunk: forward of a layer, in parts that a recomputing backward calls again.
#include "runtime/model/chunk.hpp"

namespace echelon {

template <class T>
void Chunk<T>::project_qkv(int layer, const Pass<T>& pass, const LayerTape<T>& tape,
                           const SumBefore<T>& left) const {
  const ChunkShape& s = shape();
  const LayerOffsets& at = layout_.layer(layer);
  const Workspace<T> work = layout_.workspace(pass);
  const ModelSpec& model = spec().model;
  norm_forward(layout_.state(layer, pass), left, pass.weights + at.attention_norm,
               pass.weights + at.attention_norm_bias, work);
  const T* const in = gathered(work.normed, work.gathered);
  k_.multiply({in, s.rows, s.hidden}, pass.weights + at.qkv, s.qkv,
              model.qkv_bias ? pass.weights + at.qkv_bias : nullptr, nullptr, tape.qkv);
  rotate(tape.qkv, 1);
}

template <class T>
void Chunk<T>::rotate(T* qkv, int direction) const {
  if (spec().model.position != PositionEmbedding::rope) return;
  k_.rotate(attention_shape(), rotary_, qkv, direction);
}

template <class T>
AttentionShape Chunk<T>::attention_shape() const {
  const ChunkShape& s = shape();
  AttentionShape a;
  a.sequence = spec().sequence;
  a.samples = spec().microbatch;
  a.heads = s.heads;
  a.kv_heads = s.kv_heads;
  a.head_dim = spec().model.head_dim;
  a.qkv_stride = s.qkv;
  a.out_stride = s.query;
  return a;
}

template <class T>
void Chunk<T>::attend(const LayerTape<T>& tape) const {
  k_.attention_forward(attention_shape(), tape.qkv, tape.attended, tape.log_sum);
}

template <class T>
SumBefore<T> Chunk<T>::leave_attention(int layer, const Pass<T>& pass,
                                       const LayerTape<T>& tape) const {
  const LayerOffsets& at = layout_.layer(layer);
  const T* const bias =
      spec().model.attention_output_bias ? pass.weights + at.output_bias : nullptr;
  return row_parallel(tape.attended, shape().query, pass.weights + at.output, bias,
                      layout_.state(layer, pass), layout_.workspace(pass), tape.middle);
}

template <class T>
void Chunk<T>::project_up(int layer, const Pass<T>& pass, const LayerTape<T>& tape,
                          const SumBefore<T>& left) const {
  const ChunkShape& s = shape();
  const LayerOffsets& at = layout_.layer(layer);
  const Workspace<T> work = layout_.workspace(pass);
  norm_forward(tape.middle, left, pass.weights + at.mlp_norm, pass.weights + at.mlp_norm_bias,
               work);
  const T* const in = gathered(work.normed, work.gathered);
  k_.multiply({in, s.rows, s.hidden}, pass.weights + at.up, s.up,
              spec().model.mlp_bias ? pass.weights + at.up_bias : nullptr, nullptr, tape.up);
}

template <class T>
void Chunk<T>::activate(const T* up, T* activated) const {
  const ChunkShape& s = shape();
  const ModelSpec& model = spec().model;
  k_.activation_forward(model.activation, model.gated_mlp, up, activated, s.rows, s.ffn);
}

template <class T>
SumBefore<T> Chunk<T>::leave_mlp(int layer, const Pass<T>& pass, const LayerTape<T>& tape) const {
  const LayerOffsets& at = layout_.layer(layer);
  const Workspace<T> work = layout_.workspace(pass);
  activate(tape.up, work.activated);
  return row_parallel(work.activated, shape().ffn, pass.weights + at.down,
                      spec().model.mlp_bias ? pass.weights + at.down_bias : nullptr, tape.middle,
                      work, layout_.new_state(layer + 1, pass));
}

#define ECHELON_CHUNK_FORWARD(T)                                                                   \
  template void Chunk<T>::project_qkv(int, const Pass<T>&, const LayerTape<T>&,                    \
                                      const SumBefore<T>&) const;                                  \
  template void Chunk<T>::rotate(T*, int) const;                                                   \
  template AttentionShape Chunk<T>::attention_shape() const;                                       \
  template void Chunk<T>::attend(const LayerTape<T>&) const;                                       \
  template SumBefore<T> Chunk<T>::leave_attention(int, const Pass<T>&, const LayerTape<T>&) const; \
  template void Chunk<T>::project_up(int, const Pass<T>&, const LayerTape<T>&,                     \
                                     const SumBefore<T>&) const;                                   \
  template void Chunk<T>::activate(const T*, T*) const;                                            \
  template SumBefore<T> Chunk<T>::leave_mlp(int, const Pass<T>&, const LayerTape<T>&) const;
ECHELON_CHUNK_FORWARD(double)
ECHELON_CHUNK_FORWARD(float)
ECHELON_CHUNK_FORWARD(Bfloat16)
#undef ECHELON_CHUNK_FORWARD

}  // namespace echelon
