#include "runtime/model/chunk.hpp"

#include <algorithm>

#include "core/expects.hpp"
#include "runtime/model/products.hpp"

namespace echelon {

template <class T>
Chunk<T>::Chunk(const ChunkSpec& spec, Communicator* tp, Communicator* kv)
    : layout_(spec), tp_(tp), kv_(kv) {
  EXPECTS(spec.tp == 1 || (tp != nullptr && tp->size() == spec.tp && tp->rank() == spec.tp_rank),
          "not the tensor-parallel group");
  const int replicas = std::max(1, spec.tp / spec.model.kv_heads);
  EXPECTS(replicas == 1 ||
              (kv != nullptr && kv->size() == replicas && kv->rank() == spec.tp_rank % replicas),
          "not the group of a kv head");
}

template <class T>
double Chunk<T>::forward(int unit, const Pass<T>& pass) const {
  const int end = spec().first_layer_of(unit + 1);
  if (unit == 0 && spec().embedding) embed(pass);
  for (int layer = spec().first_layer_of(unit); layer < end; ++layer) {
    LayerTape<T> tape = layout_.tape(layer, pass);
    project_qkv(layer, pass, tape);
    attend(tape);
    leave_attention(layer, pass, tape);
    project_up(layer, pass, tape);
    leave_mlp(layer, pass, tape);
  }
  if (unit < spec().units - 1) return 0;
  if (spec().loss) return loss_forward(pass);
  if (spec().layers == 0 && !spec().embedding) {
    std::copy_n(pass.input, boundary_count(), pass.output);
  }
  return 0;
}

template <class T>
void Chunk<T>::run_backward(int unit, const Pass<T>& pass, Weights weights) const {
  if (unit == spec().units - 1) {
    if (spec().loss) {
      loss_backward(pass);
    } else if (pass.gradient != pass.output_gradient) {
      std::copy_n(pass.output_gradient, boundary_count(), pass.gradient);
    }
  }
  for (int layer = spec().first_layer_of(unit + 1); layer-- > spec().first_layer_of(unit);) {
    layer_backward(layer, pass, weights);
  }
  if (unit == 0 && spec().embedding) embed_backward(pass);
}

template <class T>
void Chunk<T>::finish_gradients(int unit, Wide<T>* gradients) const {
  const Region& region = parameters().regions[static_cast<std::size_t>(unit)];
  std::int64_t summed = 0;  // they come first
  for (const Parameter& p : region.parameters) summed += p.summed_over_tp ? p.count() : 0;
  if (summed > 0) tp_->all_reduce(gradients, summed, Number<Wide<T>>::kElement, Reduction::sum);
  for (const Parameter& p : region.parameters) {
    if (p.summed_over_kv) {
      kv_->all_reduce(gradients + p.offset, p.count(), Number<Wide<T>>::kElement, Reduction::sum);
    }
  }
}

template <class T>
const T* Chunk<T>::gathered(const T* local, T* memory) const {
  if (!shape().split) return local;
  tp_->all_gather(local, memory, boundary_count(), Number<T>::kElement);
  return memory;
}

template <class T>
const T* Chunk<T>::reduced(T* partial, T* scattered) const {
  if (spec().tp == 1) return partial;
  if (!shape().split) {
    tp_->all_reduce(partial, boundary_count(), Number<T>::kElement, Reduction::sum);
    return partial;
  }
  tp_->reduce_scatter(partial, scattered, boundary_count(), Number<T>::kElement);
  return scattered;
}

template <class T>
void Chunk<T>::row_parallel(const T* x, std::int64_t width, const T* weight, const T* bias,
                            const T* residual, const Workspace<T>& work, T* out) const {
  const ChunkShape& s = shape();
  T* const partial = s.split ? work.partial : out;
  multiply(x, s.rows, width, weight, s.hidden, partial);
  reduced(partial, out);
  if (bias != nullptr) cpu::add_bias(out, bias, s.local, s.hidden);
  cpu::add(out, residual, boundary_count());
}

template <class T>
void Chunk<T>::norm_forward(const T* x, const T* weight, const T* bias,
                            const Workspace<T>& work) const {
  const ChunkShape& s = shape();
  const double eps = spec().norm_eps;
  if (spec().model.normalization == Normalization::layer_norm) {
    cpu::layer_norm_forward(x, weight, bias, work.normed, work.mean, work.rstd, s.local, s.hidden,
                            eps);
  } else {
    cpu::rms_norm_forward(x, weight, work.normed, work.rstd, s.local, s.hidden, eps);
  }
}

template <class T>
void Chunk<T>::norm_backward(const T* dy, const T* x, const T* weight, Wide<T>* dweight,
                             Wide<T>* dbias, const Workspace<T>& work, T* dx) const {
  const ChunkShape& s = shape();
  if (spec().model.normalization == Normalization::layer_norm) {
    cpu::layer_norm_backward(dy, x, weight, work.mean, work.rstd, dx, dweight, dbias, s.local,
                             s.hidden);
  } else {
    cpu::rms_norm_backward(dy, x, weight, work.rstd, dx, dweight, s.local, s.hidden);
  }
}

template class Chunk<double>;
template class Chunk<float>;
template class Chunk<Bfloat16>;

}  // namespace echelon
