// What the tables of the frameworks refuse, asked through the planner.
// Over 400 lines because every rule of every framework has its case.
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "planner/search/search.hpp"
#include "planner/space/candidates.hpp"
#include "planner/space/legality.hpp"
#include "planner/space/plan_from_constraints.hpp"
#include "tests/planner/requests.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

/// Why `plan` of the model on 64 GPUs of dgx-h100 is refused, or ""; its states are split over all
/// data-parallel ranks, or over groups of so many.
std::string refused(const char* model, const char* framework, ParallelPlan plan,
                    int shard_group = 0) {
  const PlanRequest r = request_for(model, "dgx-h100", 64, framework);
  plan.dp = 64 / (plan.tp * plan.cp * plan.pp);
  plan.shard_group = shard_group > 0 ? shard_group : plan.dp * plan.cp;
  plan.layers_per_stage = split_layers(r.framework, r.model, plan.pp, plan.vpp).value();
  plan.recompute_layers.assign(plan.layers_per_stage.size(), 0);
  const auto rejection = check_plan(r.model, r.job, r.cluster, r.framework, plan);
  return rejection ? rejection->detail : "";
}

/// Degrees tp, pp, ep, etp and ZeRO stage; sequence parallel where tp > 1.
ParallelPlan degrees(int tp, int pp, int ep = 1, int etp = 1, int zero = 0) {
  ParallelPlan plan;
  plan.tp = tp;
  plan.pp = pp;
  plan.ep = ep;
  plan.etp = etp;
  plan.zero = zero;
  plan.sequence_parallel = tp > 1;
  return plan;
}

TEST_CASE("DDP of torchtitan stands alone") {
  const std::string why =
      "torchtitan has no ZeRO-0 (DDP) together with tensor, pipeline, context or expert "
      "parallelism (torchtitan v0.2.2, torchtitan/models/llama3/infra/parallelize.py:151)";
  CHECK(refused("7b", "torchtitan", degrees(1, 1)) == "");
  CHECK(refused("7b", "torchtitan", degrees(2, 1)) == why);
  CHECK(refused("7b", "torchtitan", degrees(1, 2)) == why);
  ParallelPlan context = degrees(1, 1);
  context.cp = 64;
  CHECK(refused("7b", "torchtitan", context) == why);  // cp is FSDP's even at dp 1
  CHECK(refused("7b", "torchtitan", degrees(2, 2, 1, 1, 3)) == "");
  CHECK(refused("7b", "megatron-core", degrees(2, 2)) == "");
}

TEST_CASE("torchtitan computes in 16 bits beside tp and pp under FSDP alone") {
  const auto with = [](ParallelPlan plan, const char* precision) {
    PlanRequest r = request_for("7b", "dgx-h100", 64, "torchtitan");
    r.job.precision = find_precision(precision).value();
    plan.dp = 64 / (plan.tp * plan.cp * plan.pp);
    plan.shard_group = plan.dp * plan.cp;
    plan.layers_per_stage = split_layers(r.framework, r.model, plan.pp, 1).value();
    plan.recompute_layers.assign(plan.layers_per_stage.size(), 0);
    const auto rejection = check_plan(r.model, r.job, r.cluster, r.framework, plan);
    return rejection ? rejection->detail : "";
  };
  CHECK(with(degrees(8, 8), "bf16").find("maybe_enable_amp") != std::string::npos);
  CHECK(with(degrees(8, 8), "fp32") == "");
  CHECK(with(degrees(8, 4, 1, 1, 3), "bf16") == "");  // FSDP of two ranks
  ParallelPlan context = degrees(8, 4, 1, 1, 3);
  context.cp = 2;
  CHECK(with(context, "bf16") == "");
}

TEST_CASE(
    "Megatron-FSDP keeps the optimizer on the GPU, and DeepSpeed all of it or none below ZeRO-3") {
  for (int zero = 1; zero <= 3; ++zero) {
    ParallelPlan plan = degrees(1, 1, 1, 1, zero);
    CHECK(refused("7b", "megatron-core", plan) == "");
    plan.offload_optimizer = 0.5;
    const std::string why = refused("7b", "megatron-core", plan);
    CHECK((zero == 1 ? why.empty() : why.find("hybrid_optimizer.py") != std::string::npos));
    const std::string part = refused("7b", "deepspeed", plan);
    CHECK((zero == 3 ? part.empty() : part.find("zero/config.py:391") != std::string::npos));
    plan.offload_optimizer = 1;
    CHECK(refused("7b", "deepspeed", plan) == "");
  }
}

TEST_CASE("torchtitan and nanotron hold a key/value head once") {
  CHECK(refused("llama3-70b", "torchtitan", degrees(8, 1, 1, 1, 3)) == "");
  CHECK(refused("llama3-70b", "torchtitan", degrees(16, 1, 1, 1, 3)).find("model.py:257") !=
        std::string::npos);
  CHECK(refused("llama3-70b", "nanotron", degrees(16, 1)).find("llama.py:352") !=
        std::string::npos);
  CHECK(refused("llama3-70b", "megatron-core", degrees(16, 1)) == "");
}

TEST_CASE("tied embeddings and stages exclude each other in torchtitan") {
  CHECK(refused("gpt2-xl", "torchtitan", degrees(1, 1, 1, 1, 3)) == "");
  CHECK(refused("gpt2-xl", "torchtitan", degrees(1, 2, 1, 1, 3)).find("tied embeddings") !=
        std::string::npos);
  CHECK(refused("gpt2-xl", "megatron-core", degrees(1, 2)) == "");
}

TEST_CASE("tensor parallelism inside experts has the values that the framework has") {
  const auto mixtral = [](const char* framework, int ep, int etp) {
    return refused("mixtral-8x7b", framework, degrees(4, 1, ep, etp, 2));
  };
  CHECK(mixtral("torchtitan", 4, 4) == "");
  CHECK(mixtral("torchtitan", 4, 1) == "");
  CHECK(mixtral("torchtitan", 4, 2).find("parallel_dims.py:59") != std::string::npos);
  CHECK(mixtral("torchtitan", 1, 4) == "");
  CHECK(mixtral("torchtitan", 1, 1).find("ep 1 with etp other than tp") != std::string::npos);
  // biases inside the experts: GPT-OSS
  CHECK(refused("gpt-oss-20b", "megatron-core", degrees(2, 1, 8, 1, 1)) == "");
  CHECK(refused("gpt-oss-20b", "megatron-core", degrees(2, 1, 8, 2, 1)).find("biases") !=
        std::string::npos);
}

TEST_CASE("the own runtime splits every expert over the tensor-parallel ranks") {
  const auto mixtral = [](int tp, int ep, int etp) {
    return refused("mixtral-8x7b", "echelon", degrees(tp, 1, ep, etp, 1));
  };
  CHECK(mixtral(4, 1, 4) == "");
  CHECK(mixtral(4, 8, 4) == "");
  CHECK(mixtral(1, 4, 1) == "");
  CHECK(mixtral(4, 4, 1).find("etp other than tp") != std::string::npos);
  CHECK(mixtral(2, 1, 4).find("etp other than tp") != std::string::npos);
  ParallelPlan gathers = degrees(1, 1, 4, 1, 1);
  gathers.dispatcher = Dispatcher::allgather;
  CHECK(refused("mixtral-8x7b", "echelon", gathers).find("dispatcher allgather") !=
        std::string::npos);
  // Where none is asked for, it is tp, in a single plan as in a search.
  PlanRequest r = request_for("mixtral-8x7b", "dgx-h100", 16, "echelon");
  r.constraints.pin<&ParallelPlan::tp>(2);
  r.constraints.pin<&ParallelPlan::pp>(1);
  CHECK(plan_from_constraints(r).value().etp == 2);
  r.constraints.pin<&ParallelPlan::ep>(4);
  for (const LayerSharding& each : expert_shardings(r, {.tp = 2}, 16)) {
    CHECK(each.ep == 4);
    CHECK(each.etp == 2);
  }
  CHECK(plan_from_constraints(request_for("7b", "dgx-h100", 16, "echelon")).value().etp == 1);
}

TEST_CASE("DeepSpeed spreads experts over data-parallel ranks alone") {
  ParallelPlan plan = degrees(16, 1, 8, 1, 1);
  plan.sequence_parallel = false;
  const std::string no = refused("deepseek-v2-lite", "deepspeed", plan);
  CHECK(no.find("ep divides dp x cp") != std::string::npos);  // dp 4
  plan.ep = 4;
  CHECK(refused("deepseek-v2-lite", "deepspeed", plan) == "");
  plan.etp = 2;
  CHECK(refused("deepseek-v2-lite", "deepspeed", plan).find("etp other than 1 and tp") !=
        std::string::npos);
}

TEST_CASE("DeepSpeed's ZeRO-3 shards split tensors, over all data-parallel ranks alone") {
  ParallelPlan plan = degrees(2, 1, 1, 1, 3);
  plan.sequence_parallel = false;
  CHECK(refused("qwen3-8b", "deepspeed", plan) == "");
  CHECK(refused("qwen3-8b", "deepspeed", plan, 8).find("MiCS") != std::string::npos);
  plan.tp = 1;
  CHECK(refused("qwen3-8b", "deepspeed", plan, 8) == "");
  plan.ep = 8;
  CHECK(refused("qwen3-30b-a3b", "deepspeed", plan).find("ZeRO-3 together with expert") !=
        std::string::npos);
}

TEST_CASE("a framework is not planned for models whose layers it has not") {
  struct Case {
    const char* framework;
    const char* model;
    ParallelPlan plan;
    const char* why;  // "": it runs
  };
  const ParallelPlan data = degrees(1, 1, 1, 1, 0);
  const ParallelPlan shards = degrees(1, 1, 1, 1, 3);
  ParallelPlan tensors = degrees(2, 1, 1, 1, 0);
  tensors.sequence_parallel = false;
  const std::vector<Case> cases = {
      // Its own models and those built as Llama are split; FSDP2 alone takes any module.
      {"torchtitan", "nemotron-h-8b", shards, ""},
      {"torchtitan", "nemotron-h-8b", degrees(1, 2, 1, 1, 3), "state spaces"},
      {"torchtitan", "nemotron-h-8b", degrees(2, 1, 1, 1, 3), "models/__init__.py"},
      {"torchtitan", "nemotron-3-super-120b-a12b", degrees(1, 1, 8, 1, 3), "state spaces"},
      {"torchtitan", "bloom-7b1", shards, ""},
      {"torchtitan", "bloom-7b1", degrees(2, 1, 1, 1, 3), "without rotary positions"},
      {"torchtitan", "qwen3-next-80b-a3b", degrees(2, 1, 8, 1, 3), ""},
      {"torchtitan", "deepseek-v3", degrees(2, 1, 8, 1, 3), ""},
      {"torchtitan", "gpt-oss-20b", degrees(2, 1, 8, 1, 3), ""},
      {"torchtitan", "phi-4", degrees(2, 1, 1, 1, 3), ""},
      // Llama, Qwen2 and StarCoder2.
      {"nanotron", "llama3-8b", data, ""},
      {"nanotron", "qwen2-7b", data, ""},
      {"nanotron", "mistral-7b", data, ""},
      {"nanotron", "qwen1.5-moe-a2.7b", data, ""},
      {"nanotron", "mixtral-8x7b", data, ""},
      {"nanotron", "nemotron-h-8b", data, "state spaces (Mamba-2)"},
      {"nanotron", "qwen3-next-80b-a3b", data, "gated delta nets"},
      {"nanotron", "deepseek-v2-lite", data, "latent attention"},
      {"nanotron", "gpt-oss-20b", data, "attention sinks"},
      {"nanotron", "gemma3-1b", data, "windows in some of the layers"},
      {"nanotron", "qwen3-8b", data, "norms of queries and keys"},
      {"nanotron", "gemma-7b", data, "hidden / heads wide"},
      {"nanotron", "gpt2", data, "rotary positions"},
      {"nanotron", "phi-2", data, "one norm before attention"},
      {"nanotron", "llama4-scout", data, "windows"},
      // ZeRO takes any module; AutoTP splits linear layers.
      {"deepspeed", "nemotron-h-8b", shards, ""},
      {"deepspeed", "nemotron-h-8b", tensors, "state spaces"},
      {"deepspeed", "qwen3-next-80b-a3b", shards, ""},
      {"deepspeed", "qwen3-next-80b-a3b", tensors, "gated delta nets"},
      {"deepspeed", "gpt-oss-20b", shards, ""},
      {"deepspeed", "gpt-oss-20b", tensors, "attention sinks"},
      {"deepspeed", "olmoe-7b", tensors, "norms over all heads"},
      {"deepspeed", "deepseek-v2-lite", tensors, ""},
      {"deepspeed", "qwen3-8b", tensors, ""},
      {"megatron-2021", "gpt2-xl", data, ""},
      {"megatron-2021", "llama3-8b", data, ""},
      {"megatron-2021", "mixtral-8x7b", data, "layers with experts"},
      {"megatron-2021", "nemotron-h-8b", data, "state spaces"},
      {"megatron-2021", "gemma3-1b", data, "a window"},
      {"megatron-deepspeed", "mixtral-8x7b", data, ""},
      {"megatron-deepspeed", "deepseek-v2-lite", data, "latent attention"},
      {"megatron-deepspeed", "qwen1.5-moe-a2.7b", data, "shared experts"},
      {"megatron-deepspeed", "glm-4.5-air", data, "shared experts"},
      {"megatron-deepspeed", "minimax-m2", data, "sigmoid"},
      {"llm-foundry", "nemotron-h-8b", shards, ""},
  };
  for (const Case& each : cases) {
    CAPTURE(each.framework, each.model);
    const std::string why = refused(each.model, each.framework, each.plan);
    const std::string_view wanted = each.why;
    if (wanted.empty()) CHECK(why == "");
    if (!wanted.empty()) CHECK(why.find(wanted) != std::string::npos);
  }
  // Every key/value head needs a rank of its own, or some are idle.
  tensors.tp = 16;
  CHECK(refused("llama3-8b", "deepspeed", tensors).find("it leaves them idle") !=
        std::string::npos);
  // A search for such a model says what the framework lacks.
  const Result<SearchOutcome> none =
      search(request_for("nemotron-h-8b", "dgx-h100", 8, "nanotron"));
  REQUIRE_FALSE(none.ok());
  CHECK(none.error().message().find("nanotron has no layers with state spaces") !=
        std::string::npos);
}

TEST_CASE("what a model asks of a framework besides its own layers is a remark") {
  const auto remarked = [](const char* framework, const char* model, ParallelPlan plan) {
    const PlanRequest r = request_for(model, "dgx-h100", 64, framework);
    plan.dp = 64 / (plan.tp * plan.cp * plan.pp);
    plan.shard_group = plan.dp * plan.cp;
    plan.layers_per_stage = split_layers(r.framework, r.model, plan.pp, plan.vpp).value();
    std::string all;
    for (const FrameworkRemark& each : remarks(r.framework, r.model, plan)) all += each.text + "\n";
    return all;
  };
  const auto says = [](const std::string& text, const char* what) {
    return text.find(what) != std::string::npos;
  };
  ParallelPlan ring = degrees(1, 1, 1, 1, 3);
  ring.cp = 2;
  CHECK(says(remarked("torchtitan", "nemotron-h-8b", degrees(1, 1, 1, 1, 3)), "for state spaces"));
  CHECK(
      says(remarked("deepspeed", "qwen3-8b", degrees(2, 1, 1, 1, 3)), "DeepSpeed 0.19.4 or newer"));
  CHECK_FALSE(says(remarked("deepspeed", "qwen3-8b", degrees(2, 1, 1, 1, 2)), "0.19.4"));
  CHECK_FALSE(says(remarked("deepspeed", "qwen3-8b", degrees(1, 1, 1, 1, 3)), "0.19.4"));
  CHECK(says(remarked("torchtitan", "qwen3-next-80b-a3b", degrees(2, 1, 8, 1, 3)),
             "for gated delta nets, shared experts with a gate"));
  CHECK(says(remarked("torchtitan", "gpt-oss-20b", ring), "context parallelism of windows"));
  CHECK(says(remarked("torchtitan", "qwen3-8b", degrees(1, 2, 1, 1, 2)), "a pipeline of GPT-OSS"));
  CHECK(says(remarked("torchtitan", "qwen2-7b", degrees(2, 1, 1, 1, 3)),
             "transformers_modeling_backend"));
  CHECK(remarked("torchtitan", "llama3-8b", degrees(2, 1, 1, 1, 3)) == "");
  CHECK(remarked("torchtitan", "deepseek-v3", degrees(2, 1, 8, 1, 3)) == "");
  CHECK(says(remarked("nanotron", "mixtral-8x7b", degrees(1, 1)), "divided by their sum"));
  CHECK(remarked("nanotron", "qwen1.5-moe-a2.7b", degrees(1, 1)) == "");
  ring.cp_comm = CpComm::all_to_all;
  CHECK(says(remarked("deepspeed", "deepseek-v2-lite", ring), "DistributedAttention"));
  CHECK(remarked("deepspeed", "qwen3-8b", ring) == "");
  CHECK(
      says(remarked("deepspeed", "gpt-oss-20b", degrees(1, 1, 8, 1, 1)), "AutoEP has no experts"));
  CHECK(says(remarked("deepspeed", "deepseek-v3", degrees(1, 1, 8, 1, 1)), "does not update"));
  CHECK(remarked("deepspeed", "qwen3-30b-a3b", degrees(1, 1, 8, 1, 1)) == "");
  CHECK(says(remarked("deepspeed", "gpt2-xl", degrees(5, 1)), "Conv1D"));
}

TEST_CASE("DeepSpeed's context parallelism stands alone but for data parallelism") {
  const auto with = [](int tp, int pp) {
    ParallelPlan plan = degrees(tp, pp, 1, 1, 1);
    plan.sequence_parallel = false;
    plan.cp = 2;
    plan.cp_comm = CpComm::all_to_all;
    return refused("7b", "deepspeed", plan);
  };
  CHECK(with(1, 1) == "");
  CHECK(with(2, 1).find("parallel_state.py:146") != std::string::npos);
  CHECK(with(1, 2).find("tensor or pipeline parallelism") != std::string::npos);
}

TEST_CASE("Megatron-Core overlaps tensor-parallel communication with sequence parallelism alone") {
  ParallelPlan plan = degrees(4, 1, 1, 1, 1);
  plan.overlap_tp = true;
  CHECK(refused("7b", "megatron-core", plan) == "");
  plan.sequence_parallel = false;
  CHECK(refused("7b", "megatron-core", plan).find("arguments.py:1442") != std::string::npos);
  plan.tp = 1;
  CHECK(refused("7b", "megatron-core", plan) == "");
}

TEST_CASE("Megatron-Core overlaps the experts' exchange in GPT models alone") {
  const auto with = [](const char* model, int modules = 0) {
    PlanRequest r = request_for(model, "dgx-h100", 64);
    r.model.prediction_modules = modules;
    ParallelPlan plan = degrees(1, 1, 8, 1, 1);
    plan.dp = plan.shard_group = 64;
    plan.overlap_ep = true;
    plan.layers_per_stage = {r.model.layers};
    plan.recompute_layers = {0};
    const auto rejection = check_plan(r.model, r.job, r.cluster, r.framework, plan);
    return rejection ? rejection->detail : "";
  };
  CHECK(with("nemotron-3-nano-30b-a3b").find("combined_1f1b.py:381") != std::string::npos);
  CHECK(with("qwen3-next-80b-a3b") == "");
  CHECK(with("deepseek-v3", 1) == "");
  CHECK(with("deepseek-v3", 2).find("more than one prediction module") != std::string::npos);
  ParallelPlan beside = degrees(1, 1, 8, 1, 1);
  beside.overlap_shared = true;
  CHECK(refused("nemotron-3-nano-30b-a3b", "megatron-core", beside) == "");
  CHECK(refused("nemotron-3-super-120b-a12b", "megatron-core", beside).find("moe_layer.py:478") !=
        std::string::npos);
}

TEST_CASE("windows and sinks go through context parallelism by all-to-all alone") {
  ParallelPlan plan = degrees(1, 1, 1, 1, 1);
  plan.cp = 4;
  const auto with = [&](const char* model, CpComm how) {
    plan.cp_comm = how;
    return refused(model, "megatron-core", plan);
  };
  CHECK(with("gpt-oss-20b", CpComm::ring).find("context_parallel.py:5057") != std::string::npos);
  CHECK(with("gpt-oss-20b", CpComm::all_to_all) == "");
  CHECK(with("mistral-7b", CpComm::ring) != "");
  CHECK(with("llama3-8b", CpComm::ring) == "");
}

TEST_CASE("DeepEP exchanges among the numbers of ranks that it has a configuration for") {
  const auto with = [](int ep, int etp, Dispatcher dispatcher) {
    ParallelPlan plan = degrees(etp, 1, ep, etp, 1);
    plan.dispatcher = dispatcher;
    return refused("qwen3-235b-a22b", "megatron-core", plan);
  };
  CHECK(with(16, 1, Dispatcher::deepep) == "");
  CHECK(with(32, 2, Dispatcher::deepep) == "");
  const ClusterTopology nodes = request_for("qwen3-235b-a22b", "dgx-h100", 256).cluster;
  CHECK(takes_ranks(Dispatcher::deepep, 144, nodes));
  CHECK_FALSE(takes_ranks(Dispatcher::deepep, 256, nodes));
  CHECK_FALSE(takes_ranks(Dispatcher::deepep, 72, nodes));
  CHECK(takes_ranks(Dispatcher::hybridep, 72, nodes));
  PlanRequest r = request_for("granite-4.0-h-small", "dgx-h100", 144);
  r.job.global_batch = 144;
  ParallelPlan plan = degrees(1, 1, 72, 1, 1);
  plan.dp = plan.shard_group = 144;
  plan.layers_per_stage = {r.model.layers};
  plan.recompute_layers = {0};
  plan.dispatcher = Dispatcher::deepep;
  const auto rejection = check_plan(r.model, r.job, r.cluster, r.framework, plan);
  REQUIRE(rejection);
  CHECK(rejection->detail.find("deepep among 72 ranks") == 0);
}

TEST_CASE("DeepEP exchanges between nodes only where NVLink joins eight GPUs") {
  const auto on = [](const char* cluster, int ep) {
    const PlanRequest r = request_for("qwen3-235b-a22b", cluster, 64);
    ParallelPlan plan = degrees(1, 1, ep, 1, 1);
    plan.dispatcher = Dispatcher::deepep;
    plan.dp = plan.shard_group = 64;
    plan.layers_per_stage = {r.model.layers};
    plan.recompute_layers = {0};
    const auto rejection = check_plan(r.model, r.job, r.cluster, r.framework, plan);
    return rejection ? rejection->detail : "";
  };
  CHECK(on("dgx-h100", 16) == "");
  CHECK(on("jupiter", 4) == "");
  CHECK(on("jupiter", 16) ==
        "deepep among 16 ranks (ep x etp): among domains of 4 GPUs, joined by "
        "NVLink, it needs a multiple of 8");
  CHECK(on("h100-nvl", 8).find("NVLink") != std::string::npos);  // bridges join pairs alone
}

TEST_CASE("DeepEP and HybridEP exchange between NVLink domains over mlx5 NICs alone") {
  const auto on = [](const char* cluster, int gpus, int ep, Dispatcher dispatcher) {
    PlanRequest r = request_for("qwen3-235b-a22b", cluster, gpus);
    r.job.global_batch = 1152;  // 8 x 144, 18 x 64
    ParallelPlan plan = degrees(1, 1, ep, 1, 1);
    plan.dispatcher = dispatcher;
    plan.dp = plan.shard_group = gpus;
    plan.layers_per_stage = {r.model.layers};
    plan.recompute_layers = {0};
    const auto rejection = check_plan(r.model, r.job, r.cluster, r.framework, plan);
    return rejection ? rejection->detail : "";
  };
  for (const Dispatcher dispatcher : {Dispatcher::deepep, Dispatcher::hybridep}) {
    INFO(name_of(dispatcher));
    CHECK(on("azure-ndv5", 64, 16, dispatcher) == "");     // InfiniBand
    CHECK(on("gcp-a3-ultra", 64, 16, dispatcher) == "");   // RoCE
    CHECK(on("aws-p5", 64, 8, dispatcher) == "");          // inside a node
    CHECK(on("aws-p6e-gb200", 64, 64, dispatcher) == "");  // inside a rack
    CHECK(on("aws-p6e-gb200", 144, 16, dispatcher).find("efa") != std::string::npos);  // 16 in 72
    CHECK(on("azure-ndgb200v6", 144, 16, dispatcher) == "");
    for (const char* cluster : {"aws-p5", "gcp-a3-high", "gcp-a3-mega"}) {
      INFO(cluster);
      CHECK(on(cluster, 64, 16, dispatcher).find("mlx5") != std::string::npos);
      CHECK(on(cluster, 64, 16, Dispatcher::alltoall) == "");
    }
  }
  CHECK(on("h100-sxm-x4", 64, 16, Dispatcher::hybridep) == "");  // its kind is not described
  CHECK(on("alps", 64, 4, Dispatcher::hybridep) == "");
  CHECK(on("jupiter", 64, 16, Dispatcher::hybridep) == "");
  CHECK(
      on("alps", 64, 16, Dispatcher::hybridep) ==
      "hybridep among 16 ranks (ep x etp): between NVLink domains its kernels need InfiniBand or "
      "RoCE by mlx5 NICs, and those of alps are slingshot; an ep x etp that divides the 4 GPUs of "
      "a domain stays inside, or alltoall");
}

TEST_CASE("a search on EFA takes DeepEP and HybridEP inside nodes alone") {
  const auto crossing = [](const char* cluster) {
    PlanRequest r = request_for("qwen3-235b-a22b", cluster, 128);
    r.top = 20;
    const Result<SearchOutcome> found = search(r);
    REQUIRE(found.ok());
    REQUIRE_FALSE(found->candidates.empty());
    return std::ranges::count_if(found->candidates, [&](const Candidate& each) {
      const ParallelPlan& plan = each.plan;
      return plan.ep * plan.etp > r.cluster.domain_gpus() &&
             plan.dispatcher != Dispatcher::alltoall;
    });
  };
  CHECK(crossing("aws-p5") == 0);
  CHECK(crossing("dgx-h100") > 0);
}

// Source: torchtitan v0.3.0, torchtitan/models/common/config_utils.py:361, and configs.py.
TEST_CASE("torchtitan dispatches by DeepEP and HybridEP where experts stay whole") {
  const auto with = [](const char* model, Dispatcher dispatcher, int etp = 1) {
    ParallelPlan plan = degrees(etp > 1 ? etp : 1, 1, 8, etp, 3);
    plan.dispatcher = dispatcher;
    return refused(model, "torchtitan", plan);
  };
  for (const Dispatcher dispatcher : {Dispatcher::deepep, Dispatcher::hybridep}) {
    CHECK(with("deepseek-v3", dispatcher) == "");
    CHECK(with("gpt-oss-20b", dispatcher) == "");
    CHECK(with("deepseek-v3", dispatcher, 4).find("etp > 1") != std::string::npos);
  }
  CHECK(with("gpt-oss-20b", Dispatcher::alltoall, 4) == "");
  ParallelPlan plan = degrees(4, 1, 8, 4, 3);
  const auto needs = [&] {
    std::string all;
    const PlanRequest r = request_for("deepseek-v3", "dgx-h100", 8, "torchtitan");
    for (const FrameworkRemark& each : remarks(r.framework, r.model, plan)) {
      all += each.text + "\n";
    }
    return all;
  };
  CHECK(needs().find("torchtitan v0.2.2 or older, for experts split") != std::string::npos);
  plan = degrees(1, 1, 8, 1, 3);
  plan.dispatcher = Dispatcher::hybridep;
  CHECK(needs().find("v0.2.2") == std::string::npos);
  CHECK(needs().find("moe_comm_backend=\"hybridep\" of model_registry, and the library DeepEP, of "
                     "its branch hybrid-ep") != std::string::npos);
}

TEST_CASE("some layers of a stage are recomputed where the framework counts them") {
  const auto recomputing = [](const char* framework, int pp, int layers) {
    const PlanRequest r = request_for("7b", "dgx-h100", 8, framework);
    ParallelPlan plan = degrees(1, pp, 1, 1, r.framework.zero_allowed[1] ? 1 : 3);
    plan.dp = plan.shard_group = 8 / pp;
    plan.layers_per_stage = split_layers(r.framework, r.model, pp, 1).value();
    plan.recompute = Recompute::full;
    plan.recompute_layers = plan.layers_per_stage;
    if (layers > 0) plan.recompute_layers.assign(plan.layers_per_stage.size(), layers);
    const auto broken = check_plan(r.model, r.job, r.cluster, r.framework, plan);
    return broken ? broken->detail : "";
  };
  for (const Framework& framework : frameworks()) {
    INFO(framework.name);
    CHECK(recomputing(framework.name.c_str(), 1, 0) == "");
  }
  for (const char* counts : {"megatron-core", "megatron-2021", "llm-foundry", "echelon"}) {
    INFO(counts);
    CHECK(recomputing(counts, 1, 3) == "");
  }
  for (const char* all : {"torchtitan", "nanotron", "deepspeed"}) {
    INFO(all);
    CHECK(recomputing(all, 1, 3).find("some layers only: of all or none") != std::string::npos);
    CHECK(recomputing(all, 2, 0) == "");
  }
  // Method "block" is Megatron's; DeepSpeed's pipeline has it not.
  CHECK(recomputing("megatron-deepspeed", 1, 3) == "");
  CHECK(recomputing("megatron-deepspeed", 2, 3).find("pipeline stages") != std::string::npos);
  CHECK(recomputing("megatron-deepspeed", 2, 0) == "");
}

TEST_CASE("a search recomputes all layers or none where the framework does") {
  int recomputed = 0;
  for (const char* framework : {"torchtitan", "nanotron", "deepspeed"}) {
    for (const int pp : {1, 4}) {
      PlanRequest r = request_for("llama3-8b", "dgx-h100", 16, framework);
      r.job.sequence = 8192;
      r.top = 50;
      r.constraints.pin<&ParallelPlan::pp>(pp);
      const Result<SearchOutcome> found = search(r);
      INFO(framework << ", pp " << pp);
      REQUIRE(found.ok());
      CHECK(found->winner() != nullptr);
      for (const Candidate& each : found->candidates) {
        if (each.plan.recompute != Recompute::full) continue;
        CHECK(each.plan.recompute_layers == each.plan.layers_per_stage);
        ++recomputed;
      }
    }
  }
  CHECK(recomputed > 0);
}

TEST_CASE("context parallelism needs flash attention but in DeepSpeed") {
  const auto without = [](const char* framework, CpComm comm) {
    PlanRequest r = request_for("7b", "dgx-v100", 8, framework);
    r.job.flash_attention = false;
    ParallelPlan plan = degrees(1, 1, 1, 1, framework == std::string("torchtitan") ? 3 : 1);
    plan.cp = 2;
    plan.cp_comm = comm;
    plan.dp = 4;
    plan.shard_group = 8;
    plan.layers_per_stage = {32};
    plan.recompute_layers = {0};
    const auto broken = check_plan(r.model, r.job, r.cluster, r.framework, plan);
    return broken ? broken->detail : "";
  };
  CHECK(without("megatron-core", CpComm::ring) ==
        "megatron-core has no context parallelism (cp 2) without flash attention");
  CHECK(without("megatron-core", CpComm::all_to_all) != "");
  CHECK(without("torchtitan", CpComm::ring) != "");
  CHECK(without("deepspeed", CpComm::all_to_all) == "");
}

TEST_CASE("fp8 primary weights stay with an optimizer on the GPU, but for delayed scaling") {
  const auto offloaded = [](const char* precision) {
    PlanRequest r = request_for("7b", "dgx-h100", 64);
    r.job.precision = find_precision(precision).value();
    ParallelPlan plan = degrees(1, 1, 1, 1, 1);
    plan.dp = plan.shard_group = 64;
    plan.layers_per_stage = {32};
    plan.recompute_layers = {0};
    plan.offload_optimizer = 1;
    const auto broken = check_plan(r.model, r.job, r.cluster, r.framework, plan);
    return broken ? broken->detail : "";
  };
  for (const char* legal : {"bf16", "fp8", "fp8:primary-weights", "fp8:blockwise"}) {
    INFO(legal);
    CHECK(offloaded(legal) == "");
  }
  CHECK(offloaded("fp8:bf16-gradients").find("arguments.py:1195") != std::string::npos);
}

TEST_CASE("Megatron-LM's Muon shards whole layers of states over all ranks, on the GPU") {
  const auto refusal = [](const char* precision, int zero, int group, double offload) {
    PlanRequest r = request_for("7b", "dgx-b200", 64);
    r.job.precision = find_precision(precision).value();
    ParallelPlan plan = degrees(1, 1, 1, 1, zero);
    plan.dp = 64;
    plan.shard_group = group;
    plan.layers_per_stage = {32};
    plan.recompute_layers = {0};
    plan.offload_optimizer = offload;
    const auto broken = check_plan(r.model, r.job, r.cluster, r.framework, plan);
    return broken ? broken->detail : "";
  };
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  for (const char* muon : {"bf16:muon", "mxfp8:muon"}) {
    INFO(muon);
    CHECK(refusal(muon, 0, 1, 0) == "");
    CHECK(refusal(muon, 1, 64, 0) == "");
    CHECK(has(refusal(muon, 1, 8, 0), "Muon whose states are sharded over a part"));
    CHECK(has(refusal(muon, 3, 64, 0), "Muon under FSDP"));
    CHECK(has(refusal(muon, 1, 64, 1), "offload of Muon's states"));
  }
  CHECK(refusal("bf16", 3, 64, 0) == "");
  CHECK(has(refusal("fp8:deepseek-v3", 0, 1, 0), "without its distributed optimizer"));
}

TEST_CASE("experts with tensor parallelism need sequence parallelism, whatever ep is") {
  // Megatron-LM core_v0.16.1, megatron/core/transformer/moe/moe_layer.py:379.
  ParallelPlan plan = degrees(2, 1, 1, 2, 1);
  CHECK(refused("mixtral-8x7b", "megatron-core", plan) == "");
  plan.sequence_parallel = false;
  CHECK(refused("mixtral-8x7b", "megatron-core", plan) ==
        "experts with tp > 1 need sequence parallelism");
  CHECK(refused("7b", "megatron-core", [] {
          ParallelPlan dense = degrees(2, 1);
          dense.sequence_parallel = false;
          return dense;
        }()) == "");
}

TEST_CASE("interleaving on two stages needs overlapped messages, and three in Megatron of 2021") {
  ParallelPlan plan = degrees(8, 2);
  plan.vpp = 4;
  plan.schedule = ScheduleKind::interleaved;
  plan.overlap_pp = true;
  CHECK(refused("7b", "megatron-core", plan) == "");
  CHECK(refused("7b", "megatron-2021", plan).find("arguments.py:126") != std::string::npos);
  plan.overlap_pp = false;
  CHECK(refused("7b", "megatron-core", plan).find("arguments.py:579") != std::string::npos);
  plan.pp = 4;
  CHECK(refused("7b", "megatron-core", plan) == "");
  CHECK(refused("7b", "megatron-2021", plan) == "");
}

TEST_CASE("the layers of a stage are those that the framework deals") {
  const auto legal = [](const char* framework, std::vector<int> layers) {
    const PlanRequest r = request_for("7b", "dgx-h100", 64, framework);
    ParallelPlan plan = degrees(8, 4, 1, 1, 1);
    plan.sequence_parallel = r.framework.sequence_parallel;
    plan.dp = plan.shard_group = 2;
    plan.layers_per_stage = std::move(layers);
    plan.recompute_layers = {0, 0, 0, 0};
    const auto found = check_plan(r.model, r.job, r.cluster, r.framework, plan);
    if (found) CHECK(found->reason == RejectionReason::layers_not_divisible);
    return !found;
  };
  CHECK(legal("megatron-core", {7, 9, 9, 7}));
  CHECK(legal("megatron-2021", {8, 8, 8, 8}));
  CHECK_FALSE(legal("megatron-2021", {7, 9, 9, 7}));
  CHECK(legal("megatron-deepspeed", {8, 8, 8, 8}));
  CHECK_FALSE(legal("megatron-deepspeed", {9, 8, 8, 7}));
  CHECK(legal("deepspeed", {8, 8, 8, 8}));
  CHECK_FALSE(legal("deepspeed", {8, 9, 8, 7}));
  CHECK(legal("nanotron", {9, 8, 8, 7}));  // the head weighs 0.66 of a layer
  CHECK_FALSE(legal("nanotron", {8, 8, 8, 8}));
}

TEST_CASE("every plan that a search lists is legal for its framework") {
  std::set<std::string> without;
  std::set<std::string> refused;
  for (const Framework& framework : frameworks()) {
    for (const char* model : {"7b", "gpt2-xl", "mixtral-8x7b"}) {
      PlanRequest r = request_for(model, "dgx-h100", 16, framework.name.c_str());
      r.top = 50;
      const Result<SearchOutcome> report = search(r);
      INFO(framework.name << " " << model);
      if (!report.ok()) {
        CHECK(report.error().message().find(framework.name + " has no ") != std::string::npos);
        refused.insert(framework.name + " " + model);
        continue;
      }
      if (report->candidates.empty()) without.insert(framework.name + " " + model);
      for (const Candidate& c : report->candidates) {
        const auto rejection = check_plan(r.model, r.job, r.cluster, r.framework, c.plan);
        CHECK((rejection ? rejection->detail : "legal") == "legal");
      }
    }
  }
  CHECK(refused == std::set<std::string>{"megatron-2021 mixtral-8x7b", "nanotron gpt2-xl"});
  // Experts over ranks are what these lack.
  CHECK(without.size() <= 4);
  for (const std::string& each : without) CHECK(each.find("mixtral-8x7b") != std::string::npos);
}

TEST_CASE("sparse attention runs in Megatron-Core alone, as its kernels allow") {
  const auto sparse = [](const ParallelPlan& plan, const char* framework = "megatron-core") {
    return refused("deepseek-v3.2", framework, plan);
  };
  CHECK(sparse(degrees(1, 1, 64)) == "");
  CHECK(sparse(degrees(8, 1, 8)) == "");
  for (const Framework& framework : frameworks()) {
    if (framework.name == "megatron-core" || framework.any_model) continue;
    CHECK(sparse(degrees(1, 1, 1, 1, 1), framework.name.c_str()) ==
          framework.name + " has no sparse attention (DSA)");
  }
  // DeepSpeed trains transformers' module, which has no price here.
  CHECK(sparse(degrees(1, 1, 1, 1, 1), "deepspeed") ==
        "sparse attention (DSA) of transformers' module, which deepspeed trains");
  ParallelPlan apart = degrees(8, 1, 8);
  apart.sequence_parallel = false;
  CHECK(sparse(apart).find("sequence parallelism") != std::string::npos);
  ParallelPlan graphs = degrees(1, 1, 64);
  graphs.cuda_graphs = CudaGraphs::layers;
  CHECK(sparse(graphs).find("dsa_cudnn_kernels.py:2063") != std::string::npos);
  ParallelPlan context = degrees(1, 1, 64);
  context.cp = 2;
  context.cp_comm = CpComm::all_gather;
  CHECK(sparse(context).find("cp 2 with sparse attention (DSA) without packed documents") !=
        std::string::npos);
  CHECK(refused("deepseek-v3", "megatron-core", context) ==
        "cp 2 by all_gather without sparse attention (DSA)");
  ParallelPlan projection = degrees(1, 1, 64);
  projection.recompute = Recompute::selective;
  projection.recompute_modules = {RecomputeModule::mla_up_proj};
  PlanRequest r = request_for("deepseek-v3.2", "dgx-h100", 64);
  projection.dp = projection.shard_group = 64;
  projection.layers_per_stage = {61};
  projection.recompute_layers = {0};
  const auto why = [&] {
    const auto found = check_plan(r.model, r.job, r.cluster, r.framework, projection);
    return found ? found->detail : "";
  };
  CHECK(why() == "");
  r.job.precision = find_precision("fp8").value();
  CHECK(why().find("absorbed_mla.py, qkv_up_checkpoint") != std::string::npos);
}

TEST_CASE("sparse attention needs its fused kernels, which take certain shapes and GPUs") {
  const auto why = [](PlanRequest r, int tp = 1) {
    ParallelPlan plan = degrees(tp, 1, 64 / tp);
    plan.dp = plan.shard_group = 64 / tp;
    plan.layers_per_stage = {r.model.layers};
    plan.recompute_layers = {0};
    const auto found = check_plan(r.model, r.job, r.cluster, r.framework, plan);
    return found ? found->detail : "";
  };
  PlanRequest r = request_for("glm-5", "dgx-h100", 64);
  CHECK(why(r) == "");
  CHECK(why(r, 8) == "");  // 8 heads, run as 64
  r.job.flash_attention = false;
  CHECK(why(r).find("without its fused kernels") != std::string::npos);
  r.job.flash_attention = true;
  for (const char* precision : {"fp16", "fp32"}) {
    r.job.precision = find_precision(precision).value();
    INFO(why(r));
    CHECK(why(r).find("its kernels take bf16") != std::string::npos);
  }
  r.job.precision = find_precision("fp8").value();
  CHECK(why(r) == "");
  CHECK(why(request_for("glm-5", "dgx-a100", 64)).find("need Hopper") != std::string::npos);
  r = request_for("glm-5", "dgx-h100", 64);
  r.model.mla.kv_lora_rank = 256;
  CHECK(why(r).find("latents 256 wide") != std::string::npos);
  r = request_for("glm-5", "dgx-h100", 64);
  r.model.heads = r.model.kv_heads = 96;
  CHECK(why(r).find("96 heads") != std::string::npos);
}

TEST_CASE("index scores have a price where one kernel makes them") {
  const auto why = [](int cp, int microbatch, int sequence, bool packed,
                      CpComm comm = CpComm::all_gather) {
    PlanRequest r = request_for("deepseek-v3.2", "dgx-h100", 64);
    r.job.sequence = sequence;
    if (packed) r.job.documents = parse_document_lengths("1024", "test").value();
    ParallelPlan plan = degrees(1, 1, 64 / cp);
    plan.cp = cp;
    if (cp > 1) plan.cp_comm = comm;
    plan.microbatch = microbatch;
    plan.dp = 64 / cp;
    plan.shard_group = 64;
    r.job.global_batch = std::int64_t{plan.dp} * microbatch;
    plan.layers_per_stage = {61};
    plan.recompute_layers = {0};
    const auto found = check_plan(r.model, r.job, r.cluster, r.framework, plan);
    const bool ring = comm == CpComm::ring;
    if (found) CHECK((found->reason == RejectionReason::no_price) == !ring);
    return found ? found->detail : "";
  };
  const auto contains = [](const std::string& text, const char* part) {
    INFO(text);
    return text.find(part) != std::string::npos;
  };
  // fp32 scores of 1 GiB exactly, and of more.
  CHECK(why(1, 1, 16'384, false) == "");
  CHECK(why(1, 4, 8192, false) == "");
  CHECK(contains(why(1, 1, 32'768, false), "exceed 1 GiB"));
  CHECK(contains(why(1, 2, 16'384, false), "2 x 16384 tokens"));
  // 11,585 rows of two sequences fit, which are cut to a multiple of 512.
  CHECK(contains(why(1, 2, 11'584, false), "exceed 1 GiB"));
  CHECK(why(1, 2, 11'264, false) == "");
  // Rows with bounds of their own: only packed documents over context parallelism have a kernel.
  CHECK(contains(why(2, 1, 8192, false),
                 "cp 2 with sparse attention (DSA) without packed documents"));
  CHECK(contains(why(1, 1, 8192, true), "packed documents with sparse attention (DSA) on cp 1"));
  CHECK(why(2, 1, 8192, true) == "");
  CHECK(why(4, 1, 131'072, true) == "");
  CHECK(contains(why(2, 1, 8192, true, CpComm::ring), "transformer_config.py:3162"));
}

TEST_CASE("a search of a model with sparse attention finds plans whose index scores have a price") {
  PlanRequest r = request_for("glm-5", "dgx-h100", 128);
  r.top = 20;
  const Result<SearchOutcome> report = search(r);
  REQUIRE(report.ok());
  for (const Candidate& c : report->candidates) {
    CHECK(c.plan.cp == 1);
    CHECK_FALSE(check_plan(r.model, r.job, r.cluster, r.framework, c.plan));
  }
  r.job.sequence = 32'768;
  const Result<SearchOutcome> longer = search(r);
  REQUIRE_FALSE(longer.ok());  // no plan is legal
  INFO(longer.error().message());
  CHECK(longer.error().message().find("exceed 1 GiB") != std::string::npos);
}

TEST_CASE("modules that transformers alone has are whole on every rank of DeepSpeed") {
  const auto why = [](const std::string& framework, int tp, bool kimi) {
    PlanRequest r =
        request_for(kimi ? "qwen3-next-80b-a3b" : "llama3-8b", "dgx-h100", 64, framework.c_str());
    r.model.delta.gate_rank = kimi ? 128 : 0;
    if (!kimi) {
      r.model.ssm = {.layers = 32,
                     .heads = 128,
                     .head_dim = 8,
                     .groups = 1,
                     .state_dim = 256,
                     .conv_kernel = 4,
                     .beside_attention = true};
    }
    ParallelPlan plan = degrees(tp, 1, 1, 1, 3);
    plan.sequence_parallel = false;
    plan.dp = plan.shard_group = 64 / tp;
    plan.layers_per_stage = {r.model.layers};
    plan.recompute_layers = {0};
    const auto found = check_plan(r.model, r.job, r.cluster, r.framework, plan);
    return found ? found->detail : "";
  };
  for (const bool kimi : {true, false}) {
    const std::string what =
        kimi ? "Kimi delta attention" : "attention and a state space side by side in a layer";
    CHECK(why("deepspeed", 1, kimi) == "");
    CHECK(why("deepspeed", 2, kimi).find("tp 2 with " + what) != std::string::npos);
    for (const Framework& framework : frameworks()) {
      if (framework.name == "deepspeed") continue;
      CHECK(why(framework.name, 1, kimi) ==
            framework.name + " has no " + what +
                "; transformers' module has: --framework deepspeed");
    }
  }
}

TEST_CASE("Gemma 4 and LFM2 are whole on every rank of DeepSpeed, and of no other framework") {
  const std::pair<const char*, const char*> models[] = {
      {"gemma4-31b", "full attention with heads of another shape than windowed attention's"},
      {"gemma4-26b-a4b", "full attention with heads of another shape than windowed attention's"},
      {"lfm2-1.2b", "gated short convolutions"},
      {"lfm2-8b-a1b", "gated short convolutions"}};
  for (const auto& [model, what] : models) {
    INFO(model);
    CHECK(refused(model, "deepspeed", degrees(1, 1, 1, 1, 3)) == "");
    ParallelPlan tensors = degrees(2, 1, 1, 1, 3);
    tensors.sequence_parallel = false;
    CHECK(refused(model, "deepspeed", tensors).find(what) != std::string::npos);
    ParallelPlan context = degrees(1, 1, 1, 1, 3);
    context.cp = 2;
    CHECK(refused(model, "deepspeed", context).find("cp 2 with") != std::string::npos);
    for (const Framework& framework : frameworks()) {
      if (framework.any_model) continue;
      INFO(framework.name);
      CHECK(refused(model, framework.name.c_str(), degrees(1, 1, 1, 1, 0)) ==
            framework.name + " has no " + what +
                "; transformers' module has: --framework deepspeed");
    }
  }
  // Latent attention with experts, which Megatron-Core has.
  CHECK(refused("mistral-small-4", "megatron-core", degrees(1, 1, 8, 1, 1)) == "");
}

TEST_CASE("a refusal of etp names etp") {
  PlanRequest r = request_for("mixtral-8x7b", "dgx-h100", 8);
  r.constraints.pin<&ParallelPlan::etp>(std::numeric_limits<int>::max());
  const auto predicted = plan_from_constraints(r);
  REQUIRE_FALSE(predicted.ok());
  CHECK(predicted.error().where == "--etp");
  CHECK(predicted.error().hint.find("nearest valid: --etp 8") != std::string::npos);
  const auto found = search(r);
  REQUIRE_FALSE(found.ok());
  CHECK(found.error().message().find("etp 2147483647 does not divide") != std::string::npos);
  r.constraints.pin<&ParallelPlan::etp>(1);
  r.constraints.pin<&ParallelPlan::ep>(3);
  CHECK(plan_from_constraints(r).error().where == "--ep");
  r = request_for("7b", "dgx-h100", 8);
  r.constraints.pin<&ParallelPlan::etp>(4);
  CHECK(plan_from_constraints(r).error().message().find("etp 4") != std::string::npos);
}

}  // namespace
