// Chunk: word and position embedding; final norm, output head and loss. The vocabulary is split
// over the tensor-parallel ranks.
#include <algorithm>

#include "runtime/model/chunk.hpp"

namespace echelon {

/// Of the rows between layers.
template <class T>
std::vector<TokenRun> Chunk<T>::local_tokens() const {
  const std::int64_t count = shape().local / spec().microbatch;
  return part_of(tokens_, shape().split ? spec().tp_rank * count : 0, count);
}

template <class T>
void Chunk<T>::embed(const ChunkArguments<T>& args) const {
  const ChunkShape& s = shape();
  const EndOffsets& at = layout_.ends();
  const Workspace<T> work = layout_.workspace(args);
  const bool tied = spec().model.tied_embeddings;
  T* const out = layout_.new_state(0, args);
  T* const partial = s.split ? work.partial : out;
  k_.embedding_forward(args.tokens, tied ? args.tied : args.weights + at.word_embedding, partial,
                       s.rows, s.hidden, s.first_vocab, s.vocab);
  reduced(partial, out);
  if (spec().model.position != PositionEmbedding::learned) return;
  const int samples = spec().microbatch;
  for (const TokenRun& run : local_tokens()) {
    k_.add_positions(out + run.at * samples * s.hidden,
                     args.weights + at.position + run.position * s.hidden, run.count * samples,
                     samples, s.hidden);
  }
}

template <class T>
void Chunk<T>::embed_backward(const ChunkArguments<T>& args) const {
  const ChunkShape& s = shape();
  const EndOffsets& at = layout_.ends();
  const Workspace<T> work = layout_.workspace(args);
  if (spec().model.position == PositionEmbedding::learned) {
    const int samples = spec().microbatch;
    for (const TokenRun& run : local_tokens()) {
      k_.position_gradient(
          {args.gradient + run.at * samples * s.hidden, run.count * samples, s.hidden}, samples,
          args.gradients + at.position + run.position * s.hidden);
    }
  }
  const bool tied = spec().model.tied_embeddings;
  k_.embedding_backward(args.tokens, {gathered(args.gradient, work.partial), s.rows, s.hidden},
                        tied ? args.tied_gradients : args.gradients + at.word_embedding,
                        s.first_vocab, s.vocab);
}

template <class T>
void Chunk<T>::make_logits(const T* in, std::int64_t count, const ChunkArguments<T>& args,
                           T* logits) const {
  const ChunkShape& s = shape();
  const EndOffsets& at = layout_.ends();
  k_.multiply({in, count, s.hidden}, head(args), s.vocab,
              spec().model.head_bias ? args.weights + at.head_bias : nullptr, nullptr, logits);
}

template <class T>
Logits<T> Chunk<T>::logits_of(std::int64_t row, std::int64_t count,
                              const ChunkArguments<T>& args) const {
  const ChunkShape& s = shape();
  return {layout_.workspace(args).logits,
          args.targets + row,
          count,
          s.vocab,
          s.valid_vocab,
          s.first_vocab};
}

template <class T>
const T* Chunk<T>::head(const ChunkArguments<T>& args) const {
  return spec().model.tied_embeddings ? args.tied : args.weights + layout_.ends().head;
}

/// The logits of rows, and of each row their maximum and its sums.
template <class T>
void Chunk<T>::partials_of(const T* in, std::int64_t row, std::int64_t count,
                           const ChunkArguments<T>& args) const {
  const Workspace<T> work = layout_.workspace(args);
  const SavedLoss<T> saved = layout_.saved_loss(args);
  constexpr Element kWide = Number<Wide<T>>::kElement;
  Wide<T>* const max = saved.max + row;
  Wide<T>* const sums = saved.sums + 2 * row;
  make_logits(in + row * shape().hidden, count, args, work.logits);
  k_.logits_partials(logits_of(row, count, args), max, sums);
  if (spec().tp == 1) return;
  // The place of these rows' gradient, which comes later.
  auto* const part_max = reinterpret_cast<Wide<T>*>(work.partial + row * shape().hidden);
  k_.copy_wide(max, part_max, count);
  tp_->all_reduce(max, count, kWide, Reduction::max);
  k_.rescale_sums(part_max, max, sums, count);
  tp_->all_reduce(sums, 2 * count, kWide, Reduction::sum);
}

/// In the order of rows, whatever order their sums were made in.
template <class T>
void Chunk<T>::add_losses(const ChunkArguments<T>& args) const {
  const ChunkShape& s = shape();
  const SavedLoss<T> saved = layout_.saved_loss(args);
  for (std::int64_t row = 0; row < s.rows; row += s.loss_rows) {
    k_.add_losses(saved.max + row, saved.sums + 2 * row, args.loss,
                  std::min(s.loss_rows, s.rows - row));
  }
}

template <class T>
void Chunk<T>::loss_forward(const ChunkArguments<T>& args, const SumBefore<T>& left) const {
  if (args.loss_in_backward && left.residual == nullptr) return;
  const ChunkShape& s = shape();
  const EndOffsets& at = layout_.ends();
  const Workspace<T> work = layout_.workspace(args);
  norm_forward(layout_.state(spec().layers, args), left, args.weights + at.final_norm,
               args.weights + at.final_norm_bias, work);
  if (args.loss_in_backward) return;
  const T* const in = gathered(work.normed, work.gathered);
  for (std::int64_t row = 0; row < s.rows; row += s.loss_rows)
    partials_of(in, row, std::min(s.loss_rows, s.rows - row), args);
  add_losses(args);
}

template <class T>
void Chunk<T>::loss_backward(const ChunkArguments<T>& args) const {
  const ChunkShape& s = shape();
  const EndOffsets& at = layout_.ends();
  const Workspace<T> work = layout_.workspace(args);
  const SavedLoss<T> saved = layout_.saved_loss(args);
  const bool tied = spec().model.tied_embeddings;
  const T* const input = layout_.state(spec().layers, args);
  norm_forward(input, {}, args.weights + at.final_norm, args.weights + at.final_norm_bias, work);
  const T* const in = gathered(work.normed, work.gathered);
  Coming dx;
  for (std::int64_t row = 0; row < s.rows; row += s.loss_rows) {
    const std::int64_t count = std::min(s.loss_rows, s.rows - row);
    T* const logits = work.logits;
    if (args.loss_in_backward) {
      partials_of(in, row, count, args);
    } else {
      make_logits(in + row * s.hidden, count, args, logits);
    }
    k_.logits_gradient(logits_of(row, count, args), saved.max + row, saved.sums + 2 * row,
                       args.loss_scale);
    k_.multiply_back({logits, count, s.vocab}, head(args), s.hidden, work.partial + row * s.hidden);
    if (row + count == s.rows) dx = begin_reduce(work.partial, work.normed);
    if (freezes()) continue;
    k_.add_weight_gradient({logits, count, s.vocab}, {in + row * s.hidden, count, s.hidden},
                           tied ? args.tied_gradients : args.gradients + at.head);
    if (spec().model.head_bias) {
      k_.bias_gradient({logits, count, s.vocab}, args.gradients + at.head_bias);
    }
  }
  if (args.loss_in_backward) add_losses(args);
  const T* const dy = arrived(dx);
  k_.norm_backward(norm_of(input, args.weights + at.final_norm, nullptr, work), dy, nullptr,
                   args.gradient, gradient_at(at.final_norm, args),
                   gradient_at(at.final_norm_bias, args));
}

#define ECHELON_CHUNK_ENDS(T)                                                                      \
  template std::vector<TokenRun> Chunk<T>::local_tokens() const;                                   \
  template void Chunk<T>::embed(const ChunkArguments<T>&) const;                                   \
  template void Chunk<T>::embed_backward(const ChunkArguments<T>&) const;                          \
  template void Chunk<T>::make_logits(const T*, std::int64_t, const ChunkArguments<T>&, T*) const; \
  template const T* Chunk<T>::head(const ChunkArguments<T>&) const;                                \
  template void Chunk<T>::partials_of(const T*, std::int64_t, std::int64_t,                        \
                                      const ChunkArguments<T>&) const;                             \
  template void Chunk<T>::add_losses(const ChunkArguments<T>&) const;                              \
  template void Chunk<T>::loss_forward(const ChunkArguments<T>&, const SumBefore<T>&) const;       \
  template Logits<T> Chunk<T>::logits_of(std::int64_t, std::int64_t, const ChunkArguments<T>&)     \
      const;                                                                                       \
  template void Chunk<T>::loss_backward(const ChunkArguments<T>&) const;
ECHELON_CHUNK_ENDS(double)
ECHELON_CHUNK_ENDS(float)
ECHELON_CHUNK_ENDS(Bfloat16)
#undef ECHELON_CHUNK_ENDS

}  // namespace echelon
