#include "evaluation/memory_metric.hpp"

#include <algorithm>
#include <cstddef>

#include "evaluation/framework_defaults.hpp"

namespace echelon {

Bytes memory_metric(const MeasuredRun& row, const StageModel& model, const MemoryPrediction& memory,
                    Bytes margin) {
  const bool first_rank = software_of(row).defaults->memory_of_first_rank;
  const auto stage = static_cast<std::size_t>(first_rank ? 0 : memory.tightest_stage);
  const MemoryBreakdown& parts = memory.stages[stage];
  const Bytes allocated = model.allocated(parts);
  if (row.memory_kind == "allocated") return allocated;
  const Bytes outside = parts.total() - allocated;
  const Bytes reserved = model.reserved(parts) - outside;
  const Bytes limit = memory.capacity - margin - outside;
  const Bytes tensors = allocated - model.held(memory.contents[stage]);
  const Bytes kept = std::max(tensors, std::min(reserved, limit));
  return kept + (row.memory_kind == "nvidia_smi" ? outside : Bytes{});
}

bool is_of_one_gpu(Bytes figure, Bytes gpu_memory) {
  constexpr double kMost = 1.1;
  return figure <= kMost * gpu_memory;
}

}  // namespace echelon
