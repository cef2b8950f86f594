// The prediction of a table's memory column.
#pragma once

#include <optional>

#include "core/base/units.hpp"
#include "costmodel/calibration/memory_band.hpp"
#include "costmodel/cost_model.hpp"
#include "costmodel/time/stage_model.hpp"
#include "evaluation/measured_runs_csv_io.hpp"

namespace echelon {

/// The predicted figure to compare with a row's memory column:
///   allocated   the framework's own tensors          reserved   … and what its allocator keeps
///   nvidia_smi  … and context, NCCL and cached blocks: all the device has lost
/// Logs of some software print rank 0, which is on stage 0 (FrameworkDefaults::
/// memory_of_first_rank); nvidia-smi, rows with figures of several stages and other software the
/// largest rank. An allocator without free memory releases its reserve: a run that continued is not
/// above `limit` unless its tensors are.
/// Checked by: tests/evaluation/validate_test.cpp.
[[nodiscard]] Bytes memory_metric(const MeasuredRun& row, const StageModel& model,
                                  const MemoryPrediction& memory, Bytes limit);

/// The largest reserved memory that a row gives next to its allocated memory: "r0 alloc 66.55 resv
/// 69.07; r1 ..." in memory_by_stage, in GiB. Nothing if it gives none.
[[nodiscard]] std::optional<Bytes> largest_reserved(const MeasuredRun& row);
/// The prediction of that figure.
[[nodiscard]] Bytes reserved_metric(const StageModel& model, const MemoryPrediction& memory,
                                    Bytes limit);

/// The limit of runs that continued: where it was measured the need that fits with P = 1/2, else
/// the capacity.
[[nodiscard]] Bytes limit_of_runs(const MemoryBand& band, Bytes capacity);

/// Whether a figure can be that of one GPU: a tenth above its memory allows for GB written instead
/// of GiB and for the driver's share.
[[nodiscard]] bool is_of_one_gpu(Bytes figure, Bytes gpu_memory);

}  // namespace echelon
