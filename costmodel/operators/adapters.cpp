// Frozen matrices, how they are kept, and the adapters on them (core/plan/adapters.hpp,
// core/plan/quantized_weights.hpp).
#include "core/plan/adapters.hpp"

#include <algorithm>

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
  op.backward_kernels = op.forward_kernels;
  if (op.name != "projection") op.saved = Bytes{};
}

/// Linear modules of transformers that a product stands for, the largest one's share of its
/// weights.
struct Modules {
  int count = 1;
  double largest = 1;
};

Modules modules_of(const Operator& op, const ModelSpec& model, const Shapes& s) {
  if (op.name == "qkv") {
    const double queries = op.n - s.kv_projected;
    return {3, std::max(queries, s.kv) / op.n};
  }
  if (op.name == "mlp_up" && model.gated_mlp) return {2, 0.5};
  return {};
}

/// A weight in 4 bits: unpacked module by module, each time into memory of its own, which the
/// backward has next to the gradient of the product.
void quantize(Operator& op, const QuantizedWeights& kept, Modules modules, double e) {
  if (op.kind != OperatorKind::gemm || !op.has_weight || op.wide) return;
  const double weights = op.n * op.k;
  op.unpacking = Bytes{kept.unpacking() * weights};
  op.unpacking_kernels = modules.count * kept.unpacking_kernels();
  op.transient += Bytes{e * (op.m * op.n + modules.largest * weights)};
}

/// Kernels between products, where fp32 norms make the hidden states fp32.
void widen(Operator& op) {
  if (op.kind != OperatorKind::elementwise || op.name == "loss") return;
  op.forward_traffic *= 2;
  op.backward_traffic *= 2;
  op.saved *= 2;
  op.transient *= 2;
}

/// Linear4bit casts what it reads to 16 bits and its result back to fp32, and the backward the
/// gradients of both; attention reads queries, keys and values in 16 bits again. Attention's output
/// comes in 16 bits, and so does what is projected from it. Source: bitsandbytes 95f9af30,
/// bitsandbytes/nn/modules.py, Linear4bit.forward; transformers, modeling_flash_attention_utils.py.
void push_casts(OperatorList& list, const Operator& op, Modules modules) {
  if (op.kind != OperatorKind::gemm || op.unpacking_kernels == 0 || op.name == "projection") return;
  constexpr double kCast = 4 + 2;
  const double output = op.m * op.n * (op.name == "qkv" ? 2 : 1);
  const double moved = kCast * (modules.count * op.m * op.k + output);
  Operator cast = operators::elementwise("adapter_cast", moved, moved, 0);
  cast.forward_kernels = cast.backward_kernels = 2 * modules.count;
  list.push(cast);
}

Operator beside(CollectiveKind forward, CollectiveKind backward, double payload) {
  return operators::collective("adapter_exchange", forward, backward, payload, false);
}

/// B·A·x beside a product of `rows` rows, in 16 bits. Of tensor-parallel ranks each has a part of A
/// and of B. On a column-parallel product A's columns are split and its results gathered, and B's
/// are the rank's part of the result; on a row-parallel one A's partial sums are added up, and B's
/// parts of the result gathered. Scale and sum are kernels of their own, backward the scale and the
/// sum of the two gradients of the input. PEFT's has an A and a B for each linear module, and
/// copies the result of a module of bitsandbytes before it adds to it.
///
///   saved   the input of A in 16 bits, of all rows (which the rank has gathered, but for the
///           input of the output projection and where collectives overlap their products), and that
///           of B
///
/// Source: Megatron-Bridge 067f987d, src/megatron/bridge/peft/utils.py, ParallelLinearAdapter and
/// get_adapter_attributes_from_linear; lora_layers.py, LoRALinear. PEFT 5d602fdb,
/// src/peft/tuners/lora/bnb.py, Linear4bit.forward. Assumes no dropout.
void push_adapter(OperatorList& list, const Operator& base, AdapterTarget target, double rank,
                  int modules, const Shapes& s, LayerSharding sharding) {
  using enum CollectiveKind;
  const bool columns = target == AdapterTarget::linear_qkv || target == AdapterTarget::linear_fc1;
  const bool splits = sharding.tp > 1;
  const bool sequence = splits && sharding.sequence_parallel;
  const double tp = sharding.tp;
  const double inner = s.e * base.m * rank * modules;
  const double input = s.e * base.m * base.k;
  const double output = s.e * base.m * base.n;
  if (columns && sequence && sharding.overlap_tp) {
    list.push(beside(all_gather, reduce_scatter, input));
  }
  Operator in = operators::gemm("adapter_in", base.m, modules * (columns ? rank / tp : rank),
                                base.k, target == AdapterTarget::linear_proj ? 0 : input, s.e);
  in.wide = true;
  in.forward_kernels *= modules;
  in.backward_kernels *= modules;
  list.push(in);
  if (splits) list.push(beside(columns ? all_gather : all_reduce, none, inner));
  if (splits && columns && !sequence) list.push(beside(none, all_reduce, input));
  Operator out =
      operators::gemm("adapter_out", base.m, columns ? base.n : base.n / tp, rank, inner, s.e);
  out.wide = true;
  out.forward_kernels *= modules;
  out.backward_kernels *= modules;
  list.push(out);
  if (splits) list.push(beside(none, all_reduce, inner));
  if (splits && !columns) list.push(beside(all_gather, sequence ? all_gather : none, output));
  const double added = columns || !sequence ? output : output / tp;
  const bool copied = base.unpacking_kernels > 0;
  Operator sum = operators::elementwise("adapter_sum", (copied ? 7 : 5) * added,
                                        2 * added + 3 * modules * input, 0);
  sum.forward_kernels = (copied ? 3 : 2) * modules;
  sum.backward_kernels = 2 * modules;
  list.push(sum);
}

/// The same where the matrix's own split is all (Framework::replicates_adapters). Parts of the
/// result, and of the input's gradient, add up in the matrix's own collectives; gradients of what
/// every rank has whole are summed once a step. The products add to the matrix's results.
///
///   A   column-parallel r × in       row-parallel r × in/tp
///   B   column-parallel out/tp × r   row-parallel out × r
///   saved   the input of B
///
/// Source: runtime/model/chunk_adapters.cpp. Checked by:
/// tests/costmodel/operators/adapters_test.cpp and
/// tests/runtime/training/predicted_memory_adapters_test.cpp.
void push_replicated_adapter(OperatorList& list, const Operator& base, double rank,
                             const Shapes& s) {
  const double inner = s.e * base.m * rank;
  Operator in = operators::gemm("adapter_in", base.m, rank, base.k, 0, s.e);
  Operator out = operators::gemm("adapter_out", base.m, base.n, rank, inner, s.e);
  in.wide = out.wide = true;
  list.push(in);
  list.push(out);
  list.push(operators::elementwise("adapter_sum", 2 * inner + s.e * base.m * base.n,
                                   2 * inner + s.e * base.m * base.k, 0));
}

/// Rows gathered again for a weight gradient, of the matrix `target`.
bool regathers(const Operator& op, AdapterTarget target) {
  const bool of_heads = target == AdapterTarget::linear_qkv && op.name == "qkv_gather";
  const bool of_mlp = target == AdapterTarget::linear_fc1 && op.name == "mlp_gather";
  return (of_heads || of_mlp) && op.forward_collective == CollectiveKind::none &&
         op.backward_collective == CollectiveKind::all_gather;
}

}  // namespace

namespace operators {

OperatorList frozen(const OperatorList& list, const TrainingJob& job) {
  const bool widens = job.quantized_weights && job.quantized_weights->fp32_states();
  OperatorList out;
  for (Operator op : list.view()) {
    freeze(op);
    if (widens) widen(op);
    if (widens && job.quantized_weights->fp32_rest &&
        op.name == "head") {  // autocast makes a copy of the weight in 16 bits
      op.unpacking = Bytes{(width_of(Dtype::fp32) + width_of(Dtype::bf16)) * op.n * op.k};
      op.unpacking_kernels = 1;
    }
    out.push(op);
  }
  return out;
}

OperatorList adapted(const OperatorList& list, const ModelSpec& model, const TrainingJob& job,
                     const Framework& framework, const Shapes& s, LayerSharding sharding) {
  const Adapters& adapters = *job.adapters;
  const bool widens = job.quantized_weights && job.quantized_weights->fp32_states();
  OperatorList out;
  const auto regathers_for_nothing = [&](const Operator& op) {
    return framework.replicates_adapters &&
           std::ranges::any_of(kAdapterTargets, [&](AdapterTarget target) {
             return !adapters.targets.contains(target) && regathers(op, target);
           });
  };
  for (Operator op : list.view()) {
    if (regathers_for_nothing(op)) continue;
    const Modules modules = modules_of(op, model, s);
    freeze(op);
    if (job.quantized_weights) quantize(op, *job.quantized_weights, modules, s.e);
    if (widens) widen(op);
    out.push(op);
    if (widens) push_casts(out, op, modules);
    const AdapterTarget* target = target_of(op);
    if (target != nullptr && adapters.targets.contains(*target)) {
      if (framework.replicates_adapters) {
        push_replicated_adapter(out, op, adapters.rank, s);
        continue;
      }
      const int each = framework.adapts_each_module ? modules.count : 1;
      push_adapter(out, op, *target, adapters.rank, each, s, sharding);
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

double quantized_parameters_per_rank(const OperatorList& layer) {
  double sum = 0;
  for (const Operator& op : layer.view()) {
    if (op.unpacking_kernels > 0) sum += op.n * op.k;
  }
  return sum;
}

}  // namespace echelon
