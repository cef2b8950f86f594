// What a table's memory column counts, predicted.
#pragma once

#include "core/base/units.hpp"
#include "costmodel/cost_model.hpp"
#include "costmodel/time/stage_model.hpp"
#include "evaluation/measured_runs_csv_io.hpp"

namespace echelon {

/// The predicted figure that a row's memory column is to be compared with:
///   allocated   the framework's own tensors          reserved   … and what its allocator keeps
///   nvidia_smi  … and context and NCCL: all the device has lost
/// Some software writes down rank 0, which is on stage 0 (FrameworkDefaults::memory_of_first_rank);
/// others the largest rank. An allocator that
/// finds no room gives back what it keeps: a run that went on is not above the limit, capacity less
/// `margin`, unless its tensors are.
/// Checked by: tests/evaluation/validate_test.cpp.
[[nodiscard]] Bytes memory_metric(const MeasuredRun& row, const StageModel& model,
                                  const MemoryPrediction& memory, Bytes margin);

/// Whether a figure can be of one GPU: a tenth above its memory allows for GB written for GiB and
/// for what the driver keeps.
[[nodiscard]] bool is_of_one_gpu(Bytes figure, Bytes gpu_memory);

}  // namespace echelon
