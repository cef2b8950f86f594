// Parts of measure().
#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/cuda/device/resources.hpp"
#include "runtime/cuda/measure/measure.hpp"

namespace echelon::cuda {

/// The remaining time for all operations.
class Stopwatch {
 public:
  explicit Stopwatch(const MeasuredSizes& sizes);
  /// For the next operation; 0: only the minimum number of repetitions.
  [[nodiscard]] Seconds for_next() const;
  /// Nothing more is measured.
  [[nodiscard]] bool over() const;

 private:
  Seconds begin_;
  Seconds each_;
  Seconds max_time_;
};

/// Device time of `act`, which enqueues work on the stream: the median of batches of a millisecond
/// or more each, after a run that is not counted.
[[nodiscard]] Seconds time_on(cudaStream_t stream, Seconds budget,
                              const std::function<void()>& act);

/// Products, attention and memory-bound kernels of device 0, whose L2 cache has `l2`
/// (measure_kernels.cpp).
void measure_kernels(const MeasuredSizes& sizes, const Stopwatch& watch, Bytes l2,
                     const std::function<void(const std::string&)>& log,
                     std::vector<Measurement>& out);
/// Copies, launches, and layers with the host time to launch them (measure_launches.cpp). Fills in
/// the memory used in addition to our own while such layers exist.
void measure_launches(const MeasuredSizes& sizes, const Stopwatch& watch,
                      const std::function<void(const std::string&)>& log, GpuFacts& facts,
                      std::vector<Measurement>& out);
/// Host time of a message of NCCL on a communicator of one rank, to itself, blocking and
/// nonblocking (measure_nccl_calls.cpp). Fills in NCCL's version. NCCL's failures leave it out.
void measure_nccl_calls(const MeasuredSizes& sizes,
                        const std::function<void(const std::string&)>& log, GpuFacts& facts,
                        std::vector<Measurement>& out);
/// Collectives of NCCL, a thread per GPU (measure_collectives.cpp), within as much time again as
/// the other operations have. Fills in the memory of a communicator.
void measure_collectives(const MeasuredSizes& sizes,
                         const std::function<void(const std::string&)>& log, GpuFacts& facts,
                         std::vector<Measurement>& out);

}  // namespace echelon::cuda
