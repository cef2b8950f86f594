// Chunk: context parallelism in attention, by all-to-all over heads or by a ring (Ring Attention,
// arXiv 2310.01889). In a ring ranks have parts i and 2·cp − 1 − i of each sample, as in
// TransformerEngine (pytorch/attention/dot_product_attention/context_parallel.py,
// AttnFuncWithCPAndKVP2P), so that every block of another rank is either half of its keys for all
// queries or all of its keys for half of the queries, without a mask. In the backward the gradients
// of keys and values are summed in T, as there, and travel one step behind them; the rank's own
// block comes last, while its gradients come home.
#include "runtime/model/chunk.hpp"

namespace echelon {

/// Tokens of one rank follow those of the rank before: what arrives is in the order of the
/// sequence.
template <class T>
void Chunk<T>::scatter_heads(const HeadExchange& of, const T* from, T* to,
                             const ChunkArguments<T>& args) const {
  T* const parts = layout_.workspace(args).exchanged;
  k_.split_heads(of.split, from, parts);
  cp_->all_to_all(parts, of.counts, to, of.counts, Number<T>::kElement);
}

template <class T>
void Chunk<T>::gather_heads(const HeadExchange& of, const T* from, T* to,
                            const ChunkArguments<T>& args) const {
  T* const parts = layout_.workspace(args).exchanged;
  cp_->all_to_all(from, of.counts, parts, of.counts, Number<T>::kElement);
  k_.join_heads(of.split, parts, to);
}

template <class T>
typename Chunk<T>::Pending Chunk<T>::begin_pass(const T* from, T* to, std::int64_t count) const {
  const RingCounts counts(spec().cp_rank, spec().cp, count);
  return cp_->begin_all_to_all(from, counts.to, to, counts.from, Number<T>::kElement);
}

template <class T>
std::int64_t Chunk<T>::block_count() const {
  return shape().rows * (shape().qkv - shape().query);
}

template <class T>
void Chunk<T>::pack_keys(const T* qkv, T* keys) const {
  const std::int64_t width = shape().qkv - shape().query;
  k_.copy_pieces({shape().rows, width, shape().qkv, width}, qkv + shape().query, keys);
}

template <class T>
AttentionBlock Chunk<T>::block_of(int step) const {
  const int from = (spec().cp_rank + spec().cp - step) % spec().cp;
  const std::int64_t all = attention_.sequence;
  if (step == 0) return {.keys = all, .causal = true, .begins = true};
  if (from < spec().cp_rank) return {.keys = all / 2};
  return {.first_query = all / 2, .keys = all};
}

template <class T>
void Chunk<T>::ring_forward(const T* qkv, const SavedActivations<T>& activations,
                            const RingBuffers<T>& ring) const {
  const int ranks = spec().cp;
  pack_keys(qkv, ring.blocks[0]);
  for (int step = 0; step < ranks; ++step) {
    T* const keys = ring.blocks[static_cast<std::size_t>(step % 2)];
    Pending pending;
    if (step + 1 < ranks)
      pending =
          begin_pass(keys, ring.blocks[static_cast<std::size_t>((step + 1) % 2)], block_count());
    k_.attention_block_forward(attention_, block_of(step), qkv, keys, ring.sums,
                               activations.log_sum);
    if (step + 1 < ranks) cp_->await_all_to_all(pending);
  }
  k_.copy_from_wide(ring.sums, activations.attention, shape().rows * shape().attended);
}

template <class T>
typename Chunk<T>::Pending Chunk<T>::begin_ring_backward(const T* qkv,
                                                         const RingBuffers<T>& ring) const {
  pack_keys(qkv, ring.blocks[0]);
  return begin_pass(ring.blocks[0], ring.blocks[1], block_count());
}

/// A buffer holds the keys of a step and behind them the gradients of the step before, summed over
/// the ranks that these keys passed: both go on together. The first step's gradients, which no rank
/// has added to, are made in the other buffer, where the keys of the next step arrive.
template <class T>
void Chunk<T>::ring_backward(const T* qkv, const SavedActivations<T>& activations,
                             const Workspace<T>& work, Pending pending, T* dqkv) const {
  const ChunkShape& s = shape();
  const RingBuffers<T>& ring = work.ring;
  const int ranks = spec().cp;
  const std::int64_t count = block_count();
  const auto buffer = [&](int step) { return ring.blocks[static_cast<std::size_t>(step % 2)]; };
  const auto attend = [&](int step, const T* keys, T* dkeys) {
    k_.attention_block_backward(attention_, block_of(step), qkv, keys, activations.attention,
                                activations.log_sum, work.attended_gradient, dqkv, dkeys);
  };
  k_.clear(dqkv, s.rows * s.qkv * static_cast<std::int64_t>(sizeof(T)));
  for (int step = 1; step < ranks; ++step) {
    T* const now = buffer(step);
    T* const next = buffer(step + 1);
    cp_->await_all_to_all(pending);
    if (step > 2) k_.add(now + count, ring.gradients, count);
    const std::int64_t begin = step + 1 < ranks ? 0 : count;  // the last keys stay
    const std::int64_t end = step > 1 ? 2 * count : count;    // the first bring no gradients
    if (begin < end) pending = begin_pass(now + begin, next + begin, end - begin);
    attend(step, now, step == 1 ? next + count : ring.gradients);
  }
  T* const last = buffer(ranks);
  T* const home = buffer(ranks + 1);
  if (ranks > 2) {
    cp_->await_all_to_all(pending);
    k_.add(last + count, ring.gradients, count);
  }
  pending = begin_pass(last + count, home + count, count);
  pack_keys(qkv, last);
  attend(0, last, ring.gradients);
  cp_->await_all_to_all(pending);
  k_.add(ring.gradients, home + count, count);
  const std::int64_t width = s.qkv - s.query;
  k_.copy_pieces({s.rows, width, width, s.qkv}, ring.gradients, dqkv + s.query);
}

#define ECHELON_CHUNK_CONTEXT(T)                                                                   \
  template void Chunk<T>::scatter_heads(const HeadExchange&, const T*, T*,                         \
                                        const ChunkArguments<T>&) const;                           \
  template void Chunk<T>::gather_heads(const HeadExchange&, const T*, T*,                          \
                                       const ChunkArguments<T>&) const;                            \
  template typename Chunk<T>::Pending Chunk<T>::begin_pass(const T*, T*, std::int64_t) const;      \
  template std::int64_t Chunk<T>::block_count() const;                                             \
  template void Chunk<T>::pack_keys(const T*, T*) const;                                           \
  template AttentionBlock Chunk<T>::block_of(int) const;                                           \
  template void Chunk<T>::ring_forward(const T*, const SavedActivations<T>&,                       \
                                       const RingBuffers<T>&) const;                               \
  template typename Chunk<T>::Pending Chunk<T>::begin_ring_backward(const T*,                      \
                                                                    const RingBuffers<T>&) const;  \
  template void Chunk<T>::ring_backward(const T*, const SavedActivations<T>&, const Workspace<T>&, \
                                        Pending, T*) const;
ECHELON_CHUNK_CONTEXT(double)
ECHELON_CHUNK_CONTEXT(float)
ECHELON_CHUNK_CONTEXT(Bfloat16)
#undef ECHELON_CHUNK_CONTEXT

}  // namespace echelon
