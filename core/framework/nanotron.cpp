// nanotron, and how the published runs of its sweeps (tests/validation/runs.csv) were recorded.
#include <array>
#include <string>

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

constexpr std::array kNanotronRules = {
    FrameworkRule{RulePart::degrees, replicates_kv_heads,
                  "copies of a key/value head on several tensor-parallel ranks",
                  "nanotron 2411b02, src/nanotron/models/llama.py:352"},
};

constexpr std::array kNanotronRemarks = {
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
