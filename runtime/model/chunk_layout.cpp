#include "runtime/model/chunk_layout.hpp"

#include <algorithm>
#include <string>

#include "core/base/expects.hpp"

namespace echelon {

namespace {

/// Enough rows for a matrix product at full rate, and the microbatch of most runs on processors,
/// whose logits are then made once; those of 128k words in bf16 take 256 MiB.
constexpr std::int64_t kLossRows = 1024;

std::int64_t offset_of(const Region& region, const std::string& name) {
  for (const Parameter& p : region.parameters) {
    if (p.name == name) return p.offset;
  }
  EXPECTS(false, "no parameter " + name);
  return 0;
}

LayerOffsets layer_offsets(const ModelSpec& model, const Region& region, int layer) {
  const std::string at = "layers." + std::to_string(layer) + ".";
  const std::string first_up = model.gated_mlp ? "mlp.gate" : "mlp.up";
  const auto find = [&](const std::string& name) { return offset_of(region, at + name); };
  LayerOffsets o;
  o.attention_norm = find("attention.norm.weight");
  o.mlp_norm = find("mlp.norm.weight");
  if (model.normalization == Normalization::layer_norm) {
    o.attention_norm_bias = find("attention.norm.bias");
    o.mlp_norm_bias = find("mlp.norm.bias");
  }
  o.qkv = find("attention.q.weight");
  if (model.qkv_bias) o.qkv_bias = find("attention.q.bias");
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
  const Region& first = parameters.regions.front();
  const Region& last = parameters.regions[static_cast<std::size_t>(spec.units - 1)];
  EndOffsets o;
  if (spec.embedding) {
    if (!model.tied_embeddings) o.word = offset_of(first, "embedding.word.weight");
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
  s.rows = std::int64_t{spec.sequence} * spec.microbatch;
  EXPECTS(s.rows > 0, "a microbatch without tokens");
  EXPECTS(!s.split || spec.sequence % spec.tp == 0, "tp does not divide the sequence");
  s.local = s.split ? s.rows / spec.tp : s.rows;
  s.hidden = model.hidden;
  EXPECTS(model.heads % spec.tp == 0, "tp does not divide the heads");
  s.heads = model.heads / spec.tp;
  s.kv_heads = std::max(1, model.kv_heads / spec.tp);
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

template <class T>
ChunkLayout<T>::ChunkLayout(const ChunkSpec& spec)
    : spec_(spec), parameters_(parameters_of(spec)), shape_(shape_of(spec)) {
  EXPECTS(spec.recompute.size() == static_cast<std::size_t>(spec.layers),
          "recomputation is said layer by layer");
  EXPECTS(std::count(spec.recompute.begin(), spec.recompute.end(), Recompute::mixed) == 0,
          "a layer is recomputed in one way");
  EXPECTS(spec.model.position != PositionEmbedding::learned ||
              spec.sequence <= spec.model.max_positions,
          "more tokens than positions");
  for (int unit = 0; unit < spec.units; ++unit) {
    const Region& region = parameters_.regions[static_cast<std::size_t>(unit)];
    for (int l = spec.first_layer_of(unit); l < spec.first_layer_of(unit + 1); ++l) {
      layers_.push_back(layer_offsets(spec.model, region, spec.first_layer + l));
    }
  }
  ends_ = end_offsets(spec, parameters_);
  measure();
}

template <class T>
void ChunkLayout<T>::measure() {
  Carver saved(nullptr);
  Carver weight_inputs(nullptr);
  for (int l = 0; l < spec_.layers; ++l) {
    Carver again(nullptr);
    saved_at_.push_back(saved.used());
    weight_inputs_at_.push_back(weight_inputs.used());
    if (saves_state(l)) static_cast<void>(saved.take<T>(shape_.local * shape_.hidden));
    static_cast<void>(carve_tape(l, saved, again));
    static_cast<void>(carve_weight_inputs(l, weight_inputs));
    again_ = std::max(again_, again.used());
  }
  saved_at_.push_back(saved.used());
  if (spec_.loss) static_cast<void>(carve_loss(saved));
  Carver workspace(nullptr);
  static_cast<void>(carve_workspace(workspace));
  memory_ = {saved.used(), weight_inputs.used(), workspace.used()};
}

template <class T>
const T* ChunkLayout<T>::state(int layer, const Pass<T>& pass) const {
  return layer == 0 && !spec_.embedding ? pass.input : new_state(layer, pass);
}

template <class T>
T* ChunkLayout<T>::new_state(int layer, const Pass<T>& pass) const {
  if (!saves_state(layer)) return pass.output;
  return reinterpret_cast<T*>(pass.saved + saved_at_[static_cast<std::size_t>(layer)]);
}

template <class T>
LayerTape<T> ChunkLayout<T>::carve_tape(int layer, Carver& saved, Carver& again) const {
  const ChunkShape& s = shape_;
  Carver& all = recompute(layer) == Recompute::full ? again : saved;
  Carver& core = recompute(layer) == Recompute::none ? saved : again;
  LayerTape<T> tape;
  tape.qkv = all.take<T>(s.rows * s.qkv);
  tape.middle = all.take<T>(s.local * s.hidden);
  tape.up = all.take<T>(s.rows * s.up);
  tape.attended = core.take<T>(s.rows * s.query);
  tape.log_sum = core.take<Wide<T>>(s.rows * s.heads);
  return tape;
}

template <class T>
LossTape<T> ChunkLayout<T>::carve_loss(Carver& saved) const {
  if (saves_state(spec_.layers)) static_cast<void>(saved.take<T>(shape_.local * shape_.hidden));
  LossTape<T> tape;
  tape.max = saved.take<Wide<T>>(shape_.rows);
  tape.sums = saved.take<Wide<T>>(2 * shape_.rows);
  return tape;
}

template <class T>
WeightInputs<T> ChunkLayout<T>::carve_weight_inputs(int layer, Carver& carver) const {
  const ChunkShape& s = shape_;
  WeightInputs<T> w;
  w.mlp_gradient = carver.take<T>(s.local * s.hidden);
  w.up_gradient = carver.take<T>(s.rows * s.up);
  w.attention_gradient = carver.take<T>(s.local * s.hidden);
  w.qkv_gradient = carver.take<T>(s.rows * s.qkv);
  if (recompute(layer) != Recompute::none) w.attended = carver.take<T>(s.rows * s.query);
  if (recompute(layer) == Recompute::full) {
    w.middle = carver.take<T>(s.local * s.hidden);
    w.activated = carver.take<T>(s.rows * s.ffn);
  }
  return w;
}

template <class T>
Workspace<T> ChunkLayout<T>::carve_workspace(Carver& carver) const {
  const ChunkShape& s = shape_;
  static_cast<void>(carver.take<std::byte>(again_));
  Workspace<T> w;
  w.normed = carver.take<T>(s.local * s.hidden);
  w.mean = carver.take<Wide<T>>(s.local);
  w.rstd = carver.take<Wide<T>>(s.local);
  w.partial = carver.take<T>(s.rows * s.hidden);
  if (s.split) w.gathered = carver.take<T>(s.rows * s.hidden);
  Carver mlp = carver;
  Carver attention = carver;
  Carver loss = carver;
  if (spec_.layers > 0) {
    w.activated = mlp.take<T>(s.rows * s.ffn);
    w.activated_gradient = mlp.take<T>(s.rows * s.ffn);
    w.up_gradient = mlp.take<T>(s.rows * s.up);
    w.attended_gradient = attention.take<T>(s.rows * s.query);
    w.qkv_gradient = attention.take<T>(s.rows * s.qkv);
  }
  if (spec_.loss) w.logits = loss.take<T>(s.loss_rows * s.vocab);
  for (const Carver& turn : {mlp, attention, loss}) {
    if (turn.used() > carver.used()) carver = turn;
  }
  return w;
}

template <class T>
LayerTape<T> ChunkLayout<T>::tape(int layer, const Pass<T>& pass) const {
  Carver saved(pass.saved + saved_at_[static_cast<std::size_t>(layer)]);
  Carver again(pass.workspace);
  if (saves_state(layer)) static_cast<void>(saved.take<T>(shape_.local * shape_.hidden));
  return carve_tape(layer, saved, again);
}

template <class T>
LossTape<T> ChunkLayout<T>::loss_tape(const Pass<T>& pass) const {
  Carver saved(pass.saved + saved_at_.back());
  return carve_loss(saved);
}

template <class T>
WeightInputs<T> ChunkLayout<T>::weight_inputs(int layer, const Pass<T>& pass) const {
  Carver carver(pass.weight_inputs + weight_inputs_at_[static_cast<std::size_t>(layer)]);
  return carve_weight_inputs(layer, carver);
}

template <class T>
Workspace<T> ChunkLayout<T>::workspace(const Pass<T>& pass) const {
  Carver carver(pass.workspace);
  return carve_workspace(carver);
}

template class ChunkLayout<double>;
template class ChunkLayout<float>;
template class ChunkLayout<Bfloat16>;

}  // namespace echelon
