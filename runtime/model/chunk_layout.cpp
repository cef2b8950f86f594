#include "runtime/model/chunk_layout.hpp"

#include <algorithm>
#include <string>

#include "core/base/expects.hpp"

namespace echelon {

namespace {

/// Enough rows for a matrix product at full rate, and the microbatch of most runs on processors,
/// whose logits are then computed once; those of 128k words in bf16 take 256 MiB.
constexpr std::int64_t kLossRows = 1024;

std::int64_t offset_of(const FlatParameters& flat, const std::string& name) {
  for (const Parameter& p : flat.parameters) {
    if (p.name == name) return p.offset;
  }
  EXPECTS(false, "no parameter " + name);
  return 0;
}

LayerOffsets layer_offsets(const ModelSpec& model, const FlatParameters& flat, int layer) {
  const std::string at = "layers." + std::to_string(layer) + ".";
  const std::string first_up = model.gated_mlp ? "mlp.gate" : "mlp.up";
  const auto find = [&](const std::string& name) { return offset_of(flat, at + name); };
  LayerOffsets o;
  o.attention_norm = find("attention.norm.weight");
  o.mlp_norm = find("mlp.norm.weight");
  if (model.normalization == Normalization::layer_norm) {
    o.attention_norm_bias = find("attention.norm.bias");
    o.mlp_norm_bias = find("mlp.norm.bias");
  }
  o.qkv = find("attention.q.weight");
  if (model.qkv_bias) o.qkv_bias = find("attention.q.bias");
  if (model.qk_norm) {
    o.q_norm = find("attention.q_norm.weight");
    o.k_norm = find("attention.k_norm.weight");
  }
  o.output = find("attention.output.weight");
  if (model.attention_output_bias) o.output_bias = find("attention.output.bias");
  o.up = find(first_up + ".weight");
  o.down = find("mlp.down.weight");
  if (model.mlp_bias) {
    o.up_bias = find(first_up + ".bias");
    o.down_bias = find("mlp.down.bias");
  }
  return o;
}

EndOffsets end_offsets(const ChunkSpec& spec, const ChunkParameters& parameters) {
  const ModelSpec& model = spec.model;
  const FlatParameters& first = parameters.flat_params.front();
  const FlatParameters& last = parameters.flat_params[static_cast<std::size_t>(spec.units - 1)];
  EndOffsets o;
  if (spec.embedding) {
    if (!model.tied_embeddings) o.word_embedding = offset_of(first, "embedding.word.weight");
    if (model.position == PositionEmbedding::learned) {
      o.position = offset_of(first, "embedding.position.weight");
    }
  }
  if (spec.loss) {
    o.final_norm = offset_of(last, "final_norm.weight");
    if (model.normalization == Normalization::layer_norm) {
      o.final_norm_bias = offset_of(last, "final_norm.bias");
    }
    if (!model.tied_embeddings) o.head = offset_of(last, "head.weight");
    if (model.head_bias) o.head_bias = offset_of(last, "head.bias");
  }
  return o;
}

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
  EXPECTS(s.heads % spec.cp == 0 && s.kv_heads % spec.cp == 0, "cp does not divide the heads");
  s.query = std::int64_t{s.heads} * model.head_dim;
  s.qkv = s.query + 2 * std::int64_t{s.kv_heads} * model.head_dim;
  s.ffn = model.ffn_hidden / spec.tp;
  s.up = model.gated_mlp ? 2 * s.ffn : s.ffn;
  s.vocab = spec.padded_vocab / spec.tp;
  s.first_vocab = spec.tp_rank * s.vocab;
  s.valid_vocab = std::clamp<std::int64_t>(model.vocab - s.first_vocab, 0, s.vocab);
  s.loss_rows = std::min(s.rows, kLossRows);
  return s;
}

AttentionShape attention_shape_of(const ChunkSpec& spec) {
  const ChunkShape s = shape_of(spec);
  return {.sequence = spec.sequence,
          .samples = spec.microbatch,
          .heads = s.heads / spec.cp,
          .kv_heads = s.kv_heads / spec.cp,
          .head_dim = spec.model.head_dim,
          .qkv_stride = s.qkv / spec.cp,
          .out_stride = s.query / spec.cp};
}

template <class T>
ChunkLayout<T>::ChunkLayout(const ChunkSpec& spec)
    : spec_(spec), parameters_(parameters_of(spec)), shape_(shape_of(spec)) {
  EXPECTS(spec.recompute.size() == static_cast<std::size_t>(spec.layers),
          "one recomputation policy per layer");
  EXPECTS(std::count(spec.recompute.begin(), spec.recompute.end(), Recompute::mixed) == 0,
          "a layer is recomputed in one way");
  EXPECTS(spec.model.position != PositionEmbedding::learned ||
              spec.sequence <= spec.model.max_positions,
          "more tokens than positions");
  for (int unit = 0; unit < spec.units; ++unit) {
    const FlatParameters& flat = parameters_.flat_params[static_cast<std::size_t>(unit)];
    for (int l = spec.first_layer_of(unit); l < spec.first_layer_of(unit + 1); ++l) {
      layers_.push_back(layer_offsets(spec.model, flat, spec.first_layer + l));
    }
  }
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
  BumpAllocator workspace(nullptr);
  static_cast<void>(allocate_workspace(workspace));
  memory_ = {saved.used(), weight_inputs.used(), workspace.used()};
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
  activations.middle = all.allocate<T>(s.local * s.hidden);
  activations.up = all.allocate<T>(s.rows * s.up);
  activations.attended = core.allocate<T>(s.rows * s.query);
  activations.attention = spec_.cp > 1 ? core.allocate<T>(s.rows * s.query) : activations.attended;
  activations.log_sum = core.allocate<Wide<T>>(s.rows * s.heads);
  return activations;
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
  w.up_gradient = allocator.allocate<T>(s.rows * s.up);
  w.attention_gradient = allocator.allocate<T>(s.local * s.hidden);
  w.qkv_gradient = allocator.allocate<T>(s.rows * s.qkv);
  if (recompute(layer) != Recompute::none) w.attended = allocator.allocate<T>(s.rows * s.query);
  if (recompute(layer) == Recompute::full) {
    w.middle = allocator.allocate<T>(s.local * s.hidden);
    w.activated = allocator.allocate<T>(s.rows * s.ffn);
  }
  return w;
}

template <class T>
Workspace<T> ChunkLayout<T>::allocate_workspace(BumpAllocator& allocator) const {
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
  if (spec_.layers > 0) {
    w.activated = mlp.allocate<T>(s.rows * s.ffn);
    w.activated_gradient = mlp.allocate<T>(s.rows * s.ffn);
    w.up_gradient = mlp.allocate<T>(s.rows * s.up);
    w.attended_gradient = attention.allocate<T>(s.rows * s.query);
    w.qkv_gradient = attention.allocate<T>(s.rows * s.qkv);
    if (spec_.model.qk_norm || spec_.cp > 1) {
      w.normed_qkv = w.exchanged = attention.allocate<T>(s.rows * s.qkv);
    }
  }
  if (spec_.loss) w.logits = loss.allocate<T>(s.loss_rows * s.vocab);
  for (const BumpAllocator& turn : {mlp, attention, loss}) {
    if (turn.used() > allocator.used()) allocator = turn;
  }
  return w;
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
WeightInputs<T> ChunkLayout<T>::weight_inputs(int layer, const ChunkArguments<T>& args) const {
  BumpAllocator allocator(args.weight_inputs + weight_inputs_at_[static_cast<std::size_t>(layer)]);
  return allocate_weight_inputs(layer, allocator);
}

template <class T>
Workspace<T> ChunkLayout<T>::workspace(const ChunkArguments<T>& args) const {
  BumpAllocator allocator(args.workspace);
  return allocate_workspace(allocator);
}

template class ChunkLayout<double>;
template class ChunkLayout<float>;
template class ChunkLayout<Bfloat16>;

}  // namespace echelon
