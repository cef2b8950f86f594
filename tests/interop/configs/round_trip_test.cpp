// What is exported is imported as the same plan, or the export says which field it lost: for every
// format and every field of a plan.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/framework/framework.hpp"
#include "core/model/model_io.hpp"
#include "interop/configs/export.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

using P = ParallelPlan;

/// 32 layers on 64 GPUs.
RunConfig example_run() {
  RunConfig run;
  run.model = *load_model("llama3-8b");
  run.model_name = "llama3-8b";
  run.sequence = 8192;
  run.global_batch = 512;
  run.gpus = 64;
  run.gpus_per_node = 8;
  run.plan.dp = 64;
  run.plan.shard_group = 64;
  run.plan.layers_per_stage = {32};
  run.plan.recompute_layers = {0};
  return run;
}

/// The plan with degrees that use all GPUs, and what follows from them.
P degrees(int tp, int cp, int pp, int dp) {
  P plan;
  plan.tp = tp;
  plan.cp = cp;
  plan.pp = pp;
  plan.dp = dp;
  plan.shard_group = dp * cp;
  plan.layers_per_stage.assign(static_cast<std::size_t>(pp), 32 / pp);
  plan.recompute_layers.assign(static_cast<std::size_t>(pp), 0);
  return plan;
}

/// Plans that differ from the first in the fields that a test names.
std::vector<P> varied_plans() {
  std::vector<P> plans = {degrees(1, 1, 1, 64), degrees(4, 1, 1, 16), degrees(4, 1, 4, 4),
                          degrees(2, 2, 4, 4), degrees(1, 1, 4, 16)};
  const auto add = [&](P plan, auto change) {
    change(plan);
    plans.push_back(std::move(plan));
  };
  for (int zero = 1; zero <= 3; ++zero) {
    add(degrees(1, 1, 1, 64), [&](P& p) { p.zero = zero; });
    add(degrees(4, 1, 1, 16), [&](P& p) { p.zero = zero; });
    add(degrees(1, 1, 1, 64), [&](P& p) {
      p.zero = zero;
      p.shard_group = 8;
    });
  }
  add(degrees(4, 1, 4, 4), [](P& p) { p.sequence_parallel = true; });
  add(degrees(4, 1, 4, 4), [](P& p) { p.microbatch = 2; });
  add(degrees(1, 1, 1, 64), [](P& p) { p.recompute = Recompute::selective; });
  add(degrees(1, 1, 1, 64), [](P& p) {
    p.recompute = Recompute::full;
    p.recompute_layers = {32};
  });
  add(degrees(4, 1, 4, 4), [](P& p) {
    p.recompute = Recompute::full;
    p.recompute_layers = {3, 3, 3, 3};
  });
  add(degrees(4, 1, 4, 4), [](P& p) {
    p.recompute = Recompute::full;
    p.recompute_layers = {4, 3, 2, 1};
  });
  add(degrees(4, 1, 4, 4), [](P& p) {
    p.recompute = Recompute::mixed;
    p.selective_layers = {2, 2, 2, 2};
  });
  const auto interleave = [](P& p) {
    p.vpp = 2;
    p.schedule = ScheduleKind::interleaved;
    p.microbatch_group = p.pp;
    p.overlap_pp = true;
  };
  add(degrees(4, 1, 4, 4), interleave);
  add(degrees(4, 1, 4, 4), [&](P& p) {
    interleave(p);
    p.overlap_pp = false;
  });
  add(degrees(4, 1, 4, 4), [&](P& p) {
    interleave(p);
    p.microbatch_group = 8;
  });
  add(degrees(4, 1, 4, 4), [&](P& p) {
    interleave(p);
    p.layers_per_stage = {7, 9, 9, 7};
  });
  add(degrees(4, 1, 4, 4), [](P& p) { p.layers_per_stage = {7, 9, 9, 7}; });
  add(degrees(4, 1, 4, 4), [](P& p) { p.layers_per_stage = {8, 9, 8, 7}; });
  add(degrees(4, 1, 4, 4), [](P& p) { p.schedule = ScheduleKind::gpipe; });
  add(degrees(4, 1, 4, 4), [](P& p) { p.schedule = ScheduleKind::zero_bubble_h1; });
  add(degrees(4, 1, 4, 4), [](P& p) { p.rank_order = RankOrder::pp_inside_dp; });
  add(degrees(2, 2, 4, 4), [](P& p) { p.cp_comm = CpComm::all_to_all; });
  add(degrees(4, 1, 4, 4), [](P& p) { p.overlap_tp = p.sequence_parallel = true; });
  add(degrees(1, 1, 1, 64), [](P& p) { p.overlap_dp = false; });
  add(degrees(1, 1, 1, 64), [](P& p) {
    p.zero = 1;
    p.offload_optimizer = 0.5;
  });
  add(degrees(1, 1, 1, 64), [](P& p) {
    p.offload_modules = {OffloadModule::core_attn, OffloadModule::attn_proj};
  });
  add(degrees(1, 1, 1, 64), [](P& p) { p.bucket = Bytes{100.0 * (1 << 20)}; });
  return plans;
}

/// What the format leaves to the user's code, as the user would give it.
GivenRun given_for(const ConfigFormat& format, const RunConfig& run) {
  GivenRun given;
  given.format = std::string(format.name);
  given.own_code = &run;
  given.gpus = run.gpus;
  given.sequence = run.sequence;
  given.global_batch = run.global_batch;
  if (row_of(format, &ModelSpec::layers) == nullptr) given.model = run.model;
  return given;
}

RunConfig run_for(const ConfigFormat& format, const P& plan) {
  RunConfig run = example_run();
  run.plan = plan;
  const ConfigRow& precision = *row_of(format, &RunConfig::precision);
  run.precision = std::string(precision.cases.front().value);
  if (format.name == "llm-foundry") {  // MPT: no biases
    ModelSpec& model = run.model = *load_model("gpt3-6.7b");
    model.qkv_bias = model.attention_output_bias = model.mlp_bias = false;
    model.hidden_dropout = model.attention_dropout = 0;
    run.sequence = model.max_positions;
  }
  return run;
}

TEST_CASE("every format has one row for every field of a plan") {
  for (const ConfigFormat& format : config_formats()) {
    for (const PlanField& field : plan_fields()) {
      CAPTURE(format.name, field.key);
      CHECK(std::ranges::count(format.rows, ConfigField{&field}, &ConfigRow::field) == 1);
    }
    CAPTURE(format.name);
    CHECK(row_of(format, &RunConfig::framework) != nullptr);
    CHECK(row_of(format, &RunConfig::precision) != nullptr);
    CHECK(row_of(format, &RunConfig::sequence) != nullptr);
    CHECK(row_of(format, &RunConfig::global_batch) != nullptr);
  }
}

TEST_CASE("an exported plan is imported unchanged, or the export lists the lost fields") {
  for (const ConfigFormat& format : config_formats()) {
    if (!format.exported) continue;
    int kept = 0;
    std::string first;  // lost of the first plan
    const std::vector<P> plans = varied_plans();
    for (const P& plan : plans) {
      const RunConfig run = run_for(format, plan);
      const ExportedConfig exported = export_config(format, run);
      const Result<ImportedConfig> back =
          import_config({{fmt::format("run.{}", extension_of(format.syntax)), exported.text}},
                        given_for(format, run));
      const auto lost = [&](const PlanField& field) {
        return std::ranges::any_of(exported.lost, [&](const Inexpressible& each) {
          return each.wanted.empty() || each.field == ConfigField{&field};
        });
      };
      CAPTURE(format.name, exported.text);
      if (!back) {
        INFO(back.error().message());
        CHECK_FALSE(exported.lost.empty());
        continue;
      }
      for (const PlanField& field : plan_fields()) {
        const bool same = same_value(field, back->config.plan, plan);
        const ConfigRow& row = *row_of(format, &field);
        CAPTURE(field.key, value_text(field, plan), value_text(field, back->config.plan));
        if (row.elsewhere.empty() && has_effect(&field, run)) CHECK(same != lost(field));
      }
      if (exported.lost.empty()) ++kept;
      if (&plan == &plans.front()) {
        for (const Inexpressible& each : exported.lost) {
          first += std::string(label_of(each.field)) + " " + each.wanted + ", ";
        }
      }
    }
    CAPTURE(format.name, first);
    CHECK(kept >= 2);
  }
}

TEST_CASE("Megatron-LM expresses layouts, chunks, hybrid sharding and offload") {
  const ConfigFormat& format = **find_config_format("megatron-lm");
  for (const P& plan : varied_plans()) {
    const RunConfig run = run_for(format, plan);
    const ExportedConfig exported = export_config(format, run);
    const bool expressible =
        plan.schedule != ScheduleKind::gpipe && plan.schedule != ScheduleKind::zero_bubble_h1 &&
        plan.recompute != Recompute::mixed && plan.recompute_layers != std::vector{4, 3, 2, 1};
    CAPTURE(exported.text);
    CHECK(exported.lost.empty() == expressible);
  }
}

TEST_CASE("Megatron-LM's expert degrees survive, with etp stated") {
  const ConfigFormat& format = **find_config_format("megatron-lm");
  for (const auto& [ep, etp] : {std::pair{8, 1}, {4, 2}, {1, 2}}) {
    RunConfig run = run_for(format, degrees(2, 1, 4, 8));
    run.model = *load_model("mixtral-8x7b");
    run.plan.ep = ep;
    run.plan.etp = etp;
    const ExportedConfig exported = export_config(format, run);
    CAPTURE(ep, etp, exported.text);
    CHECK(exported.lost.empty());
    const Result<ImportedConfig> back = import_config({{"run.sh", exported.text}}, GivenRun{});
    REQUIRE(back);
    CHECK(differing_fields(back->config.plan, run.plan).empty());
  }
}

TEST_CASE("attention within documents is exported where a format has it, and named where not") {
  const auto exported_by = [](const char* name) {
    const ConfigFormat& format = **find_config_format(name);
    RunConfig run = run_for(format, degrees(1, 1, 1, 64));
    run.packed_documents = true;
    const ExportedConfig exported = export_config(format, run);
    const bool lost = std::ranges::any_of(exported.lost, [](const Inexpressible& each) {
      return each.field == ConfigField{&RunConfig::packed_documents};
    });
    return std::pair(exported.text, lost);
  };
  const auto [megatron, lost] = exported_by("megatron-lm");
  CHECK_FALSE(lost);
  CHECK(megatron.find("--dataloader-inter-document-masking") != std::string::npos);
  CHECK(megatron.find("needs Megatron-LM core 0.19 or newer for attention within documents") !=
        std::string::npos);
  CHECK_FALSE(exported_by("nanotron").second);
  CHECK(exported_by("nanotron").first.find("_use_doc_masking: true") != std::string::npos);
  CHECK(exported_by("megatron-bridge").second);
}

TEST_CASE("adapters are a recipe's of Megatron-Bridge, PEFT's elsewhere, and lost in others") {
  const auto exported_by = [](const char* name) {
    const ConfigFormat& format = **find_config_format(name);
    RunConfig run = run_for(format, degrees(1, 1, 1, 64));
    run.adapters = "16:linear_qkv,linear_proj";
    run.quantized = "nf4:double-quant";
    return export_config(format, run);
  };
  const auto loses = [](const ExportedConfig& exported, const ConfigField& field) {
    return std::ranges::any_of(exported.lost,
                               [&](const auto& each) { return each.field == field; });
  };
  const ConfigField adapters{&RunConfig::adapters};
  const ConfigField quantized{&RunConfig::quantized};
  const ExportedConfig bridge = exported_by("megatron-bridge");
  CHECK_FALSE(loses(bridge, adapters));
  CHECK(loses(bridge, quantized));
  CHECK(bridge.text.find("peft.dim=16") != std::string::npos);
  CHECK(bridge.text.find("peft.target_modules='[linear_qkv,linear_proj]'") != std::string::npos);
  for (const char* name : {"deepspeed", "accelerate"}) {
    CAPTURE(name);
    const ExportedConfig theirs = exported_by(name);
    CHECK_FALSE((loses(theirs, adapters) || loses(theirs, quantized)));
    const auto named = [&](std::string_view words) {
      return std::ranges::any_of(theirs.notes,
                                 [&](const auto& note) { return note.starts_with(words); });
    };
    CHECK(named("adapters (LoRA) = 16:linear_qkv,linear_proj: get_peft_model"));
    CHECK(named("quantised weights = nf4:double-quant: BitsAndBytesConfig"));
  }
  for (const char* name : {"megatron-lm", "nemo", "torchtitan", "nanotron"}) {
    CAPTURE(name);
    CHECK(loses(exported_by(name), adapters));
    CHECK(loses(exported_by(name), quantized));
  }
}

TEST_CASE(
    "overlap of tensor parallelism is asked for where sequences are parallel, and lost nowhere") {
  for (const char* name : {"megatron-lm", "deepspeed", "accelerate"}) {
    const ConfigFormat& format = **find_config_format(name);
    P plan = degrees(1, 1, 1, 64);
    plan.overlap_tp = true;
    const ExportedConfig exported = export_config(format, run_for(format, plan));
    CAPTURE(exported.text);
    CHECK(exported.text.find("tp-comm-overlap") == std::string::npos);
    for (const Inexpressible& lost : exported.lost) {
      CHECK(lost.field != ConfigField{plan_part<&P::overlap_tp>});
    }
  }
  const ConfigFormat& format = **find_config_format("megatron-lm");
  P split = degrees(4, 1, 1, 16);
  split.overlap_tp = split.sequence_parallel = true;
  const ExportedConfig exported = export_config(format, run_for(format, split));
  CHECK(exported.text.find("--tp-comm-overlap") != std::string::npos);
  CHECK(exported.lost.empty());
}

TEST_CASE("a CUDA graph of a whole step is exported with what it asks for") {
  const auto exported_by = [](const char* name, CudaGraphs graphs) {
    const ConfigFormat& format = **find_config_format(name);
    P plan = degrees(1, 1, 1, 64);
    plan.cuda_graphs = graphs;
    const ExportedConfig exported = export_config(format, run_for(format, plan));
    CHECK(exported.lost.empty());
    return exported.text;
  };
  const auto has = [](const std::string& text, const char* what) {
    return text.find(what) != std::string::npos;
  };
  const std::string megatron = exported_by("megatron-lm", CudaGraphs::full_iteration);
  CHECK(has(megatron, "--cuda-graph-impl local"));
  CHECK(has(megatron, "--cuda-graph-scope full_iteration"));
  CHECK(has(megatron, "--no-check-for-nan-in-loss-and-grad"));
  CHECK_FALSE(has(exported_by("megatron-lm", CudaGraphs::layers), "check-for-nan"));
  const std::string bridge = exported_by("megatron-bridge", CudaGraphs::full_iteration);
  CHECK(has(bridge, "check_for_nan_in_loss=false"));
  CHECK(has(bridge, "check_for_nan_in_grad=false"));
  CHECK(has(bridge, "use_te_rng_tracker=true"));
  CHECK(has(exported_by("megatron-bridge", CudaGraphs::layers), "use_te_rng_tracker=true"));
}

TEST_CASE("what Megatron Core needs for a plan stands in its script") {
  const ConfigFormat& format = **find_config_format("megatron-lm");
  const Framework framework = *find_framework("megatron-core");
  std::vector<P> plans = varied_plans();
  for (const Dispatcher dispatcher : {Dispatcher::allgather, Dispatcher::deepep}) {
    P plan = degrees(2, 1, 4, 8);
    plan.ep = 8;
    plan.dispatcher = dispatcher;
    plan.overlap_ep = dispatcher == Dispatcher::deepep;
    plan.cuda_graphs = CudaGraphs::layers;
    plan.recompute = Recompute::selective;
    plan.recompute_modules.insert(RecomputeModule::moe_act);
    plan.recompute_modules.insert(RecomputeModule::layernorm);
    plans.push_back(plan);
  }
  P shared = degrees(2, 1, 4, 8);
  shared.ep = 8;
  shared.overlap_shared = true;
  plans.push_back(shared);
  int checked = 0;
  for (const P& plan : plans) {
    RunConfig run = run_for(format, plan);
    run.framework = framework.name;
    if (plan.ep > 1) run.model = *load_model("mixtral-8x7b");
    const ExportedConfig exported = export_config(format, run);
    if (!exported.lost.empty()) continue;
    for (const FrameworkRemark& remark : remarks(framework, run.model, plan)) {
      if (remark.kind != RemarkKind::needs) continue;
      CAPTURE(remark.text, exported.text);
      CHECK(exported.text.find(remark.environment) != std::string::npos);
      for (std::size_t at = remark.text.find("--"); at != std::string::npos;
           at = remark.text.find("--", at + 2)) {
        const std::string option = remark.text.substr(at, remark.text.find_first_of(" ,", at) - at);
        const bool layers = option.find("pipeline") != std::string::npos;  // spelled in other ways
        if (!layers) CHECK(exported.text.find(option) != std::string::npos);
        ++checked;
      }
    }
  }
  CHECK(checked > 20);
}

TEST_CASE("an exported model has the shapes of the catalog's") {
  const ConfigFormat& format = **find_config_format("megatron-lm");
  for (const char* name :
       {"llama3-8b", "gpt3-175b", "llama2-70b", "qwen2-7b", "mixtral-8x7b", "deepseek-v3"}) {
    RunConfig run = run_for(format, degrees(1, 1, 1, 64));
    run.model = *load_model(name);
    run.sequence = std::min(run.sequence, run.model.max_positions);
    run.plan.layers_per_stage = {run.model.layers};
    const ExportedConfig exported = export_config(format, run);
    const Result<ImportedConfig> back = import_config({{"run.sh", exported.text}}, GivenRun{});
    CAPTURE(name, exported.text);
    REQUIRE(back);
    CHECK(back->config.model.layers == run.model.layers);
    CHECK(back->config.model.parameters() == run.model.parameters());
    CHECK(back->asks.empty());
    CHECK(exported.text.find("attention-backend") == std::string::npos);
  }
}

}  // namespace
}  // namespace echelon
