// The operator list against the closed forms of the papers.
#include "costmodel/operators/operators.hpp"

#include <string_view>

#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

/// A GPT block as in Korthikanti et al. (arXiv 2205.05198): dropout, GELU, f = 4h, no flash.
ModelSpec gpt(int hidden, int heads) {
  ModelSpec m;
  m.name = "test-gpt";
  m.layers = 4;
  m.hidden = hidden;
  m.heads = m.kv_heads = heads;
  m.head_dim = hidden / heads;
  m.ffn_hidden = 4 * hidden;
  m.vocab = 51200;
  m.max_positions = 2048;
  m.normalization = Normalization::layer_norm;
  m.activation = Activation::gelu;
  m.position = PositionEmbedding::learned;
  m.gated_mlp = false;
  m.tied_embeddings = true;
  m.qkv_bias = m.attention_output_bias = m.mlp_bias = true;
  m.hidden_dropout = m.attention_dropout = 0.1;
  return m;
}

ModelSpec llama() {
  ModelSpec m;
  m.name = "test-llama";
  m.layers = 4;
  m.hidden = 8192;
  m.heads = 64;
  m.kv_heads = 8;
  m.head_dim = 128;
  m.ffn_hidden = 28672;
  m.vocab = 128256;
  m.max_positions = 8192;
  return m;
}

TrainingJob job(int sequence, bool flash) {
  TrainingJob j;
  j.sequence = sequence;
  j.global_batch = 64;
  j.flash_attention = flash;
  return j;
}

Framework framework() { return frameworks().front(); }

double saved(const ModelSpec& m, const TrainingJob& j, LayerSharding sharding, Recompute r) {
  return layer_operators(m, j, framework(), sharding).saved(r).in(kByte);
}

const Operator* find(const OperatorList& list, std::string_view name) {
  for (const Operator& op : list.view()) {
    if (op.name == name) return &op;
  }
  return nullptr;
}

}  // namespace

TEST_CASE("one GPT layer keeps sbh(34 + 5as/h) bytes without parallelism") {
  const double s = 2048;
  const double b = 4;
  const double h = 12288;
  const double a = 96;
  const double expected = s * b * h * (34 + 5 * a * s / h);
  CHECK(saved(gpt(12288, 96), job(2048, false), {.microbatch = 4}, Recompute::none) ==
        Approx(expected).epsilon(1e-12));
}

TEST_CASE("tensor parallelism alone leaves ten of the 34 bytes on every rank") {
  const double s = 2048;
  const double b = 1;
  const double h = 6144;
  const double a = 64;
  for (const double t : {2.0, 4.0, 8.0}) {
    const double expected = s * b * h * (10 + 24 / t + 5 * a * s / (h * t));
    CHECK(saved(gpt(6144, 64), job(2048, false), {.tp = static_cast<int>(t), .microbatch = 1},
                Recompute::none) == Approx(expected).epsilon(1e-12));
  }
}

TEST_CASE("sequence parallelism divides every activation by tp") {
  const double s = 2048;
  const double h = 6144;
  const double a = 64;
  for (const double t : {2.0, 8.0}) {
    const double expected = s * h / t * (34 + 5 * a * s / h);
    CHECK(saved(gpt(6144, 64), job(2048, false),
                {.tp = static_cast<int>(t), .microbatch = 1, .sequence_parallel = true},
                Recompute::none) == Approx(expected).epsilon(1e-12));
  }
}

TEST_CASE("selective recomputation with sequence parallelism keeps 34sbh/t") {
  const double expected = 2048.0 * 6144 * 34 / 8;
  CHECK(saved(gpt(6144, 64), job(2048, false),
              {.tp = 8, .microbatch = 1, .sequence_parallel = true},
              Recompute::selective) == Approx(expected).epsilon(1e-12));
}

TEST_CASE("a flash-attention SwiGLU layer keeps 8h + 2(a+2k)d + 2ad + 4a + 6f bytes per token") {
  const ModelSpec m = llama();
  const double h = 8192;
  const double a = 64;
  const double k = 8;
  const double d = 128;
  const double f = 28672;
  const double tokens = 4096;
  for (const double t : {1.0, 8.0}) {
    const LayerSharding sharding{
        .tp = static_cast<int>(t), .microbatch = 1, .sequence_parallel = t > 1};
    const double expected = tokens / t * (8 * h + 2 * (a + 2 * k) * d + 2 * a * d + 4 * a + 6 * f);
    CHECK(saved(m, job(4096, true), sharding, Recompute::none) == Approx(expected).epsilon(1e-12));
  }
}

TEST_CASE("logits cost 4sbv/t more than the 4sbh/t of the head when they are kept in fp32") {
  Framework fp32_logits = framework();
  fp32_logits.logits_bytes = 4;
  ModelSpec m = gpt(6144, 64);
  const double t = 8;
  const double padded = padded_vocab(m, fp32_logits, 8);
  const double expected = 2048.0 * 6144 / t * 4 * (1 + padded / 6144);
  const OperatorList head = head_operators(m, job(2048, true), fp32_logits,
                                           {.tp = 8, .microbatch = 1, .sequence_parallel = true});
  CHECK(head.saved(Recompute::none).in(kByte) == Approx(expected).epsilon(1e-12));
}

TEST_CASE("the embedding keeps one dropout byte per element, and nothing without dropout") {
  ModelSpec m = gpt(6144, 64);
  const LayerSharding sharding{.microbatch = 2};
  CHECK(embedding_operators(m, job(2048, true), framework(), sharding)
            .saved(Recompute::none)
            .in(kByte) == Approx(2.0 * 2048 * 6144));
  m.hidden_dropout = 0;
  CHECK(embedding_operators(m, job(2048, true), framework(), sharding).saved(Recompute::none) ==
        Bytes{});
}

TEST_CASE("GEMM FLOPs of a layer are two per parameter and token, forward") {
  const ModelSpec m = llama();
  double flops = 0;
  const OperatorList list = layer_operators(m, job(4096, true), framework(), {.microbatch = 1});
  for (const Operator& op : list.view()) {
    if (op.kind == OperatorKind::gemm) flops += op.forward.in(kFlop);
  }
  const auto p = m.layer_parameters();
  CHECK(flops == Approx(2.0 * 4096 * static_cast<double>(p.attention_matrices + p.mlp_matrices)));
}

TEST_CASE("tensor parallelism divides the GEMM work evenly") {
  const ModelSpec m = llama();
  const auto work = [&](int tp) {
    double flops = 0;
    const OperatorList list = layer_operators(
        m, job(4096, true), framework(), {.tp = tp, .microbatch = 1, .sequence_parallel = tp > 1});
    for (const Operator& op : list.view()) flops += op.forward.in(kFlop);
    return flops;
  };
  CHECK(work(8) == Approx(work(1) / 8));
}

TEST_CASE("causal flash attention does half the FLOPs of the full square") {
  const ModelSpec m = llama();
  const OperatorList list = layer_operators(m, job(4096, true), framework(), {.microbatch = 1});
  const Operator* op = find(list, "attention");
  REQUIRE(op != nullptr);
  CHECK(op->forward.in(kFlop) == Approx(4.0 * 4096 * 4096 * 8192 / 2));
}

TEST_CASE("a window of w tokens costs w(1 - w/2s) keys per query") {
  ModelSpec m = llama();
  m.sliding_window = 1024;
  m.windowed_layers = m.layers;
  const OperatorList list = layer_operators(m, job(4096, true), framework(), {.microbatch = 1});
  CHECK(find(list, "attention")->forward.in(kFlop) ==
        Approx(4.0 * 4096 * 1024 * (1 - 1024.0 / 8192) * 8192));
}

TEST_CASE("one tensor-parallel rank communicates nothing") {
  const OperatorList list =
      layer_operators(llama(), job(4096, true), framework(), {.microbatch = 1});
  for (const Operator& op : list.view()) CHECK(op.kind != OperatorKind::collective);
}

TEST_CASE("sequence parallelism turns two all-reduces into two gathers and two scatters") {
  const auto count = [](bool sp, CollectiveKind kind) {
    int n = 0;
    const OperatorList list = layer_operators(llama(), job(4096, true), framework(),
                                              {.tp = 8, .microbatch = 1, .sequence_parallel = sp});
    for (const Operator& op : list.view()) n += op.forward_collective == kind ? 1 : 0;
    return n;
  };
  CHECK(count(false, CollectiveKind::all_reduce) == 2);
  CHECK(count(true, CollectiveKind::all_reduce) == 0);
  CHECK(count(true, CollectiveKind::all_gather) == 2);
  CHECK(count(true, CollectiveKind::reduce_scatter) == 2);
}

TEST_CASE("if there are fewer kv heads than ranks, heads are copied, never split") {
  const ModelSpec m = llama();  // 8 kv heads
  const double at8 = layer_parameters_per_rank(m, 8);
  const double at16 = layer_parameters_per_rank(m, 16);
  const double replicated = 2.0 * 8192;
  const double kv = 2.0 * 8192 * 128;  // one key and one value head
  CHECK(at16 - replicated - kv == Approx((at8 - replicated - kv) / 2));
}

TEST_CASE("the vocabulary is padded to a multiple of 128 times tp") {
  CHECK(padded_vocab(gpt(6144, 64), framework(), 8) == 51200);
  ModelSpec m = gpt(6144, 64);
  m.vocab = 50257;
  CHECK(padded_vocab(m, framework(), 1) == 50304);
  CHECK(padded_vocab(m, framework(), 8) == 51200);
}

TEST_CASE("per-operator recomputation keeps the input, attention and every second product") {
  const ModelSpec m = llama();
  TrainingJob job;
  job.sequence = 8192;
  const OperatorList list = layer_operators(m, job, *find_framework("torchtitan"), LayerSharding{});
  // Input, q, attention's result, down projection: h each; v; gate; fp32 log-sum-exp per head.
  const double expected = 2 * (4 * 8192.0 + 8 * 128 + 28672) + 4 * 64;
  CHECK(list.saved(Recompute::selective).in(kByte) == Approx(8192 * expected));
  CHECK(list.saved(Recompute::selective) < 0.5 * list.saved(Recompute::none));
}

TEST_CASE("per-operator recomputation repeats the experts' grouped products, not their exchanges") {
  ModelSpec m = llama();
  m.moe = {.experts = 8, .experts_per_token = 2, .expert_ffn_hidden = 4096};
  TrainingJob job;
  job.sequence = 8192;
  const Framework titan = *find_framework("torchtitan");
  // Input, q and attention's result: h each; v; fp32 log-sum-exp per head.
  const double attention = 2 * (3 * 8192.0 + 8 * 128) + 4 * 64;
  const OperatorList whole = layer_operators(m, job, titan, LayerSharding{}, LayerKind::moe);
  CHECK(whole.saved(Recompute::selective).in(kByte) == Approx(8192 * attention));
  // Two rows per token, each way.
  const OperatorList split = layer_operators(m, job, titan, LayerSharding{.ep = 8}, LayerKind::moe);
  CHECK(split.saved(Recompute::selective).in(kByte) ==
        Approx(8192 * (attention + 2 * 2 * 2 * 8192.0)));
  for (const Operator& op : split.view()) {
    CAPTURE(op.name);
    if (op.name == "dispatch" || op.name == "combine") CHECK(op.repeated == 0);
    if (op.name == "expert_up" || op.name == "expert_down") CHECK(op.repeated == 1);
  }
}

TEST_CASE("fp8 inputs are saved in one byte if the framework saves its quantized operands") {
  const ModelSpec m = llama();
  TrainingJob job;
  job.sequence = 4096;
  const Framework core = *find_framework("megatron-core");
  const Bytes wide = layer_operators(m, job, core, LayerSharding{}).saved(Recompute::none);
  job.precision.compute = Dtype::fp8;
  const Bytes narrow = layer_operators(m, job, core, LayerSharding{}).saved(Recompute::none);
  // The inputs of qkv, up and down lose a byte; the projection shares attention's output.
  CHECK((wide - narrow).in(kByte) == Approx(4096 * (2 * 8192.0 + 28672)));
}

TEST_CASE("experts of a parallel block read what attention keeps, in 16 bits") {
  ModelSpec m = llama();
  m.moe = {.experts = 8, .experts_per_token = 2, .expert_ffn_hidden = 1024};
  const Framework core = *find_framework("megatron-core");
  const auto router = [&](Dtype compute) {
    TrainingJob j = job(4096, true);
    j.precision.compute = compute;
    const OperatorList list = layer_operators(m, j, core, {.microbatch = 1}, LayerKind::moe);
    for (const Operator& op : list.view()) {
      if (op.name == "router") return op.saved.in(kByte);
    }
    return -1.0;
  };
  const double input = 2.0 * 4096 * 8192;
  CHECK(router(Dtype::bf16) == input);
  CHECK(router(Dtype::fp8) == input);
  m.parallel_block = true;
  CHECK(router(Dtype::bf16) == 0);
  CHECK(router(Dtype::fp8) == input);
}

TEST_CASE("an activated gate is one more tensor unless a kernel fuses it with the product") {
  const ModelSpec m = llama();
  TrainingJob job;
  job.sequence = 4096;
  Framework eager = *find_framework("nanotron");
  const Bytes with = layer_operators(m, job, eager, LayerSharding{}).saved(Recompute::none);
  eager.saves_gate_output = false;
  const Bytes without = layer_operators(m, job, eager, LayerSharding{}).saved(Recompute::none);
  CHECK((with - without).in(kByte) == Approx(4096 * 2.0 * 28672));
}
