#include "runtime/model/chunk_layout.hpp"

#include <algorithm>

#include "core/base/expects.hpp"

namespace echelon {

namespace {

/// For every so many rows (R) the gradient of the head's weights, in fp32, is read and written
/// once: 8Vh bytes to 2RVh FLOPs, which take an H200 (4.8 TB/s, 989 TFLOP/s) as long as each other
/// at R = 824. Logits of 128k words in bf16 take 1 GiB, in memory that layers use in turn.
constexpr std::int64_t kLossRows = 4096;

}  // namespace

ChunkShape shape_of(const ChunkSpec& spec) {
  const ModelSpec& model = spec.model;
  ChunkShape s;
  s.split = spec.sequence_parallel && spec.tp > 1;
  EXPECTS(spec.sequence % spec.cp == 0, "cp does not divide the sequence");
  const int slice = spec.sequence / spec.cp;
  s.rows = std::int64_t{slice} * spec.microbatch;
  EXPECTS(s.rows > 0, "a microbatch without tokens");
  EXPECTS(!s.split || slice % spec.tp == 0, "tp does not divide the sequence");
  s.local = s.split ? s.rows / spec.tp : s.rows;
  s.hidden = model.hidden;
  EXPECTS(model.heads % spec.tp == 0, "tp does not divide the heads");
  s.heads = model.heads / spec.tp;
  s.kv_heads = std::max(1, model.kv_heads / spec.tp);
  EXPECTS(!spec.splits_heads() || (s.heads % spec.cp == 0 && s.kv_heads % spec.cp == 0),
          "cp does not divide the heads");
  EXPECTS(!spec.passes_keys() || slice % 2 == 0, "2·cp does not divide the sequence");
  s.query = std::int64_t{s.heads} * model.head_dim;
  s.attended = model.attention_output_width() / spec.tp;
  s.qkv = s.query + 2 * std::int64_t{s.kv_heads} * model.head_dim;
  if (model.latent()) s.qkv = latent_shape_of(spec).qkv();
  s.ffn = model.ffn_hidden / spec.tp;
  s.up = model.gated_mlp ? 2 * s.ffn : s.ffn;
  s.experts = model.moe.experts;
  s.choices = model.moe.experts_per_token;
  s.expert_ffn = model.moe.expert_ffn_hidden / spec.tp;
  s.expert_up = model.gated_mlp ? 2 * s.expert_ffn : s.expert_ffn;
  s.shared_ffn = model.moe.shared_ffn_hidden / spec.tp;
  s.shared_up = model.gated_mlp ? 2 * s.shared_ffn : s.shared_ffn;
  s.gates = model.moe.shared_expert_gate ? s.rows : 0;
  s.sent = s.rows * s.choices;
  s.routed = spec.ep == 1 ? s.sent : spec.ep * s.rows * std::min(s.choices, s.experts / spec.ep);
  s.vocab = spec.padded_vocab / spec.tp;
  s.first_vocab = spec.tp_rank * s.vocab;
  s.valid_vocab = std::clamp<std::int64_t>(model.vocab - s.first_vocab, 0, s.vocab);
  s.loss_rows = std::min(s.rows, kLossRows);
  s.rank = spec.adapters ? spec.adapters->rank : 0;
  return s;
}

MatrixWidths widths_of(const ChunkShape& s, AdapterTarget target) {
  switch (target) {
    case AdapterTarget::linear_qkv: return {s.hidden, s.qkv};
    case AdapterTarget::linear_proj: return {s.attended, s.hidden};
    case AdapterTarget::linear_fc1: return {s.hidden, s.up};
    case AdapterTarget::linear_fc2: return {s.ffn, s.hidden};
  }
  return {};
}

template <class T>
ChunkLayout<T>::ChunkLayout(const ChunkSpec& spec)
    : spec_(spec),
      parameters_(parameters_of(spec)),
      shape_(shape_of(spec)),
      latent_(latent_shape_of(spec)) {
  EXPECTS(spec.recompute.size() == static_cast<std::size_t>(spec.layers),
          "one recomputation policy per layer");
  EXPECTS(std::count(spec.recompute.begin(), spec.recompute.end(), Recompute::mixed) == 0,
          "a layer is recomputed in one way");
  EXPECTS(spec.model.position != PositionEmbedding::learned ||
              spec.sequence <= spec.model.max_positions,
          "more tokens than positions");
  layers_ = layer_offsets(spec, parameters_);
  ends_ = end_offsets(spec, parameters_);
  measure();
}

template <class T>
void ChunkLayout<T>::measure() {
  BumpAllocator saved(nullptr);
  BumpAllocator weight_inputs(nullptr);
  for (int l = 0; l < spec_.layers; ++l) {
    BumpAllocator recomputed(nullptr);
    saved_at_.push_back(saved.used());
    weight_inputs_at_.push_back(weight_inputs.used());
    if (saves_state(l)) static_cast<void>(saved.allocate<T>(shape_.local * shape_.hidden));
    static_cast<void>(allocate_activations(l, saved, recomputed));
    static_cast<void>(allocate_weight_inputs(l, weight_inputs));
    recomputed_bytes_ = std::max(recomputed_bytes_, recomputed.used());
  }
  saved_at_.push_back(saved.used());
  if (spec_.loss) static_cast<void>(allocate_loss(saved));
  memory_ = {saved.used(), weight_inputs.used(), 0};
  for (const LayerKind kind : {LayerKind::dense, LayerKind::moe}) {
    BumpAllocator workspace(nullptr);
    static_cast<void>(allocate_workspace(workspace, kind));
    memory_.workspace = std::max(memory_.workspace, workspace.used());
  }
}

template <class T>
const T* ChunkLayout<T>::state(int layer, const ChunkArguments<T>& args) const {
  return layer == 0 && !spec_.embedding ? args.input : new_state(layer, args);
}

template <class T>
T* ChunkLayout<T>::new_state(int layer, const ChunkArguments<T>& args) const {
  if (!saves_state(layer)) return args.output;
  return reinterpret_cast<T*>(args.saved + saved_at_[static_cast<std::size_t>(layer)]);
}

template <class T>
SavedActivations<T> ChunkLayout<T>::allocate_activations(int layer, BumpAllocator& saved,
                                                         BumpAllocator& recomputed) const {
  const ChunkShape& s = shape_;
  BumpAllocator& all = recompute(layer) == Recompute::full ? recomputed : saved;
  BumpAllocator& core = recompute(layer) == Recompute::none ? saved : recomputed;
  SavedActivations<T> activations;
  activations.qkv = all.allocate<T>(s.rows * s.qkv);
  if (spec_.model.latent()) activations.latents = all.allocate<T>(s.rows * latent_.latents());
  activations.middle = all.allocate<T>(s.local * s.hidden);
  if (has_experts(layer)) {
    activations.up = all.allocate<T>(s.routed * s.expert_up);
    activations.logits = all.allocate<T>(s.rows * s.experts);
    activations.routing = allocate_routing(all);
    activations.shared_up = all.allocate<T>(s.rows * s.shared_up);
    activations.shared_gate = all.allocate<T>(s.gates);
  } else {
    activations.up = all.allocate<T>(s.rows * s.up);
  }
  for (const AdapterTarget target : kAdapterTargets) {
    T*& narrow = activations.narrow[static_cast<std::size_t>(target)];
    if (adapts(target)) narrow = all.allocate<T>(s.rows * s.rank);
  }
  activations.attended = core.allocate<T>(s.rows * s.attended);
  activations.attention =
      spec_.splits_heads() ? core.allocate<T>(s.rows * s.attended) : activations.attended;
  activations.log_sum = core.allocate<Wide<T>>(s.rows * s.heads);
  return activations;
}

template <class T>
ExpertRouting<T> ChunkLayout<T>::allocate_routing(BumpAllocator& allocator) const {
  const ChunkShape& s = shape_;
  ExpertRouting<T> routing;
  routing.own.experts = allocator.allocate<std::int32_t>(s.sent);
  routing.own.slots = allocator.allocate<std::int32_t>(s.sent);
  routing.own.rows = allocator.allocate<std::int32_t>(s.sent);
  routing.counts = allocator.allocate<std::int32_t>(std::int64_t{spec_.ep} * s.experts);
  routing.own.weights = allocator.allocate<Wide<T>>(s.sent);
  routing.weights = spec_.ep > 1 ? allocator.allocate<Wide<T>>(s.routed) : routing.own.weights;
  if (routing.counts != nullptr)
    routing.own.counts = routing.counts + std::int64_t{spec_.ep_rank} * s.experts;
  return routing;
}

template <class T>
SavedLoss<T> ChunkLayout<T>::allocate_loss(BumpAllocator& saved) const {
  if (saves_state(spec_.layers)) static_cast<void>(saved.allocate<T>(shape_.local * shape_.hidden));
  SavedLoss<T> activations;
  activations.max = saved.allocate<Wide<T>>(shape_.rows);
  activations.sums = saved.allocate<Wide<T>>(2 * shape_.rows);
  return activations;
}

template <class T>
WeightInputs<T> ChunkLayout<T>::allocate_weight_inputs(int layer, BumpAllocator& allocator) const {
  const ChunkShape& s = shape_;
  WeightInputs<T> w;
  w.mlp_gradient = allocator.allocate<T>(s.local * s.hidden);
  const bool experts = has_experts(layer);
  w.up_gradient = allocator.allocate<T>(experts ? s.routed * s.expert_up : s.rows * s.up);
  if (experts) {
    w.logits_gradient = allocator.allocate<T>(s.rows * s.experts);
    w.shared_up_gradient = allocator.allocate<T>(s.rows * s.shared_up);
    w.shared_gate_gradient = allocator.allocate<T>(s.gates);
  }
  w.attention_gradient = allocator.allocate<T>(s.local * s.hidden);
  if (spec_.model.latent()) {
    w.latent = allocate_latent_gradients(allocator);
  } else {
    w.qkv_gradient = allocator.allocate<T>(s.rows * s.qkv);
  }
  if (recompute(layer) != Recompute::none) w.attended = allocator.allocate<T>(s.rows * s.attended);
  if (recompute(layer) == Recompute::full) {
    w.middle = allocator.allocate<T>(s.local * s.hidden);
    w.activated = allocator.allocate<T>(experts ? s.routed * s.expert_ffn : s.rows * s.ffn);
    if (experts) {
      w.routing = allocate_routing(allocator);
      w.shared_activated = allocator.allocate<T>(s.rows * s.shared_ffn);
    }
    if (spec_.model.latent()) w.latents = allocator.allocate<T>(s.rows * latent_.latents());
  }
  return w;
}

template <class T>
Workspace<T> ChunkLayout<T>::allocate_workspace(BumpAllocator& allocator, LayerKind kind) const {
  const ChunkShape& s = shape_;
  static_cast<void>(allocator.allocate<std::byte>(recomputed_bytes_));
  Workspace<T> w;
  w.normed = allocator.allocate<T>(s.local * s.hidden);
  w.mean = allocator.allocate<Wide<T>>(s.local);
  w.rstd = allocator.allocate<Wide<T>>(s.local);
  w.partial = allocator.allocate<T>(s.rows * s.hidden);
  if (s.split) w.gathered = allocator.allocate<T>(s.rows * s.hidden);
  BumpAllocator mlp = allocator;
  BumpAllocator attention = allocator;
  BumpAllocator loss = allocator;
  bool has_kind = false;
  for (int l = 0; l < spec_.layers; ++l)
    has_kind = has_kind || has_experts(l) == (kind == LayerKind::moe);
  if (has_kind) {
    const bool experts = kind == LayerKind::moe;
    const std::int64_t rows = experts ? s.routed : s.rows;
    const std::int64_t activated =
        experts ? std::max(s.routed * s.expert_ffn, s.rows * s.shared_ffn) : s.rows * s.ffn;
    w.activated = mlp.allocate<T>(activated);
    w.activated_gradient = mlp.allocate<T>(activated);
    w.up_gradient = mlp.allocate<T>(rows * (experts ? s.expert_up : s.up));
    if (adapts({AdapterTarget::linear_fc1, AdapterTarget::linear_fc2}))
      w.mlp_narrow = mlp.allocate<T>(s.rows * s.rank);
    if (experts) {
      w.routed = mlp.allocate<T>(s.routed * s.hidden);
      w.weight_gradients = mlp.allocate<Wide<T>>(s.routed);
      w.router_gradient = mlp.allocate<T>(s.rows * s.experts);
      w.shared_up_gradient = mlp.allocate<T>(s.rows * s.shared_up);
      w.gate_weights = mlp.allocate<Wide<T>>(s.gates);
      w.gate_weight_gradients = mlp.allocate<Wide<T>>(s.gates);
      w.shared_gate_gradient = mlp.allocate<T>(s.gates);
      if (spec_.ep > 1) {
        w.sent = mlp.allocate<T>(s.sent * s.hidden);
        w.sent_weight_gradients = mlp.allocate<Wide<T>>(s.sent);
      }
    }
  }
  if (spec_.layers > 0) {
    w.attended_gradient = attention.allocate<T>(s.rows * s.attended);
    w.qkv_gradient = attention.allocate<T>(s.rows * s.qkv);
    if (spec_.model.qk_norm || spec_.splits_heads()) {
      w.normed_qkv = w.exchanged = attention.allocate<T>(s.rows * s.qkv);
    }
    if (spec_.passes_keys()) w.ring = allocate_ring(w, attention);
    if (adapts({AdapterTarget::linear_qkv, AdapterTarget::linear_proj}))
      w.attention_narrow = attention.allocate<T>(s.rows * s.rank);
    if (spec_.model.latent()) allocate_latent_workspace(w, attention);
  }
  if (spec_.loss) w.logits = loss.allocate<T>(s.loss_rows * s.vocab);
  for (const BumpAllocator& turn : {mlp, attention, loss}) {
    if (turn.used() > allocator.used()) allocator = turn;
  }
  return w;
}

template <class T>
RingBuffers<T> ChunkLayout<T>::allocate_ring(const Workspace<T>& w,
                                             BumpAllocator& attention) const {
  const std::int64_t block = shape_.rows * (shape_.qkv - shape_.query);
  RingBuffers<T> ring;
  for (T*& each : ring.blocks) each = attention.allocate<T>(2 * block);
  ring.gradients = attention.allocate<T>(block);
  // The forward's sums are no larger than the two gradients, whose memory it does not use.
  static_assert(sizeof(Wide<T>) <= 2 * sizeof(T));
  EXPECTS(shape_.attended <= shape_.qkv, "queries, keys and values are wider than their result");
  ring.sums = reinterpret_cast<Wide<T>*>(w.attended_gradient);
  return ring;
}

template <class T>
SavedActivations<T> ChunkLayout<T>::saved_activations(int layer,
                                                      const ChunkArguments<T>& args) const {
  BumpAllocator saved(args.saved + saved_at_[static_cast<std::size_t>(layer)]);
  BumpAllocator recomputed(args.workspace);
  if (saves_state(layer)) static_cast<void>(saved.allocate<T>(shape_.local * shape_.hidden));
  return allocate_activations(layer, saved, recomputed);
}

template <class T>
SavedLoss<T> ChunkLayout<T>::saved_loss(const ChunkArguments<T>& args) const {
  BumpAllocator saved(args.saved + saved_at_.back());
  return allocate_loss(saved);
}

template <class T>
LatentGradients<T> ChunkLayout<T>::allocate_latent_gradients(BumpAllocator& allocator) const {
  LatentGradients<T> g;
  g.q = allocator.allocate<T>(latent_.rows * latent_.query());
  g.kv = allocator.allocate<T>(latent_.rows * latent_.key_value());
  g.latents = allocator.allocate<T>(latent_.rows * latent_.latents());
  return g;
}

template <class T>
void ChunkLayout<T>::allocate_latent_workspace(Workspace<T>& w, BumpAllocator& attention) const {
  w.latent = allocate_latent_gradients(attention);
  w.normed_kv = attention.allocate<T>(latent_.rows * latent_.kv_rank);
  if (latent_.q_rank > 0) {
    w.normed_q = attention.allocate<T>(latent_.rows * latent_.q_rank);
  } else {
    w.from_queries = attention.allocate<T>(shape_.rows * shape_.hidden);
  }
}

template <class T>
WeightInputs<T> ChunkLayout<T>::weight_inputs(int layer, const ChunkArguments<T>& args) const {
  BumpAllocator allocator(args.weight_inputs + weight_inputs_at_[static_cast<std::size_t>(layer)]);
  return allocate_weight_inputs(layer, allocator);
}

template <class T>
Workspace<T> ChunkLayout<T>::workspace(const ChunkArguments<T>& args, LayerKind kind) const {
  BumpAllocator allocator(args.workspace);
  return allocate_workspace(allocator, kind);
}

template class ChunkLayout<double>;
template class ChunkLayout<float>;
template class ChunkLayout<Bfloat16>;

}  // namespace echelon
