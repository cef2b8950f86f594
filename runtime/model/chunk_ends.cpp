// Chunk: word and position embedding; final norm, output head and loss. The vocabulary is split
// over the tensor-parallel ranks.
#include <algorithm>
#include <cmath>

#include "runtime/model/chunk.hpp"
#include "runtime/model/products.hpp"

namespace echelon {

template <class T>
int Chunk<T>::first_position() const {
  return shape().split ? spec().tp_rank * (spec().sequence / spec().tp) : 0;
}

template <class T>
void Chunk<T>::embed(const Pass<T>& pass) const {
  const ChunkShape& s = shape();
  const EndOffsets& at = layout_.ends();
  const Workspace<T> work = layout_.workspace(pass);
  const bool tied = spec().model.tied_embeddings;
  T* const out = layout_.new_state(0, pass);
  T* const partial = s.split ? work.partial : out;
  cpu::embedding_forward(pass.tokens, tied ? pass.tied : pass.weights + at.word, partial, s.rows,
                         s.hidden, s.first_vocab, s.vocab);
  reduced(partial, out);
  if (spec().model.position != PositionEmbedding::learned) return;
  const T* const positions = pass.weights + at.position + first_position() * s.hidden;
  for (std::int64_t row = 0; row < s.local; ++row) {
    cpu::add(out + row * s.hidden, positions + row / spec().microbatch * s.hidden, s.hidden);
  }
}

template <class T>
void Chunk<T>::embed_backward(const Pass<T>& pass) const {
  const ChunkShape& s = shape();
  const EndOffsets& at = layout_.ends();
  const Workspace<T> work = layout_.workspace(pass);
  const int samples = spec().microbatch;
  if (spec().model.position == PositionEmbedding::learned) {
    Wide<T>* const positions = pass.gradients + at.position + first_position() * s.hidden;
    for (std::int64_t p = 0; p < s.local / samples; ++p) {
      cpu::bias_gradient(pass.gradient + p * samples * s.hidden, positions + p * s.hidden, samples,
                         s.hidden);
    }
  }
  const bool tied = spec().model.tied_embeddings;
  cpu::embedding_backward(pass.tokens, gathered(pass.gradient, work.partial),
                          tied ? pass.tied_gradients : pass.gradients + at.word, s.rows, s.hidden,
                          s.first_vocab, s.vocab);
}

template <class T>
void Chunk<T>::make_logits(const T* in, std::int64_t count, const Pass<T>& pass, T* logits) const {
  const ChunkShape& s = shape();
  const EndOffsets& at = layout_.ends();
  multiply(in, count, s.hidden, head(pass), s.vocab, logits);
  if (spec().model.head_bias) {
    cpu::add_bias(logits, pass.weights + at.head_bias, count, s.vocab);
  }
}

template <class T>
const T* Chunk<T>::head(const Pass<T>& pass) const {
  return spec().model.tied_embeddings ? pass.tied : pass.weights + layout_.ends().head;
}

template <class T>
double Chunk<T>::loss_forward(const Pass<T>& pass) const {
  const ChunkShape& s = shape();
  const EndOffsets& at = layout_.ends();
  const Workspace<T> work = layout_.workspace(pass);
  const LossTape<T> tape = layout_.loss_tape(pass);
  constexpr Element kWide = Number<Wide<T>>::kElement;
  norm_forward(layout_.state(spec().layers, pass), pass.weights + at.final_norm,
               pass.weights + at.final_norm_bias, work);
  const T* const in = gathered(work.normed, work.gathered);
  double loss = 0;
  for (std::int64_t row = 0; row < s.rows; row += s.loss_rows) {
    const std::int64_t count = std::min(s.loss_rows, s.rows - row);
    Wide<T>* const max = tape.max + row;
    Wide<T>* const sums = tape.sums + 2 * row;
    make_logits(in + row * s.hidden, count, pass, work.logits);
    cpu::logits_max(work.logits, max, count, s.vocab, s.valid_vocab);
    if (spec().tp > 1) tp_->all_reduce(max, count, kWide, Reduction::max);
    cpu::logits_sums(work.logits, pass.targets + row, max, sums, count, s.vocab, s.valid_vocab,
                     s.first_vocab);
    if (spec().tp > 1) tp_->all_reduce(sums, 2 * count, kWide, Reduction::sum);
    for (std::int64_t i = 0; i < count; ++i) {
      loss += std::log(double(sums[2 * i])) + double(max[i]) - double(sums[2 * i + 1]);
    }
  }
  return loss;
}

template <class T>
void Chunk<T>::loss_backward(const Pass<T>& pass) const {
  const ChunkShape& s = shape();
  const EndOffsets& at = layout_.ends();
  const Workspace<T> work = layout_.workspace(pass);
  const LossTape<T> tape = layout_.loss_tape(pass);
  const bool tied = spec().model.tied_embeddings;
  const T* const input = layout_.state(spec().layers, pass);
  norm_forward(input, pass.weights + at.final_norm, pass.weights + at.final_norm_bias, work);
  const T* const in = gathered(work.normed, work.gathered);
  // From the last rows on: their logits may still be there.
  const std::int64_t last = (s.rows - 1) / s.loss_rows * s.loss_rows;
  for (std::int64_t row = last; row >= 0; row -= s.loss_rows) {
    const std::int64_t count = std::min(s.loss_rows, s.rows - row);
    T* const logits = work.logits;
    if (row < last || !pass.logits_left) make_logits(in + row * s.hidden, count, pass, logits);
    cpu::logits_gradient(logits, pass.targets + row, tape.max + row, tape.sums + 2 * row, count,
                         s.vocab, s.valid_vocab, s.first_vocab, pass.loss_scale);
    add_weight_gradient(logits, s.vocab, in + row * s.hidden, s.hidden, count,
                        tied ? pass.tied_gradients : pass.gradients + at.head);
    if (spec().model.head_bias) {
      cpu::bias_gradient(logits, pass.gradients + at.head_bias, count, s.vocab);
    }
    multiply_back(logits, count, s.vocab, head(pass), s.hidden, work.partial + row * s.hidden);
  }
  const T* const dy = reduced(work.partial, work.gathered);
  norm_backward(dy, input, pass.weights + at.final_norm, pass.gradients + at.final_norm,
                pass.gradients + at.final_norm_bias, work, pass.gradient);
}

#define ECHELON_CHUNK_ENDS(T)                                                            \
  template int Chunk<T>::first_position() const;                                         \
  template void Chunk<T>::embed(const Pass<T>&) const;                                   \
  template void Chunk<T>::embed_backward(const Pass<T>&) const;                          \
  template void Chunk<T>::make_logits(const T*, std::int64_t, const Pass<T>&, T*) const; \
  template const T* Chunk<T>::head(const Pass<T>&) const;                                \
  template double Chunk<T>::loss_forward(const Pass<T>&) const;                          \
  template void Chunk<T>::loss_backward(const Pass<T>&) const;
ECHELON_CHUNK_ENDS(double)
ECHELON_CHUNK_ENDS(float)
ECHELON_CHUNK_ENDS(Bfloat16)
#undef ECHELON_CHUNK_ENDS

}  // namespace echelon
