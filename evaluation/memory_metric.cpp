#include "evaluation/memory_metric.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <string_view>

#include "evaluation/framework_defaults.hpp"

namespace echelon {
namespace {

/// Of all stages or of the first one.
std::size_t measured_stage(const MeasuredRun& row, const MemoryPrediction& memory) {
  const bool every_rank = row.memory_kind == "nvidia_smi" || !row.memory_by_stage.empty();
  const bool first_rank = !every_rank && software_of(row).defaults->memory_of_first_rank;
  return static_cast<std::size_t>(first_rank ? 0 : memory.tightest_stage);
}

/// What the allocator holds. Without free memory it releases its reserve: a run that continued is
/// not above the limit unless its tensors are.
Bytes reserved_of(const StageModel& model, const MemoryPrediction& memory, std::size_t stage,
                  Bytes limit) {
  const MemoryBreakdown& parts = memory.stages[stage];
  const Bytes allocated = model.allocated(parts);
  const Bytes outside = parts.total() - allocated;
  const Bytes tensors = allocated - model.held(memory.contents[stage]);
  return std::max(tensors, std::min(model.reserved(parts), limit) - outside);
}

}  // namespace

Bytes memory_metric(const MeasuredRun& row, const StageModel& model, const MemoryPrediction& memory,
                    Bytes limit) {
  const std::size_t stage = measured_stage(row, memory);
  const MemoryBreakdown& parts = memory.stages[stage];
  const Bytes allocated = model.allocated(parts);
  if (row.memory_kind == "allocated") return allocated;
  const Bytes kept = reserved_of(model, memory, stage, limit);
  if (row.memory_kind != "nvidia_smi") return kept;
  const Bytes used = kept + parts.total() - allocated;
  return std::max(used, std::min(used + model.nvidia_smi_cache(), limit));
}

std::optional<Bytes> largest_reserved(const MeasuredRun& row) {
  constexpr std::string_view kLabel = "resv ";
  std::string_view rest = row.memory_by_stage;
  std::optional<Bytes> largest;
  for (std::size_t at = rest.find(kLabel); at != std::string_view::npos; at = rest.find(kLabel)) {
    rest.remove_prefix(at + kLabel.size());
    double gibibytes = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), gibibytes);
    if (error == std::errc{}) largest = std::max(largest.value_or(Bytes{}), gibibytes * 1_GiB);
  }
  return largest;
}

Bytes reserved_metric(const StageModel& model, const MemoryPrediction& memory, Bytes limit) {
  return reserved_of(model, memory, static_cast<std::size_t>(memory.tightest_stage), limit);
}

Bytes limit_of_runs(const MemoryBand& band, Bytes capacity) {
  constexpr double kEven = 0.5;
  return band.kind == MemoryBandKind::measured ? most_need(band, kEven, capacity) : capacity;
}

bool is_of_one_gpu(Bytes figure, Bytes gpu_memory) {
  constexpr double kMost = 1.1;
  return figure <= kMost * gpu_memory;
}

}  // namespace echelon
