#include "gui/notes.hpp"

#include <algorithm>
#include <span>

namespace echelon::gui {
namespace {

constexpr PartNote kMemoryNotes[] = {
    {"weights",
     "Parameters of the rank times the recipe's bytes, split over the shard group at ZeRO 3.",
     "ZeRO, arXiv 1910.02054 section 3"},
    {"gradients",
     "Parameters of the rank times the bytes of a gradient, split over the shard group from ZeRO "
     "2.",
     "ZeRO, arXiv 1910.02054 section 3"},
    {"optimizer",
     "Master weights and two moments per parameter, split over the shard group from ZeRO 1.",
     "ZeRO, arXiv 1910.02054 section 3"},
    {"activations",
     "What every operator keeps for the backward, times the microbatches in flight on the stage.",
     "Korthikanti et al., arXiv 2205.05198 section 4; Megatron-LM schedules.py"},
    {"workspace",
     "The largest gradients of one running operator, and the workspace of matrix products.",
     "FlashAttention-2; Megatron-Core tensor_parallel/layers.py"},
    {"communication", "Buffers of gathers and gradient buckets, and NCCL's own per communicator.",
     "PyTorch FSDP limits; calibration field nccl_per_communicator"},
    {"CUDA context", "Context and loaded libraries, the same on every GPU.",
     "calibration field, measured"},
    {"reserve",
     "What the caching allocator keeps beside activations, workspace and buffers: their gaps.",
     "calibration field allocator_reserve, from published peaks"},
};

constexpr PartNote kTimeNotes[] = {
    {"compute",
     "Kernels of forward and backward: a matrix product takes max(2mnk / (peak x efficiency), "
     "bytes / bandwidth).",
     "roofline with wave quantisation, costmodel/time/rates.cpp"},
    {"recompute",
     "Forwards that run again in the backward, because their activations were dropped.",
     "Korthikanti et al., arXiv 2205.05198 section 5"},
    {"tp communication",
     "Tensor-parallel collectives the compute queue waits on: (n - 1)/n x bytes / bandwidth per "
     "gather or scatter.",
     "nccl-tests PERFORMANCE.md; Megatron-Core tensor_parallel/layers.py"},
    {"cp communication",
     "Keys and values round a ring, or all-to-alls of heads, less what attention hides.",
     "Ring Attention, arXiv 2310.01889; DeepSpeed-Ulysses, arXiv 2309.14509"},
    {"ep communication", "Two all-to-alls of the tokens of every expert layer and pass.",
     "Megatron-Core MoE; injection bound"},
    {"pp communication", "Messages between stages that nothing hides.",
     "Narayanan et al., arXiv 2104.04473 section 2.2"},
    {"dp communication",
     "Gradient reductions and parameter gathers, less what the last backward and first forward "
     "hide.",
     "ZeRO, arXiv 1910.02054; Megatron-Core buckets"},
    {"pipeline fill/drain",
     "Waiting for the first and last microbatches: with equal stages (p - 1)/(v m) of the work.",
     "Narayanan et al., arXiv 2104.04473 section 2.2"},
    {"stage imbalance",
     "Waiting for slower stages: of 1F1B (m - 1) x (slowest - own time of a microbatch), on "
     "average "
     "what stages of equal times would save.",
     "costmodel/time/pipeline.hpp, stage by stage"},
    {"optimizer", "Bytes of states, gradients and weights it reads and writes / memory bandwidth.",
     "SimuMax; Megatron-Core DistributedOptimizer"},
    {"host", "The GPU waits for the host to launch work, and fixed work per step.",
     "published runs, calibration fields host_layer_forward and step_fixed"},
    {"data", "Loading what no earlier microbatch hides.", "calibration field"},
};

const PartNote* find_note(std::span<const PartNote> notes, std::string_view part) {
  const auto found = std::ranges::find(notes, part, &PartNote::part);
  return found == notes.end() ? nullptr : &*found;
}

}  // namespace

const PartNote* note_of_memory(std::string_view part) { return find_note(kMemoryNotes, part); }
const PartNote* note_of_time(std::string_view part) { return find_note(kTimeNotes, part); }

}  // namespace echelon::gui
