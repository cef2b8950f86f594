#include "evaluation/run_mapping.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "costmodel/calibration/calibration_io.hpp"
#include "evaluation/run_cluster.hpp"
#include "tests/evaluation/table_rows.hpp"

namespace echelon {
namespace {

const std::vector<MeasuredRun>& published() {
  static const std::vector<MeasuredRun> rows =
      *read_runs(ECHELON_SOURCE_DIR "/tests/evaluation/runs/published.csv");
  return rows;
}

MeasuredRun row(std::string_view id) { return row_of(published(), id); }

std::string skip_reason(const MeasuredRun& row) {
  const auto result = RunMapper().map(row);
  const auto* skipped = std::get_if<SkippedRun>(&result);
  return skipped == nullptr ? "" : skipped->reason;
}

bool mentions(const std::vector<std::string>& notes, std::string_view words) {
  return std::ranges::any_of(
      notes, [&](const std::string& note) { return note.find(words) != std::string::npos; });
}

TEST_CASE("first and last stage hold one layer fewer only when that makes the others equal") {
  CHECK(ends_hold_fewer_layers(22, 8, 1) == std::vector<int>{2, 3, 3, 3, 3, 3, 3, 2});
  CHECK(ends_hold_fewer_layers(24, 8, 1) == std::vector<int>(8, 3));
  CHECK(ends_hold_fewer_layers(32, 1, 1) == std::vector<int>{32});
  CHECK(ends_hold_fewer_layers(126, 16, 8).front() == 7);
}

TEST_CASE("a complete row is mapped without a guess") {
  const MappedRun run = mapped(row("nanotron-0469"));
  CHECK(run.inferred.empty());
  CHECK(run.model.kv_heads == 32);
  CHECK(run.model.head_dim == 128);
  CHECK(run.job.global_batch == 256);
  CHECK(run.job.precision.name == "bf16:nanotron");
  CHECK(run.framework.name == "nanotron");
  CHECK(run.plan.tp == 2);
  CHECK(run.plan.pp == 2);
  CHECK(run.plan.sequence_parallel);
  CHECK(run.plan.layers_per_stage == std::vector<int>{18, 14});
  CHECK(run.cluster.gpus() == 8);
  CHECK_FALSE(run.cluster.node().nic_kind);  // no rule about networks leaves a measured run out
}

TEST_CASE("attention is the framework's own, what the notes name, or that of the fitted runs") {
  const auto attention_of = [](std::string_view id, bool notes = true) {
    MeasuredRun run = row_of(whole_table(), id);
    if (!notes) run.notes.clear();
    return mapped(run).framework.attention;
  };
  const Framework torchtitan = find_framework("torchtitan").value();
  // A site's runs without notes are fitted with the kernels that its plans are priced with.
  CHECK(attention_of("torchtitan-0001", false) == torchtitan.attention);
  CHECK(torchtitan.attention == AttentionKernels::newest);
  CHECK(attention_of("torchtitan-0001") == AttentionKernels::flash_2);
  CHECK(attention_of("prime-rl-0016") == AttentionKernels::flash_2);
  CHECK(attention_of("prime-rl-0016", false) == AttentionKernels::as_fitted);
  CHECK(attention_of("mosaic-0035") == AttentionKernels::flash_1);
}

TEST_CASE("runs that this version cannot price are skipped with the feature named") {
  MeasuredRun bubble = row("zero-bubble-0004");
  bubble.schedule = "zb-2p";
  CHECK(skip_reason(bubble) == "schedule zb-2p is not priced");
  CHECK(skip_reason(row("llmq-0037")) == "offloading is not priced");
  MeasuredRun adapters = row("N0165");
  CHECK(skip_reason(adapters) == "the source does not say which adapters (lora) are trained");
  adapters.task = "lora 16:linear_qkv";
  CHECK(skip_reason(adapters).empty());
  adapters.task = "lora 16:linear_q";
  CHECK(skip_reason(adapters).find("did you mean 'linear_qkv'?") != std::string::npos);
  MeasuredRun latent = row("nanotron-0469");
  latent.attention = "mla";
  CHECK(skip_reason(latent) == "the table does not give the widths of latent attention");
  latent.attention = "other";
  latent.attention_detail = "sliding window";
  latent.layers = 37;  // no model of the catalog
  CHECK(skip_reason(latent) == "attention 'sliding window' is not priced");
}

TEST_CASE("incomplete rows are skipped with the missing columns named") {
  CHECK(skip_reason(row("bigscience-0003")).find("heads") != std::string::npos);
  CHECK(skip_reason(row("olmo-core-0001")).starts_with("nothing to compare with"));
  CHECK(skip_reason(row("N0083")) == "the source does not say the microbatch");
  MeasuredRun blank = row("nanotron-0469");
  blank.tp.reset();
  CHECK(skip_reason(blank) == "the source does not say tp or pp");
}

TEST_CASE("rows that contradict themselves are skipped") {
  MeasuredRun odd = row("nanotron-0469");
  odd.dp = 3;
  CHECK(skip_reason(odd) == "tp 2 x cp 1 x pp 2 x dp 3 is not 8 GPUs");
  odd = row("nanotron-0469");
  odd.gpu = "H-1000";
  CHECK(skip_reason(odd).find("unknown GPU 'H-1000'") != std::string::npos);
  odd = row("nanotron-0469");
  odd.tp = odd.gpus = 2'000'000'000;
  odd.pp = 1;
  CHECK_FALSE(skip_reason(odd).empty());
}

TEST_CASE("a row whose GPU does not support the job's format is skipped without a crash") {
  MeasuredRun run = row("N0190");  // V100
  run.precision = "bf16";
  CHECK(skip_reason(run) == "V100-SXM2-32GB has no bf16 units");
}

TEST_CASE("relevant blank cells are reported") {
  CHECK(mentions(mapped(row("nanotron-oom-0009")).inferred, "kv_heads = heads"));
  const MappedRun maxtext = mapped(row("N0487"));
  CHECK(mentions(maxtext.inferred, "recompute full"));
  CHECK(mentions(maxtext.inferred, "framework megatron-core"));
  CHECK(mentions(mapped(row("zero-bubble-0008")).inferred, "a vocabulary of 50257"));
}

TEST_CASE("a global batch that does not divide is rounded up to whole microbatches") {
  MeasuredRun run = row("mosaic-0081");
  run.global_batch = 17 * *run.dp * *run.microbatch - 1;
  const MappedRun rounded = mapped(run);
  CHECK(rounded.plan.microbatches_rounded_up(rounded.job.global_batch) == 17);
  CHECK(mentions(rounded.inferred, "rounded up"));
}

TEST_CASE("degrees that follow from the others are computed, not guessed") {
  MeasuredRun run = row("nanotron-0469");
  const std::int64_t microbatch = *run.microbatch;
  run.dp.reset();
  run.microbatch.reset();
  CHECK(mapped(run).plan.dp == 2);
  CHECK(mapped(run).plan.microbatch == microbatch);
  CHECK(mapped(run).inferred.empty());
}

TEST_CASE("block recomputation counts layers of each chunk") {
  MeasuredRun run = row("nanotron-0469");
  run.recompute = "full";
  run.recompute_detail = "full-block 4 layers";
  CHECK(mapped(run).plan.recompute_layers == std::vector<int>{4, 4});
  run.recompute_detail = "full";
  CHECK(mapped(run).plan.recompute_layers == std::vector<int>{18, 14});
}

TEST_CASE("a framework is granted the features its run used") {
  MeasuredRun run = row("flagperf-paddle-0001");
  run.zero = 2;
  CHECK(mapped(run).plan.zero == 2);
  CHECK(mapped(run).framework.zero_allowed[2]);
}

TEST_CASE("an A100 of 40 GB is recognized by its memory") {
  const MappedRun run = mapped(row("mosaic-0141"));
  CHECK(run.cluster.gpu().name == "A100-SXM4-40GB");
  CHECK(mentions(run.inferred, "A100-SXM4-40GB"));
}

TEST_CASE("gradients reduced in 16 bits are 2 bytes on the wire") {
  const MeasuredRun nemo = row("N0731");
  REQUIRE(nemo.framework_detail.find("grad reduce bf16") != std::string::npos);
  CHECK(mapped(nemo).job.precision.reduced_gradient == 2);
  CHECK(mapped(nemo).job.precision.compute == Dtype::fp8);
  MeasuredRun fp32 = nemo;
  fp32.framework_detail = "grad reduce fp32";
  CHECK(mapped(fp32).job.precision.reduced_gradient == 4);
  MeasuredRun unsaid = nemo;  // a recipe tuned for speed
  unsaid.framework_detail.clear();
  CHECK(mapped(unsaid).job.precision.reduced_gradient == 2);
  CHECK(mentions(mapped(unsaid).inferred, "gradients kept and reduced in bf16"));
  CHECK_FALSE(mentions(mapped(fp32).inferred, "gradients kept"));
}

TEST_CASE("16-bit reduction is read as the sources write it, fp32 reduction as well") {
  MeasuredRun fsdp = row("N0731");
  fsdp.framework_detail.clear();
  const auto reduced = [&](const char* detail) {
    MeasuredRun run = fsdp;
    run.precision_detail = detail;
    return mapped(run).job.precision.reduced_gradient;
  };
  CHECK(reduced("bf16 params/compute bf16 reduce") == 2);
  CHECK(reduced("bf16; reduce in BF16") == 2);
  CHECK(reduced("MixedPrecision(reduce_dtype=bfloat16)") == 2);
  CHECK(reduced("bf16 params/compute fp32 reduce") == 4);
  CHECK(reduced("bf16, fp32 grad accumulation/reduce, distributed optimizer") == 4);
}

TEST_CASE("GPUs of the catalog are found however their names are written") {
  MeasuredRun run = row("nanotron-0469");
  for (const char* name : {"RTX 4090", "RTX-4090", "rtx4090", "NVIDIA GeForce RTX 4090"}) {
    CAPTURE(name);
    run.gpu = name;
    CHECK(mapped(run).cluster.gpu().name == "RTX 4090");
  }
  run.gpu = "RTX 3090";
  CHECK(mapped(run).cluster.gpu().name == "RTX 3090");
  run.gpu = "h100-sxm5-80gb";
  CHECK(mapped(run).cluster.gpu().name == "H100-SXM5-80GB");
}

TEST_CASE("a network measured by the job bounds the described one for data-parallel groups") {
  MeasuredRun run = row("nanotron-0135");  // 16 nodes on a slow day
  run.net_allgather_busbw_GBps = 26;
  run.net_reducescatter_busbw_GBps = 25;
  const MappedRun map = mapped(run);
  const auto network = measured_network(run, map.cluster);
  REQUIRE(network);
  CHECK(network->bus.in(1_GBps) == Approx(*run.net_allreduce_busbw_GBps));
  // 128 GPUs pass a ring with 15 steps between nodes; the whole trip takes the measured time.
  CHECK(network->hop.in(1_us) == Approx(measured_ring_step(run)->in(1_us) * 128 / 15));
  CHECK(network->stalls());

  const auto calibration = pick_calibration(map.cluster.gpu(), map.framework);
  REQUIRE(calibration.ok());
  CostModel cost_model(map.model, map.job, map.cluster, map.framework, *calibration);
  const GroupLinks described = cost_model.links({128, 1});
  cost_model.set_network(*network);
  const GroupLinks data = cost_model.data_links({128, 1});
  // The bus bandwidth is low because of the same waits.
  CHECK(data.inter.in(1_GBps) == Approx(MeasuredNetwork::kUnhindered.in(1_GBps)));
  cost_model.set_network({network->bus, 200_us});
  CHECK(cost_model.data_links({128, 1}).inter.in(1_GBps) ==
        Approx(*run.net_allreduce_busbw_GBps).epsilon(0.01));
  CHECK(cost_model.links({128, 1}).inter == described.inter);
  CHECK(data.inter_hop == calibration->bulk_latency_factor * network->hop);
  CHECK(cost_model.links({8, 1}).intra_hop ==
        apply(map.cluster.group({8, 1}), *calibration).intra_hop);
  MeasuredRun silent = run;
  silent.net_allreduce_busbw_GBps.reset();
  CHECK_FALSE(measured_network(silent, map.cluster));
}

TEST_CASE("experts take the tensor parallelism of Megatron-Core where the stage has the ranks") {
  MeasuredRun run = row("nanotron-0469");
  run.framework = "megatron-core";
  run.experts = 8;
  run.experts_per_token = 2;
  run.expert_ffn_hidden = run.ffn_hidden;
  run.tp = 2;
  run.pp = 1;
  run.dp = 8;
  run.gpus = 16;
  run.ep = 4;
  run.zero = 1;
  CHECK(mapped(run).plan.etp == 2);
  run.ep = 8;
  run.dp = 4;
  run.gpus = 8;
  CHECK(mapped(run).plan.etp == 1);
  run.ep = 4;
  run.etp = 1;
  CHECK(mapped(run).plan.etp == 1);
}

TEST_CASE("Megatron's data-parallel group includes context parallelism") {
  MeasuredRun run = row("nanotron-0469");
  run.framework = "megatron-core";
  run.tp = run.pp = 1;
  run.cp = 2;
  run.dp = 8;
  run.gpus = 16;
  run.zero = 1;
  run.shard_group = 8;
  CHECK(mapped(run).plan.shard_group == 16);
  CHECK(mentions(mapped(run).inferred, "dp x cp = 16"));
  run.shard_group = 4;
  CHECK(mapped(run).plan.shard_group == 4);
}

TEST_CASE("the memory column overrides the memory of any GPU that it contradicts") {
  MeasuredRun run = row("nanotron-0469");
  run.gpu_memory_gb = 64;
  CHECK(mapped(run).cluster.gpu().memory.in(1_GiB) == Approx(0.99 * 64));
  CHECK(mentions(mapped(run).inferred, "64 GB"));
  run.gpu_memory_gb = 80;
  CHECK(mapped(run).cluster.gpu().memory.in(1_GiB) > 79);
}

TEST_CASE("a row whose notes call it out of memory is one") {
  MeasuredRun run = row("nanotron-0469");
  run.notes = "log also contained an OOM error";
  CHECK_FALSE(run.out_of_memory());
  run.step_seconds.reset();
  CHECK_FALSE(run.out_of_memory());
  for (const char* notes : {"OOM_on_rank0; use as a does-not-fit label", "GBS not printed; oom; x",
                            "OOM in the paper"}) {
    run.notes = notes;
    CHECK(run.out_of_memory());
  }
  run.notes = "passed; expandable_segments eliminated fragmentation-induced OOM";
  CHECK_FALSE(run.out_of_memory());
}

TEST_CASE("graphs, eager kernels and asynchronous tensor parallelism reach the cost model") {
  MeasuredRun run = row("nanotron-0469");
  run.framework = "torchtitan";
  run.torch_compile = true;
  CHECK(mapped(run).framework.pointwise_passes == 1);
  CHECK_FALSE(mapped(run).plan.overlap_tp);
  run.torch_compile = false;
  run.notes = "Async TP";
  run.cuda_graph = "full_iteration";
  CHECK(mapped(run).framework.pointwise_passes > 1);
  CHECK(mapped(run).plan.overlap_tp);
  CHECK(mapped(run).framework.host_share == 0);
}

TEST_CASE("zero bubble in the memory of 1F1B is priced as ZB-H1") {
  const MappedRun run = mapped(row("zero-bubble-0004"));
  CHECK(run.plan.schedule == ScheduleKind::zero_bubble_h1);
  CHECK(mentions(run.inferred, "zb-1p priced as zb-h1"));
}

TEST_CASE("attention without a column is taken from the catalog's model of the same shapes") {
  MeasuredRun run = row("nanotron-0469");
  run.attention = "mla";
  run.layers = 61;
  run.hidden = 7168;
  run.heads = run.kv_heads = 128;
  run.experts = 256;
  run.experts_per_token = 8;
  run.expert_ffn_hidden = 2048;
  run.tp = run.pp = 1;
  run.dp = 8;
  run.zero = 1;
  run.vocab = 129'280;
  const MappedRun known = mapped(run);
  CHECK(known.model.mla.kv_lora_rank == 512);
  CHECK_FALSE(known.model.sparse());  // DeepSeek-V3.2 has the same shapes
  CHECK(mentions(known.inferred, "deepseek-v3"));
  CHECK(known.model.prediction_modules == 0);
  run.notes = "MTP layer included (pp_layout has m)";
  run.pp = 4;
  run.dp = 2;
  run.vpp = 4;
  run.overlap_detail = "dispatcher=hybridep; pp_layout=Et*4|(t*4|)*14tmL; moe_a2a_overlap";
  const MappedRun predicting = mapped(run);
  CHECK(predicting.model.prediction_modules == 1);
  CHECK(predicting.plan.layers_per_stage == std::vector<int>{16, 16, 16, 13});
  CHECK(predicting.plan.overlap_ep == false);  // of one expert group of one rank
  run.notes = "w/o MTP";
  CHECK(mapped(run).model.prediction_modules == 0);
  run.pp = run.vpp = 1;
  run.dp = run.ep = 8;
  run.overlap_detail = "dispatcher=alltoall; shared expert overlap";
  CHECK(mapped(run).plan.overlap_shared);
  run.overlap_detail = "dispatcher=hybridep; shared expert overlap";
  CHECK_FALSE(mapped(run).plan.overlap_shared);  // of the all-to-all alone
  run.overlap_detail = "pp_layout=Et|t|tL";      // not this model's layers
  CHECK(mapped(run).plan.layers_per_stage != std::vector<int>{16, 16, 16, 13});
  run.layers = 60;
  CHECK(skip_reason(run) == "the table does not give the widths of latent attention");
}

TEST_CASE(
    "hybrid models are the catalog's, by their shapes or where a row has none by their name") {
  const MappedRun shapes = mapped(row_of(whole_table(), "N0624"));
  CHECK(shapes.model.name == "nemotron-h-56b");
  CHECK(mentions(shapes.inferred, "attention of the catalog's nemotron-h-56b"));
  const MappedRun named = mapped(row_of(whole_table(), "N0768"));
  CHECK(named.model.name == "nemotron-3-super-120b-a12b");
  CHECK(named.model.moe.latent_hidden == 1024);
  CHECK(mentions(named.inferred, "the shapes of the catalog's nemotron-3-super-120b-a12b"));
  MeasuredRun other = row_of(whole_table(), "N0768");
  other.model = "Nemotron-3-Ultra";
  CHECK(skip_reason(other) ==
        "attention 'hybrid mamba2+gqa+latent moe (see repo recipes)' is not priced");
  other = row_of(whole_table(), "N0624");
  other.layers = 98;  // Nemotron-H 47B, which the catalog lacks
  CHECK_FALSE(skip_reason(other).empty());
}

TEST_CASE("a GPU is known by the names drivers and vendors give it") {
  MeasuredRun run = row("nanotron-0469");
  for (const auto& [name, gpu] :
       {std::pair{"NVIDIA H100 80GB HBM3", "H100-SXM5-80GB"}, std::pair{"h100", "H100-SXM5-80GB"},
        std::pair{"NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"},
        std::pair{"NVIDIA H100 PCIe", "H100-PCIe-80GB"}, std::pair{"L40S", "L40S"},
        std::pair{"AMD Instinct MI325X", "MI325X"}}) {
    run.gpu = name;
    INFO(name);
    CHECK(mapped(run).cluster.gpu().name == gpu);
  }
}

}  // namespace
}  // namespace echelon
