// nanotron, and how the published runs of its sweeps (tests/validation/runs.csv) were recorded.
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/framework/model_features.hpp"
#include "core/framework/tables.hpp"

namespace echelon {

namespace {

/// The first sweep of runs without a pipeline ends before job 14,017,000; from job 14,097,148 on,
/// the row with after_pp_fix=True, pipelines are fixed. The earliest runs, without a pipeline, kept
/// the inputs of a forward's collectives and those of the backward before it; later ones nothing,
/// until the fix of the pipelines let the host run ahead again.
constexpr std::array kNanotronRevisions = {
    Revision{.first_job = 0, .held_without_pipeline = 2},
    Revision{.first_job = 14'017'000},
    Revision{.first_job = 14'097'148, .held_with_pipeline = 1},
};

constexpr SweepBounds kNanotronBounds{
    .gpu_memory = 80_GiB,  // H100
    // nanotron's own count: 27 h + 7.25 f bytes per layer and token over tp, logits of 10 bytes on
    // a single stage, two gather buffers.
    .bytes_per_hidden = 27,
    .bytes_per_ffn = 7.25,
    .bytes_per_logit = 10,
    .bytes_per_gathered = 4,
    .rate = FlopsPerSecond{0.3 * 989e12},  // three tenths of an H100's dense bf16 peak
    .layer = Seconds{4.6e-3},
    .collectives = 10,
    .hop = Seconds{0.045e-3},
    .slow_hop = Seconds{0.4e-3},
};

constexpr std::array kNanotronDefaults = {
    FrameworkDefaults{.software = "nanotron",
                      .why = "the same software",
                      .zero = 1,
                      .split = StageSplit::by_cost,
                      .tie_stays = "after_pp_fix=False",
                      .revisions = kNanotronRevisions,
                      .memory_of_first_rank = true,
                      .grade_c_memory_is_sound = true,
                      .bounds = &kNanotronBounds},
};

constexpr std::string_view kNanotronModels =
    "nanotron 2411b02, src/nanotron/trainer.py:111: Llama, Qwen2 and StarCoder2";
constexpr std::string_view kNanotronRouter = "nanotron 2411b02, src/nanotron/nn/moe.py:54";
constexpr std::string_view kNanotronAttention =
    "nanotron 2411b02, src/nanotron/models/llama.py:341 and qwen.py:161";

constexpr std::array kNanotronRules = {
    FrameworkRule{RulePart::degrees, in_model<has_state_spaces>,
                  "layers with state spaces (Mamba-2)", kNanotronModels},
    FrameworkRule{RulePart::degrees, in_model<has_delta_nets>, "gated delta nets", kNanotronModels},
    FrameworkRule{RulePart::degrees, in_model<has_latent_attention>, "latent attention",
                  kNanotronModels},
    FrameworkRule{RulePart::degrees, in_model<has_sinks>, "attention sinks", kNanotronAttention},
    FrameworkRule{RulePart::degrees,
                  [](const ModelSpec& m, const ParallelPlan&) {
                    return has_windows(m) && m.windowed_layers < m.layers;
                  },
                  "windows in some of the layers: sliding_window_size is of all",
                  "nanotron 2411b02, src/nanotron/config/models_config.py, Qwen2Config"},
    FrameworkRule{RulePart::degrees,
                  [](const ModelSpec& m, const ParallelPlan&) {
                    return m.qk_norm || m.qk_norm_all_heads || m.attention_output_gate;
                  },
                  "norms of queries and keys, or a gate of attention's output", kNanotronAttention},
    FrameworkRule{RulePart::degrees,
                  [](const ModelSpec& m, const ParallelPlan&) {
                    return std::int64_t{m.heads} * m.head_dim != m.hidden;
                  },
                  "heads that are not hidden / heads wide", kNanotronAttention},
    FrameworkRule{RulePart::degrees,
                  [](const ModelSpec& m, const ParallelPlan&) {
                    return m.post_norms || m.parallel_block || m.embedding_norm ||
                           has_other_positions(m);
                  },
                  "blocks but those with one norm before attention, one before the MLP, and rotary "
                  "positions",
                  kNanotronModels},
    FrameworkRule{RulePart::degrees, in_model<has_other_router>,
                  "routers with sigmoid scores, groups, a scaling or a correction",
                  kNanotronRouter},
    FrameworkRule{RulePart::degrees, in_model<has_latent_experts>, "experts on a latent",
                  kNanotronRouter},
    FrameworkRule{RulePart::degrees,
                  [](const ModelSpec& m, const ParallelPlan&) {
                    return has_shared_experts(m) && !has_gated_shared_experts(m);
                  },
                  "shared experts without a gate", "nanotron 2411b02, src/nanotron/nn/moe.py:132"},
    FrameworkRule{RulePart::degrees, replicates_kv_heads,
                  "copies of a key/value head on several tensor-parallel ranks",
                  "nanotron 2411b02, src/nanotron/models/llama.py:352"},
};

constexpr std::array kNanotronRemarks = {
    RemarkRule{RemarkKind::warns,
               [](const ModelSpec& m, const ParallelPlan&) -> std::string {
                 if (m.moe.experts == 0 || !m.moe.router_normalized) return {};
                 return "the weights of a token's experts are not divided by their sum, as this "
                        "model's are";
               },
               kNanotronRouter},
    RemarkRule{RemarkKind::needs,
               [](const ModelSpec&, const ParallelPlan& p) -> std::string {
                 if (p.pp == 1 || p.schedule == ScheduleKind::gpipe) return {};
                 return "parallelism.pp_engine: 1f1b (default: all forwards first)";
               },
               "nanotron 2411b02, src/nanotron/config/parallelism_config.py:44"},
    RemarkRule{RemarkKind::needs,
               [](const ModelSpec&, const ParallelPlan& p) -> std::string {
                 if (!p.sequence_parallel) return {};
                 return "parallelism.tp_mode: REDUCE_SCATTER (default: ALL_REDUCE)";
               },
               "nanotron 2411b02, src/nanotron/config/parallelism_config.py:46"},
};

}  // namespace

Framework nanotron() {
  Framework f;
  f.name = "nanotron";
  f.source =
      "nanotron: bf16 gradients beside an fp32 accumulator (20 bytes per parameter), "
      "ZeRO-0/1, sequence parallel whenever tp > 1, gradients reduced beside the backward at "
      "ZeRO-0 alone, parameter gather not overlapped, no interleaving";
  f.default_precision = "bf16:nanotron";
  f.zero_allowed[2] = f.zero_allowed[3] = false;
  f.sequence_parallel_always = true;
  f.interleaved = false;
  // src/nanotron/models/llama.py:290, CoreAttention: flash_attn_varlen_func alone
  f.materialised_attention = false;
  f.packed_documents = true;  // _use_doc_masking (Qwen2Config): position ids give cu_seqlens
  f.stage_layers = StageLayers::by_cost;  // src/nanotron/models/base.py:216, build_model
  // trainer.py, make_ddp: only ZeRO-0 wraps the model in DDP, whose hook reduces fp32 gradients
  // during the backward; with ZeRO-1 sync_gradients_across_dp follows it.
  f.reduces_in_ddp = true;
  f.overlaps_gather = false;
  f.overlaps_tp_backward = false;
  f.counts_recomputed = false;  // config/parallelism_config.py:35, recompute_layer: of every block
  f.gather_buffers = 2;
  f.zero1_gather_local = 2;
  f.zero1_gather_shard = 2;
  // fp32 copy, its shifted copy that becomes the softmax, the bf16 logits
  f.logits_bytes = 10;
  f.saves_gate_output = true;       // GLUActivation: act(gate) * up
  f.reduces_own_gradients = false;  // DDP's 16-bit buckets exist only for dp > 1
  // differentiable_reduce_scatter_sum: its full-sequence input goes to NCCL's stream, twice a
  // layer, and PyTorch returns the block when that stream has passed it
  f.pending_collective_buffers = 2;
  // The host runs ahead while the pipeline fills, except for the microbatch it hands over and the
  // one whose gradient it waits for, until the queue of kernel launches is full: 41 to 46
  // tensors in the published peaks at tp 16, whatever the model, its depth and the microbatch.
  f.pending_after = 2;
  f.pending_at_most = 45;
  f.defaults = kNanotronDefaults;
  f.rules = kNanotronRules;
  f.remark_rules = kNanotronRemarks;
  return f;
}

}  // namespace echelon
