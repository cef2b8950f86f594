// Operators that several parts of a layer use.
#include <algorithm>

#include "costmodel/operators/build.hpp"

namespace echelon::operators {

namespace {

/// Of scales per row, which measured runs state, GEMMs are slower (PrecisionRecipe::fp8_rate).
bool one_scale_per_tensor(const PrecisionRecipe& recipe) {
  return (recipe.scaling == Fp8Scaling::delayed || recipe.scaling == Fp8Scaling::tensorwise) &&
         recipe.fp8_rate >= 1;
}

}  // namespace

Shapes shapes_of(const ModelSpec& model, const TrainingJob& job, const Framework& framework,
                 LayerSharding sharding, TokenMixer mixer) {
  const ModelSpec::HeadShapes heads = model.head_shapes(mixer);
  const double tokens = static_cast<double>(sharding.microbatch) * job.sequence / sharding.cp;
  const double kv_heads = std::max(1.0, static_cast<double>(heads.kv_heads) / sharding.tp);
  const double kv = kv_heads * heads.head_dim;
  const double q = static_cast<double>(model.heads) * heads.head_dim / sharding.tp;
  const bool latent = model.latent();
  return {.T = tokens,
          .Ts = sharding.sequence_parallel ? tokens / sharding.tp : tokens,
          .h = static_cast<double>(model.hidden),
          .q = q,
          .kv = kv,
          .v = latent ? kv_heads * model.mla.v_head_dim : kv,
          .o = latent ? static_cast<double>(model.attention_output_width()) / sharding.tp : q,
          .f = static_cast<double>(model.ffn_hidden) / sharding.tp,
          .A = static_cast<double>(model.heads) / sharding.tp,
          .sequence = static_cast<double>(job.sequence),
          .e = activation_width(job.precision.compute),
          .d = static_cast<double>(heads.head_dim),
          .kv_projected = heads.keys_are_values ? kv : 2 * kv,
          .kept = job.precision.compute == Dtype::fp8 && framework.saves_fp8_inputs
                      ? job.precision.fp8_input
                      : activation_width(job.precision.compute),
          .w = statistics_width(job.precision.compute),
          .imbalance = std::min(job.expert_imbalance, static_cast<double>(sharding.ep)),
          .expert_rows = static_cast<double>(job.precision.expert_rows),
          .by_operations = job.layer_code == LayerCode::transformers,
          .experts_by_operations = job.layer_code != LayerCode::fused,
          .rms_norm = model.normalization == Normalization::rms_norm,
          .sums_input_gradients =
              framework.separate_projections && job.layer_code != LayerCode::transformers,
          .splits_second_dimension =
              framework.splits_second_dimension && sharding.sequence_parallel && sharding.tp > 1,
          .several_sequences = sharding.microbatch > 1,
          .gathered = framework.gathers_fp8 && one_scale_per_tensor(job.precision)
                          ? width_of(Dtype::fp8)
                          : activation_width(job.precision.compute)};
}

Operator gemm(std::string_view name, double m, double n, double k, double saved, double e,
              double groups) {
  Operator op;
  op.name = name;
  op.kind = OperatorKind::gemm;
  op.m = m;
  op.n = n;
  op.k = k;
  op.groups = groups;
  op.forward = Flops{groups * 2 * m * n * k};
  op.backward = 2 * op.forward;
  op.forward_traffic = Bytes{groups * e * (m * k + k * n + m * n)};
  op.backward_traffic = 2 * op.forward_traffic;  // + fp32 accumulation, added where it is priced
  op.forward_kernels = 1;
  op.backward_kernels = 2;
  op.saved = Bytes{saved};
  return op;
}

Operator elementwise(std::string_view name, double forward, double backward, double saved) {
  Operator op;
  op.name = name;
  op.forward_traffic = Bytes{forward};
  op.backward_traffic = Bytes{backward};
  op.forward_kernels = forward > 0 ? 1 : 0;
  op.backward_kernels = backward > 0 ? 1 : 0;
  op.saved = Bytes{saved};
  return op;
}

Operator norm(std::string_view name, const Shapes& s, int readers) {
  const double all = s.e * s.Ts * s.h;
  if (!s.by_operations) return elementwise(name, 2 * all, 4 * all, all);
  // torch has a kernel for LayerNorm; the residual's gradient is added by another (residual).
  Operator op = s.rms_norm ? norm_by_operations(name, s.Ts * s.h, s, all)
                           : elementwise(name, 2 * all, 3 * all, all);
  op.backward_traffic += Bytes{(readers - 1) * 3 * all};
  op.backward_kernels += readers - 1;
  return op;
}

Operator residual(std::string_view name, const Shapes& s, double dropout) {
  const double elements = s.Ts * s.h;
  const bool drops = dropout > 0;
  if (s.by_operations && !drops) {
    return elementwise(name, 3 * s.e * elements, 3 * s.e * elements, 0);
  }
  return elementwise(name, (3 * s.e + (drops ? 1 : 0)) * elements,
                     drops ? (2 * s.e + 1) * elements : 0.0, drops ? elements : 0.0);
}

Operator collective(std::string_view name, CollectiveKind forward, CollectiveKind backward,
                    double payload, bool backward_overlaps, Axis axis) {
  Operator op;
  op.name = name;
  op.kind = OperatorKind::collective;
  op.forward_collective = forward;
  op.backward_collective = backward;
  op.payload = Bytes{payload};
  op.backward_overlaps = backward_overlaps;
  op.axis = axis;
  return op;
}

namespace {

/// Copies of whole tensors beside the collectives along their second dimension
/// (Framework::splits_second_dimension): a gather has each rank's part one behind the other, which
/// is their order for one sequence alone; a reduce-scatter takes them so.
Operator sequence_copy(std::string_view name, const Shapes& s, bool gathers) {
  const double gather = s.several_sequences ? 2 * s.gathered * s.T * s.h : 0;
  const double scatter = 2 * s.e * s.T * s.h;
  Operator op = elementwise(name, gathers ? gather : scatter, gathers ? scatter : gather, 0);
  op.moves_as_stated = true;
  return op;
}

}  // namespace

void push_column_entry(OperatorList& list, std::string_view name, const Shapes& s,
                       LayerSharding sharding, int readers) {
  // Each sum reads one more gradient, where it is fused; else it reads two and writes one.
  if (s.sums_input_gradients && readers > 1) {
    list.push(elementwise("input_gradients", 0, (readers - 1) * s.e * s.T * s.h, 0));
  }
  if (sharding.tp == 1) return;
  using enum CollectiveKind;
  const double payload = s.e * s.T * s.h;
  if (!sharding.sequence_parallel) {
    list.push(collective(name, none, all_reduce, payload, true));
    return;
  }
  if (s.splits_second_dimension) {
    list.push(collective(name, all_gather, none, s.gathered * s.T * s.h, true));
    list.push(collective(name, none, reduce_scatter, payload, true));
    list.push(sequence_copy("gather_copy", s, true));
    return;
  }
  list.push(collective(name, all_gather, reduce_scatter, payload, true));
  list.push(collective(name, none, all_gather, payload, true));  // re-gather of the saved shard
}

void push_row_exit(OperatorList& list, std::string_view name, const Shapes& s,
                   LayerSharding sharding) {
  if (sharding.tp == 1) return;
  using enum CollectiveKind;
  const double payload = s.e * s.T * s.h;
  if (s.splits_second_dimension) {
    list.push(sequence_copy("scatter_copy", s, false));
    list.push(collective(name, reduce_scatter, none, payload, false));
    list.push(collective(name, none, all_gather, s.gathered * s.T * s.h, false));
  } else if (sharding.sequence_parallel) {
    list.push(collective(name, reduce_scatter, all_gather, payload, false));
  } else {
    list.push(collective(name, all_reduce, none, payload, false));
  }
}

Operator copy(std::string_view name, double bytes) {
  return elementwise(name, 2 * bytes, 2 * bytes, 0);
}

void push_heads_exchange(OperatorList& list, std::string_view name, double bytes,
                         LayerSharding sharding, bool moved) {
  if (sharding.cp == 1) return;
  if (moved) list.push(copy("cp_split_heads", bytes));
  using enum CollectiveKind;
  list.push(collective(name, all_to_all, all_to_all, bytes, false, Axis::cp));
}

double gather_buffers(const Shapes& s, const Framework& framework, LayerSharding sharding) {
  return sharding.tp > 1 && sharding.sequence_parallel ? framework.gather_buffers * s.e * s.T * s.h
                                                       : 0.0;
}

}  // namespace echelon::operators
