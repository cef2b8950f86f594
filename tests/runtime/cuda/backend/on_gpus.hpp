// Training on GPUs, stand-ins or real ones.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "runtime/cuda/backend.hpp"
#include "tests/runtime/training/trained.hpp"

namespace echelon {

/// For train(): the CUDA backend.
inline std::unique_ptr<Backend<Bfloat16>> open_gpus(RunThreads& run_threads,
                                                    std::unique_ptr<World> world,
                                                    const TrainedCase& c) {
  PlanFile plan;
  plan.model = c.model;
  plan.plan = c.plan;
  return *cuda::open_backend(run_threads, std::move(world), plan);
}

/// The CUDA backend, which is inspected after the training.
class WatchedGpus final : public WrappedBackend<Bfloat16> {
 public:
  using Look = std::function<void(Backend<Bfloat16>&)>;
  WatchedGpus(std::unique_ptr<Backend<Bfloat16>> inner, Look look)
      : WrappedBackend(std::move(inner)), look_(std::move(look)) {}
  ~WatchedGpus() override { look_(*inner_); }

 private:
  Look look_;
};

inline OpenBackend<Bfloat16> open_watched_gpus(WatchedGpus::Look look) {
  return [look = std::move(look)](RunThreads& run_threads, std::unique_ptr<World> world,
                                  const TrainedCase& c) {
    return std::make_unique<WatchedGpus>(open_gpus(run_threads, std::move(world), c), look);
  };
}

}  // namespace echelon
