// Chunk: the MLP of a layer with experts. Every tensor-parallel rank routes all rows and has its
// part of each expert, so that the sum over the ranks is that of a dense MLP. The weights of a
// row's experts multiply the inputs of the down projections. Where several ranks share the experts
// (ep), rows travel to them and back.
#include <algorithm>
#include <numeric>

#include "core/model/router_arithmetic.hpp"
#include "runtime/model/chunk.hpp"

namespace echelon {

namespace {

std::vector<std::int64_t> times(std::vector<std::int64_t> rows, std::int64_t width) {
  for (std::int64_t& each : rows) each *= width;
  return rows;
}

/// What arrived for an expert lies together.
ExchangeParts by_expert(const std::vector<std::int64_t>& counts) {
  return {counts, PartOrder::by_part};
}

}  // namespace

template <class T>
Router Chunk<T>::router() const {
  const MixtureOfExperts& moe = spec().model.moe;
  const auto& others = spec().model.constants->other_arithmetic;
  const bool by_best_expert = std::ranges::count(others, kGroupsByBestExpert) > 0;
  return {.rows = shape().rows,
          .experts = moe.experts,
          .choices = moe.experts_per_token,
          .normalized = moe.router_normalized,
          .scaling = moe.router_scaling,
          .score = moe.router_score,
          .groups = moe.router_groups,
          .group_choices = moe.router_group_topk,
          .group_best = by_best_expert ? 1 : 2};
}

/// The host waits for the counts, and a GPU that has nothing else to do for the host.
template <class T>
typename Chunk<T>::Exchange Chunk<T>::exchange_of(const ExpertRouting<T>& routing) const {
  const ScopedSubSpan wait(k_, spec().ep > 1 ? Within::ep_comm : Within::host);
  const int all = shape().experts;
  const int own = all / spec().ep;
  std::vector<std::int32_t> counts(static_cast<std::size_t>(spec().ep * all));
  k_.download(routing.counts, counts.data(),
              static_cast<std::int64_t>(counts.size() * sizeof counts.front()));
  Exchange out;
  const auto sent = counts.begin() + spec().ep_rank * all;
  out.to.assign(sent, sent + all);
  for (int rank = 0; rank < spec().ep; ++rank) {
    const auto got = counts.begin() + rank * all + spec().ep_rank * own;
    out.from.insert(out.from.end(), got, got + own);
  }
  for (int e = 0; e < own; ++e) {
    std::int64_t count = 0;
    for (int rank = 0; rank < spec().ep; ++rank)
      count += out.from[static_cast<std::size_t>(rank * own + e)];
    if (count > 0) out.experts.push_back({e, out.rows, count});
    out.rows += count;
  }
  return out;
}

template <class T>
const T* Chunk<T>::dispatch(const T* x, const ExpertRouting<T>& routing, const Exchange& exchange,
                            const ChunkArguments<T>& args) const {
  const ChunkShape& s = shape();
  const Workspace<T> work = layout_.workspace(args, LayerKind::moe);
  const bool shared = spec().ep > 1;
  k_.gather_rows(x, routing.own.rows, s.sent, s.hidden, shared ? work.sent : work.routed);
  if (shared) {
    const std::vector<std::int64_t> from = times(exchange.from, s.hidden);
    ep_->all_to_all(work.sent, times(exchange.to, s.hidden), work.routed, by_expert(from),
                    Number<T>::kElement);
  }
  return work.routed;
}

template <class T>
void Chunk<T>::combine(const ExpertRouting<T>& routing, const Exchange& exchange, const T* addend,
                       T* y, const ChunkArguments<T>& args) const {
  const ChunkShape& s = shape();
  const Workspace<T> work = layout_.workspace(args, LayerKind::moe);
  const bool shared = spec().ep > 1;
  if (shared) {
    const std::vector<std::int64_t> from = times(exchange.from, s.hidden);
    ep_->all_to_all(work.routed, by_expert(from), work.sent, times(exchange.to, s.hidden),
                    Number<T>::kElement);
  }
  k_.combine_rows(shared ? work.sent : work.routed, routing.own.slots, s.rows, s.choices, s.hidden,
                  addend, y);
}

template <class T>
typename Chunk<T>::Exchange Chunk<T>::experts_up(int layer, const ChunkArguments<T>& args,
                                                 const SavedActivations<T>& activations,
                                                 const T* in) const {
  const ChunkShape& s = shape();
  const LayerOffsets& at = layout_.layer(layer);
  const ExpertRouting<T>& routing = activations.routing;
  k_.multiply({in, s.rows, s.hidden}, args.weights + at.router, s.experts, nullptr, nullptr,
              activations.logits);
  // Each tensor-parallel rank has a part of every expert, so all have to choose alike: products of
  // the same numbers may differ in their last bits (other algorithms), and so may replicated
  // weights.
  if (spec().tp > 1) {
    tp_->broadcast(activations.logits, s.rows * s.experts, Number<T>::kElement, 0);
  }
  const bool biased = spec().model.moe.router_bias;
  k_.route(router(), activations.logits, biased ? args.weights + at.router_bias : nullptr,
           routing.own);
  shared_up(layer, args, activations, in);
  if (spec().ep > 1) ep_->all_gather(routing.own.counts, routing.counts, s.experts, Element::i32);
  const Exchange& exchange = exchanges_[routing.counts] = exchange_of(routing);
  if (spec().ep > 1) {
    ep_->all_to_all(routing.own.weights, exchange.to, routing.weights, by_expert(exchange.from),
                    Number<Wide<T>>::kElement);
  }
  const T* const routed = dispatch(in, routing, exchange, args);
  for (const ExpertRows& e : exchange.experts) {
    k_.multiply({routed + e.first * s.hidden, e.count, s.hidden},
                expert_weights(args) + at.up + e.expert * s.expert_up * s.hidden, s.expert_up,
                nullptr, nullptr, activations.up + e.first * s.expert_up);
  }
  return exchange;
}

template <class T>
SumBefore<T> Chunk<T>::experts_down(int layer, const ChunkArguments<T>& args,
                                    const SavedActivations<T>& activations,
                                    const Exchange& exchange) const {
  const ChunkShape& s = shape();
  const LayerOffsets& at = layout_.layer(layer);
  const Workspace<T> work = layout_.workspace(args, LayerKind::moe);
  T* const out = layout_.new_state(layer + 1, args);
  T* const partial = s.split ? work.partial : out;
  const T* const shared = shared_down(layer, args, activations, partial);
  activate(activations.up, work.activated, exchange.rows, s.expert_ffn);
  k_.weight_rows(work.activated, activations.routing.weights, exchange.rows, s.expert_ffn);
  for (const ExpertRows& e : exchange.experts) {
    k_.multiply({work.activated + e.first * s.expert_ffn, e.count, s.expert_ffn},
                expert_weights(args) + at.down + e.expert * s.hidden * s.expert_ffn, s.hidden,
                nullptr, nullptr, work.routed + e.first * s.hidden);
  }
  combine(activations.routing, exchange, shared, partial, args);
  reduced(partial, out);
  return {nullptr, activations.middle, out};
}

// ---- Backward

/// Step 1: from the gradient of the output to those of the down projections' inputs, of the
/// weights, and of the up projections' outputs. Step 2: to the gradient of the normed input, from
/// the experts and from the router. The gradients of the matrices follow where the rows that they
/// need are at hand.
template <class T>
void Chunk<T>::experts_backward(int layer, const ChunkArguments<T>& args,
                                const SavedActivations<T>& activations, const Exchange& exchange,
                                const WeightInputs<T>& later, Weights weights) const {
  const ChunkShape& s = shape();
  const ModelSpec& model = spec().model;
  const LayerOffsets& at = layout_.layer(layer);
  const Workspace<T> work = layout_.workspace(args, LayerKind::moe);
  const ExpertRouting<T>& routing = activations.routing;
  const bool now = weights == Weights::now;
  const T* const whole = gathered(args.gradient, work.partial);
  const SharedGradients shared = shared_backward(layer, args, activations, whole, later, weights);
  const T* const routed_gradient = dispatch(whole, routing, exchange, args);
  for (const ExpertRows& e : exchange.experts) {
    k_.multiply_back({routed_gradient + e.first * s.hidden, e.count, s.hidden},
                     expert_weights(args) + at.down + e.expert * s.hidden * s.expert_ffn,
                     s.expert_ffn, work.activated_gradient + e.first * s.expert_ffn);
  }
  T* const activated = later.activated != nullptr ? later.activated : work.activated;
  activate(activations.up, activated, exchange.rows, s.expert_ffn);
  k_.weight_rows_backward(activated, work.activated_gradient, routing.weights,
                          work.weight_gradients, exchange.rows, s.expert_ffn);
  if (now) experts_down_weights(layer, args, exchange, routed_gradient, activated);
  T* const up_gradient = now ? work.up_gradient : later.up_gradient;
  k_.activation_backward(model.activation, model.gated_mlp, activations.up, work.activated_gradient,
                         up_gradient, nullptr, exchange.rows, s.expert_ffn);
  const Wide<T>* weight_gradients = work.weight_gradients;
  if (spec().ep > 1) {
    ep_->all_to_all(work.weight_gradients, by_expert(exchange.from), work.sent_weight_gradients,
                    exchange.to, Number<Wide<T>>::kElement);
    weight_gradients = work.sent_weight_gradients;
  }
  T* const logits_gradient = now ? work.router_gradient : later.logits_gradient;
  k_.route_backward(router(), activations.logits, routing.own, weight_gradients, logits_gradient);

  norm_forward(activations.middle, {}, args.weights + at.mlp_norm, args.weights + at.mlp_norm_bias,
               work);
  Coming in;
  if (now) {
    in = begin_gather(work.normed, work.gathered);
  } else {
    k_.copy(args.gradient, later.mlp_gradient, boundary_count());
  }
  for (const ExpertRows& e : exchange.experts) {
    k_.multiply_back({up_gradient + e.first * s.expert_up, e.count, s.expert_up},
                     expert_weights(args) + at.up + e.expert * s.expert_up * s.hidden, s.hidden,
                     work.routed + e.first * s.hidden);
  }
  k_.multiply_back({logits_gradient, s.rows, s.experts}, args.weights + at.router, s.hidden,
                   work.partial);
  combine(routing, exchange, work.partial, work.partial, args);
  add_shared_input_gradient(layer, args, shared, work.partial);
  const Coming dx = begin_reduce(work.partial, work.normed);
  if (now) {
    experts_up_weights(layer, args, exchange, routing, arrived(in), up_gradient, logits_gradient);
    shared_up_weights(layer, args, in.data, shared);
  }
  k_.norm_backward(norm_of(activations.middle, args.weights + at.mlp_norm, nullptr, work),
                   arrived(dx), args.gradient, args.gradient, args.gradients + at.mlp_norm,
                   args.gradients + at.mlp_norm_bias);
}

template <class T>
typename Chunk<T>::Coming Chunk<T>::experts_backward_weight(int layer,
                                                            const ChunkArguments<T>& args,
                                                            const Coming& whole,
                                                            const Coming& in) const {
  const ChunkShape& s = shape();
  const Workspace<T> work = layout_.workspace(args, LayerKind::moe);
  const SavedActivations<T> activations = layout_.saved_activations(layer, args);
  const WeightInputs<T> kept = layout_.weight_inputs(layer, args);
  const ExpertRouting<T>& routing =
      kept.routing.counts != nullptr ? kept.routing : activations.routing;
  const Exchange& exchange = exchanges_.at(routing.counts);
  const T* const upstream = arrived(whole);
  if (kept.shared_activated == nullptr) activate_shared(args, activations, work.activated);
  shared_down_weights(layer, args, upstream,
                      kept.shared_activated != nullptr ? kept.shared_activated : work.activated);
  const T* activated = kept.activated;
  if (activated == nullptr) {
    activate(activations.up, work.activated, exchange.rows, s.expert_ffn);
    k_.weight_rows(work.activated, routing.weights, exchange.rows, s.expert_ffn);
    activated = work.activated;
  }
  experts_down_weights(layer, args, exchange, dispatch(upstream, routing, exchange, args),
                       activated);
  const Coming next = begin_gather(kept.attention_gradient, work.partial);
  experts_up_weights(layer, args, exchange, routing, arrived(in), kept.up_gradient,
                     kept.logits_gradient);
  shared_up_weights(layer, args, in.data, {kept.shared_up_gradient, kept.shared_gate_gradient});
  return next;
}

template <class T>
void Chunk<T>::experts_down_weights(int layer, const ChunkArguments<T>& args,
                                    const Exchange& exchange, const T* routed_gradient,
                                    const T* activated) const {
  const ChunkShape& s = shape();
  Wide<T>* const to = expert_gradients(args) + layout_.layer(layer).down;
  for (const ExpertRows& e : exchange.experts) {
    k_.add_weight_gradient({routed_gradient + e.first * s.hidden, e.count, s.hidden},
                           {activated + e.first * s.expert_ffn, e.count, s.expert_ffn},
                           to + e.expert * s.hidden * s.expert_ffn);
  }
}

template <class T>
void Chunk<T>::experts_up_weights(int layer, const ChunkArguments<T>& args,
                                  const Exchange& exchange, const ExpertRouting<T>& routing,
                                  const T* in, const T* up_gradient,
                                  const T* logits_gradient) const {
  const ChunkShape& s = shape();
  const LayerOffsets& at = layout_.layer(layer);
  k_.add_weight_gradient({logits_gradient, s.rows, s.experts}, {in, s.rows, s.hidden},
                         args.gradients + at.router);
  const T* const routed = dispatch(in, routing, exchange, args);
  for (const ExpertRows& e : exchange.experts) {
    k_.add_weight_gradient({up_gradient + e.first * s.expert_up, e.count, s.expert_up},
                           {routed + e.first * s.hidden, e.count, s.hidden},
                           expert_gradients(args) + at.up + e.expert * s.expert_up * s.hidden);
  }
}

#define ECHELON_CHUNK_EXPERTS(T)                                                                   \
  template typename Chunk<T>::Exchange Chunk<T>::exchange_of(const ExpertRouting<T>&) const;       \
  template typename Chunk<T>::Exchange Chunk<T>::experts_up(                                       \
      int, const ChunkArguments<T>&, const SavedActivations<T>&, const T*) const;                  \
  template SumBefore<T> Chunk<T>::experts_down(int, const ChunkArguments<T>&,                      \
                                               const SavedActivations<T>&, const Exchange&) const; \
  template void Chunk<T>::experts_backward(int, const ChunkArguments<T>&,                          \
                                           const SavedActivations<T>&, const Exchange&,            \
                                           const WeightInputs<T>&, Weights) const;                 \
  template typename Chunk<T>::Coming Chunk<T>::experts_backward_weight(                            \
      int, const ChunkArguments<T>&, const Coming&, const Coming&) const;
ECHELON_CHUNK_EXPERTS(double)
ECHELON_CHUNK_EXPERTS(float)
ECHELON_CHUNK_EXPERTS(Bfloat16)
#undef ECHELON_CHUNK_EXPERTS

}  // namespace echelon
