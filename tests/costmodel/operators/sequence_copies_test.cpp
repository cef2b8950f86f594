// What DTensor's sequence parallelism copies and sums, against tests/external/count_dtensor.py.
#include <numeric>
#include <string_view>

#include "core/model/model_io.hpp"
#include "costmodel/operators/operators.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

struct Moved {
  double forward = 0, backward = 0;
};

/// Of one layer of Llama 3 8B, per token of the whole microbatch and unit of the hidden width.
struct SplitLayer {
  ModelSpec model = load_model("llama3-8b").value();
  Framework framework = find_framework("torchtitan").value();
  TrainingJob job;
  LayerSharding sharding;
  OperatorList list;

  SplitLayer(int tp, int microbatch, const char* precision = "bf16") {
    job.sequence = 4096;
    job.global_batch = 64;
    job.precision = find_precision(precision).value();
    sharding.tp = tp;
    sharding.microbatch = microbatch;
    sharding.sequence_parallel = tp > 1;
    list = layer_operators(model, job, framework, sharding);
  }
  [[nodiscard]] double unit() const {
    return static_cast<double>(sharding.microbatch) * job.sequence * model.hidden;
  }
  [[nodiscard]] Moved bytes(std::string_view part) const {
    Moved sum;
    for (const Operator& op : list.view()) {
      if (!op.name.ends_with(part)) continue;
      sum.forward += op.forward_traffic.in(kByte) / unit();
      sum.backward += op.backward_traffic.in(kByte) / unit();
    }
    return sum;
  }
  /// Bytes that collectives of a kind send.
  [[nodiscard]] Moved sent(CollectiveKind kind) const {
    Moved sum;
    for (const Operator& op : list.view()) {
      if (op.forward_collective == kind) sum.forward += op.payload.in(kByte) / unit();
      if (op.backward_collective == kind) sum.backward += op.payload.in(kByte) / unit();
    }
    return sum;
  }
};

}  // namespace

TEST_CASE("sequence parallelism by DTensor copies whole tensors beside its collectives") {
  const SplitLayer two(8, 2);
  CHECK(two.bytes("_copy").forward == Approx(16));
  CHECK(two.bytes("_copy").backward == Approx(16));
  const SplitLayer one(8, 1);
  CHECK(one.bytes("_copy").forward == Approx(8));
  CHECK(one.bytes("_copy").backward == Approx(8));
  CHECK(SplitLayer(1, 2).bytes("_copy").forward == 0);
}

TEST_CASE("products that read the same input sum its gradients") {
  // Eager sums read two tensors and write one; fused ones read one more.
  for (const int tp : {1, 8}) {
    const Moved sums = SplitLayer(tp, 2).bytes("input_gradients");
    CHECK(sums.forward == 0);
    CHECK(sums.backward * find_framework("torchtitan").value().eager_passes == Approx(18));
  }
}

TEST_CASE("eager code multiplies norms, not copies") {
  const SplitLayer layer(8, 2);
  for (const Operator& op : layer.list.view()) {
    CHECK(op.moves_as_stated == op.name.ends_with("_copy"));
  }
}

TEST_CASE(
    "a product of DTensor keeps its gathered input, and the backward gathers no shard again") {
  const SplitLayer layer(8, 2);
  CHECK(layer.sent(CollectiveKind::all_gather).forward == Approx(2 * 2));
  CHECK(layer.sent(CollectiveKind::all_gather).backward == Approx(2 * 2));
  CHECK(layer.sent(CollectiveKind::reduce_scatter).forward == Approx(2 * 2));
  CHECK(layer.sent(CollectiveKind::reduce_scatter).backward == Approx(2 * 2));
  SplitLayer megatron(8, 2);
  megatron.framework = find_framework("megatron-core").value();
  megatron.list = layer_operators(megatron.model, megatron.job, megatron.framework, layer.sharding);
  CHECK(megatron.sent(CollectiveKind::all_gather).backward == Approx(2 * 4));
  const auto kept = [](const SplitLayer& of, std::string_view name) {
    for (const Operator& op : of.list.view()) {
      if (op.name == name) return op.saved.in(kByte) / of.unit();
    }
    return -1.0;
  };
  CHECK(kept(layer, "qkv") == Approx(2));
  CHECK(kept(megatron, "qkv") == Approx(2.0 / 8));
  CHECK(kept(layer, "mlp_up") == Approx(2));
}

TEST_CASE("float8 with one scale per tensor is gathered in fp8, and reduced in 16 bits") {
  const SplitLayer layer(8, 2, "fp8");
  CHECK(layer.sent(CollectiveKind::all_gather).forward == Approx(2 * 1));
  CHECK(layer.sent(CollectiveKind::all_gather).backward == Approx(2 * 1));
  CHECK(layer.sent(CollectiveKind::reduce_scatter).forward == Approx(2 * 2));
  CHECK(layer.bytes("_copy").forward == Approx(2 * 2 + 2 * 4));
  const SplitLayer scaled(8, 2, "mxfp8");
  CHECK(scaled.sent(CollectiveKind::all_gather).forward == Approx(2 * 2));
}

TEST_CASE("selective recomputation of torchtitan gathers again what it does not keep") {
  const SplitLayer layer(8, 2);
  for (const Operator& op : layer.list.view()) {
    if (op.kind != OperatorKind::collective && !op.name.ends_with("_copy")) continue;
    INFO(op.name);
    const bool scatters =
        op.forward_collective == CollectiveKind::reduce_scatter || op.name == "scatter_copy";
    CHECK(op.repeated == (scatters ? 0.0 : 1.0));
  }
}
