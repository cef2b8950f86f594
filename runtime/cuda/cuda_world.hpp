// CudaWorld: how ranks that compute on GPUs reach each other.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/schedule/schedule.hpp"
#include "runtime/cuda/gpus.hpp"
#include "runtime/cuda/nccl.hpp"
#include "runtime/world.hpp"

namespace echelon::cuda {

/// Whose stream the communicators of a line are put on.
[[nodiscard]] Queue queue_of(Line line);

struct CudaWorldOptions {
  /// What the largest call of a warm-up moves; algorithms of NCCL that only larger ones take take
  /// their memory later. 0: there is no warm-up.
  std::int64_t warm_up_bytes = 16 << 20;
};

/// Line::host is the host's; the other lines take memory of the GPUs and are put on streams:
/// through NCCL where each rank has a GPU of its own, over the shared one's memory where all ranks
/// are on one. All that the plan uses (is_used) is made here, and used once, so that the memory is
/// taken before the first step; of other lines there is nothing.
class CudaWorld final : public World {
 public:
  using StreamOf = std::function<Stream(int rank, Queue queue)>;

  /// All processes make theirs of the same plan, before the crew runs. Throws RunFailure.
  CudaWorld(Crew& crew, std::unique_ptr<World> host, const ParallelPlan& plan,
            const ModelSpec& model, const Gpus& gpus, const StreamOf& stream_of,
            const CudaWorldOptions& options = {});
  /// Never hangs: what the streams still wait for when the run failed is given up.
  ~CudaWorld() override;

  [[nodiscard]] int ranks() const override { return host_->ranks(); }
  [[nodiscard]] int ranks_on_this_machine() const override {
    return host_->ranks_on_this_machine();
  }
  [[nodiscard]] const std::vector<int>& local_ranks() const override {
    return host_->local_ranks();
  }
  [[nodiscard]] Communicator& at(int rank, Line line) override;

  /// Throws what went wrong in a communicator meanwhile. For who waits for a GPU.
  void check() { nccl_.check(); }
  /// For a run that failed, before anything waits for a GPU: ends what communicators wait for
  /// there.
  void abort_all() { nccl_.abort_all(); }
  /// "nccl 2.28.9", "memory of one GPU" or, with one rank, "none".
  [[nodiscard]] std::string transport() const;
  /// What its communicators took of the rank's GPU, as free memory had it before and behind.
  [[nodiscard]] Bytes communicator_memory(int rank) const { return taken_.at(rank); }

 private:
  struct Ids;
  using Ends = std::array<std::unique_ptr<Communicator>, kLines>;

  void make_solo_and_shared();
  [[nodiscard]] Ids exchange_ids(int rank);
  void join(int rank, const Ids& ids);
  void warm_up(int rank, void* scratch, std::int64_t bytes);
  void wait_for(int rank, Line line);

  Crew& crew_;
  std::unique_ptr<World> host_;
  Gpus gpus_;
  StreamOf stream_of_;
  std::array<std::vector<Group>, kLines> groups_;  ///< of lines in use
  Nccl nccl_;
  std::map<int, Ends> ends_;    ///< by local rank
  std::map<int, Bytes> taken_;  ///< the same
};

}  // namespace echelon::cuda
