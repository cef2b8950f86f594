#include "runtime/model/chunk.hpp"

#include <algorithm>

#include "core/base/expects.hpp"
#include "runtime/model/rotary.hpp"

namespace echelon {

template <class T>
Chunk<T>::Chunk(Kernels<T>& kernels, const ChunkSpec& spec, TimedCommunicator* tp, Communicator* kv,
                TimedCommunicator* cp, TimedCommunicator* ep)
    : k_(kernels),
      layout_(spec),
      tp_(tp),
      kv_(kv),
      cp_(cp),
      ep_(ep),
      attention_(attention_shape_of(spec)),
      tokens_(context_tokens(spec.sequence, spec.cp, spec.cp_comm, spec.cp_rank)),
      attended_tokens_(spec.splits_heads() ? std::vector<TokenRun>{{0, 0, spec.sequence}}
                                           : tokens_) {
  EXPECTS(spec.tp == 1 || (tp != nullptr && tp->size() == spec.tp && tp->rank() == spec.tp_rank),
          "not the tensor-parallel group");
  const int replicas = std::max(1, spec.tp / spec.model.kv_heads);
  EXPECTS(replicas == 1 ||
              (kv != nullptr && kv->size() == replicas && kv->rank() == spec.tp_rank % replicas),
          "not the group of a kv head");
  EXPECTS(spec.cp == 1 || (cp != nullptr && cp->size() == spec.cp && cp->rank() == spec.cp_rank),
          "not the context-parallel group");
  const auto exchange_of = [&](std::int64_t query, std::int64_t key, std::int64_t value) {
    const HeadSplit split{shape().rows, spec.cp, query, key, value};
    return HeadExchange{split, std::vector<std::int64_t>(static_cast<std::size_t>(spec.cp),
                                                         split.rows * split.width() / spec.cp)};
  };
  const std::int64_t key = std::int64_t{shape().kv_heads} * spec.model.head_dim;
  of_qkv_ = exchange_of(shape().query, key, shape().qkv - shape().query - key);
  of_attended_ = exchange_of(shape().attended, 0, 0);
  EXPECTS(spec.ep == 1 || (ep != nullptr && ep->size() == spec.ep && ep->rank() == spec.ep_rank),
          "not the group that shares the experts");
  if (spec.model.position == PositionEmbedding::rope) {
    const ModelSpec& model = spec.model;
    rotary_ = rotary_frequencies(model.constants->rope,
                                 model.latent() ? model.mla.qk_rope_head_dim : model.head_dim);
  }
}

template <class T>
void Chunk<T>::forward(int unit, const ChunkArguments<T>& args) const {
  const int end = spec().first_layer_of(unit + 1);
  SumBefore<T> left;
  if (unit == 0 && spec().embedding) embed(args);
  for (int layer = spec().first_layer_of(unit); layer < end; ++layer) {
    SavedActivations<T> activations = layout_.saved_activations(layer, args);
    project_qkv(layer, args, activations, left);
    attention_core(layer, args, activations);
    const Exchange exchange =
        project_up(layer, args, activations, output_projection(layer, args, activations));
    left = down_projection(layer, args, activations, exchange);
  }
  const bool last = unit == spec().units - 1;
  if (last && spec().loss) return loss_forward(args, left);
  finish_sum(left);  // others may run before the next unit, whose weights are elsewhere
  if (last && spec().layers == 0 && !spec().embedding) {
    k_.copy(args.input, args.output, boundary_count());
  }
}

template <class T>
void Chunk<T>::run_backward(int unit, const ChunkArguments<T>& args, Weights weights) const {
  if (unit == spec().units - 1) {
    if (spec().loss) {
      loss_backward(args);
    } else if (args.gradient != args.output_gradient) {
      k_.copy(args.output_gradient, args.gradient, boundary_count());
    }
  }
  for (int layer = spec().first_layer_of(unit + 1); layer-- > spec().first_layer_of(unit);) {
    layer_backward(layer, args, weights);
  }
  if (unit == 0 && spec().embedding && !freezes()) embed_backward(args);
}

template <class T>
void Chunk<T>::finish_gradients(int unit, Wide<T>* gradients) const {
  const FlatParameters& flat = parameters().flat_params[static_cast<std::size_t>(unit)];
  std::int64_t summed = 0;  // they come first
  for (const Parameter& p : flat.parameters) summed += p.summed_over_tp ? p.count() : 0;
  if (summed > 0) tp_->all_reduce(gradients, summed, Number<Wide<T>>::kElement, Reduction::sum);
  for (const Parameter& p : flat.parameters) {
    if (p.summed_over_kv) {
      kv_->all_reduce(gradients + p.offset, p.count(), Number<Wide<T>>::kElement, Reduction::sum);
    }
  }
}

template <class T>
typename Chunk<T>::Coming Chunk<T>::begin_gather(const T* local, T* memory) const {
  if (!shape().split) return {local};
  return {memory, tp_->begin_all_gather(local, memory, boundary_count(), Number<T>::kElement)};
}

template <class T>
typename Chunk<T>::Coming Chunk<T>::begin_reduce(T* partial, T* scattered) const {
  if (spec().tp == 1) return {partial};
  constexpr Element kElement = Number<T>::kElement;
  if (shape().split) {
    return {scattered, tp_->begin_reduce_scatter(partial, scattered, boundary_count(), kElement)};
  }
  return {partial, tp_->begin_all_reduce(partial, boundary_count(), kElement, Reduction::sum)};
}

template <class T>
const T* Chunk<T>::arrived(const Coming& coming) const {
  if (coming.pending) tp_->await(coming.pending);
  return coming.data;
}

/// Bias and residual are added to what the ranks' products add up to, once: by the norm behind.
template <class T>
SumBefore<T> Chunk<T>::row_parallel(const RowParallel& matrix, const ChunkArguments<T>& args,
                                    T* out) const {
  const ChunkShape& s = shape();
  const Rows<T> x{matrix.x, s.rows, matrix.width};
  if (spec().tp == 1) {
    k_.multiply(x, matrix.weight, s.hidden, matrix.bias, matrix.residual, out);
    add_adapter(matrix.target, matrix.layer, args, matrix.x, out);
    return {};
  }
  T* const partial = s.split ? layout_.workspace(args).partial : out;
  k_.multiply(x, matrix.weight, s.hidden, nullptr, nullptr, partial);
  add_adapter(matrix.target, matrix.layer, args, matrix.x, partial);
  reduced(partial, out);
  return {matrix.bias, matrix.residual, out};
}

template <class T>
void Chunk<T>::finish_sum(const SumBefore<T>& left) const {
  if (left.residual == nullptr) return;
  if (left.bias != nullptr) k_.add_bias(left.sum, left.bias, shape().local, shape().hidden);
  k_.add(left.sum, left.residual, boundary_count());
}

template <class T>
NormOf<T> Chunk<T>::norm_of(const T* x, const T* weight, const T* bias,
                            const Workspace<T>& work) const {
  const ChunkShape& s = shape();
  return {
      spec().model.normalization,          x, weight, bias, work.mean, work.rstd, s.local, s.hidden,
      spec().model.constants->norm_epsilon};
}

template <class T>
void Chunk<T>::norm_forward(const T* x, const SumBefore<T>& left, const T* weight, const T* bias,
                            const Workspace<T>& work) const {
  k_.norm_forward(norm_of(x, weight, bias, work), left, work.normed);
}

template class Chunk<double>;
template class Chunk<float>;
template class Chunk<Bfloat16>;

}  // namespace echelon
