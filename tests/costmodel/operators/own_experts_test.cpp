// Experts as the own runtime computes them: split over tensor-parallel ranks as a dense MLP.
#include <cmath>

#include "core/model/model_io.hpp"
#include "costmodel/operators/operators.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

struct Case {
  ModelSpec model = load_model("mixtral-8x7b").value();
  TrainingJob job;
  LayerSharding sharding;
  Case() {
    job.sequence = 1024;
    job.precision = find_precision("bf16").value();
    sharding.microbatch = 2;
  }
  [[nodiscard]] OperatorList operators() const {
    return layer_operators(model, job, find_framework("echelon").value(), sharding, LayerKind::moe);
  }
};

const Operator& named(const OperatorList& list, std::string_view name) {
  for (const Operator& op : list.view()) {
    if (op.name == name) return op;
  }
  FAIL("no operator " << name);
  return list.view().front();
}

}  // namespace

TEST_CASE("experts of the own runtime are products of one expert over the rows it gets") {
  for (const int tp : {1, 2}) {
    for (const int ep : {1, 4}) {
      Case c;
      c.sharding.tp = c.sharding.etp = tp;
      c.sharding.ep = ep;
      const OperatorList list = c.operators();
      const double rows = 2048 * 2;  // of any rank, of balanced experts
      const Operator& up = named(list, "expert_up");
      const Operator& down = named(list, "expert_down");
      CHECK(up.groups == 8);
      CHECK(up.m == rows / 8);
      CHECK(up.n == 2 * 14336.0 / tp);
      CHECK(up.k == 4096);
      CHECK(down.k == 14336.0 / tp);
      CHECK(up.forward.in(kFlop) + down.forward.in(kFlop) ==
            Approx(2 * rows * 3 * 4096 * 14336 / tp));
      CHECK(named(list, "router").m == 2048);  // on every rank
    }
  }
}

TEST_CASE("experts of the own runtime have the collectives of a dense MLP, and three exchanges") {
  Case c;
  c.sharding.tp = c.sharding.etp = 2;
  c.sharding.sequence_parallel = true;
  c.sharding.ep = 2;
  const OperatorList list = c.operators();
  const double tokens = 2.0 * 2048 * 4096;  // bytes
  int exchanges = 0;
  for (const Operator& op : list.view()) {
    CHECK(op.axis != Axis::etp);
    if (op.axis != Axis::ep) continue;
    CHECK(op.payload.in(kByte) == 2 * tokens);  // each token twice
    exchanges += op.forward_collective == CollectiveKind::all_to_all;
    exchanges += op.backward_collective == CollectiveKind::all_to_all;
  }
  CHECK(exchanges == 5);
  CHECK(named(list, "expert_gather").payload.in(kByte) == tokens);
  CHECK(named(list, "expert_reduce").forward_collective == CollectiveKind::reduce_scatter);
  c.sharding.ep = 1;
  for (const Operator& op : c.operators().view()) CHECK(op.axis != Axis::ep);
}

TEST_CASE("experts of the own runtime save their rows as many as can come") {
  Case c;
  const double tokens = 2048;
  for (const int ep : {1, 2, 8}) {
    c.sharding.ep = ep;
    const OperatorList list = c.operators();
    const double rows = tokens * (ep == 1 ? 2 : ep == 2 ? 2 * 2 : 8);  // one expert: once per token
    CHECK(named(list, "expert_activation").saved.in(kByte) == 2 * rows * 2 * 14336);
    CHECK(named(list, "expert_up").saved == Bytes{});
    CHECK(named(list, "unpermute").saved == Bytes{});
    CHECK(named(list, "router").saved.in(kByte) == 2 * tokens * 8);
    CHECK(named(list, "top_k").saved.in(kByte) ==
          16 * 2 * tokens + (ep > 1 ? 4 * rows : 0));  // weights of received rows
  }
}

TEST_CASE("shared experts of the own runtime share the collectives of the routed ones") {
  for (const int tp : {1, 2}) {
    Case c;
    c.model.moe.shared_ffn_hidden = 4096;
    c.sharding.tp = c.sharding.etp = tp;
    c.sharding.sequence_parallel = tp > 1;
    const OperatorList list = c.operators();
    CHECK(named(list, "shared_up").n == 2 * 4096.0 / tp);
    CHECK(named(list, "shared_down").k == 4096.0 / tp);
    CHECK(named(list, "shared_up").saved == Bytes{});
    CHECK(named(list, "shared_activation").saved.in(kByte) == 2 * 2048 * 2 * 4096.0 / tp);
    int collectives = 0;
    for (const Operator& op : list.view()) {
      CHECK(op.name != "shared_gate");
      collectives += op.forward_collective != CollectiveKind::none;
    }
    CHECK(collectives ==
          (tp > 1
               ? 5
               : 0));  // with that of the router's logits  // those of attention and of the experts
    c.model.moe.shared_expert_gate = true;
    CHECK(named(c.operators(), "shared_gate").saved.in(kByte) == 2 * 2048);
    CHECK(named(c.operators(), "shared_gate").n == 1);
  }
}
