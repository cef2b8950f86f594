#include "core/framework/framework.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "core/model/model_io.hpp"
#include "core/plan/job.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

/// The contradictions in a framework's table; "" if there are none.
std::string contradiction(const Framework& f) {
  if (f.name.empty() || f.source.empty()) return "no name or no source";
  if (!find_precision(f.default_precision).ok()) return "an unknown default precision";
  if (f.sequence_parallel_always && !f.sequence_parallel) return "sequence parallelism";
  if (f.sequence_parallel && !f.tensor_parallel) return "sequence without tensor parallelism";
  if ((f.interleaved || f.zero_bubble || f.rank_orders) && !f.pipeline_parallel) {
    return "a schedule or a rank order of no pipeline";
  }
  // A rank of DualPipe has no number of recomputed layers of its own.
  if (f.dualpipe && f.per_stage_recompute) return "recomputation by rank of copied stages";
  if (f.mixed_recompute && !f.per_stage_recompute) return "mixed recomputation of equal stages";
  if (f.hybrid_shard[0]) return "optimizer instances without a distributed optimizer";
  for (int zero = 0; zero < 4; ++zero) {
    if (f.hybrid_shard[zero] && !f.zero_allowed[zero]) return "instances of a ZeRO stage it lacks";
  }
  if (f.zero23_with_pipeline && !f.zero_allowed[2] && !f.zero_allowed[3]) return "ZeRO-2 and 3";
  if (f.reduces_in_ddp && !f.overlaps_dp) return "DDP that overlaps nothing";
  if (f.slices_per_context_rank < 1 || f.vocab_padding < 1 || f.default_vocab < 0) return "a count";
  if (f.logits_bytes <= 0 || f.loss_traffic <= 0 || f.gather_buffers < 1) return "bytes of nothing";
  const bool held = f.pending_after > 0 || f.pending_at_most > 0;
  if (held && f.pending_collective_buffers <= 0) return "bounds of collectives that nothing holds";
  if (f.flash_kernels.empty()) return "no kernels of attention";
  for (const FrameworkRule& rule : f.rules) {
    if (rule.what.empty() || rule.source.empty() || rule.broken == nullptr) return "a bare rule";
  }
  for (const RemarkRule& rule : f.remark_rules) {
    const bool one = (rule.text == nullptr) != (rule.of_precision == nullptr);
    if (rule.source.empty() || !one) return "a bare remark";
  }
  if (!f.calibrated_as.empty() && f.calibrated_as == f.name) return "a relative of itself";
  const auto own = [&](const FrameworkDefaults& d) {
    // of all releases that have none of their own
    return d.software == f.name && d.detail.empty() && d.since.empty();
  };
  if (std::ranges::count_if(f.defaults, own) != 1) return "no defaults of its own";
  return {};
}

std::string contradiction(const Framework& f, const FrameworkDefaults& d) {
  if (d.why.empty()) return "no reason";
  if (d.software.empty() != (d.evident != Evident::nothing)) return "neither named nor evident";
  if (d.evident != Evident::nothing && d.same_code) return "an unknown software of known code";
  if (d.software == f.name && !d.same_code) return "stands for itself as something else";
  if (!d.precision.empty() && !find_precision(d.precision).ok()) return "an unknown precision";
  if (d.zero < 0 || d.zero > 3 || d.dropout < 0 || d.dropout >= 1) return "a number out of range";
  if (!std::ranges::is_sorted(d.revisions, {}, &Revision::first_job)) return "unsorted revisions";
  if (!d.revisions.empty() && d.revisions.front().first_job != 0) return "jobs before the first";
  if (!d.revisions.empty() && f.pending_collective_buffers <= 0) return "revisions of nothing";
  if (!d.tie_stays.empty() && d.split != StageSplit::by_cost) return "ties of no split by cost";
  return {};
}

TEST_CASE("every framework's table agrees with itself") {
  std::set<std::string> names;
  for (const Framework& framework : frameworks()) {
    INFO(framework.name);
    CHECK(contradiction(framework) == "");
    CHECK(names.insert(framework.name).second);
    CHECK(find_framework(framework.name)->source == framework.source);
    for (const FrameworkDefaults& defaults : framework.defaults) {
      INFO(defaults.software);
      CHECK(contradiction(framework, defaults) == "");
    }
  }
}

TEST_CASE("a table that contradicts itself is found") {
  Framework odd = frameworks().front();
  odd.sequence_parallel = false;
  odd.sequence_parallel_always = true;
  CHECK(contradiction(odd) == "sequence parallelism");
  odd = frameworks().front();
  odd.zero_allowed[3] = false;
  CHECK(contradiction(odd) == "instances of a ZeRO stage it lacks");
}

TEST_CASE("one framework stands for every software, and one for every kind of unknown ones") {
  std::set<std::tuple<std::string_view, std::string_view, std::string_view>> software;
  std::multiset<Evident> unknown;
  for (const Framework& framework : frameworks()) {
    for (const FrameworkDefaults& defaults : framework.defaults) {
      INFO(defaults.software);
      if (defaults.evident != Evident::nothing) {
        unknown.insert(defaults.evident);
      } else {
        CHECK(software.emplace(defaults.software, defaults.detail, defaults.since).second);
      }
    }
  }
  CHECK(unknown == std::multiset<Evident>{Evident::splits_model, Evident::splits_optimizer,
                                          Evident::splits_data});
}

TEST_CASE("the default framework and the one that runs are of the list") {
  CHECK(find_framework(kDefaultFramework).ok());
  CHECK(executing_framework().name == kExecutingFramework);
  for (const Framework& framework : frameworks()) {
    CHECK((framework_choices() + " ").find(framework.name + " ") != std::string::npos);
  }
}

TEST_CASE("a library is found under its own name as the framework with the same rules") {
  CHECK(find_framework("fsdp1")->name == "llm-foundry");
  CHECK(find_framework("fsdp2")->name == "torchtitan");
  std::set<std::string_view> names;
  for (const Framework& framework : frameworks()) {
    CHECK(names.insert(framework.name).second);
    for (const std::string_view other : framework.also_called) CHECK(names.insert(other).second);
    CHECK(find_framework(framework.calibration_key()).ok());
  }
}

/// The texts of one kind, joined by "; ".
std::string said(RemarkKind kind, const ParallelPlan& plan, const ModelSpec& model = {},
                 const char* framework = "megatron-core") {
  std::string out;
  for (const FrameworkRemark& remark : remarks(*find_framework(framework), model, plan)) {
    CHECK_FALSE(remark.source.empty());
    if (remark.kind == kind) out += (out.empty() ? "" : "; ") + remark.text;
  }
  return out;
}

TEST_CASE("a plain plan calls for no remark") {
  for (const Framework& framework : frameworks()) {
    ParallelPlan plan;
    plan.dp = 8;
    plan.layers_per_stage = {32};
    INFO(framework.name);
    CHECK(remarks(framework, {}, plan).empty());
  }
}

TEST_CASE("a remark on fused attention is not made where attention keeps its scores") {
  ParallelPlan plan;
  plan.recompute = Recompute::selective;
  plan.recompute_modules = {RecomputeModule::core_attn};
  const Framework megatron = find_framework("megatron-core").value();
  const auto warns = [&](bool flash_attention) {
    const auto all = remarks(megatron, {}, plan, {}, flash_attention);
    return std::ranges::any_of(all, [](const auto& r) { return r.kind == RemarkKind::warns; });
  };
  CHECK(warns(true));
  CHECK_FALSE(warns(false));
}

TEST_CASE("formats and states other than the default's are named with their options") {
  ParallelPlan plan;
  plan.zero = 1;
  const auto needs = [&plan](const char* precision) {
    std::string out;
    for (const FrameworkRemark& remark :
         remarks(*find_framework("megatron-core"), {}, plan, *find_precision(precision))) {
      out += remark.text;
    }
    return out;
  };
  CHECK(needs("bf16").empty());
  CHECK(needs("fp16").empty());
  CHECK(needs("bf16:precision-aware") ==
        "--grad-reduce-in-bf16 --use-precision-aware-optimizer --exp-avg-dtype bf16 "
        "--exp-avg-sq-dtype bf16, for bf16:precision-aware");
  CHECK(needs("fp8") == "--fp8-format hybrid --fp8-recipe delayed, for fp8:adam-fp32-master");
  CHECK(needs("mxfp8:bf16-gradients") ==
        "--fp8-format e4m3 --fp8-recipe mxfp8 --fp8-param-gather "
        "--reuse-grad-buf-for-mxfp8-param-ag --grad-reduce-in-bf16, for mxfp8:bf16-gradients");
  CHECK(needs("nvfp4") == "--fp4-format e2m1 --fp4-recipe nvfp4, for nvfp4:adam-fp32-master");
  CHECK(needs("nvfp4:bf16-gradients") ==
        "--fp4-format e2m1 --fp4-recipe nvfp4 --fp4-param-gather --grad-reduce-in-bf16, for "
        "nvfp4:bf16-gradients");
  CHECK(needs("mxfp8:muon") ==
        "--fp8-format e4m3 --fp8-recipe mxfp8 --grad-reduce-in-bf16 --optimizer muon, for "
        "mxfp8:muon");
  CHECK(needs("fp8:deepseek-v3").find("--exp-avg-sq-dtype bf16") != std::string::npos);
  plan.zero = 3;  // Megatron-FSDP has no such buffer
  CHECK(needs("mxfp8:bf16-gradients").find("--reuse-grad-buf") == std::string::npos);
}

TEST_CASE("offload needs the precision-aware optimizer") {
  ParallelPlan plan;
  plan.zero = 1;
  plan.offload_optimizer = 0.5;
  CHECK(said(RemarkKind::needs, plan) ==
        "--use-precision-aware-optimizer, for --optimizer-cpu-offload");
}

TEST_CASE("unequal chunks need their flags, equal ones none") {
  const auto needs = [](int pp, int vpp, std::vector<int> layers) {
    ParallelPlan plan;
    plan.pp = pp;
    plan.vpp = vpp;
    plan.overlap_pp = true;
    plan.layers_per_stage = std::move(layers);
    return said(RemarkKind::needs, plan);
  };
  CHECK(needs(4, 1, {8, 8, 8, 8}) == "");
  CHECK(needs(4, 2, {8, 8, 8, 8}) == "");
  CHECK(needs(4, 1, {7, 8, 8, 7}) ==
        "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split");
  CHECK(needs(4, 2, {8, 8, 8, 7}) == "--account-for-loss-in-pipeline-split");
  CHECK(needs(4, 1, {18, 21, 21, 20}) ==
        "--pipeline-model-parallel-layout \"Et*18|(t*21|)*2t*20L\"");
  CHECK(needs(4, 1, {8, 7, 8, 8}) == "--pipeline-model-parallel-layout \"Et*8|t*7|t*8|t*8L\"");
}

TEST_CASE("chunks of models with state spaces are told by the pattern of their layers") {
  ParallelPlan plan;
  plan.pp = 2;
  plan.overlap_pp = true;
  const auto needs = [&](const char* model, std::vector<int> layers) {
    plan.layers_per_stage = std::move(layers);
    const Framework megatron = find_framework("megatron-core").value();
    std::string text;
    for (const FrameworkRemark& remark : remarks(megatron, *load_model(model), plan)) {
      if (remark.kind == RemarkKind::needs) text += remark.text;
    }
    return text;
  };
  const std::string order = "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-";
  CHECK(needs("nemotron-h-8b", {27, 25}) ==
        "--hybrid-layer-pattern \"" + order.substr(0, 27) + "|" + order.substr(27) + "\"");
  CHECK(needs("granite-4.0-h-small", {20, 20}) ==  // a mixer and experts each
        "--hybrid-layer-pattern with a | between chunks of 40,40 letters");
  // Without stages the pattern is the only setting that tells a hybrid from a transformer.
  plan.pp = 1;
  plan.overlap_pp = false;
  CHECK(needs("nemotron-h-8b", {52}) == "--hybrid-layer-pattern \"" + order + "\"");
  CHECK(
      needs("granite-4.0-h-small", {40})
          .starts_with("--hybrid-layer-pattern of 80 letters, in the order of the model's layers"));
  CHECK(needs("llama3-8b", {32}).find("pattern") == std::string::npos);
}

TEST_CASE("FSDP has its flags, and warns of tensor and context parallelism") {
  ParallelPlan plan;
  plan.dp = 8;
  plan.shard_group = 8;
  plan.zero = 3;
  CHECK(said(RemarkKind::warns, plan) == "");
  CHECK(said(RemarkKind::needs, plan).find("optim_grads_params --ckpt-format fsdp_dtensor") !=
        std::string::npos);
  plan.tp = 2;
  CHECK(said(RemarkKind::warns, plan).find("FSDP together with tp or cp > 1") == 0);
  CHECK(said(RemarkKind::needs, plan).find("CUDA_DEVICE_MAX_CONNECTIONS=1") == std::string::npos);
  plan.zero = 1;
  CHECK(said(RemarkKind::warns, plan) == "");
  CHECK(said(RemarkKind::needs, plan).find("CUDA_DEVICE_MAX_CONNECTIONS=1") == 0);
}

TEST_CASE("overlap of ep warns of tensor and context parallelism") {
  ModelSpec experts;
  experts.moe.experts = 8;
  ParallelPlan plan;
  plan.ep = 8;
  plan.overlap_ep = true;
  CHECK(said(RemarkKind::warns, plan, experts) == "");
  for (int ParallelPlan::*degree : {static_cast<int ParallelPlan::*>(&ParallelPlan::tp),
                                    static_cast<int ParallelPlan::*>(&ParallelPlan::cp)}) {
    ParallelPlan both = plan;
    both.*degree = 2;
    CHECK(said(RemarkKind::warns, both, experts).find("overlap of ep together with tp or cp > 1") ==
          0);
  }
}

TEST_CASE("graphs of layers hold the parts that the model has, without the MLP beside overlap") {
  ModelSpec model;
  model.layers = 4;
  ParallelPlan plan;
  using Parts = std::vector<std::string_view>;
  CHECK(graphed_parts(model, plan) == Parts{"attn", "mlp"});
  model.moe.experts = 8;
  CHECK(graphed_parts(model, plan) == Parts{"attn", "moe_router", "moe_preprocess"});
  model.moe.first_dense_layers = 1;
  CHECK(graphed_parts(model, plan) == Parts{"attn", "mlp", "moe_router", "moe_preprocess"});
  plan.ep = 8;
  plan.overlap_ep = true;
  CHECK(graphed_parts(model, plan) == Parts{"attn", "moe_router", "moe_preprocess"});
  model.ssm.layers = 2;
  CHECK(graphed_parts(model, plan) == Parts{"attn", "mamba", "moe_router", "moe_preprocess"});
  model.ssm.layers = 0;
  plan.cuda_graphs = CudaGraphs::layers;
  CHECK(said(RemarkKind::needs, plan, model).find("Transformer Engine 2.10") != std::string::npos);
}

TEST_CASE("a CUDA graph of a whole step over experts names the first release that takes it") {
  const Framework framework = *find_framework("megatron-core");
  const ModelSpec model = *load_model("mixtral-8x7b");
  ParallelPlan plan;
  plan.dp = 8;
  plan.cuda_graphs = CudaGraphs::full_iteration;
  const auto asks = [&] {
    const auto all = remarks(framework, model, plan);
    return std::ranges::any_of(all, [](const FrameworkRemark& each) {
      return each.text.find("core 0.18 or newer") != std::string::npos;
    });
  };
  CHECK_FALSE(asks());
  plan.ep = 8;
  plan.dispatcher = Dispatcher::hybridep;
  CHECK(asks());
}

TEST_CASE("defaults that are not the plan's are named") {
  ModelSpec experts;
  experts.moe.experts = 8;
  ParallelPlan plan;
  plan.tp = 2;
  plan.ep = 8;
  const std::string needs = said(RemarkKind::needs, plan, experts);
  CHECK(needs.find("--expert-tensor-parallel-size 1") != std::string::npos);
  CHECK(needs.find("--moe-token-dispatcher-type alltoall") != std::string::npos);
  plan.dispatcher = Dispatcher::hybridep;
  plan.overlap_ep = true;
  plan.cuda_graphs = CudaGraphs::layers;
  const std::string flex = said(RemarkKind::needs, plan, experts);
  CHECK(flex.find("--moe-flex-dispatcher-backend hybridep") != std::string::npos);
  CHECK(flex.find("--overlap-moe-expert-parallel-comm") != std::string::npos);
  CHECK(flex.find("--cuda-graph-scope attn moe_router moe_preprocess") != std::string::npos);
  plan = {};
  plan.pp = 4;
  plan.vpp = 2;
  plan.layers_per_stage = {8, 8, 8, 8};
  CHECK(said(RemarkKind::needs, plan) == "--no-overlap-p2p-communication");
  plan.recompute = Recompute::selective;
  CHECK(said(RemarkKind::warns, plan).find("core_attn") != std::string::npos);
  plan.recompute_modules = {RecomputeModule::mlp, RecomputeModule::layernorm};
  CHECK(said(RemarkKind::needs, plan)
            .find("--recompute-granularity selective --recompute-modules layernorm mlp") !=
        std::string::npos);
  // Every norm of a dense layer with grouped-query attention is fused into a GEMM.
  CHECK(said(RemarkKind::warns, plan).find("layernorm") != std::string::npos);
  CHECK(said(RemarkKind::warns, plan, experts).find("layernorm") == std::string::npos);
  plan = {};
  plan.dp = 8;
  plan.zero = 2;
  CHECK(said(RemarkKind::needs, plan, {}, "torchtitan") ==
        "parallelism.fsdp_reshard_after_forward = \"never\"");
  CHECK(said(RemarkKind::needs, plan, {}, "megatron-deepspeed") ==
        "--no-pipeline-parallel, for ZeRO-2 and ZeRO-3");
  plan = {};
  plan.pp = 4;
  plan.layers_per_stage = {8, 8, 8, 8};
  ModelSpec model;
  model.layers = 32;
  CHECK(said(RemarkKind::needs, plan, model, "torchtitan") ==
        "parallelism.module_fqns_per_model_part, for these layers per chunk");
  plan.layers_per_stage = {8, 9, 8, 7};  // 34 items: 9, 9, 8, 8
  CHECK(said(RemarkKind::needs, plan, model, "torchtitan") == "");
  CHECK(said(RemarkKind::needs, plan, model, "nanotron").find("1f1b") != std::string::npos);
}

TEST_CASE("an unknown framework is refused with the nearest name and all of them") {
  const auto found = find_framework("nanotorn");
  REQUIRE_FALSE(found.ok());
  CHECK(found.error().hint.find("nanotron") != std::string::npos);
  CHECK(found.error().expected.find("megatron-core, megatron-2021") != std::string::npos);
}

TEST_CASE("for software that runs a framework, the error names that framework") {
  const auto hint = [](std::string_view name) { return find_framework(name).error().hint; };
  for (const char* name : {"nemo", "NeMo", "megatron-bridge"}) {
    CHECK(hint(name).find("--framework megatron-core") != std::string::npos);
  }
  for (const char* name : {"axolotl", "accelerate", "hf", "trl", "fsdp", "LLaMA-Factory"}) {
    CHECK(hint(name).find("--framework deepspeed, or fsdp1 or fsdp2") != std::string::npos);
  }
}

}  // namespace
}  // namespace echelon
