// Over 400 lines because the cells of a row are read in one place, in the order of the plan.
#include "evaluation/run_mapping.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "core/base/saturated_product.hpp"
#include "core/base/text.hpp"
#include "core/framework/stage_layers.hpp"
#include "evaluation/framework_defaults.hpp"
#include "evaluation/run_cluster.hpp"
#include "evaluation/run_states.hpp"
#include "evaluation/run_wording.hpp"
#include "planner/space/legality.hpp"

namespace echelon {

namespace {

constexpr int kMostStages = 4096;
constexpr std::int64_t kMostGpus = 10'000'000;
/// The automatic zero-bubble schedule that keeps to 1F1B's memory, as ZB-H1 does by hand.
constexpr std::string_view kSameMemoryZeroBubble = "zb-1p";

/// What a row's task begins with, before their rank and targets, and how frozen weights are kept:
/// "lora 16:linear_qkv nf4".
constexpr std::string_view kAdapters = "lora";

using Skip = std::optional<std::string>;  ///< a reason not to predict the row
using Notes = std::vector<std::string>;   ///< what was inferred

int whole(const WholeCell& cell, int otherwise) {
  return cell ? static_cast<int>(*cell) : otherwise;
}

/// Features of a run that this version of the cost model does not price.
Skip not_priced(const MeasuredRun& row) {
  if (row.schedule.starts_with("zb-") && row.schedule != kSameMemoryZeroBubble) {
    return fmt::format("schedule {} is not priced", row.schedule.substr(0, 20));
  }
  if (!row.offload.empty() && row.offload != "none") return "offloading is not priced";
  if (row.task == kAdapters) return "the source does not say which adapters (lora) are trained";
  const std::string_view one_gpu = software_of(row).defaults->not_priced_on_one_gpu;
  if (!one_gpu.empty() && whole(row.gpus, 0) == 1) return std::string(one_gpu);
  return {};
}

Skip nothing_measured(const MeasuredRun& row) {
  if (row.step_seconds || row.peak_memory_bytes || row.out_of_memory()) return {};
  return "nothing to compare with: no step time, no memory figure, not an out-of-memory run";
}

/// Where the source is silent the framework's default, unless the stage has too few ranks for it.
void set_expert_tensor_parallel(const MeasuredRun& row, bool experts_take_tp, ParallelPlan& plan,
                                Notes& inferred) {
  plan.etp = 1;
  if (whole(row.experts, 1) <= 1) return;
  plan.etp = whole(row.etp, experts_take_tp ? plan.tp : 1);
  if (row.etp || plan.tp == 1) return;
  const std::int64_t ranks = saturated_product({plan.tp, plan.cp, plan.dp});
  if (ranks % saturated_product({plan.ep, plan.etp}) != 0) plan.etp = 1;
  inferred.push_back(fmt::format("etp {}", plan.etp));
}

/// Step 2: degrees and batch. Blanks that follow from the others are arithmetic, not guesses.
Skip degrees_of(const MeasuredRun& row, bool experts_take_tp, ParallelPlan& plan,
                std::int64_t& global_batch, Notes& inferred) {
  if (!row.tp || !row.pp) return "the source does not say tp or pp";
  plan.tp = whole(row.tp, 1);
  plan.pp = whole(row.pp, 1);
  plan.cp = whole(row.cp, 1);
  plan.ep = whole(row.ep, 1);
  const std::int64_t sharding =
      saturated_product({row.tp.value_or(1), row.cp.value_or(1), row.pp.value_or(1)});
  std::int64_t dp = whole(row.dp, 0);
  if (!row.dp && !row.gpus) return "the source does not say how many GPUs";
  if (!row.dp) dp = *row.gpus / sharding;
  const std::int64_t gpus =
      row.gpus.value_or(saturated_product({sharding, std::min(dp, kMostGpus)}));
  if (gpus > kMostGpus || sharding > kMostGpus || dp < 1 ||
      saturated_product({sharding, dp}) != gpus) {
    return fmt::format("tp {} x cp {} x pp {} x dp {} is not {} GPUs", plan.tp, plan.cp, plan.pp,
                       dp, gpus);
  }
  plan.dp = static_cast<int>(dp);
  set_expert_tensor_parallel(row, experts_take_tp, plan, inferred);

  const WholeCell& steps = row.grad_accumulation;
  std::int64_t microbatch = whole(row.microbatch, 0);
  global_batch = whole(row.global_batch, 0);
  const std::int64_t each = saturated_product({dp, steps.value_or(1)});
  if (!row.microbatch && row.global_batch && steps && global_batch % each == 0) {
    microbatch = global_batch / each;
  }
  if (microbatch < 1) return "the source does not say the microbatch";
  if (!row.global_batch) {
    if (row.step_seconds && !steps) return "the source does not say the global batch";
    const std::int64_t least = plan.pp;  // fills the pipeline: the peak of memory
    if (!steps) inferred.push_back(fmt::format("{} microbatches per step", least));
    constexpr std::int64_t kMostSamples = std::int64_t{1} << 53;
    global_batch =
        std::min(kMostSamples, saturated_product({microbatch, dp, steps.value_or(least)}));
  }
  plan.microbatch = static_cast<int>(microbatch);
  const std::int64_t samples = microbatch * dp;
  if (global_batch % samples != 0) {
    const std::int64_t rounded = (global_batch + samples - 1) / samples * samples;
    inferred.push_back(fmt::format("a global batch of {} rounded up to {}", global_batch, rounded));
    global_batch = rounded;
  }
  return {};
}

/// Step 3: how the pipeline runs and which layers each stage holds.
Skip pipeline_of(const MeasuredRun& row, const FrameworkDefaults& defaults, const ModelSpec& model,
                 ParallelPlan& plan, Notes& inferred) {
  plan.vpp = whole(row.vpp, 1);
  if (row.schedule == "interleaved" && !row.vpp) {
    return "the source does not say into how many chunks the stages are interleaved";
  }
  plan.schedule = plan.vpp > 1 ? ScheduleKind::interleaved : ScheduleKind::one_f_one_b;
  if (row.schedule == "gpipe") plan.schedule = ScheduleKind::gpipe;
  if (row.schedule == kSameMemoryZeroBubble) {
    plan.schedule = ScheduleKind::zero_bubble_h1;
    inferred.push_back("zb-1p priced as zb-h1, which keeps to the same memory");
  }
  const bool known = plan.schedule == ScheduleKind::zero_bubble_h1 || row.schedule.empty() ||
                     row.schedule == "gpipe" || row.schedule == "1f1b" ||
                     row.schedule == "interleaved";
  if (!known) return fmt::format("unknown schedule {}", in_quotes(row.schedule));
  // A split by cost may leave late stages empty; Megatron's forks the first and the last.
  const bool by_cost = defaults.split == StageSplit::by_cost;
  const int most_stages = by_cost ? kMostStages : model.layers + 2;
  if (plan.pp > most_stages) {
    return fmt::format("{} layers on {} pipeline stages", model.layers, plan.pp);
  }
  if (const auto stated = layers_per_stage(row, model.layers, plan.pp)) {
    plan.layers_per_stage = *stated;
  } else if (by_cost) {
    const bool old = !defaults.tie_stays.empty() && says(row.notes, defaults.tie_stays);
    plan.layers_per_stage = layers_by_cost(model, plan.pp, old);
  } else if (defaults.split == StageSplit::ends_hold_fewer) {
    plan.layers_per_stage = ends_hold_fewer_layers(model.layers, plan.pp, plan.vpp);
  } else {
    plan.layers_per_stage = balanced_layers(model.layers, plan.pp);
  }
  return {};
}

/// "full-block 4 layers" → 4: Megatron's block method recomputes the first so many of each chunk.
std::optional<int> recomputed_layers(std::string_view detail) {
  constexpr std::string_view kBlock = "full-block ";
  const std::size_t at = detail.find(kBlock);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = detail.substr(at + kBlock.size());
  int layers = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), layers);
  return error == std::errc{} && layers >= 0 && layers < 10'000 ? std::optional(layers)
                                                                : std::nullopt;
}

/// Step 4: recomputation.
Skip recompute_of(const MeasuredRun& row, const FrameworkDefaults& defaults,
                  const Framework& framework, ParallelPlan& plan, Notes& inferred) {
  plan.recompute = defaults.recompute;
  if (row.recompute.empty()) {
    inferred.push_back(fmt::format("recompute {}", name_of(plan.recompute)));
  } else {
    const Result<Recompute> parsed = parse_recompute(row.recompute, "recompute");
    if (!parsed) return fmt::format("unknown recompute {}", in_quotes(row.recompute));
    plan.recompute = *parsed;
  }
  const auto modules = framework.recompute_modules.empty() ? std::nullopt : recomputed_modules(row);
  if (modules && plan.recompute == Recompute::selective) plan.recompute_modules = *modules;
  const bool attention_only =
      modules || says(row.recompute_detail, "core") || row.recompute_detail == "selective";
  if (plan.recompute == Recompute::selective && !row.recompute.empty() && !attention_only) {
    inferred.push_back(fmt::format("{} taken for recomputing the attention core",
                                   in_quotes(row.recompute_detail)));
  }
  plan.recompute_layers.assign(static_cast<std::size_t>(plan.pp), 0);
  if (plan.recompute != Recompute::full) return {};
  const std::optional<int> block = recomputed_layers(row.recompute_detail);
  for (std::size_t stage = 0; stage < plan.recompute_layers.size(); ++stage) {
    const int layers = plan.layers_per_stage[stage];
    plan.recompute_layers[stage] = block ? std::min(layers, *block * plan.vpp) : layers;
  }
  return {};
}

/// Number of a run in the cluster's queue, if its locator gives it.
std::optional<std::int64_t> job_of(const MeasuredRun& row) {
  constexpr std::string_view kJob = "job_id=";
  const std::size_t at = row.locator.find(kJob);
  if (at == std::string::npos) return std::nullopt;
  const std::string_view rest = std::string_view(row.locator).substr(at + kJob.size());
  std::int64_t number = 0;
  if (std::from_chars(rest.data(), rest.data() + rest.size(), number).ec != std::errc()) return {};
  return number;
}

/// The passes whose collectives keep their tensors, in the revision that ran the row's job. Without
/// a pipeline there is no backward before the forward of a single microbatch.
void set_held_collectives(const MeasuredRun& row, const FrameworkDefaults& defaults, int pp,
                          Framework& framework) {
  const std::optional<std::int64_t> job = job_of(row);
  Revision revision = defaults.revisions.front();
  for (const Revision& later : defaults.revisions) {
    if (!job || later.first_job <= *job) revision = later;
  }
  if (pp > 1) {
    framework.pending_collective_buffers *= revision.held_with_pipeline;
    return;
  }
  const int passes = row.grad_accumulation.value_or(2) > 1 ? 2 : 1;
  framework.pending_collective_buffers *= std::min(passes, revision.held_without_pipeline);
  framework.pending_after = 0;
}

/// Ranks that split the state.
void set_shard_group(const MeasuredRun& row, const Framework& framework, ParallelPlan& plan,
                     Notes& inferred) {
  const int data = plan.dp * plan.cp;
  plan.shard_group = data;
  if (plan.zero == 0 || !row.shard_group || data % *row.shard_group != 0) return;
  const int group = static_cast<int>(*row.shard_group);
  if (group == plan.dp && plan.cp > 1 && framework.shards_over_dp_cp) {
    inferred.push_back(fmt::format("states split over dp x cp = {} ranks", data));
    return;
  }
  plan.shard_group = group;
}

/// A run is proof that its software can do what it did.
void grant_features(const MeasuredRun& row, Framework& framework, ParallelPlan& plan) {
  framework.rules = {};
  framework.any_layout = true;
  framework.counts_recomputed = framework.counts_recomputed_in_pipeline = true;
  framework.stage_layers = StageLayers::chosen;
  framework.experts_need_sequence_parallel = framework.context_needs_flash = false;
  framework.tensor_parallel = framework.tensor_parallel || plan.tp > 1;
  framework.pipeline_parallel = framework.pipeline_parallel || plan.pp > 1;
  framework.zero3_with_experts = framework.zero3_with_experts || plan.ep > 1;
  framework.zero_allowed[plan.zero] = framework.hybrid_shard[plan.zero] = true;
  if (plan.cp > 1) framework.cp_ring = true;
  if (plan.ep > 1 || plan.etp > 1) {
    framework.expert_parallel = true;
    framework.overlaps_experts = framework.overlaps_shared_experts = true;
    framework.dispatchers[static_cast<std::size_t>(plan.dispatcher)] = true;
    if (plan.tp > 1 && !row.sequence_parallel) plan.sequence_parallel = true;
  }
  if (plan.zero >= 2 && plan.pp > 1) framework.zero23_with_pipeline = true;
  if (plan.sequence_parallel) framework.sequence_parallel = true;
  if (plan.tp > 1 && !plan.sequence_parallel) framework.sequence_parallel_always = false;
  if (plan.vpp > 1) framework.interleaved = true;
  if (row.task.starts_with(kAdapters)) {
    if (framework.trains_adapters.empty()) framework.trains_adapters = "the software of the run";
    framework.adapts_dense_alone = false;
    framework.replicates_adapters = false;  // the way of our runtime, of which no row is a run
  }
  if (plan.schedule == ScheduleKind::zero_bubble_h1) framework.zero_bubble = true;
}

/// How the software runs its kernels: as CUDA graphs, fused or one by one.
void set_kernels(const MeasuredRun& row, Framework& framework) {
  const HostShares shares = host_shares(row);
  framework.host_share = shares.layer;
  framework.host_experts_share = shares.experts;
  framework.host_products_share = shares.products;
  framework.fused_experts = shares.products == 0;
  framework.captures_layers = shares.products > 0 && shares.experts < 1;
  if (row.torch_compile.value_or(false)) framework.saves_gate_output = false;  // one fused kernel
  if (row.torch_compile.has_value() && !*row.torch_compile) {
    framework.pointwise_passes = framework.eager_passes;
  }
}

bool overlaps_tp(const MeasuredRun& row) {
  const auto said = [](const std::string& text) {
    return states(text, {"tp comm overlap", "tp communication overlap", "overlap tp comm",
                         "tp and pp communication overlap", "async tp", "asynctp"});
  };
  return said(row.overlap_detail) || said(row.framework_detail) || said(row.notes);
}

/// Step 5: what is sharded and what overlaps. A feature the run used is one its framework has.
void set_sharding(const MeasuredRun& row, const FrameworkDefaults& defaults, Framework& framework,
                  ParallelPlan& plan, Notes& inferred) {
  plan.zero = std::min(whole(row.zero, defaults.zero), 3);
  if (!row.zero && plan.dp > 1) inferred.push_back(fmt::format("ZeRO-{}", plan.zero));
  set_shard_group(row, framework, plan, inferred);
  plan.sequence_parallel =
      plan.tp > 1 && row.sequence_parallel.value_or(framework.sequence_parallel_always);
  if (!row.sequence_parallel && plan.tp > 1) {
    inferred.push_back(plan.sequence_parallel ? "sequence parallelism" : "no sequence parallelism");
  }
  plan.overlap_dp =
      framework.overlaps_dp && !says(row.overlap_detail, "not overlapped") &&
      !denies(row.overlap_detail + ";" + row.notes, {"overlap grad reduce", "grad reduce overlap",
                                                     "grad reduce p2p overlap", "overlap comm"});
  plan.overlap_tp = overlaps_tp(row);
  if (!defaults.revisions.empty()) set_held_collectives(row, defaults, plan.pp, framework);
  plan.overlap_pp = states(row.overlap_detail, {"pp communication overlap", "pp comm overlap",
                                                "p2p overlap", "overlap p2p"});
  set_kernels(row, framework);
  set_loss_memory(row, defaults, plan.tp, framework, inferred);
  if (plan.ep > 1) {
    plan.dispatcher = dispatcher_of(row);
    plan.overlap_ep = overlaps_experts(row) && plan.recompute != Recompute::full;
    plan.overlap_shared = plan.dispatcher == Dispatcher::alltoall && !plan.overlap_ep &&
                          states(row.overlap_detail, {"shared expert overlap"});
  }
  framework.overlaps_every_message = framework.overlaps_every_message || plan.overlap_pp;
  grant_features(row, framework, plan);
  if (says(row.overlap_detail, "overlapped)") && !says(row.overlap_detail, "not overlapped")) {
    framework.overlaps_dp = plan.overlap_dp = true;
  }
}

}  // namespace

std::vector<int> ends_hold_fewer_layers(int layers, int pp, int vpp) {
  const std::int64_t chunks = std::int64_t{pp} * vpp;
  if (pp == 1 || layers % chunks == 0 || (layers + 2) % chunks != 0) {
    return balanced_layers(layers, pp);
  }
  std::vector<int> stages(static_cast<std::size_t>(pp), (layers + 2) / pp);
  --stages.front();
  --stages.back();
  return stages;
}

Result<ClusterTopology> RunMapper::cluster(const MeasuredRun& row, std::int64_t gpus,
                                           Notes& inferred) {
  const std::string key = cluster_key(row, gpus);
  auto known = clusters_.find(key);
  if (known == clusters_.end()) {
    Notes notes;
    Result<ClusterTopology> built = cluster_of(row, gpus, notes);
    if (!built) return built;
    known = clusters_.emplace(key, KnownCluster{*std::move(built), std::move(notes)}).first;
  }
  inferred.insert(inferred.end(), known->second.inferred.begin(), known->second.inferred.end());
  return known->second.cluster;
}

std::variant<MappedRun, SkippedRun> RunMapper::map(const MeasuredRun& row) {
  if (!row.malformed.empty()) return SkippedRun{row.malformed};
  if (Skip skip = not_priced(row)) return SkippedRun{*std::move(skip)};
  if (Skip skip = nothing_measured(row)) return SkippedRun{*std::move(skip)};
  const Software software = software_of(row);
  const FrameworkDefaults& defaults = *software.defaults;
  Framework framework = *software.framework;  // with the features the run evidently used

  framework.loss_rows = loss_rows_of(row).value_or(framework.loss_rows);

  Notes inferred;
  std::string substitute;
  if (!defaults.same_code || software.related) {
    substitute = fmt::format("{} stands for {} ({})", framework.name, in_quotes(row.framework),
                             software.related ? "by its name" : defaults.why);
    inferred.push_back("framework " + substitute);
    framework.attention = AttentionKernels::as_fitted;
    framework.backward_by_kernels = false;
  }
  framework.attention = attention_kernels_of(row).value_or(framework.attention);
  const Result<ModelSpec> model = models_.model_of(row, software, inferred);
  if (!model) return SkippedRun{model.error().found};
  const ModelSpec& shapes = *model;

  ParallelPlan plan;
  TrainingJob job;
  job.sequence = whole(row.seq, 0);
  if (Skip skip = degrees_of(row, framework.experts_take_tp, plan, job.global_batch, inferred)) {
    return SkippedRun{*std::move(skip)};
  }
  if (Skip skip = pipeline_of(row, defaults, shapes, plan, inferred))
    return SkippedRun{*std::move(skip)};
  if (Skip skip = recompute_of(row, defaults, framework, plan, inferred))
    return SkippedRun{*std::move(skip)};
  set_sharding(row, defaults, framework, plan, inferred);
  framework.accumulates_whole =
      defaults.accumulates_whole && job.global_batch > std::int64_t{plan.microbatch} * plan.dp;

  const Result<PrecisionRecipe> recipe = recipe_of(row, software);
  if (!recipe) return SkippedRun{recipe.error().found + " is not priced"};
  if (software.framework->wraps_transformers) job.layer_code = layer_code_of(row);
  if (job.layer_code != LayerCode::fused) framework.pointwise_passes = 1;
  if (row.precision.empty()) inferred.push_back(fmt::format("precision {}", recipe->name));
  if (row.precision == "mxfp8") inferred.push_back("mxfp8 priced as fp8");

  const Result<ClusterTopology> machine = cluster(row, plan.gpus(), inferred);
  if (!machine) {
    Error error = machine.error();
    error.where = "the machine";
    return SkippedRun{error.message()};
  }
  job.precision = with_states(*recipe, row, software, shapes, machine->gpu(), inferred);
  if (machine->gpu().peak(job.precision.compute) <= FlopsPerSecond{}) {
    return SkippedRun{fmt::format("{} has no {} units", row.gpu, name_of(job.precision.compute))};
  }
  // A run that states its attention proves that its software has it.
  job.flash_attention = row.flash_attention.value_or(
      defaults.flash_attention &&
      why_no_flash(framework, machine->gpu().compute_capability, job.precision.compute, shapes)
          .empty());
  if (!row.flash_attention) {
    inferred.push_back(job.flash_attention ? "flash attention" : "no flash attention");
  }
  if (row.task.starts_with(kAdapters)) {
    const std::string_view stated = std::string_view(row.task).substr(kAdapters.size() + 1);
    const std::size_t blank = stated.find(' ');
    const Result<Adapters> adapters =
        parse_adapters(stated.substr(0, blank), "task", usual_targets(shapes));
    if (!adapters) return SkippedRun{adapters.error().message()};
    job.adapters = *adapters;
    if (blank != std::string_view::npos) {
      const Result<QuantizedWeights> kept =
          parse_quantized_weights(stated.substr(blank + 1), "task");
      if (!kept) return SkippedRun{kept.error().message()};
      job.quantized_weights = *kept;
      // The run is proof that its software keeps them so.
      if (framework.quantizes_weights.empty()) {
        framework.quantizes_weights = "the software of the run";
      }
      if (kept->fp32_states()) framework.casts_parameters = false;
    }
  }
  // A run is proof that its software gives a stage no layer when it holds the embedding or the
  // head, and that it splits the experts' states otherwise than dense ones.
  const auto rejected = check_plan(shapes, job, *machine, framework, plan);
  if (rejected && rejected->reason != RejectionReason::too_few_layers &&
      rejected->reason != RejectionReason::shard_group) {
    return SkippedRun{"not a plan we price: " + rejected->detail};
  }
  return MappedRun{shapes, job, *machine, framework, plan, inferred, substitute};
}

}  // namespace echelon
