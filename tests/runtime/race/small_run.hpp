// A small model trained over tp 2, pp 2, dp 2: ZeRO-3 with prefetch, reductions overlapped with the
// backward, ZB-H1. Under ThreadSanitizer (training.cpp), where Eigen multiplies on one thread per
// rank, and as part of the runtime's tests, where oneDNN may: both end at the same losses.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/cpu/cpu_backend.hpp"
#include "runtime/executor/executor.hpp"
#include "runtime/model/initial.hpp"
#include "runtime/training/training_device.hpp"

namespace echelon {

/// Losses of the three steps; in fp32, so rounding differs in the sixth digit.
inline constexpr double kLossesOfSmallRun[] = {3.9076506, 3.9396594, 3.9239075};
inline constexpr double kRoundingOfSmallRun = 2e-5;

inline Training small_training() {
  Training t;
  ModelSpec& m = t.model;
  m.name = "race";
  m.constants.emplace();
  m.layers = 4;
  m.hidden = 16;
  m.heads = 4;
  m.kv_heads = 2;
  m.head_dim = 4;
  m.ffn_hidden = 24;
  m.vocab = 50;
  m.max_positions = 16;
  t.job.sequence = 8;
  t.job.global_batch = 6;
  t.job.precision.compute = Dtype::fp32;
  ParallelPlan& p = t.plan;
  p.tp = p.pp = p.dp = 2;
  p.sequence_parallel = true;
  p.zero = 3;
  p.shard_group = 2;
  p.schedule = ScheduleKind::zero_bubble_h1;
  p.layers_per_stage = {2, 2};
  p.recompute_layers = {0, 0};
  t.rate = {.peak = 1e-2, .min = 1e-3, .warmup = 0, .total = 10};
  t.read = [](std::int64_t number, std::int32_t* out) {
    for (std::int64_t i = 0; i <= 8; ++i)
      out[i] = static_cast<std::int32_t>((7 * number + i * i) % 50);
  };
  return t;
}

/// The losses of three steps; `schedule` is race/zero3_zb_h1.txt.
inline std::vector<double> losses_of_small_run(const Schedule& schedule) {
  const Training t = small_training();
  const ProcessGrid grid(t.plan);
  RunThreads run_threads(Seconds{120});
  const auto backend = cpu_backend<float>(thread_world(run_threads, t.plan, t.model), 1);
  TrainingDevice<float> device(run_threads, *backend, schedule, t);
  for (const int rank : backend->world().local_ranks()) {
    for (OptimizerState<float>* states : device.states(rank)) {
      for (FlatState<float>& r : states->flat_states()) {
        const bool whole = r.weights != nullptr;
        fill_initial(*r.layout, 7, whole ? 0 : r.begin, whole ? r.layout->padded : r.end,
                     whole ? r.weights : r.own_weights);
        states->take_weights_as_master(backend->at(rank).on(Queue::compute), r);
      }
    }
  }
  std::vector<double> losses;
  Executor executor(run_threads, schedule, grid, device,
                    {.local = {},
                     .measured = [](std::int64_t step) { return step == 1; },
                     .first_step = 0,
                     .on_step_end =
                         [&](const StepEnd& over) {
                           if (over.rank == 0) losses.push_back(device.result(0).loss);
                           return over.step < 2;
                         }});
  executor.add_threads();
  run_threads.run();
  return losses;
}

}  // namespace echelon
