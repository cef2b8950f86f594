// Over 400 lines because one function decides what is legal, and every rule has its case.
#include "planner/space/legality.hpp"

#include <numeric>

#include "planner/space/candidates.hpp"
#include "tests/planner/requests.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

ParallelPlan legal_plan() {
  ParallelPlan p;
  p.tp = 8;
  p.pp = 4;
  p.dp = 2;
  p.shard_group = 2;
  p.zero = 1;
  p.sequence_parallel = true;
  p.layers_per_stage = {8, 8, 8, 8};
  p.recompute_layers = {0, 0, 0, 0};
  return p;
}

/// Reason for which the legal plan is rejected after `change`, or "legal".
template <class Change>
std::string reason_after(Change change, const char* framework = "megatron-core") {
  const PlanRequest r = request_for("7b", "dgx-h100", 64, framework);
  ParallelPlan p = legal_plan();
  change(p);
  const auto rejection = check_plan(r.model, r.job, r.cluster, r.framework, p);
  return rejection ? std::string(name_of(rejection->reason)) : "legal";
}

}  // namespace

TEST_CASE("a plan that keeps every rule is legal") {
  CHECK(reason_after([](ParallelPlan&) {}) == "legal");
}

TEST_CASE("narrow moments need Megatron's distributed optimizer") {
  const auto at_zero = [](int zero, const char* recipe, const char* framework) {
    PlanRequest r = request_for("7b", "dgx-h100", 64, framework);
    r.job.precision = find_precision(recipe).value();
    ParallelPlan p = legal_plan();
    p.zero = zero;
    const auto rejection = check_plan(r.model, r.job, r.cluster, r.framework, p);
    return rejection ? rejection->detail : "";
  };
  CHECK(at_zero(0, "bf16:adam-bf16-gradients", "megatron-core").empty());
  for (const char* narrow : {"bf16:precision-aware", "bf16:adam-bf16-states"}) {
    INFO(narrow);
    CHECK(at_zero(0, narrow, "megatron-core").find("distributed optimizer") != std::string::npos);
    CHECK(at_zero(1, narrow, "megatron-core").empty());
  }
}

TEST_CASE("degrees must multiply to the GPUs") {
  CHECK(reason_after([](ParallelPlan& p) { p.dp = p.shard_group = 4; }) == "gpus-mismatch");
}

TEST_CASE("tensor parallelism must divide heads, kv heads and the MLP") {
  CHECK(check_tensor_parallel(request_for("7b", "dgx-h100", 8).model, 3)->reason ==
        RejectionReason::heads_not_divisible);
  ModelSpec odd = request_for("llama3-70b", "dgx-h100", 8).model;
  odd.heads = 48;
  odd.kv_heads = 12;
  CHECK(check_tensor_parallel(odd, 8)->reason == RejectionReason::kv_heads_not_divisible);
  CHECK_FALSE(check_tensor_parallel(request_for("llama3-70b", "dgx-h100", 8).model, 16));
  odd.kv_heads = 16;
  odd.ffn_hidden = 1000;
  CHECK(check_tensor_parallel(odd, 16)->reason == RejectionReason::ffn_not_divisible);
}

// Source: Megatron-LM d98e8a64, megatron/core/ssm/gated_delta_net and mamba_context_parallel.py.
TEST_CASE("tensor and context parallelism divide the heads of delta nets and state spaces") {
  const auto found = [](const PlanRequest& r, int tp, int cp) -> std::string {
    ParallelPlan plan;
    plan.tp = tp;
    plan.sequence_parallel = tp > 1;
    plan.cp = cp;
    plan.dp = plan.shard_group = 64 / (tp * cp);
    plan.shard_group *= cp;
    const auto refused = check_degrees(r.model, r.job, r.cluster, r.framework, plan);
    if (!refused) return "";
    const bool heads = refused->reason == RejectionReason::heads_not_divisible ||
                       refused->reason == RejectionReason::framework_lacks_feature;
    CHECK(heads);
    return refused->detail;
  };
  PlanRequest delta = request_for("qwen3-next-80b-a3b", "dgx-h100", 64);  // 16 heads, 16 key heads
  CHECK_FALSE(check_tensor_parallel(delta.model, 16));
  CHECK(found(delta, 1, 2).empty());
  CHECK(found(delta, 2, 8).empty());
  CHECK(found(delta, 1, 32) == "tp 1 x cp 32 does not divide 16 key heads of the gated delta nets");
  delta.framework = find_framework("torchtitan").value();
  CHECK(found(delta, 1, 2) == "torchtitan has no context parallelism of gated delta nets");
  delta.model.delta.key_heads = 8;
  CHECK(check_tensor_parallel(delta.model, 16)->reason == RejectionReason::heads_not_divisible);

  PlanRequest spaces = request_for("nemotron-h-8b", "dgx-h100", 64);  // 8 groups, 128 heads
  CHECK_FALSE(check_tensor_parallel(spaces.model, 8));
  const auto split = check_tensor_parallel(spaces.model, 16);
  REQUIRE(split.has_value());
  CHECK(split->detail.find("groups of the state spaces") != std::string::npos);
  CHECK(found(spaces, 2, 2).empty());
  CHECK(found(spaces, 1, 64).empty());  // a group on 8 ranks
  spaces.model.ssm.groups = 6;
  CHECK(found(spaces, 1, 4) ==
        "neither of cp 4 and 6 groups of the state spaces' heads on a "
        "tensor-parallel rank divides the other");
  spaces.model.ssm.heads = 120;
  CHECK(found(spaces, 1, 16) == "tp 1 x cp 16 does not divide 120 heads of the state spaces");
  spaces.framework = find_framework("deepspeed").value();
  CHECK(found(spaces, 1, 2) == "deepspeed has no context parallelism of state spaces");
}

TEST_CASE("context parallelism of gated delta nets asks for a release of Megatron-Core") {
  const PlanRequest r = request_for("qwen3-next-80b-a3b", "dgx-h100", 64);
  ParallelPlan plan;
  plan.dp = 32;
  const auto asks = [&] {
    const auto all = remarks(r.framework, r.model, plan);
    return std::ranges::any_of(all, [](const FrameworkRemark& each) {
      return each.text == "Megatron-LM core 0.18 or newer, for cp with gated delta nets";
    });
  };
  CHECK_FALSE(asks());
  plan.cp = 2;
  CHECK(asks());
}

TEST_CASE("experts are split over a grid that covers the ranks of a stage") {
  const PlanRequest r = request_for("mixtral-8x7b", "dgx-h100", 64);
  ParallelPlan p;
  p.dp = p.shard_group = 64;
  p.layers_per_stage = {32};
  p.recompute_layers = {0};
  const auto reason = [&](int ep, int etp) {
    p.ep = ep;
    p.etp = etp;
    const auto rejection = check_plan(r.model, r.job, r.cluster, r.framework, p);
    return rejection ? std::string(name_of(rejection->reason)) : "legal";
  };
  CHECK(reason(8, 1) == "legal");
  CHECK(reason(8, 8) == "legal");
  CHECK(reason(3, 1) == "experts-not-divisible");
  CHECK(reason(8, 16) == "experts-not-divisible");
  CHECK(check_plan(request_for("7b", "dgx-h100", 64).model, r.job, r.cluster, r.framework, p)
            ->reason == RejectionReason::contradictory);
}

TEST_CASE(
    "a dispatcher is one that the framework has and the GPUs run, for experts that are split") {
  const auto found = [](const char* cluster, const char* framework, int ep, Dispatcher dispatcher) {
    const PlanRequest r = request_for("mixtral-8x7b", cluster, 64, framework);
    ParallelPlan p;
    p.dp = p.shard_group = 64;
    p.zero = 3;
    p.ep = ep;
    p.dispatcher = dispatcher;
    p.layers_per_stage = {32};
    p.recompute_layers = {0};
    const auto rejection = check_plan(r.model, r.job, r.cluster, r.framework, p);
    return rejection ? rejection->detail : "legal";
  };
  using enum Dispatcher;
  for (const Dispatcher each : {alltoall, allgather, deepep, hybridep}) {
    CHECK(found("dgx-h100", "megatron-core", 8, each) == "legal");
  }
  CHECK(found("dgx-h100", "torchtitan", 8, alltoall) == "legal");
  CHECK(found("dgx-h100", "torchtitan", 8, allgather) ==
        "torchtitan has no token dispatcher allgather");
  CHECK(found("dgx-a100", "megatron-core", 8, alltoall) == "legal");
  CHECK(found("dgx-a100", "megatron-core", 8, deepep).find("Hopper") != std::string::npos);
  CHECK(found("mi300x", "megatron-core", 8, deepep).find("ROCm") != std::string::npos);
  CHECK(found("dgx-h100", "megatron-core", 1, deepep).find("ep 1") != std::string::npos);
}

TEST_CASE("CUDA graphs of layers exclude what covers them, of a whole step what waits") {
  const PlanRequest r = request_for("mixtral-8x7b", "dgx-h100", 64);
  const auto found = [&](auto change) {
    ParallelPlan p;
    p.dp = p.shard_group = 64;
    p.zero = 1;
    p.ep = 8;
    p.cuda_graphs = CudaGraphs::layers;
    p.layers_per_stage = {32};
    p.recompute_layers = {0};
    change(p);
    const auto rejection = check_plan(r.model, r.job, r.cluster, r.framework, p);
    return rejection ? rejection->detail : "legal";
  };
  CHECK(found([](ParallelPlan&) {}) == "legal");
  CHECK(found([](ParallelPlan& p) {
          p.recompute = Recompute::full;
          p.recompute_layers = {1};
        }).find("full recomputation with CUDA graphs") != std::string::npos);
  const auto modules = [](RecomputeModules of) {
    return [of](ParallelPlan& p) {
      p.recompute = Recompute::selective;
      p.recompute_modules = of;
    };
  };
  CHECK(found(modules({RecomputeModule::moe})).find("router") != std::string::npos);
  CHECK(found(modules({RecomputeModule::moe_act})) == "legal");
  const auto overlap = [](int zero) {
    return [zero](ParallelPlan& p) {
      p.overlap_ep = true;
      p.zero = zero;
    };
  };
  CHECK(found(overlap(1)) == "legal");
  CHECK(found(overlap(2)).find("FSDP") != std::string::npos);
  const auto whole_step = [](int ep, Dispatcher dispatcher) {
    return [ep, dispatcher](ParallelPlan& p) {
      p.cuda_graphs = CudaGraphs::full_iteration;
      p.ep = ep;
      p.dispatcher = dispatcher;
    };
  };
  CHECK(found(whole_step(8, Dispatcher::hybridep)) == "legal");
  CHECK(found(whole_step(8, Dispatcher::deepep)).find("whole step") != std::string::npos);
  CHECK(found(whole_step(1, Dispatcher::alltoall)).find("whole step") != std::string::npos);
}

TEST_CASE("shared experts run beside the all-to-all alone, and are not recomputed there") {
  const auto found = [](const char* model, const char* framework, auto change) {
    const PlanRequest r = request_for(model, "dgx-h100", 64, framework);
    ParallelPlan p;
    p.dp = p.shard_group = 64;
    p.zero = 1;
    p.ep = 8;
    p.overlap_shared = true;
    p.layers_per_stage = {r.model.layers};
    p.recompute_layers = {0};
    change(p);
    const auto rejection = check_plan(r.model, r.job, r.cluster, r.framework, p);
    return rejection ? rejection->detail : "legal";
  };
  const auto says = [&](auto change, const char* word) {
    return found("deepseek-v2", "megatron-core", change).find(word) != std::string::npos;
  };
  CHECK(found("deepseek-v2", "megatron-core", [](ParallelPlan&) {}) == "legal");
  CHECK(says([](ParallelPlan& p) { p.ep = 1; }, "ep 1"));
  CHECK(says([](ParallelPlan& p) { p.dispatcher = Dispatcher::deepep; }, "alltoall"));
  CHECK(says([](ParallelPlan& p) { p.overlap_ep = true; }, "overlap of ep"));
  CHECK(says(
      [](ParallelPlan& p) {
        p.recompute = Recompute::selective;
        p.recompute_modules = {RecomputeModule::shared_experts};
      },
      "shared_experts"));
  CHECK(found("mixtral-8x7b", "megatron-core", [](ParallelPlan&) {}).find("has none") !=
        std::string::npos);
  CHECK(found("deepseek-v2", "torchtitan", [](ParallelPlan&) {}).find("shared experts") !=
        std::string::npos);
}

TEST_CASE("the experts' exchange overlaps with interleaving, without full recomputation") {
  const PlanRequest r = request_for("mixtral-8x7b", "dgx-h100", 64);
  const auto found = [&](auto change) {
    ParallelPlan p;
    p.pp = 4;
    p.vpp = 2;
    p.microbatch_group = 4;
    p.schedule = ScheduleKind::interleaved;
    p.dp = p.shard_group = 16;
    p.zero = 1;
    p.ep = 8;
    p.overlap_ep = true;
    p.layers_per_stage = {8, 8, 8, 8};
    p.recompute_layers = {0, 0, 0, 0};
    change(p);
    const auto rejection = check_plan(r.model, r.job, r.cluster, r.framework, p);
    return rejection ? rejection->detail : "legal";
  };
  CHECK(found([](ParallelPlan&) {}) == "legal");
  CHECK(found([](ParallelPlan& p) { p.ep = 1; }).find("ep 1") != std::string::npos);
  CHECK(found([](ParallelPlan& p) { p.dispatcher = Dispatcher::allgather; }).find("allgather") !=
        std::string::npos);
  CHECK(found([](ParallelPlan& p) {
          p.vpp = p.microbatch_group = 1;
          p.schedule = ScheduleKind::one_f_one_b;
        }).find("interleaving") != std::string::npos);
  CHECK(found([](ParallelPlan& p) {
          p.recompute = Recompute::full;
          p.recompute_layers = {8, 8, 8, 8};
        }).find("full recomputation") != std::string::npos);
  CHECK(found([](ParallelPlan& p) {
          p.cuda_graphs = CudaGraphs::full_iteration;
        }).find("hybridep") != std::string::npos);
}

TEST_CASE(
    "with stages inside dp, experts are spread over as many data-parallel ranks as the rest") {
  // Megatron-LM core/parallel_state.py: order.endswith("pp") or pp == 1 or expert dp == dp.
  const auto reason = [](const char* model, std::vector<int> tp_cp_pp, int ep, int etp) {
    const PlanRequest r = request_for(model, "dgx-h100", 64);
    ParallelPlan p;
    p.tp = tp_cp_pp[0];
    p.cp = tp_cp_pp[1];
    p.pp = tp_cp_pp[2];
    p.dp = 64 / (p.tp * p.cp * p.pp);
    p.ep = ep;
    p.etp = etp;
    p.zero = 1;
    p.shard_group = p.dp * p.cp;
    p.sequence_parallel = p.tp > 1;
    p.layers_per_stage = balanced_layers(r.model.layers, p.pp);
    p.recompute_layers.assign(static_cast<std::size_t>(p.pp), 0);
    CHECK_FALSE(check_plan(r.model, r.job, r.cluster, r.framework, p));
    p.rank_order = RankOrder::pp_inside_dp;
    const auto rejection = check_plan(r.model, r.job, r.cluster, r.framework, p);
    return rejection ? std::string(name_of(rejection->reason)) : "legal";
  };
  CHECK(reason("mixtral-8x7b", {1, 1, 4}, 8, 1) == "rank-order");
  CHECK(reason("mixtral-8x7b", {4, 1, 4}, 8, 1) == "rank-order");
  CHECK(reason("mixtral-8x7b", {4, 1, 4}, 2, 1) == "rank-order");
  CHECK(reason("mixtral-8x7b", {4, 1, 4}, 4, 1) == "legal");
  CHECK(reason("mixtral-8x7b", {4, 1, 4}, 2, 2) == "legal");
  CHECK(reason("mixtral-8x7b", {4, 1, 4}, 1, 4) == "legal");
  CHECK(reason("mixtral-8x7b", {1, 1, 4}, 1, 1) == "legal");
  CHECK(reason("mixtral-8x7b", {1, 1, 1}, 8, 1) == "legal");
  CHECK(reason("mixtral-8x7b", {1, 4, 1}, 8, 1) == "legal");
  CHECK(reason("7b", {2, 1, 4}, 1, 1) == "legal");
  CHECK(reason("7b", {2, 2, 1}, 1, 1) == "legal");
  CHECK(reason("7b", {2, 2, 4}, 1, 1) == "rank-order");  // its experts' dp would be dp·cp
  CHECK(reason("mixtral-8x7b", {2, 2, 4}, 4, 1) == "rank-order");  // takes it; we do not price it
}

TEST_CASE("every group of a plan that the rank order's rule allows is evenly spaced") {
  int inside = 0;
  int uneven = 0;
  for (const char* name : {"mixtral-8x7b", "7b"}) {
    const ModelSpec model = load_model(name).value();
    for (const int tp : {1, 2, 4}) {
      for (const int cp : {1, 2}) {
        for (const int pp : {1, 2, 4}) {
          for (const int ep : {1, 2, 4, 8}) {
            for (const int etp : {1, 2, 4}) {
              ParallelPlan p;
              p.tp = tp;
              p.cp = cp;
              p.pp = pp;
              p.dp = 64 / (tp * cp * pp);
              p.ep = ep;
              p.etp = etp;
              p.rank_order = RankOrder::pp_inside_dp;
              if (model.moe.experts == 0 && ep * etp > 1) continue;
              if (tp * cp * p.dp % (ep * etp) != 0) continue;
              const ProcessGrid grid(p);
              const bool even =
                  std::ranges::all_of(kAxes, [&](Axis axis) { return grid.evenly_spaced(axis); });
              uneven += even ? 0 : 1;
              if (check_rank_order(model, p)) continue;
              INFO(name << " tp " << tp << " cp " << cp << " pp " << pp << " ep " << ep << " etp "
                        << etp);
              if (model.moe.experts > 0) CHECK(even);
              // Megatron's rule: pp outermost in effect, or as many expert as dense replicas.
              if (model.moe.experts > 0) CHECK((pp == 1 || p.expert_dp() == p.dp));
              if (model.moe.experts == 0) CHECK((pp == 1 || cp == 1));
              inside += pp > 1 ? 1 : 0;
            }
          }
        }
      }
    }
  }
  CHECK(inside > 10);
  CHECK(uneven > 10);
}

TEST_CASE("every ZeRO group holds whole copies of the experts") {
  // Megatron-LM core/parallel_state.py: expert dp % optimizer instances == 0.
  const PlanRequest r = request_for("mixtral-8x7b", "dgx-h100", 64);
  ParallelPlan p;
  p.dp = 64;
  p.layers_per_stage = {32};
  p.recompute_layers = {0};
  const auto reason = [&](int zero, int ep, int group, const char* framework = "megatron-core") {
    p.zero = zero;
    p.ep = ep;
    p.shard_group = group;
    const auto rejection = check_plan(r.model, r.job, r.cluster, *find_framework(framework), p);
    return rejection ? std::string(name_of(rejection->reason)) : "legal";
  };
  CHECK(reason(1, 8, 64) == "legal");
  CHECK(reason(1, 8, 8) == "legal");            // 8 instances, 8 ranks with the same experts
  CHECK(reason(1, 8, 4) == "zero-group-size");  // 16 of 8
  CHECK(reason(1, 1, 4) == "legal");
  CHECK(reason(2, 8, 4) == "zero-group-size");
  CHECK(reason(3, 4, 4) == "legal");
  CHECK(reason(3, 8, 4, "torchtitan") == "zero-group-size");
  CHECK(reason(3, 8, 8, "torchtitan") == "legal");
  CHECK(reason(3, 1, 8, "deepspeed") == "legal");
  p.zero = 1;
  p.ep = 8;
  p.shard_group = 4;
  const std::string detail = check_plan(r.model, r.job, r.cluster, r.framework, p)->detail;
  CHECK(detail ==
        "zero-group-size 4 makes 16 optimizer instances, which do not divide the 8 ranks that "
        "hold the same experts");
}

TEST_CASE("context parallelism needs two slices of the sequence per rank, all-to-all needs heads") {
  const auto reason = [](int cp, CpComm comm, int sequence, const char* framework) {
    PlanRequest r = request_for("7b", "dgx-h100", 64, framework);
    r.job.sequence = sequence;
    ParallelPlan p = legal_plan();
    p.tp = 4;
    p.sequence_parallel = false;
    p.cp = cp;
    p.cp_comm = comm;
    p.dp = 64 / 4 / 4 / cp;
    p.shard_group = p.dp * cp;
    const auto rejection = check_plan(r.model, r.job, r.cluster, r.framework, p);
    return rejection ? std::string(name_of(rejection->reason)) : "legal";
  };
  CHECK(reason(2, CpComm::ring, 4096, "megatron-core") == "legal");
  CHECK(reason(2, CpComm::all_to_all, 4096, "megatron-core") == "legal");
  CHECK(reason(2, CpComm::ring, 4098, "megatron-core") == "sequence-not-divisible");
  CHECK(reason(2, CpComm::ring, 4096, "nanotron") == "framework-lacks-feature");
  CHECK(reason(2, CpComm::all_to_all, 4096, "torchtitan") == "framework-lacks-feature");
  CHECK(reason(2, CpComm::all_to_all, 4096, "echelon") == "legal");
  CHECK(reason(2, CpComm::all_to_all, 4104, "echelon") == "legal");  // one slice per rank
  CHECK(reason(2, CpComm::ring, 4104, "echelon") == "legal");
  CHECK(reason(4, CpComm::all_to_all, 4100, "echelon") == "legal");
  CHECK(reason(4, CpComm::ring, 4100, "echelon") == "sequence-not-divisible");
}

TEST_CASE("sequence parallelism must divide the sequence and needs tp > 1") {
  PlanRequest r = request_for("7b", "dgx-h100", 64);
  r.job.sequence = 4095;
  CHECK(check_plan(r.model, r.job, r.cluster, r.framework, legal_plan())->reason ==
        RejectionReason::sequence_not_divisible);
  CHECK(reason_after([](ParallelPlan& p) {
          p.tp = 1;
          p.dp = p.shard_group = 16;
        }) == "contradictory");
}

TEST_CASE("the global batch must be a multiple of data parallel times microbatch") {
  CHECK(reason_after([](ParallelPlan& p) { p.microbatch = 3; }) == "batch-not-divisible");
}

TEST_CASE("layers must be split completely, one chunk each at least") {
  CHECK(reason_after([](ParallelPlan& p) {
          p.layers_per_stage = {8, 8, 8, 7};
        }) == "contradictory");
  CHECK(reason_after([](ParallelPlan& p) { p.layers_per_stage = {8, 8, 16}; }) == "contradictory");
  CHECK(reason_after([](ParallelPlan& p) {
          p.layers_per_stage = {16, 0, 8, 8};
        }) == "too-few-layers");
}

TEST_CASE("only the first and the last stage of a free layout may hold no layers") {
  const auto ends = [](ParallelPlan& p) { p.layers_per_stage = {0, 16, 16, 0}; };
  CHECK(reason_after(ends) == "legal");
  CHECK(reason_after(ends, "nanotron") == "too-few-layers");
  CHECK(reason_after([](ParallelPlan& p) {
          p.vpp = 8;
          p.schedule = ScheduleKind::interleaved;
          p.layers_per_stage = {7, 9, 9, 7};
        }) == "legal");
  CHECK(reason_after([](ParallelPlan& p) {
          p.vpp = 8;
          p.schedule = ScheduleKind::interleaved;
          p.layers_per_stage = {8, 7, 9, 8};
        }) == "too-few-layers");
}

TEST_CASE("ZeRO splits its state over a part of the ranks where the stack can") {
  const auto half = [](int zero) {
    return [zero](ParallelPlan& p) {
      p.tp = 4;
      p.dp = 4;
      p.zero = zero;
      p.shard_group = 2;
    };
  };
  CHECK(reason_after(half(1)) == "legal");
  CHECK(reason_after(half(3), "torchtitan") == "legal");
  CHECK(reason_after(
            [&](ParallelPlan& p) {
              half(1)(p);
              p.layers_per_stage = {9, 8, 8, 7};
            },
            "nanotron") == "framework-lacks-feature");
  CHECK(reason_after([&](ParallelPlan& p) {
          half(1)(p);
          p.shard_group = 3;
        }) == "zero-group-size");
}

TEST_CASE("a ZeRO group of one rank partitions nothing, and is refused as ZeRO-0 by its name") {
  const PlanRequest r = request_for("7b", "dgx-h100", 64);
  ParallelPlan p = legal_plan();
  p.pp = 1;
  p.dp = 8;
  p.layers_per_stage = {32};
  p.recompute_layers = {0};
  for (const int zero : {0, 1, 2, 3}) {
    p.zero = zero;
    for (const int group : {1, 2}) {
      p.shard_group = group;
      const auto rejection = check_plan(r.model, r.job, r.cluster, r.framework, p);
      INFO("ZeRO-" << zero << " over " << group);
      REQUIRE(rejection.has_value() == (zero > 0 && group == 1));
      if (!rejection) continue;
      CHECK(rejection->detail.find("the same plan is --zero 0") != std::string::npos);
      CHECK(rejection->reason == RejectionReason::shard_group);
    }
  }
}

TEST_CASE("interleaving needs its schedule, chunks the stack can hold and pp microbatches") {
  const auto interleave = [](ParallelPlan& p, int vpp) {
    p.vpp = vpp;
    p.schedule = ScheduleKind::interleaved;
  };
  CHECK(reason_after([&](ParallelPlan& p) { interleave(p, 2); }) == "legal");
  CHECK(reason_after([&](ParallelPlan& p) { interleave(p, 3); }) == "legal");
  CHECK(reason_after(
            [&](ParallelPlan& p) {
              interleave(p, 3);
              p.zero = 1;
            },
            "megatron-2021") == "layers-not-divisible");
  CHECK(reason_after([&](ParallelPlan& p) { interleave(p, 16); }) == "too-few-layers");
  CHECK(reason_after([&](ParallelPlan& p) { p.vpp = 2; }) == "contradictory");
  CHECK(reason_after([&](ParallelPlan& p) {
          interleave(p, 2);
          p.microbatch = 256;
        }) == "microbatches-not-divisible");
  CHECK(reason_after([&](ParallelPlan& p) { interleave(p, 2); }, "nanotron") ==
        "framework-lacks-feature");
}

TEST_CASE("groups of microbatches hold pp or more, and so does a last one that is smaller") {
  // Megatron-LM, forward_backward_pipelining_with_interleaving: pp <= N <= M, M mod N = 0 or >= pp.
  for (int m = 1; m <= 40; ++m) {
    for (const int pp : {2, 3, 4, 8}) {
      std::optional<int> first;
      for (int group = 1; group <= m + 1; ++group) {
        const bool legal = group >= pp && group <= m && (m % group == 0 || m % group >= pp);
        INFO(m << " microbatches, pp " << pp << ", groups of " << group);
        CHECK(groups_fill(m, pp, group) == legal);
        if (legal && !first) first = group;
      }
      CHECK(smallest_group(m, pp, pp) == first);
      if (first) CHECK(smallest_group(m, pp, 100) == m);
    }
  }
  const auto grouped = [](int group, int microbatch) {
    return [=](ParallelPlan& p) {
      p.vpp = 2;
      p.schedule = ScheduleKind::interleaved;
      p.microbatch = microbatch;
      p.microbatch_group = group;
    };
  };
  // Of legal_plan(): pp 4, dp 2; 128 microbatches of 4 samples.
  CHECK(reason_after(grouped(4, 4)) == "legal");
  CHECK(reason_after(grouped(62, 4)) == "legal");
  CHECK(reason_after(grouped(63, 4)) == "microbatches-not-divisible");  // two remain
  CHECK(reason_after(grouped(3, 4)) == "microbatches-not-divisible");
  CHECK(reason_after(grouped(129, 4)) == "microbatches-not-divisible");
  CHECK(reason_after(grouped(8, 4), "echelon") != "framework-lacks-feature");
  CHECK(reason_after(
            [&](ParallelPlan& p) {
              grouped(8, 4)(p);
              p.zero = 1;
            },
            "megatron-2021") == "framework-lacks-feature");
  CHECK(reason_after([](ParallelPlan& p) { p.microbatch_group = 8; }) == "contradictory");
}

TEST_CASE("a stack is not asked for what it does not have") {
  CHECK(reason_after([](ParallelPlan& p) { p.zero = 3; }) == "framework-lacks-feature");
  CHECK(reason_after([](ParallelPlan& p) { p.zero = 3; }, "torchtitan") == "legal");
  CHECK(reason_after(
            [](ParallelPlan& p) {
              p.zero = 2;
              p.layers_per_stage = {9, 8, 8, 7};
            },
            "nanotron") == "framework-lacks-feature");
  CHECK(reason_after([](ParallelPlan& p) { p.sequence_parallel = false; }, "nanotron") ==
        "framework-lacks-feature");
}

TEST_CASE("a stack is not asked for axes it does not have, nor for what excludes them") {
  const auto split = [](int tp, int pp, int zero) {
    return [=](ParallelPlan& p) {
      p.tp = tp;
      p.pp = pp;
      p.dp = p.shard_group = 64 / (tp * pp);
      p.zero = zero;
      p.sequence_parallel = false;
      p.layers_per_stage = balanced_layers(32, pp);
      p.recompute_layers.assign(static_cast<std::size_t>(pp), 0);
    };
  };
  CHECK(reason_after(split(1, 1, 3), "llm-foundry") == "legal");
  CHECK(reason_after(split(2, 1, 3), "llm-foundry") == "framework-lacks-feature");
  CHECK(reason_after(split(1, 2, 0), "llm-foundry") == "framework-lacks-feature");
  CHECK(reason_after(split(2, 1, 2), "deepspeed") == "legal");
  CHECK(reason_after(split(2, 1, 3), "deepspeed") == "legal");  // from 0.19.4 on
  CHECK(reason_after(split(1, 1, 3), "deepspeed") == "legal");
  const PlanRequest r = request_for("mixtral-8x7b", "dgx-h100", 64, "deepspeed");
  ParallelPlan p;
  p.dp = p.shard_group = 64;
  p.ep = 8;
  p.layers_per_stage = {32};
  p.recompute_layers = {0};
  p.zero = 2;
  CHECK_FALSE(check_plan(r.model, r.job, r.cluster, r.framework, p));
  p.zero = 3;
  REQUIRE(check_plan(r.model, r.job, r.cluster, r.framework, p));
  CHECK(check_plan(r.model, r.job, r.cluster, r.framework, p)->detail ==
        "deepspeed has no ZeRO-3 together with expert parallelism");
}

TEST_CASE("messages run beside compute under interleaving alone") {
  const auto overlapped = [](ParallelPlan& p) { p.overlap_pp = true; };
  CHECK(reason_after(overlapped) == "framework-lacks-feature");
  CHECK(reason_after([&](ParallelPlan& p) {
          overlapped(p);
          p.vpp = 2;
          p.schedule = ScheduleKind::interleaved;
        }) == "legal");
  CHECK(reason_after([&](ParallelPlan& p) {
          overlapped(p);
          p.pp = 1;
          p.dp = p.shard_group = 8;
          p.layers_per_stage = {32};
          p.recompute_layers = {0};
        }) == "legal");
}

TEST_CASE("the same number of layers of every chunk is recomputed, or all") {
  const auto recomputed = [](int vpp, std::vector<int> layers, std::vector<int> counts) {
    return [=](ParallelPlan& p) {
      p.vpp = vpp;
      p.schedule = vpp > 1 ? ScheduleKind::interleaved : ScheduleKind::one_f_one_b;
      p.layers_per_stage = layers;
      p.recompute = Recompute::full;
      p.recompute_layers = counts;
    };
  };
  const std::vector<int> even = {8, 8, 8, 8};
  CHECK(reason_after(recomputed(1, even, {3, 3, 3, 3})) == "legal");
  CHECK(reason_after(recomputed(2, even, {3, 3, 3, 3})) == "framework-lacks-feature");
  CHECK(reason_after(recomputed(2, even, {4, 4, 4, 4})) == "legal");
  CHECK(reason_after(recomputed(2, even, {8, 8, 8, 8})) == "legal");
  CHECK(reason_after(recomputed(2, {7, 9, 9, 7}, {7, 9, 9, 7})) == "legal");
  CHECK(reason_after(recomputed(2, {7, 9, 9, 7}, {7, 8, 8, 7})) == "legal");
  CHECK(reason_after(recomputed(2, {7, 9, 9, 7}, {7, 7, 7, 7})) == "framework-lacks-feature");
  CHECK(reason_after(recomputed(2, even, {3, 3, 3, 3}), "echelon") == "legal");
}

TEST_CASE("only our own runtime offers ZB-H1, and only without chunks") {
  const auto zero_bubble = [](ParallelPlan& p) { p.schedule = ScheduleKind::zero_bubble_h1; };
  for (const Framework& framework : frameworks()) {
    const PlanRequest r = request_for("7b", "dgx-h100", 64, framework.name.c_str());
    ParallelPlan p = legal_plan();
    p.zero = 0;
    zero_bubble(p);
    const auto rejection = check_plan(r.model, r.job, r.cluster, r.framework, p);
    INFO(framework.name);
    if (framework.name == "echelon") {
      CHECK_FALSE(rejection);
    } else {
      REQUIRE(rejection);
      CHECK(rejection->reason == RejectionReason::framework_lacks_feature);
    }
  }
  CHECK(reason_after(
            [&](ParallelPlan& p) {
              zero_bubble(p);
              p.vpp = 2;
            },
            "echelon") == "contradictory");
}

TEST_CASE("recomputed layers belong to full recomputation and to existing layers") {
  CHECK(reason_after([](ParallelPlan& p) {
          p.recompute_layers = {1, 0, 0, 0};
        }) == "contradictory");
  CHECK(reason_after([](ParallelPlan& p) {
          p.recompute = Recompute::full;
          p.recompute_layers = {9, 9, 9, 9};
        }) == "contradictory");
  CHECK(reason_after([](ParallelPlan& p) {
          p.recompute = Recompute::full;
          p.recompute_layers = {4, 3, 2, 0};
        }) == "framework-lacks-feature");
  CHECK(reason_after(
            [](ParallelPlan& p) {
              p.recompute = Recompute::full;
              p.recompute_layers = {4, 3, 2, 0};
              p.zero = 0;
            },
            "echelon") == "legal");
}

TEST_CASE(
    "none, selective and full are mixed only where the stack can, within each stage's layers") {
  const auto mix = [](std::vector<int> full, std::vector<int> selective) {
    return [=](ParallelPlan& p) {
      p.recompute = Recompute::mixed;
      p.recompute_layers = full;
      p.selective_layers = selective;
    };
  };
  const auto reason = [&](std::vector<int> full, std::vector<int> selective) {
    return reason_after(mix(std::move(full), std::move(selective)), "echelon");
  };
  CHECK(reason({4, 3, 2, 0}, {4, 5, 0, 1}) == "legal");
  CHECK(reason({4, 3, 2, 0}, {5, 0, 0, 0}) == "contradictory");
  CHECK(reason({4, 3, 2, 0}, {}) == "contradictory");
  CHECK(reason_after(mix({1, 1, 1, 1}, {1, 1, 1, 1})) == "framework-lacks-feature");
  CHECK(reason_after(
            [&](ParallelPlan& p) {
              mix({1, 1, 1, 1}, {1, 1, 1, 1})(p);
              p.recompute = Recompute::full;
            },
            "echelon") == "contradictory");
}

TEST_CASE("balanced layers differ by one at most and spare the ends") {
  for (const int pp : {1, 2, 3, 7, 16}) {
    for (int layers = pp; layers < 4 * pp + 3; ++layers) {
      const std::vector<int> split = balanced_layers(layers, pp);
      CHECK(std::accumulate(split.begin(), split.end(), 0) == layers);
      CHECK(*std::max_element(split.begin(), split.end()) -
                *std::min_element(split.begin(), split.end()) <=
            1);
    }
  }
  CHECK(balanced_layers(126, 16).front() == 7);
  CHECK(balanced_layers(126, 16).back() == 7);
  CHECK(balanced_layers(126, 16)[1] == 8);
}

/// A model of so many equal layers.
ModelSpec layers_of(int layers) {
  ModelSpec model;
  model.layers = layers;
  return model;
}

TEST_CASE("a free layout lets embedding and loss take the place of one layer each") {
  // Llama 3.1 405B: 126 layers + 2 = pp 8 · vpp 8 · 2.
  const Framework free = find_framework("megatron-core").value();
  const auto split = split_layers(free, layers_of(126), 8, 8);
  REQUIRE(split);
  CHECK(split->front() == 15);
  CHECK((*split)[3] == 16);
  CHECK(split->back() == 15);
}

TEST_CASE("equal chunks are all that Megatron-LM of 2021 has") {
  const Framework equal = find_framework("megatron-2021").value();
  CHECK_FALSE(split_layers(equal, layers_of(126), 8, 8));
  CHECK_FALSE(split_layers(equal, layers_of(70), 12, 1));
  CHECK(split_layers(equal, layers_of(96), 8, 3) == std::vector<int>(8, 12));
  CHECK(split_layers(equal, layers_of(96), 8, 1) == std::vector<int>(8, 12));
}

TEST_CASE("a free layout splits any layers into any chunks, bare ends included") {
  const Framework free = find_framework("megatron-core").value();
  for (const int pp : {2, 3, 8}) {
    for (int vpp = 1; vpp <= 5; ++vpp) {
      CHECK_FALSE(split_layers(free, layers_of(pp * vpp - 3), pp, vpp));
      for (int layers = std::max(1, pp * vpp - 2); layers < pp * vpp + 20; ++layers) {
        const auto split = split_layers(free, layers_of(layers), pp, vpp);
        INFO(layers << " layers, pp " << pp << ", vpp " << vpp);
        REQUIRE(split);
        CHECK(std::accumulate(split->begin(), split->end(), 0) == layers);
        for (int stage = 0; stage < pp; ++stage) {
          CHECK((*split)[static_cast<std::size_t>(stage)] >= fewest_layers(free, pp, vpp, stage));
        }
      }
    }
  }
  // a bare embedding, and a bare loss
  CHECK(split_layers(free, layers_of(126), 16, 8)->front() == 7);
}

TEST_CASE("divisors are complete and ascending") {
  CHECK(divisors(12) == std::vector<std::int64_t>{1, 2, 3, 4, 6, 12});
  CHECK(divisors(1) == std::vector<std::int64_t>{1});
  CHECK(divisors(1024).size() == 11);
}
