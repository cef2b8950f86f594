// Over 400 lines because the order of all parameters of a unit is one list, in one place.
#include "runtime/model/parameters.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/expects.hpp"
#include "core/plan/executable.hpp"

namespace echelon {

namespace {

/// Which part of a matrix a tensor-parallel rank holds.
enum class ShardDim { none, rows, columns };

/// Standard deviation of the initial weights. Source: GPT-2's released code (model.py,
/// initializer_range 0.02) and Llama's and Megatron-LM's default.
constexpr double kDeviation = 0.02;

/// Lays out one set of flat parameters.
class FlatParametersBuilder {
 public:
  explicit FlatParametersBuilder(const ChunkSpec& spec) : spec_(spec) {}

  Parameter& add(std::string name, std::int64_t rows, std::int64_t columns, ShardDim split) {
    Parameter p;
    p.name = std::move(name);
    p.rows = rows;
    p.columns = columns;
    p.local_rows = split == ShardDim::rows ? rows / spec_.tp : rows;
    p.local_columns = split == ShardDim::columns ? columns / spec_.tp : columns;
    if (split == ShardDim::rows) p.first_row = spec_.tp_rank * p.local_rows;
    if (split == ShardDim::columns) p.first_column = spec_.tp_rank * p.local_columns;
    EXPECTS(split != ShardDim::rows || rows % spec_.tp == 0, "tp does not divide the rows");
    EXPECTS(split != ShardDim::columns || columns % spec_.tp == 0,
            "tp does not divide the columns");
    p.counted = split != ShardDim::none || spec_.tp_rank == 0;
    flat_.parameters.push_back(std::move(p));
    return flat_.parameters.back();
  }

  /// A vector that every tensor-parallel rank holds, applied to activations that sequence
  /// parallelism splits.
  Parameter& add_replicated(std::string name, std::int64_t width, Parameter::Fill fill) {
    Parameter& p = add(std::move(name), width, 1, ShardDim::none);
    p.summed_over_tp = spec_.sequence_parallel && spec_.tp > 1;
    p.fill = fill;
    p.decayed = false;
    return p;
  }

  /// The norm's weight of the query or key heads: one vector for all heads, of which each rank has
  /// its own.
  void add_head_norm(std::string name) {
    add_replicated(std::move(name), spec_.model.head_dim, Parameter::Fill::ones).summed_over_tp =
        spec_.tp > 1;
  }

  void add_norm(const std::string& name) {
    add_replicated(name + ".weight", spec_.model.hidden, Parameter::Fill::ones);
    if (spec_.model.normalization == Normalization::layer_norm) {
      add_replicated(name + ".bias", spec_.model.hidden, Parameter::Fill::zeros);
    }
  }

  /// A matrix over the vocabulary, or (columns = 1) a vector.
  Parameter& add_vocabulary(std::string name, std::int64_t columns) {
    Parameter& p = add(std::move(name), spec_.padded_vocab, columns, ShardDim::rows);
    p.rows = spec_.model.vocab;
    return p;
  }

  /// Keys or values: their rows are heads, of which several ranks hold the same where there are
  /// fewer than ranks.
  Parameter& add_kv(std::string name, std::int64_t columns) {
    const ModelSpec& model = spec_.model;
    if (model.kv_heads >= spec_.tp) {
      EXPECTS(model.kv_heads % spec_.tp == 0, "tp does not divide the kv heads");
      return add(std::move(name), model.kv_width(), columns, ShardDim::rows);
    }
    EXPECTS(spec_.tp % model.kv_heads == 0, "kv heads do not divide tp");
    const int replicas = spec_.tp / model.kv_heads;
    Parameter& p = add(std::move(name), model.kv_width(), columns, ShardDim::none);
    p.local_rows = model.head_dim;
    p.first_row = std::int64_t{spec_.tp_rank / replicas} * model.head_dim;
    p.counted = spec_.tp_rank % replicas == 0;
    p.summed_over_kv = true;
    return p;
  }

  FlatParameters finish() { return finish(spec_.shards); }
  FlatParameters finish_frozen(bool frozen) {
    flat_.frozen = frozen;
    return finish();
  }
  FlatParameters finish_experts() {
    flat_.experts = true;
    return finish(spec_.expert_shards);
  }

 private:
  FlatParameters finish(int shards) {
    for (Parameter& p : flat_.parameters) {
      p.offset = flat_.count;
      flat_.count += p.count();
    }
    // Parts of several ranks begin where 16 bytes of bf16 do.
    constexpr std::int64_t kPart = 8;
    const std::int64_t multiple = shards > 1 ? kPart * shards : 1;
    flat_.padded = (flat_.count + multiple - 1) / multiple * multiple;
    return std::move(flat_);
  }

  const ChunkSpec& spec_;
  FlatParameters flat_;
};

std::string layer_name(int layer) { return "layers." + std::to_string(layer) + "."; }

void add_bias_rows(Parameter& p) {
  p.fill = Parameter::Fill::zeros;
  p.decayed = false;
}

/// Down projections to latents and norms of these, whose gradients each rank has by its heads.
void add_latents(FlatParametersBuilder& flat, const ChunkSpec& spec, int layer) {
  const LatentAttention& mla = spec.model.mla;
  const std::string at = layer_name(layer) + "attention.";
  const auto add = [&](const std::string& name, std::int64_t rows, std::int64_t columns) {
    Parameter& p = flat.add(at + name + ".weight", rows, columns, ShardDim::none);
    p.summed_over_tp = spec.tp > 1;
    if (columns > 1) return;
    p.fill = Parameter::Fill::ones;
    p.decayed = false;
  };
  if (mla.q_lora_rank > 0) add("q_down", mla.q_lora_rank, spec.model.hidden);
  add("kv_down", mla.kv_lora_rank + mla.qk_rope_head_dim, spec.model.hidden);
  if (mla.q_lora_rank > 0) add("q_latent_norm", mla.q_lora_rank, 1);
  add("kv_latent_norm", mla.kv_lora_rank, 1);
}

/// Latents, norms of heads, and the router and the gate of the shared experts, whose gradient each
/// rank has by its parts of the experts.
void add_partial(FlatParametersBuilder& flat, const ChunkSpec& spec, int layer) {
  const ModelSpec& model = spec.model;
  if (model.latent()) add_latents(flat, spec, layer);
  if (model.qk_norm) {
    flat.add_head_norm(layer_name(layer) + "attention.q_norm.weight");
    flat.add_head_norm(layer_name(layer) + "attention.k_norm.weight");
  }
  if (model.layer_kind(layer) == LayerKind::moe) {
    flat.add(layer_name(layer) + "moe.router.weight", model.moe.experts, model.hidden,
             ShardDim::none)
        .summed_over_tp = spec.tp > 1;
    if (model.moe.shared_expert_gate) {
      flat.add(layer_name(layer) + "moe.shared_gate.weight", 1, model.hidden, ShardDim::none)
          .summed_over_tp = spec.tp > 1;
    }
  }
}

/// Parameters along the residual stream: norms, and biases of row-parallel matrices; and the
/// router's, which has no gradient.
void add_layer_vectors(FlatParametersBuilder& flat, const ModelSpec& model, int layer) {
  const std::string at = layer_name(layer);
  flat.add_norm(at + "attention.norm");
  if (model.attention_output_bias) {
    flat.add_replicated(at + "attention.output.bias", model.hidden, Parameter::Fill::zeros);
  }
  flat.add_norm(at + "mlp.norm");
  if (model.layer_kind(layer) == LayerKind::moe && model.moe.router_bias) {
    flat.add_replicated(at + "moe.router.bias", model.moe.experts, Parameter::Fill::zeros);
  }
  if (model.mlp_bias && model.layer_kind(layer) == LayerKind::dense) {
    flat.add_replicated(at + "mlp.down.bias", model.hidden, Parameter::Fill::zeros);
  }
}

/// Output projections start smaller by the square root of how many of them add to the residual
/// stream. Source: GPT-2 (Radford et al. 2019, section 2.3); Megatron-LM's scaled_init_method.
double scaled_deviation(const ModelSpec& model) {
  return kDeviation / std::sqrt(2.0 * model.layers);
}

/// The first matrices of the rank's experts, then their second ones.
void add_experts(FlatParametersBuilder& flat, const ChunkSpec& spec, int layer) {
  const ModelSpec& model = spec.model;
  const int count = model.moe.experts / spec.ep;
  const int first = spec.ep_rank * count;
  const std::int64_t width = model.moe.expert_ffn_hidden;
  const auto at = [&](int expert) {
    return layer_name(layer) + "moe.experts." + std::to_string(expert) + ".";
  };
  for (int e = first; e < first + count; ++e) {
    if (model.gated_mlp) flat.add(at(e) + "gate.weight", width, model.hidden, ShardDim::rows);
    flat.add(at(e) + "up.weight", width, model.hidden, ShardDim::rows);
  }
  for (int e = first; e < first + count; ++e) {
    flat.add(at(e) + "down.weight", model.hidden, width, ShardDim::columns).deviation =
        scaled_deviation(model);
  }
}

/// Of all of them together, as of one MLP.
void add_shared_experts(FlatParametersBuilder& flat, const ModelSpec& model, int layer) {
  const std::int64_t width = model.moe.shared_ffn_hidden;
  if (width == 0) return;
  const std::string at = layer_name(layer) + "moe.shared.";
  if (model.gated_mlp) flat.add(at + "gate.weight", width, model.hidden, ShardDim::rows);
  flat.add(at + "up.weight", width, model.hidden, ShardDim::rows);
  flat.add(at + "down.weight", model.hidden, width, ShardDim::columns).deviation =
      scaled_deviation(model);
}

/// Projections into the heads: from the hidden state, or from latents.
void add_head_matrices(FlatParametersBuilder& flat, const ModelSpec& model, const std::string& at) {
  const LatentAttention& mla = model.mla;
  if (model.latent()) {
    const bool direct = mla.q_lora_rank == 0;
    flat.add(at + (direct ? "attention.q.weight" : "attention.q_up.weight"), model.query_width(),
             direct ? model.hidden : mla.q_lora_rank, ShardDim::rows);
    flat.add(at + "attention.kv_up.weight",
             std::int64_t{model.heads} * (mla.qk_nope_head_dim + mla.v_head_dim), mla.kv_lora_rank,
             ShardDim::rows);
    return;
  }
  flat.add(at + "attention.q.weight", model.query_width(), model.hidden, ShardDim::rows);
  flat.add_kv(at + "attention.k.weight", model.hidden);
  flat.add_kv(at + "attention.v.weight", model.hidden);
  if (model.qkv_bias) {
    add_bias_rows(flat.add(at + "attention.q.bias", model.query_width(), 1, ShardDim::rows));
    add_bias_rows(flat.add_kv(at + "attention.k.bias", 1));
    add_bias_rows(flat.add_kv(at + "attention.v.bias", 1));
  }
}

void add_layer_matrices(FlatParametersBuilder& flat, const ChunkSpec& spec, int layer) {
  const ModelSpec& model = spec.model;
  const std::string at = layer_name(layer);
  add_head_matrices(flat, model, at);
  flat.add(at + "attention.output.weight", model.hidden, model.attention_output_width(),
           ShardDim::columns)
      .deviation = scaled_deviation(model);
  if (model.layer_kind(layer) == LayerKind::moe) {
    add_shared_experts(flat, model, layer);
    if (spec.ep == 1) add_experts(flat, spec, layer);
    return;
  }
  if (model.gated_mlp) {
    flat.add(at + "mlp.gate.weight", model.ffn_hidden, model.hidden, ShardDim::rows);
  }
  flat.add(at + "mlp.up.weight", model.ffn_hidden, model.hidden, ShardDim::rows);
  if (model.mlp_bias) {
    if (model.gated_mlp) {
      add_bias_rows(flat.add(at + "mlp.gate.bias", model.ffn_hidden, 1, ShardDim::rows));
    }
    add_bias_rows(flat.add(at + "mlp.up.bias", model.ffn_hidden, 1, ShardDim::rows));
  }
  flat.add(at + "mlp.down.weight", model.hidden, model.ffn_hidden, ShardDim::columns).deviation =
      scaled_deviation(model);
}

/// Unit `unit` of the chunk; parameters of whose gradient tensor-parallel ranks have parts come
/// first: those of latents, heads and experts, then those that sequence parallelism leaves in
/// parts.
FlatParameters unit_flat(const ChunkSpec& spec, int unit) {
  const ModelSpec& model = spec.model;
  const bool embedding = spec.embedding && unit == 0;
  const bool loss = spec.loss && unit == spec.units - 1;
  const int first = spec.first_layer + spec.first_layer_of(unit);
  const int end = spec.first_layer + spec.first_layer_of(unit + 1);
  FlatParametersBuilder flat(spec);
  for (int layer = first; layer < end; ++layer) add_partial(flat, spec, layer);
  if (embedding && model.position == PositionEmbedding::learned) {
    Parameter& p =
        flat.add("embedding.position.weight", model.max_positions, model.hidden, ShardDim::none);
    p.summed_over_tp = spec.sequence_parallel && spec.tp > 1;
  }
  for (int layer = first; layer < end; ++layer) add_layer_vectors(flat, model, layer);
  if (loss) flat.add_norm("final_norm");
  if (embedding && !model.tied_embeddings) {
    flat.add_vocabulary("embedding.word.weight", model.hidden);
  }
  for (int layer = first; layer < end; ++layer) add_layer_matrices(flat, spec, layer);
  if (loss && !model.tied_embeddings) flat.add_vocabulary("head.weight", model.hidden);
  if (loss && model.head_bias) add_bias_rows(flat.add_vocabulary("head.bias", 1));
  return flat.finish_frozen(spec.adapters.has_value());
}

/// A starts as Megatron-Bridge starts it, "xavier" (067f987d, src/megatron/bridge/peft/lora.py,
/// lora_A_init_method; utils.py, nn.init.xavier_normal_), of the whole matrix.
double deviation_of_a(std::int64_t in, std::int64_t rank) {
  return std::sqrt(2.0 / static_cast<double>(in + rank));
}

/// The whole A of a column-parallel matrix, of the whole input.
void add_whole_a(FlatParametersBuilder& flat, const ChunkSpec& spec, const std::string& name) {
  Parameter& p =
      flat.add(name + ".lora_A.weight", spec.adapters->rank, spec.model.hidden, ShardDim::none);
  p.summed_over_tp = spec.tp > 1;
  p.deviation = deviation_of_a(spec.model.hidden, spec.adapters->rank);
}

/// The whole B of a row-parallel matrix.
void add_whole_b(FlatParametersBuilder& flat, const ChunkSpec& spec, const std::string& name) {
  Parameter& p =
      flat.add(name + ".lora_B.weight", spec.model.hidden, spec.adapters->rank, ShardDim::none);
  p.summed_over_tp = spec.tp > 1;
  p.fill = Parameter::Fill::zeros;
}

void add_split_a(FlatParametersBuilder& flat, const ChunkSpec& spec, const std::string& name,
                 std::int64_t in) {
  const int rank = spec.adapters->rank;
  flat.add(name + ".lora_A.weight", rank, in, ShardDim::columns).deviation =
      deviation_of_a(in, rank);
}

/// What a layer's adapters split over tensor-parallel ranks as its matrices are split: queries,
/// keys and values follow each other, as do gate and up.
void add_split_adapters(FlatParametersBuilder& flat, const ChunkSpec& spec, int layer) {
  using enum AdapterTarget;
  const ModelSpec& model = spec.model;
  const auto& [rank, targets] = *spec.adapters;
  const std::string at = layer_name(layer);
  constexpr auto kZeros = Parameter::Fill::zeros;
  if (targets.contains(linear_qkv)) {
    flat.add(at + "attention.q.lora_B.weight", model.query_width(), rank, ShardDim::rows).fill =
        kZeros;
    flat.add_kv(at + "attention.k.lora_B.weight", rank).fill = kZeros;
    flat.add_kv(at + "attention.v.lora_B.weight", rank).fill = kZeros;
  }
  if (targets.contains(linear_proj)) {
    add_split_a(flat, spec, at + "attention.output", model.attention_output_width());
  }
  if (targets.contains(linear_fc1)) {
    for (const char* part : {"mlp.gate", "mlp.up"}) {
      if (!model.gated_mlp && part == std::string("mlp.gate")) continue;
      flat.add(at + part + ".lora_B.weight", model.ffn_hidden, rank, ShardDim::rows).fill = kZeros;
    }
  }
  if (targets.contains(linear_fc2)) add_split_a(flat, spec, at + "mlp.down", model.ffn_hidden);
}

/// Unit `unit`'s adapters: first those of whose gradient tensor-parallel ranks have parts.
FlatParameters adapters_flat(const ChunkSpec& spec, int unit) {
  using enum AdapterTarget;
  const AdapterTargets& targets = spec.adapters->targets;
  const int first = spec.first_layer + spec.first_layer_of(unit);
  const int end = spec.first_layer + spec.first_layer_of(unit + 1);
  FlatParametersBuilder flat(spec);
  for (int layer = first; layer < end; ++layer) {
    const std::string at = layer_name(layer);
    if (targets.contains(linear_qkv)) add_whole_a(flat, spec, at + "attention.qkv");
    if (targets.contains(linear_proj)) add_whole_b(flat, spec, at + "attention.output");
    if (targets.contains(linear_fc1)) add_whole_a(flat, spec, at + "mlp.fc1");
    if (targets.contains(linear_fc2)) add_whole_b(flat, spec, at + "mlp.down");
  }
  for (int layer = first; layer < end; ++layer) add_split_adapters(flat, spec, layer);
  return flat.finish();
}

/// The rank's experts of a unit, where others have the other ones.
FlatParameters experts_flat(const ChunkSpec& spec, int unit) {
  FlatParametersBuilder flat(spec);
  const int end = spec.first_layer + spec.first_layer_of(unit + 1);
  for (int layer = spec.first_layer + spec.first_layer_of(unit); layer < end; ++layer) {
    if (spec.model.layer_kind(layer) == LayerKind::moe) add_experts(flat, spec, layer);
  }
  return flat.finish_experts();
}

}  // namespace

ChunkParameters parameters_of(const ChunkSpec& spec) {
  EXPECTS(!not_executed(spec.model, spec.sequence), "a model that is executed");
  EXPECTS(spec.units >= 1 && spec.layers >= 0, "a chunk without units");
  EXPECTS(spec.tp >= 1 && spec.tp_rank >= 0 && spec.tp_rank < spec.tp, "no such rank");
  EXPECTS(spec.model.heads % spec.tp == 0, "tp does not divide the heads");
  EXPECTS(spec.padded_vocab >= spec.model.vocab && spec.padded_vocab % spec.tp == 0,
          "a padded vocabulary that does not fit");
  EXPECTS(spec.ep == 1 || spec.model.moe.experts % spec.ep == 0, "ep does not divide the experts");
  EXPECTS(!spec.adapters || (spec.model.moe.experts == 0 && !spec.model.latent()),
          "adapters of a dense model");
  ChunkParameters all;
  for (int unit = 0; spec.adapters && unit < spec.units; ++unit)
    all.flat_params.push_back(adapters_flat(spec, unit));
  for (int unit = 0; unit < spec.units; ++unit) all.flat_params.push_back(unit_flat(spec, unit));
  for (int unit = 0; spec.ep > 1 && unit < spec.units; ++unit)
    all.flat_params.push_back(experts_flat(spec, unit));
  if (spec.model.tied_embeddings && (spec.embedding || spec.loss)) {
    FlatParametersBuilder flat(spec);
    flat.add_vocabulary("embedding.word.weight", spec.model.hidden).counted = spec.embedding;
    all.flat_params.push_back(flat.finish_frozen(spec.adapters.has_value()));
    all.tied = true;
  }
  return all;
}

void for_each_piece(const Parameter& parameter, std::int64_t begin, std::int64_t end,
                    const std::function<void(std::int64_t, std::int64_t, std::int64_t)>& visit) {
  const Parameter& p = parameter;
  EXPECTS(begin >= 0 && begin <= end && end <= p.count(), "a range outside the block");
  const std::int64_t real_rows = std::clamp<std::int64_t>(p.rows - p.first_row, 0, p.local_rows);
  end = std::min(end, real_rows * p.local_columns);
  const bool whole_rows = p.local_columns == p.columns;
  while (begin < end) {
    const std::int64_t row = begin / p.local_columns;
    const std::int64_t column = begin % p.local_columns;
    const std::int64_t count =
        whole_rows ? end - begin : std::min(end - begin, p.local_columns - column);
    visit((p.first_row + row) * p.columns + p.first_column + column, begin, count);
    begin += count;
  }
}

}  // namespace echelon
