// Frozen matrices and the adapters on them (core/plan/adapters.hpp).
#include "core/plan/adapters.hpp"

#include "costmodel/operators/build.hpp"

namespace echelon {

using operators::Shapes;

namespace {

/// The target that a product is; none: it has no adapter.
const AdapterTarget* target_of(const Operator& op) {
  static constexpr std::string_view kProducts[] = {"qkv", "projection", "mlp_up", "mlp_down"};
  for (const AdapterTarget& target : kAdapterTargets) {
    if (op.name == kProducts[static_cast<std::size_t>(target)]) return &target;
  }
  return nullptr;
}

/// A product whose weights get no gradient: the backward makes that of its input alone, and its
/// input is not kept. Attention's kernels read the output projection's input in their backward.
/// Source: TransformerEngine, pytorch/module/linear.py and layernorm_linear.py: inputs are saved
/// where the weight requires a gradient.
void freeze(Operator& op) {
  if (op.kind != OperatorKind::gemm || !op.has_weight) return;
  op.weight_gradient = false;
  op.backward = op.forward;
  op.backward_traffic = op.forward_traffic;
  op.backward_kernels = 1;
  if (op.name != "projection") op.saved = Bytes{};
}

Operator beside(CollectiveKind forward, CollectiveKind backward, double payload) {
  return operators::collective("adapter_exchange", forward, backward, payload, false);
}

/// B·A·x beside a product of `rows` rows, in 16 bits. Of tensor-parallel ranks each has a part of A
/// and of B. On a column-parallel product A's columns are split and its results gathered, and B's
/// are the rank's part of the result; on a row-parallel one A's partial sums are added up, and B's
/// parts of the result gathered. Scale and sum are kernels of their own, backward the scale and the
/// sum of the two gradients of the input.
///
///   saved   the input of A in 16 bits, of all rows (which the rank has gathered, but for the
///           input of the output projection and where collectives overlap their products), and that
///           of B
///
/// Source: Megatron-Bridge 067f987d, src/megatron/bridge/peft/utils.py, ParallelLinearAdapter and
/// get_adapter_attributes_from_linear; lora_layers.py, LoRALinear. Assumes no dropout.
void push_adapter(OperatorList& list, const Operator& base, AdapterTarget target, double rank,
                  const Shapes& s, LayerSharding sharding) {
  using enum CollectiveKind;
  const bool columns = target == AdapterTarget::linear_qkv || target == AdapterTarget::linear_fc1;
  const bool splits = sharding.tp > 1;
  const bool sequence = splits && sharding.sequence_parallel;
  const double tp = sharding.tp;
  const double inner = s.e * base.m * rank;
  const double input = s.e * base.m * base.k;
  const double output = s.e * base.m * base.n;
  if (columns && sequence && sharding.overlap_tp) {
    list.push(beside(all_gather, reduce_scatter, input));
  }
  Operator in = operators::gemm("adapter_in", base.m, columns ? rank / tp : rank, base.k,
                                target == AdapterTarget::linear_proj ? 0 : input, s.e);
  in.wide = true;
  list.push(in);
  if (splits) list.push(beside(columns ? all_gather : all_reduce, none, inner));
  if (splits && columns && !sequence) list.push(beside(none, all_reduce, input));
  Operator out =
      operators::gemm("adapter_out", base.m, columns ? base.n : base.n / tp, rank, inner, s.e);
  out.wide = true;
  list.push(out);
  if (splits) list.push(beside(none, all_reduce, inner));
  if (splits && !columns) list.push(beside(all_gather, sequence ? all_gather : none, output));
  const double added = columns || !sequence ? output : output / tp;
  Operator sum = operators::elementwise("adapter_sum", 5 * added, 2 * added + 3 * input, 0);
  sum.forward_kernels = 2;
  sum.backward_kernels = 2;
  list.push(sum);
}

}  // namespace

namespace operators {

OperatorList frozen(const OperatorList& list) {
  OperatorList out;
  for (Operator op : list.view()) {
    freeze(op);
    out.push(op);
  }
  return out;
}

OperatorList adapted(const OperatorList& list, const Adapters& adapters, const Shapes& s,
                     LayerSharding sharding) {
  OperatorList out;
  for (Operator op : list.view()) {
    freeze(op);
    out.push(op);
    const AdapterTarget* target = target_of(op);
    if (target != nullptr && adapters.targets.contains(*target)) {
      push_adapter(out, op, *target, adapters.rank, s, sharding);
    }
  }
  return out;
}

}  // namespace operators

double adapter_parameters_per_rank(const OperatorList& layer) {
  double sum = 0;
  for (const Operator& op : layer.view()) {
    if (op.name == "adapter_in" || op.name == "adapter_out") sum += op.n * op.k;
  }
  return sum;
}

}  // namespace echelon
