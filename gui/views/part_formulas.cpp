#include "gui/views/part_formulas.hpp"

#include <algorithm>
#include <span>

namespace echelon::gui {
namespace {

constexpr PartFormula kMemoryNotes[] = {
    {"weights",
     "Parameters of the rank times the bytes per weight, sharded over the ZeRO group at ZeRO 3.",
     "ZeRO, arXiv 1910.02054 section 3"},
    {"gradients",
     "Parameters of the rank times the bytes per gradient, sharded over the ZeRO group from ZeRO "
     "2.",
     "ZeRO, arXiv 1910.02054 section 3"},
    {"optimizer",
     "Master weights and two moments per parameter, sharded over the ZeRO group from ZeRO 1.",
     "ZeRO, arXiv 1910.02054 section 3"},
    {"activations",
     "Activations saved for the backward pass, times the microbatches in flight on the stage.",
     "Korthikanti et al., arXiv 2205.05198 section 4; Megatron-LM schedules.py"},
    {"workspace",
     "The largest gradients of a single operator, and the workspace of matrix products.",
     "FlashAttention-2; Megatron-Core tensor_parallel/layers.py"},
    {"communication",
     "Buffers of all-gathers and gradient buckets, and NCCL buffers per communicator.",
     "PyTorch FSDP limits; calibration field nccl_per_communicator"},
    {"CUDA context", "CUDA context and loaded libraries, the same on every GPU.",
     "calibration field, measured"},
    {"reserve",
     "Fragmentation: memory the caching allocator reserves beyond activations, workspace, buffers.",
     "calibration field allocator_reserve, from published peaks"},
};

constexpr PartFormula kTimeNotes[] = {
    {"compute",
     "Forward and backward kernels: a matrix product takes max(2mnk / (peak x efficiency), "
     "bytes / bandwidth).",
     "roofline with wave quantisation, costmodel/time/rates.cpp"},
    {"recompute",
     "Forward passes repeated in the backward pass, because their activations were not kept.",
     "Korthikanti et al., arXiv 2205.05198 section 5"},
    {"tp communication",
     "Tensor-parallel collectives on the critical path: (n - 1)/n x bytes / bandwidth per "
     "all-gather or reduce-scatter.",
     "nccl-tests PERFORMANCE.md; Megatron-Core tensor_parallel/layers.py"},
    {"cp communication",
     "Keys and values sent around a ring, or all-to-alls of heads, minus the overlap with "
     "attention.",
     "Ring Attention, arXiv 2310.01889; DeepSpeed-Ulysses, arXiv 2309.14509"},
    {"ep communication", "Two all-to-alls of the tokens per MoE layer and pass.",
     "Megatron-Core MoE; injection bound"},
    {"pp communication", "Exposed send/recv between pipeline stages.",
     "Narayanan et al., arXiv 2104.04473 section 2.2"},
    {"dp communication",
     "Gradient reductions and parameter all-gathers, minus the overlap with the last backward and "
     "the first forward passes.",
     "ZeRO, arXiv 1910.02054; Megatron-Core buckets"},
    {"pipeline fill/drain", "Pipeline fill and drain: with equal stages (p - 1)/(v m) of the work.",
     "Narayanan et al., arXiv 2104.04473 section 2.2"},
    {"stage imbalance",
     "Waiting for slower stages; in 1F1B (m - 1) x (slowest - own time per microbatch).",
     "costmodel/time/pipeline.hpp, stage by stage"},
    {"slowest node",
     "Waiting for the slowest of many nodes: straggler_per_doubling x log2(nodes) of the step.",
     "published runs, calibration field straggler_per_doubling"},
    {"optimizer", "Bytes of states, gradients and weights read and written / memory bandwidth.",
     "SimuMax; Megatron-Core DistributedOptimizer"},
    {"host",
     "Waiting for kernel launches by the host and for activations in its memory, and fixed work "
     "per step.",
     "published runs, calibration fields host_layer_forward and step_fixed"},
    {"data", "max(0, t_load − step): the next step's tokens are read while a step runs.",
     "CostModel::data_loading; storage of the cluster's description"},
};

const PartFormula* find_note(std::span<const PartFormula> notes, std::string_view part) {
  const auto found = std::ranges::find(notes, part, &PartFormula::part);
  return found == notes.end() ? nullptr : &*found;
}

}  // namespace

const PartFormula* memory_formula(std::string_view part) { return find_note(kMemoryNotes, part); }
const PartFormula* time_formula(std::string_view part) { return find_note(kTimeNotes, part); }

}  // namespace echelon::gui
