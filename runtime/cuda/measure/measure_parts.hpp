// What measure() is made of.
#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/cuda/device/resources.hpp"
#include "runtime/cuda/measure/measure.hpp"

namespace echelon::cuda {

/// How long everything may still take.
class Stopwatch {
 public:
  explicit Stopwatch(const MeasuredSizes& sizes);
  /// For the next operation; 0: only the least number of repetitions.
  [[nodiscard]] Seconds for_next() const;
  /// Nothing more is measured.
  [[nodiscard]] bool over() const;

 private:
  Seconds begin_;
  Seconds each_;
  Seconds max_time_;
};

/// Numbers a model's activations could be, of bf16 where the operands are, in all of the block:
/// products of zeros draw less power, and so run faster.
void fill(const DeviceBuffer& buffer, std::int64_t count, bool wide, cudaStream_t stream);

/// Device time of `act`, which enqueues work on the stream: the lowest decile of batches of a
/// millisecond or more each, behind a run that is not counted.
[[nodiscard]] Seconds time_on(cudaStream_t stream, Seconds budget,
                              const std::function<void()>& act);

/// Products, attention and the kernels that memory bounds, of device 0 (measure_kernels.cpp).
void measure_kernels(const MeasuredSizes& sizes, const Stopwatch& watch,
                     const std::function<void(const std::string&)>& log,
                     std::vector<Measurement>& out);
/// Copies, launches, and layers with what the host takes to launch them (measure_launches.cpp).
/// Fills in what is taken besides our own memory while such layers are there.
void measure_launches(const MeasuredSizes& sizes, const Stopwatch& watch,
                      const std::function<void(const std::string&)>& log, GpuFacts& facts,
                      std::vector<Measurement>& out);
/// Collectives of NCCL, a thread per GPU (measure_collectives.cpp). Fills in NCCL's version and
/// what a communicator takes.
void measure_collectives(const MeasuredSizes& sizes, const Stopwatch& watch,
                         const std::function<void(const std::string&)>& log, GpuFacts& facts,
                         std::vector<Measurement>& out);

}  // namespace echelon::cuda
