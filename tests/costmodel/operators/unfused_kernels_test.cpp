// Operations that a framework runs one by one where others have a fused kernel.
#include "core/framework/framework.hpp"
#include "core/model/model_io.hpp"
#include "costmodel/operators/operators.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

TrainingJob bf16_job() {
  TrainingJob job;
  job.sequence = 4096;
  job.global_batch = 64;
  job.precision = find_precision("bf16").value();
  return job;
}

Operator operator_of(const ModelSpec& model, const Framework& framework, std::string_view name) {
  const LayerSharding sharding{.microbatch = 1, .ep = 8};
  const OperatorList list = layer_operators(model, bf16_job(), framework, sharding, LayerKind::moe);
  for (const Operator& op : list.view()) {
    if (op.name == name) return op;
  }
  FAIL("no operator " << name);
  return {};
}

}  // namespace

TEST_CASE("a factor on cosines and sines takes the rotation apart, where no kernel has it") {
  const Framework megatron = find_framework("megatron-core").value();
  const ModelSpec yarn = load_model("gpt-oss-120b").value();
  const double bytes = 2.0 * 4096 * (64 + 8) * 64;  // of queries and keys
  const Operator apart = operator_of(yarn, megatron, "rope");
  CHECK(apart.forward_traffic.in(kByte) == Approx(12 * bytes));
  CHECK(apart.backward_traffic.in(kByte) == Approx(14 * bytes));
  CHECK(apart.forward_kernels == 24);
  ModelSpec plain = yarn;
  plain.constants->rope.attention_factor = 1;
  CHECK(operator_of(plain, megatron, "rope").forward_traffic.in(kByte) == Approx(2 * bytes));
  const Operator compiled = operator_of(yarn, find_framework("torchtitan").value(), "rope");
  CHECK(compiled.forward_traffic.in(kByte) == Approx(2 * bytes));
}

TEST_CASE("experts that are bounded before their activation read and write both projections") {
  Framework megatron = find_framework("megatron-core").value();
  const ModelSpec model = load_model("gpt-oss-120b").value();
  const double bytes = 2.0 * 4096 * 4 * 2 * 2880;  // 4 experts per token, gate and up
  const Operator clamp = operator_of(model, megatron, "expert_clamp");
  CHECK(clamp.routed);
  CHECK(clamp.forward_traffic.in(kByte) == Approx(4 * bytes));
  CHECK(clamp.backward_traffic.in(kByte) == Approx(7.5 * bytes));
  CHECK(clamp.saved.in(kByte) == Approx(bytes));
  CHECK(clamp.freed_by.contains(RecomputeModule::moe_act));
  CHECK(clamp.repeated_by.contains(RecomputeModule::moe_act));
  megatron.fused_experts = true;
  const OperatorList fused =
      layer_operators(model, bf16_job(), megatron, {.microbatch = 1, .ep = 8}, LayerKind::moe);
  for (const Operator& op : fused.view()) CHECK(op.name != "expert_clamp");
}
