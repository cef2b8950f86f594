#include "planner/run_mapping.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include "core/model_io.hpp"
#include "planner/legality.hpp"
#include "planner/run_cluster.hpp"
#include "planner/run_habits.hpp"

namespace echelon {

namespace {

constexpr std::int64_t kMostLayers = 100'000;
constexpr int kMostStages = 4096;
constexpr std::int64_t kMostGpus = 10'000'000;
constexpr int kGptVocabulary = 50'257;  ///< GPT-2's byte pair encoding, Megatron-LM's default

using Skip = std::optional<std::string>;  ///< a reason not to predict the row
using Notes = std::vector<std::string>;   ///< what was inferred

int whole(const WholeCell& cell, int otherwise) {
  return cell ? static_cast<int>(*cell) : otherwise;
}

bool says(std::string_view text, std::string_view words) {
  return text.find(words) != std::string_view::npos;
}

/// Features of a run that this version of the cost model does not price.
Skip not_priced(const RunRow& row) {
  if (row.attention == "mla") return "the table does not give the widths of latent attention";
  if (row.attention == "other") {
    return fmt::format("attention '{}' is not priced", row.attention_detail.substr(0, 60));
  }
  if (row.schedule.starts_with("zb-")) {
    return fmt::format("schedule {} is not priced", row.schedule.substr(0, 20));
  }
  if (!row.offload.empty() && row.offload != "none") return "offloading is not priced";
  if (row.task == "lora") return "training of adapters (lora) is not priced";
  if (row.precision == "nvfp4") return "precision nvfp4 is not priced";
  if (row.stack == "torchtune" && whole(row.gpus, 0) == 1) {
    return "torchtune's single-GPU optimizers (8-bit, paged, in the backward pass) are not priced";
  }
  return {};
}

Skip nothing_measured(const RunRow& row) {
  if (row.step_seconds || row.peak_memory_bytes || row.out_of_memory()) return {};
  return "nothing to compare with: no step time, no memory figure, not an out-of-memory run";
}

/// Step 1: the model from its shapes.
std::variant<ModelSpec, SkippedRun> model_of(const RunRow& row, const RunHabits& habits,
                                             Notes& inferred) {
  std::string missing;
  const auto need = [&](const WholeCell& cell, std::string_view name) {
    if (!cell) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", name);
    return whole(cell, 0);
  };
  const bool megatron = habits.stack == "megatron-2021";
  ModelSpec model;
  model.name = row.model.empty() ? "the model of " + row.row_id : row.model;
  model.architecture = "table row";
  model.source = row.source;
  model.layers = need(row.layers, "layers");
  model.hidden = need(row.hidden, "hidden");
  model.heads = need(row.heads, "heads");
  const bool gated = row.gated_mlp.value_or(true);
  const bool gpt = row.gated_mlp && !*row.gated_mlp;
  const bool mixture = whole(row.experts, 1) > 1;
  if (mixture) {
    model.moe.experts = whole(row.experts, 0);
    model.moe.experts_per_token = need(row.experts_per_token, "experts_per_token");
    model.moe.expert_ffn_hidden = need(row.expert_ffn_hidden, "expert_ffn_hidden");
    model.moe.shared_ffn_hidden = whole(row.shared_expert_ffn_hidden, 0);
    model.moe.first_dense_layers = whole(row.first_dense_layers, 0);
  }
  if (mixture && !row.ffn_hidden && model.moe.first_dense_layers == 0) {
    model.ffn_hidden = std::max(1, model.moe.expert_ffn_hidden);  // no layer uses it
  } else if (!row.ffn_hidden && gpt && row.hidden) {
    model.ffn_hidden = 4 * model.hidden;
    inferred.push_back("an MLP of 4 x hidden");
  } else {
    model.ffn_hidden = need(row.ffn_hidden, "ffn_hidden");
  }
  if (!row.vocab && megatron) {
    model.vocab = kGptVocabulary;
    inferred.push_back(fmt::format("a vocabulary of {}", kGptVocabulary));
  } else {
    model.vocab = need(row.vocab, "vocab");
  }
  model.max_positions = need(row.seq, "seq");
  if (!missing.empty()) return SkippedRun{"the source does not say: " + missing};

  if (!row.kv_heads && row.attention != "mha") inferred.push_back("kv_heads = heads");
  model.kv_heads = whole(row.kv_heads, model.heads);
  if (!row.head_dim && model.hidden % model.heads != 0) {
    return SkippedRun{fmt::format("{} heads do not divide hidden {} and head_dim is blank",
                                  model.heads, model.hidden)};
  }
  model.head_dim = whole(row.head_dim, model.hidden / model.heads);
  if (!row.gated_mlp) inferred.push_back("a gated MLP");
  if (!row.tied_embeddings) inferred.push_back(gated ? "an untied head" : "a tied head");
  model.gated_mlp = gated;
  model.tied_embeddings = row.tied_embeddings.value_or(!gated);
  model.activation = gated ? Activation::silu : Activation::gelu;
  model.normalization = gated ? Normalization::rms_norm : Normalization::layer_norm;
  const bool alibi = says(row.attention_detail, "ALiBi");
  model.position = gated   ? PositionEmbedding::rope
                   : alibi ? PositionEmbedding::alibi
                           : PositionEmbedding::learned;
  model.qkv_bias = model.attention_output_bias = model.mlp_bias = !gated;
  model.hidden_dropout = model.attention_dropout = gated ? 0 : habits.dropout;
  const Status sound = check_model(model, "row");
  if (model.layers > kMostLayers) return SkippedRun{"more than 100,000 layers"};
  if (!sound) return SkippedRun{"shapes that contradict each other: " + sound.error().found};
  return model;
}

/// Step 2: degrees and batch. Blanks that follow from the others are arithmetic, not guesses.
Skip degrees_of(const RunRow& row, ParallelPlan& plan, std::int64_t& global_batch,
                Notes& inferred) {
  if (!row.tp || !row.pp) return "the source does not say tp or pp";
  plan.tp = whole(row.tp, 1);
  plan.pp = whole(row.pp, 1);
  plan.cp = whole(row.cp, 1);
  plan.ep = whole(row.ep, 1);
  // Megatron takes tp for the experts, too, when nothing is said (--expert-tensor-parallel-size).
  plan.etp = whole(row.experts, 1) > 1 ? whole(row.etp, 1) : 1;
  if (!row.etp && plan.ep > 1 && plan.tp > 1) inferred.push_back("etp 1");
  const std::int64_t cut = std::int64_t{plan.tp} * plan.cp * plan.pp;
  std::int64_t dp = whole(row.dp, 0);
  if (!row.dp && !row.gpus) return "the source does not say how many GPUs";
  if (!row.dp) dp = *row.gpus / cut;
  const std::int64_t gpus = row.gpus.value_or(cut * std::min(dp, kMostGpus));
  if (gpus > kMostGpus || cut > kMostGpus || dp < 1 || cut * dp != gpus) {
    return fmt::format("tp {} x cp {} x pp {} x dp {} is not {} GPUs", plan.tp, plan.cp, plan.pp,
                       dp, gpus);
  }
  plan.dp = static_cast<int>(dp);

  const WholeCell& steps = row.grad_accumulation;
  std::int64_t microbatch = whole(row.microbatch, 0);
  global_batch = whole(row.global_batch, 0);
  if (!row.microbatch && row.global_batch && steps && global_batch % (dp * *steps) == 0) {
    microbatch = global_batch / (dp * *steps);
  }
  if (microbatch < 1) return "the source does not say the microbatch";
  if (!row.global_batch) {
    if (row.step_seconds && !steps) return "the source does not say the global batch";
    const std::int64_t least = plan.pp;  // what fills the pipeline: enough for the peak of memory
    if (!steps) inferred.push_back(fmt::format("{} microbatches per step", least));
    global_batch = microbatch * dp * steps.value_or(least);
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
Skip pipeline_of(const RunRow& row, const RunHabits& habits, const ModelSpec& model,
                 ParallelPlan& plan) {
  plan.vpp = whole(row.vpp, 1);
  if (row.schedule == "interleaved" && !row.vpp) {
    return "the source does not say into how many chunks the stages are interleaved";
  }
  plan.schedule = plan.vpp > 1 ? ScheduleKind::interleaved : ScheduleKind::one_f_one_b;
  if (row.schedule == "gpipe") plan.schedule = ScheduleKind::gpipe;
  const bool known = row.schedule.empty() || row.schedule == "gpipe" || row.schedule == "1f1b" ||
                     row.schedule == "interleaved";
  if (!known) return fmt::format("unknown schedule '{}'", row.schedule.substr(0, 40));
  // nanotron leaves late stages empty; Megatron's forks the first and the last.
  const int most_stages = habits.stack == "nanotron" ? kMostStages : model.layers + 2;
  if (plan.pp > most_stages) {
    return fmt::format("{} layers on {} pipeline stages", model.layers, plan.pp);
  }
  if (habits.stack == "nanotron") {
    const bool old = says(row.notes, "after_pp_fix=False");
    plan.layers_per_stage = nanotron_layers(model, plan.pp, old);
  } else if (habits.ends_hold_fewer) {
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
Skip recompute_of(const RunRow& row, const RunHabits& habits, ParallelPlan& plan, Notes& inferred) {
  plan.recompute = habits.recompute;
  if (row.recompute.empty()) {
    inferred.push_back(fmt::format("recompute {}", name_of(plan.recompute)));
  } else {
    const Result<Recompute> parsed = parse_recompute(row.recompute, "recompute");
    if (!parsed) return fmt::format("unknown recompute '{}'", row.recompute.substr(0, 40));
    plan.recompute = *parsed;
  }
  const bool attention_only =
      says(row.recompute_detail, "core") || row.recompute_detail == "selective";
  if (plan.recompute == Recompute::selective && !row.recompute.empty() && !attention_only) {
    inferred.push_back(fmt::format("'{}' taken for recomputing the attention core",
                                   row.recompute_detail.substr(0, 60)));
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

/// Step 5: what is sharded and what overlaps. A feature the run used is one its stack has.
void sharding_of(const RunRow& row, const RunHabits& habits, Stack& stack, ParallelPlan& plan,
                 Notes& inferred) {
  plan.zero = std::min(whole(row.zero, habits.zero), 3);
  if (!row.zero && plan.dp > 1) inferred.push_back(fmt::format("ZeRO-{}", plan.zero));
  plan.shard_group = plan.dp * plan.cp;
  if (plan.zero > 0 && row.shard_group && plan.dp * plan.cp % *row.shard_group == 0) {
    plan.shard_group = static_cast<int>(*row.shard_group);
  }
  plan.sequence_parallel =
      plan.tp > 1 && row.sequence_parallel.value_or(stack.sequence_parallel_always);
  if (!row.sequence_parallel && plan.tp > 1) {
    inferred.push_back(plan.sequence_parallel ? "sequence parallelism" : "no sequence parallelism");
  }
  plan.overlap_dp = stack.overlaps_dp && !says(row.overlap_detail, "not overlapped");
  plan.overlap_tp = says(row.overlap_detail, "TP comm overlap") ||
                    says(row.overlap_detail, "TP and PP communication overlap");
  plan.overlap_pp = says(row.overlap_detail, "PP communication overlap");

  const bool flex = says(row.overlap_detail, "dispatcher=") || says(row.overlap_detail, "HybridEP");
  stack.dispatches_per_domain = stack.dispatches_per_domain || flex;
  stack.overlaps_experts = says(row.overlap_detail, "a2a_overlap") ||
                           says(row.overlap_detail, "EP overlap on") ||
                           says(row.overlap_detail, "EP comm overlap on");
  stack.zero_allowed[plan.zero] = true;
  if (plan.cp > 1) stack.cp_ring = true;
  if (plan.ep > 1 || plan.etp > 1) {
    stack.expert_parallel = true;
    if (plan.tp > 1 && !row.sequence_parallel) plan.sequence_parallel = true;
  }
  if (plan.zero >= 2 && plan.pp > 1) stack.zero23_with_pipeline = true;
  if (plan.sequence_parallel) stack.sequence_parallel = true;
  if (plan.tp > 1 && !plan.sequence_parallel) stack.sequence_parallel_always = false;
  if (plan.vpp > 1) stack.interleaved = true;
  if (says(row.overlap_detail, "overlapped)") && !says(row.overlap_detail, "not overlapped")) {
    stack.overlaps_dp = plan.overlap_dp = true;
  }
}

}  // namespace

std::vector<int> nanotron_layers(const ModelSpec& model, int pp, bool tie_stays) {
  const double hidden = model.hidden;
  const double layer = 4 * hidden * hidden + 3 * hidden * model.ffn_hidden;
  const double total = model.layers * layer + hidden * model.vocab;
  std::vector<int> stages(static_cast<std::size_t>(pp), 0);
  std::size_t stage = 0;
  for (int i = 1; i <= model.layers; ++i) {
    ++stages[stage];
    const double threshold = total * (static_cast<double>(stage + 1) / pp);
    const double placed = i * layer;
    const bool full = tie_stays ? placed > threshold : placed >= threshold;
    if (full && stage + 1 < stages.size()) ++stage;
  }
  return stages;
}

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

Result<ClusterTopology> RunMapper::cluster(const RunRow& row, std::int64_t gpus, Notes& inferred) {
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

std::variant<MappedRun, SkippedRun> RunMapper::map(const RunRow& row) {
  if (!row.malformed.empty()) return SkippedRun{row.malformed};
  if (Skip skip = not_priced(row)) return SkippedRun{*std::move(skip)};
  if (Skip skip = nothing_measured(row)) return SkippedRun{*std::move(skip)};
  const Result<RunHabits> habits = habits_of(row);
  if (!habits) return SkippedRun{habits.error().found};
  Result<Stack> stack = find_stack(habits->stack);
  if (!stack) return SkippedRun{stack.error().found};

  Notes inferred;
  if (!habits->same_code) {
    inferred.push_back(fmt::format("stack {} ({})", habits->stack, habits->why));
  }
  auto model = model_of(row, *habits, inferred);
  if (auto* skipped = std::get_if<SkippedRun>(&model)) return std::move(*skipped);
  const ModelSpec& shapes = std::get<ModelSpec>(model);

  ParallelPlan plan;
  TrainingJob job;
  job.sequence = whole(row.seq, 0);
  if (Skip skip = degrees_of(row, plan, job.global_batch, inferred)) {
    return SkippedRun{*std::move(skip)};
  }
  if (Skip skip = pipeline_of(row, *habits, shapes, plan)) return SkippedRun{*std::move(skip)};
  if (Skip skip = recompute_of(row, *habits, plan, inferred)) return SkippedRun{*std::move(skip)};
  sharding_of(row, *habits, *stack, plan, inferred);

  const Result<PrecisionRecipe> recipe = recipe_of(row, *habits, *stack);
  if (!recipe) return SkippedRun{recipe.error().found + " is not priced"};
  job.precision = *recipe;
  job.flash_attention = row.flash_attention.value_or(habits->flash_attention);
  if (!row.flash_attention) {
    inferred.push_back(job.flash_attention ? "flash attention" : "no flash attention");
  }
  if (row.precision.empty()) inferred.push_back(fmt::format("precision {}", recipe->name));
  if (row.precision == "mxfp8") inferred.push_back("mxfp8 priced as fp8");

  const Result<ClusterTopology> machine = cluster(row, plan.gpus(), inferred);
  if (!machine) return SkippedRun{"the machine: " + machine.error().found};
  if (machine->gpu().peak(job.precision.compute) <= FlopsPerSecond{}) {
    return SkippedRun{fmt::format("{} has no {} units", row.gpu, name_of(job.precision.compute))};
  }
  // A run is proof that its software gives a stage no layer when it holds the embedding or the
  // head.
  const auto rejected = check_plan(shapes, job, *machine, *stack, plan);
  if (rejected && rejected->reason != RejectionReason::too_few_layers) {
    return SkippedRun{"not a plan we price: " + rejected->detail};
  }
  return MappedRun{shapes, job, *machine, *stack, plan, inferred};
}

}  // namespace echelon
