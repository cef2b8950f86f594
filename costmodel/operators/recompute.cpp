// The saved and the recomputed share of each operator.
#include "costmodel/operators/build.hpp"

namespace echelon::operators {
namespace {

/// Selective recomputation as Megatron does it. Source: arXiv 2205.05198 section 5.
void drop_attention_core(OperatorList& list) {
  for (Operator& op : list.edit()) {
    op.kept = op.attention_core ? Bytes{} : op.saved;
    op.repeated = op.attention_core && !op.once ? 1.0 : 0.0;
  }
}

/// Selective recomputation per operator: a layer saves its input, the output of attention and the
/// results of every second matrix product, in the order q, k, v, output, gate, up, down: q, v, gate
/// and down. The experts' exchanges are saved, their grouped products, which are no aten.mm, are
/// not. Everything else is recomputed.
/// Source: pytorch/torchtitan@01c79fd, torchtitan/models/llama3/parallelize_llama.py, option "op":
/// its list of saved operators and its count of products, in the order in which model.py calls
/// them; of experts v0.2.2, torchtitan/models/deepseek_v3/infra/parallelize.py:33, and
/// torchtitan/models/moe/moe.py:123, torch._grouped_mm.
void keep_every_second_product(OperatorList& list, const ModelSpec& model, const Shapes& s) {
  for (Operator& op : list.edit()) {
    const double result = s.e * op.groups * op.m * op.n;
    op.kept = Bytes{};
    op.repeated = 1.0;
    if (op.name == "input_norm") {
      op.kept = op.saved;
    } else if (op.attention_core) {
      const bool whole = op.kind == OperatorKind::attention || op.name == "attention_context";
      op.kept = (whole ? Bytes{s.e * s.T * s.o} : Bytes{}) +
                (op.kind == OperatorKind::attention ? op.saved : Bytes{});
      op.repeated = 0.0;
    } else if (op.name == "qkv") {
      op.kept = Bytes{s.e * s.T * (s.q + s.v)};
      op.repeated = s.kv / (s.q + s.kv + s.v);
    } else if (op.kind == OperatorKind::collective && op.axis == Axis::ep) {
      op.kept = op.payload;
      op.repeated = 0.0;
    } else if (op.name == "expert_up" || op.name == "expert_down") {
      continue;  // repeated in full
    } else if (op.kind == OperatorKind::gemm && op.name.ends_with("_up")) {
      op.repeated = model.gated_mlp ? 0.5 : 0.0;
      op.kept = Bytes{(1 - op.repeated) * result};
    } else if (op.kind == OperatorKind::gemm && op.name.ends_with("_down")) {
      op.repeated = 0.0;
      op.kept = Bytes{result};
    }
  }
}

/// Gradients that the projections of latent attention work in, and the latents themselves after
/// their norms; without a latent of queries a second gradient of the hidden state.
double latent_transients(const ModelSpec& model, const Shapes& s) {
  if (!model.latent()) return 0;
  const LatentAttention& mla = model.mla;
  const double rank_q = mla.q_lora_rank;
  const double latents = rank_q + mla.kv_lora_rank + mla.qk_rope_head_dim;
  const double up_kv = s.A * (mla.qk_nope_head_dim + mla.v_head_dim);
  return s.e * s.T * (s.q + up_kv + latents + mla.kv_lora_rank + (rank_q > 0 ? rank_q : s.h));
}

/// A framework that recomputes the results of norms and activations in the backward saves none of
/// them: it saves a layer's input, the sum after attention, q, k, v, and the input of the
/// activation. Its selective recomputation repeats attention up to its output.
///
///   transient   dgrad of the activation and its two sides, or of q, k, v and attention's output,
///               with norms of heads, or packed heads of context parallelism, beside these, or
///               what passes in a ring, and
///               as what latent attention projects; of
///               experts the former, the rows themselves, and the gradients of the router's logits
///               and of the rows' weights; of shared experts the dgrad in the same memory, and the
///               input's; of their gate the weights, their gradients and those of the logits
///
/// An adapter saves the input of its second product too, and works in the gradient of that.
/// Buffers of routed rows hold as many as can come (Framework::splits_experts_as_mlp).
/// Norms of heads are recomputed too, with the rotation; of v, which is copied, each way.
/// Source: runtime/model/chunk_layout.hpp, ChunkMemory.
void keep_inputs_alone(OperatorList& list, const ModelSpec& model, const TrainingJob& job,
                       const Framework& framework, const Shapes& s, LayerSharding sharding) {
  const auto narrow = [&](AdapterTargets targets) {
    const bool adapts =
        framework.replicates_adapters && job.adapters && job.adapters->targets.intersects(targets);
    return adapts ? s.e * s.T * job.adapters->rank : 0;
  };
  const bool ring = sharding.cp > 1 && sharding.cp_comm == CpComm::ring;
  const bool copies_heads = model.qk_norm || (sharding.cp > 1 && !ring);
  // Two blocks of keys and values with gradients of others, and the gradients of one.
  const double passing = ring ? 5 * s.e * s.T * (s.kv + s.v) : 0;
  const double heads = s.e * s.T * (s.q + s.kv + s.v + s.o);
  const double branches = model.gated_mlp ? 2 : 1;
  for (Operator& op : list.edit()) {
    const bool product = op.kind == OperatorKind::gemm;
    const bool logits = op.name == "router" || op.name == "shared_gate";
    const bool kept =
        op.name == "projection" || (framework.replicates_adapters && op.name == "adapter_out");
    if (product && !kept && !logits) op.saved = op.kept = Bytes{};
    if (op.name == "projection") {
      op.saved = Bytes{s.e * s.T * s.o};
      op.kept = Bytes{};
    }
    if (op.kind == OperatorKind::attention)
      op.transient = Bytes{heads + (copies_heads ? s.e * s.T * (s.q + s.kv + s.v) : 0) + passing +
                           latent_transients(model, s) +
                           narrow({AdapterTarget::linear_qkv, AdapterTarget::linear_proj})};
    if (op.name == "qk_norm") {
      const Bytes made{2 * s.e * s.T * (s.q + s.kv + s.v)};
      const Bytes turned =
          model.position == PositionEmbedding::rope ? Bytes{2 * s.e * s.T * (s.q + s.kv)} : Bytes{};
      op.saved = op.kept = Bytes{};
      op.forward_traffic = made;
      op.backward_traffic += made + turned;
    }
    if (op.name == "activation")
      op.transient = Bytes{s.e * (2 + branches) * s.T * s.f +
                           narrow({AdapterTarget::linear_fc1, AdapterTarget::linear_fc2})};
    if (op.name == "expert_activation") {
      const MixtureOfExperts& moe = model.moe;
      const double sent = s.T * moe.experts_per_token;
      const double rows = routed_rows(moe, s.T, sharding.ep);
      const double f = static_cast<double>(moe.expert_ffn_hidden) / sharding.etp;
      op.saved = op.kept = Bytes{s.e * rows * branches * f};
      const double shared = s.T * moe.shared_ffn_hidden / sharding.tp;
      const double gates = moe.shared_expert_gate ? (2 * s.w + s.e) * s.T : 0;
      op.transient =
          Bytes{2 * s.e * std::max(rows * f, shared) + s.e * rows * (branches * f + s.h) +
                s.w * rows + s.e * s.T * moe.experts + s.e * branches * shared + gates};
      if (sharding.ep > 1) op.transient += Bytes{(s.e * s.h + s.w) * sent};
    }
  }
}

/// The gradient of a bias: two kernels sum the product's gradient, of so many bytes, over its rows.
void sum_bias(Operator& op, double gradient) {
  op.backward_traffic += Bytes{gradient};
  op.backward_kernels += 2;
}

void repeat_forward(Operator& op) {
  op.backward_traffic += op.forward_traffic;
  op.backward_kernels += op.forward_kernels;
}

/// What the backward of a framework that keeps inputs alone computes again: both norms of a layer,
/// and the activations; that of a dense MLP is written by the kernel of its gradient. And the
/// gradients of biases, which its products do not compute. Frozen biases have none, and the
/// activation is written only for an adapter.
/// Source: runtime/model/chunk_layer.cpp, runtime/cuda/kernels/bias.cu. Checked by:
/// tests/costmodel/time/stage_terms_test.cpp.
void add_backward_kernels(OperatorList& list, const ModelSpec& model, const TrainingJob& job,
                          const Framework& framework, const Shapes& s) {
  const bool frozen = framework.replicates_adapters && job.adapters;
  const bool reads_activated = !frozen || job.adapters->targets.contains(AdapterTarget::linear_fc2);
  const double branches = model.gated_mlp ? 2 : 1;
  const double hidden = s.e * s.Ts * s.h;
  for (Operator& op : list.edit()) {
    const bool input = op.name == "input_norm";
    const bool middle = op.name == "post_attention_norm";
    const bool mlp = op.name == "activation";
    if (input || middle || op.name == "shared_activation" || op.name == "expert_activation") {
      repeat_forward(op);
    }
    if (mlp && reads_activated) op.backward_traffic += Bytes{s.e * s.T * s.f};
    if (frozen) continue;
    if (input && model.qkv_bias && !model.latent()) sum_bias(op, s.e * s.T * (s.q + s.kv + s.v));
    if (middle && model.attention_output_bias) sum_bias(op, hidden);
    if (mlp && model.mlp_bias) {
      sum_bias(op, s.e * s.T * branches * s.f);
      sum_bias(op, hidden);
    }
  }
}

}  // namespace

void mark_recomputation(OperatorList& list, const ModelSpec& model, const TrainingJob& job,
                        const Framework& framework, const Shapes& s, LayerSharding sharding) {
  if (framework.selective_per_operator) {
    keep_every_second_product(list, model, s);
  } else {
    drop_attention_core(list);
  }
  if (framework.remakes_pointwise) keep_inputs_alone(list, model, job, framework, s, sharding);
  if (framework.backward_by_kernels) add_backward_kernels(list, model, job, framework, s);
}

}  // namespace echelon::operators
