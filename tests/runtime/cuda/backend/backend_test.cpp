// The CUDA backend against the CPU's: on stand-ins of the CUDA runtime, cuBLASLt and NCCL, or on
// GPUs (machine.hpp).
#include <cstdlib>

#include "tests/runtime/cuda/backend/machine.hpp"
#include "tests/runtime/cuda/backend/on_gpus.hpp"
#include "tests/runtime/cuda/backend/small_cases.hpp"

namespace echelon {
namespace {

/// On the given number of GPUs; nothing if there are fewer. `attention`: ECHELON_CUDNN.
std::optional<Trained> train_on_gpus(const TrainedCase& c, int gpus, std::uint64_t seed,
                                     const char* attention = "") {
  if (!start_gpus(gpus, seed)) return {};
  setenv("ECHELON_CUDNN", attention, 1);
  const Trained trained = train<Bfloat16>(c, open_gpus);
  unsetenv("ECHELON_CUDNN");
  end_gpus();
  return trained;
}

/// The two round to bf16 at different places.
void check_losses(const Trained& found, const Trained& expected) {
  REQUIRE(found.steps.size() == expected.steps.size());
  for (std::size_t s = 0; s < expected.steps.size(); ++s) {
    CHECK(found.steps[s].loss == Approx(expected.steps[s].loss).epsilon(2e-3));
    CHECK(found.steps[s].gradient_norm == Approx(expected.steps[s].gradient_norm).epsilon(2e-2));
  }
}

struct GpuVariant {
  const char* name;
  int tp, pp, dp;
  void (*change)(ParallelPlan&);
  int cp = 1;
  CpComm comm = CpComm::all_to_all;
};
const std::vector<GpuVariant> kVariants = {
    {"one rank", 1, 1, 1, [](ParallelPlan&) {}},
    {"dp 2", 1, 1, 2, [](ParallelPlan&) {}},
    {"dp 2, ZeRO 1", 1, 1, 2, [](ParallelPlan& p) { p.zero = 1; }},
    {"dp 2, ZeRO 2", 1, 1, 2, [](ParallelPlan& p) { p.zero = 2; }},
    {"dp 2, ZeRO 3", 1, 1, 2, [](ParallelPlan& p) { p.zero = 3; }},
    {"dp 4, ZeRO 3 over 2", 1, 1, 4, [](ParallelPlan& p) { p.zero = 3, p.shard_group = 2; }},
    {"tp 2", 2, 1, 1, [](ParallelPlan&) {}},
    {"tp 2, sequence parallel", 2, 1, 1, [](ParallelPlan& p) { p.sequence_parallel = true; }},
    {"full", 1, 1, 1,
     [](ParallelPlan& p) { p.recompute = Recompute::full, p.recompute_layers = {2}; }},
    {"pp 2, GPipe", 1, 2, 1, [](ParallelPlan& p) { p.schedule = ScheduleKind::gpipe; }},
    {"pp 2, 1F1B", 1, 2, 1, [](ParallelPlan&) {}},
    {"pp 2, interleaved", 1, 2, 1,
     [](ParallelPlan& p) { p.schedule = ScheduleKind::interleaved, p.vpp = 2; }},
    {"pp 2, ZB-H1", 1, 2, 1, [](ParallelPlan& p) { p.schedule = ScheduleKind::zero_bubble_h1; }},
    {"tp 2, pp 2, dp 2, ZeRO 1", 2, 2, 2, [](ParallelPlan& p) { p.zero = 1; }},
    {"cp 2, ZeRO 3, selective", 1, 1, 1,
     [](ParallelPlan& p) { p.zero = 3, p.recompute = Recompute::selective; }, 2},
    {"tp 2, cp 2, pp 2, sequence parallel, ZB-H1", 2, 2, 1,
     [](ParallelPlan& p) { p.sequence_parallel = true, p.schedule = ScheduleKind::zero_bubble_h1; },
     2},
    {"cp 2 by a ring, ZeRO 3, selective", 1, 1, 1,
     [](ParallelPlan& p) { p.zero = 3, p.recompute = Recompute::selective; }, 2, CpComm::ring},
    {"cp 4 by a ring", 1, 1, 1, [](ParallelPlan&) {}, 4, CpComm::ring},
    {"tp 2, cp 2 by a ring, pp 2, sequence parallel, ZB-H1", 2, 2, 1,
     [](ParallelPlan& p) { p.sequence_parallel = true, p.schedule = ScheduleKind::zero_bubble_h1; },
     2, CpComm::ring},
    {"tp 2, pp 2, dp 2, ZeRO 3, interleaved, sequence parallel", 2, 2, 2,
     [](ParallelPlan& p) {
       p.zero = 3;
       p.schedule = ScheduleKind::interleaved;
       p.vpp = 2;
       p.sequence_parallel = true;
     }},
};

/// Two microbatches, and one layer per chunk and at least two: emulated threads are slow.
TrainedCase gpu_case(ModelSpec (*make)(int layers), const GpuVariant& v) {
  ParallelPlan probe;
  v.change(probe);
  TrainedCase c;
  c.model = with_wide_heads(make(std::max(2, v.pp * probe.vpp)));
  if (v.cp > 1) c.model.heads = c.model.kv_heads = v.tp * v.cp;
  c.plan = plan_for(c.model, v.tp, v.pp, v.dp);
  c.plan.cp = v.cp;
  if (v.cp > 1) c.plan.cp_comm = v.comm;
  c.global_batch = 2 * v.dp;
  c.steps = 2;
  c.rate = 1e-3;
  v.change(c.plan);
  if (c.plan.zero > 0 && c.plan.shard_group == 1) c.plan.shard_group = v.dp * v.cp;
  return c;
}

/// The spans of a measured step come from events.
void check_times(const StepTimes& times) {
  REQUIRE(!times.spans.empty());
  for (const InstructionSpan& span : times.spans) {
    CHECK(span.start >= times.begin);
    CHECK(span.end >= span.start);
    CHECK(times.end >= span.end);
  }
}

TEST_CASE("every plan trains over NCCL to the losses of the CPU") {
  // In each plan, one model uses cuDNN for attention and the other our kernels.
  std::uint64_t seed = 0;
  for (const auto make : {small_gpt2, small_llama}) {
    for (const GpuVariant& v : kVariants) {
      const TrainedCase c = gpu_case(make, v);
      INFO(c.model.name << ", " << v.name);
      const bool ours = (&v - kVariants.data() + (make == small_llama ? 1 : 0)) % 2 == 0;
      const auto found =
          train_on_gpus(c, static_cast<int>(c.plan.gpus()), ++seed, ours ? "never" : "");
      if (!found) continue;
      check_losses(*found, train<Bfloat16>(c));
      check_times(found->times);
    }
  }
}

TEST_CASE("models with norms of heads train on GPUs to the losses of the CPU") {
  std::uint64_t seed = 40;
  for (const std::size_t which :
       {std::size_t{0}, std::size_t{4}, std::size_t{14}, kVariants.size() - 1}) {
    const GpuVariant& v = kVariants[which];
    TrainedCase c = gpu_case(small_qwen3, v);
    for (const Recompute recompute : {Recompute::none, Recompute::selective}) {
      c.plan.recompute = recompute;
      INFO(c.model.name << ", " << v.name << ", " << name_of(recompute));
      const auto found = train_on_gpus(c, static_cast<int>(c.plan.gpus()), ++seed, "never");
      if (!found) continue;
      check_losses(*found, train<Bfloat16>(c));
    }
  }
}

TEST_CASE("adapters train on GPUs to the losses of the CPU, and frozen weights stay") {
  using enum AdapterTarget;
  struct Case {
    ModelSpec (*make)(int);
    std::size_t variant;
    int steps;  ///< from the third on they may be repeated from a graph
  };
  std::uint64_t seed = 50;
  for (const Case& each : {Case{small_gpt2, 0, 4}, Case{small_gpt2, 7, 2}, Case{small_qwen3, 4, 2},
                           Case{small_llama, 8, 2}}) {
    const GpuVariant& v = kVariants[each.variant];
    TrainedCase c = gpu_case(each.make, v);
    c.steps = each.steps;
    c.adapters = Adapters{8, {linear_qkv, linear_proj, linear_fc1, linear_fc2}};
    INFO(c.model.name << ", " << v.name);
    const auto found = train_on_gpus(c, static_cast<int>(c.plan.gpus()), ++seed, "never");
    if (!found) continue;
    const Trained expected = train<Bfloat16>(c);
    check_losses(*found, expected);
    CHECK(found->frozen == expected.frozen);
    CHECK(found->weights.size() == expected.weights.size());
  }
}

TEST_CASE("models with latent attention train on GPUs to the losses of the CPU") {
  struct Case {
    ModelSpec (*make)(int);
    std::size_t variant;
    Recompute recompute;
    const char* cudnn;
  };
  std::uint64_t seed = 70;
  for (const Case& each : {Case{small_deepseek, 0, Recompute::none, "never"},
                           Case{small_deepseek, 7, Recompute::full, ""},
                           Case{small_deepseek_lite, 3, Recompute::selective, "never"},
                           Case{small_deepseek, 12, Recompute::full, ""},
                           Case{small_deepseek_lite, 15, Recompute::none, "never"}}) {
    const GpuVariant& v = kVariants[each.variant];
    TrainedCase c = gpu_case(each.make, v);
    c.plan.recompute = each.recompute;
    if (each.recompute == Recompute::full) c.plan.recompute_layers = c.plan.layers_per_stage;
    INFO(c.model.name << ", " << v.name << ", " << name_of(each.recompute));
    const auto found = train_on_gpus(c, static_cast<int>(c.plan.gpus()), ++seed, each.cudnn);
    if (found) check_losses(*found, train<Bfloat16>(c));
  }
}

TEST_CASE("models with experts train on GPUs to the losses of the CPU") {
  struct Case {
    ModelSpec (*make)(int);
    std::size_t variant;
    Recompute recompute;
  };
  std::uint64_t seed = 60;
  for (const Case& each :
       {Case{small_mixtral, 0, Recompute::none}, Case{small_mixtral, 7, Recompute::full},
        Case{small_qwen3_moe, 4, Recompute::selective}, Case{small_qwen2_moe, 6, Recompute::none},
        Case{small_qwen2_moe, 12, Recompute::full}, Case{small_glm4_moe, 7, Recompute::selective},
        Case{small_qwen3_moe, 12, Recompute::full}}) {
    const GpuVariant& v = kVariants[each.variant];
    TrainedCase c = gpu_case(each.make, v);
    c.steps = 4;  // none of them may be repeated from a graph
    c.plan.recompute = each.recompute;
    if (each.recompute == Recompute::full) c.plan.recompute_layers = c.plan.layers_per_stage;
    INFO(c.model.name << ", " << v.name << ", " << name_of(each.recompute));
    const auto found = train_on_gpus(c, static_cast<int>(c.plan.gpus()), ++seed, "never");
    if (found) check_losses(*found, train<Bfloat16>(c));
  }
}

TEST_CASE("experts that GPUs share train to the losses of the CPU") {
  struct Case {
    ModelSpec (*make)(int);
    std::size_t variant;
    bool one_gpu;
  };
  std::uint64_t seed = 80;
  for (const Case& each : {Case{small_mixtral, 1, false}, Case{small_qwen3_moe, 3, false},
                           Case{small_mixtral, 13, false}, Case{small_qwen3_moe, 1, true}}) {
    const GpuVariant& v = kVariants[each.variant];
    TrainedCase c = gpu_case(each.make, v);
    c.plan.ep = 2;
    INFO(c.model.name << ", " << v.name << ", ep 2");
    const int gpus = each.one_gpu ? 1 : static_cast<int>(c.plan.gpus());
    const auto found = train_on_gpus(c, gpus, ++seed, "never");
    if (found) check_losses(*found, train<Bfloat16>(c));
  }
}

TEST_CASE("plans train on one GPU that all ranks share to the losses of the CPU") {
  for (const GpuVariant& v : kVariants) {
    if (v.tp * v.cp * v.pp * v.dp == 1) continue;
    const TrainedCase c = gpu_case(small_llama, v);
    INFO(c.model.name << ", " << v.name);
    const auto found = train_on_gpus(c, 1, 1);
    REQUIRE(found);
    check_losses(*found, train<Bfloat16>(c));
  }
}

/// Seeds differ in the order.
void check_bits(const TrainedCase& c, int gpus, const std::vector<std::uint64_t>& seeds) {
  const auto expected = train_on_gpus(c, gpus, 0);
  if (!expected) return;
  for (const std::uint64_t seed : seeds) {
    const auto found = train_on_gpus(c, gpus, seed);
    INFO("seed " << seed);
    CHECK(found->steps.back().loss == expected->steps.back().loss);
    CHECK(found->weights == expected->weights);
  }
}

TEST_CASE("GPUs compute the same bits in any order that events allow") {
  for (const GpuVariant& v : {kVariants[4], kVariants.back()}) {
    INFO(v.name);
    check_bits(gpu_case(small_llama, v), 1, {1, 2, 3});
  }
}

TEST_CASE("tensor-parallel collectives beside the backward's products leave the bits as they are") {
  // Every fourth seed holds one stream back, each time another one.
  const std::vector<std::uint64_t> seeds{1, 2, 3, 6, 10, 14, 18, 22};
  for (const bool split : {false, true}) {
    INFO("sequence parallel: " << split);
    TrainedCase c = gpu_case(small_llama, kVariants[6]);
    c.plan.sequence_parallel = split;
    check_bits(c, 2, seeds);
    check_bits(c, 1, {1, 2, 3});
  }
}

TEST_CASE("exchanges of heads beside the compute queue leave the bits as they are") {
  const std::vector<std::uint64_t> seeds{1, 2, 6, 10, 14, 18};
  TrainedCase c = gpu_case(small_qwen3, kVariants[14]);
  check_bits(c, 2, seeds);
  check_bits(c, 1, {1, 2});
}

/// Layers are reduced and gathered one by one.
void check_late(TrainedCase c, const std::vector<std::uint64_t>& seeds) {
  c.steps = 5;
  c.plan.bucket = Bytes{1};
  const int gpus = static_cast<int>(c.plan.gpus());
  const auto expected = train_on_gpus(c, gpus, 0);
  if (!expected) return;
  c.late = true;
  for (const std::uint64_t seed : seeds) {
    const auto found = train_on_gpus(c, gpus, seed);
    INFO("seed " << seed);
    REQUIRE(found->steps.size() == expected->steps.size());
    for (std::size_t s = 0; s < expected->steps.size(); ++s) {
      CHECK(found->steps[s].loss == expected->steps[s].loss);
      CHECK(found->steps[s].gradient_norm == expected->steps[s].gradient_norm);
      CHECK(found->steps[s].learning_rate == expected->steps[s].learning_rate);
    }
    CHECK(found->weights == expected->weights);
    check_times(found->times);
  }
}

TEST_CASE("steps that are issued before the end of the one before give the same bits and results") {
  check_late(gpu_case(small_gpt2, kVariants[2]), {1, 2, 3, 6, 10, 14});
  check_late(gpu_case(small_llama, kVariants[3]), {1, 2, 3});
  check_late(gpu_case(small_llama, kVariants[13]), {2});
}

}  // namespace
}  // namespace echelon
