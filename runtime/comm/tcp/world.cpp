#include "runtime/comm/tcp/world.hpp"

#include <algorithm>
#include <array>

#include "core/base/expects.hpp"
#include "runtime/comm/solo_communicator.hpp"
#include "runtime/comm/tcp/tcp_transport.hpp"

namespace echelon::tcp {
namespace {

constexpr Seconds kLongestEnd{60};

class TcpWorld final : public World {
 public:
  TcpWorld(RunThreads& run_threads, const ParallelPlan& plan, const ModelSpec& model,
           const Rendezvous& rendezvous, Connected connected)
      : ranks_(static_cast<int>(plan.gpus())),
        on_this_machine_(connected.on_this_machine),
        local_{rendezvous.rank},
        transport_(run_threads, rendezvous.rank, std::move(connected.peers)) {
    const int rank = rendezvous.rank;
    for (int role = 0; role < kGroupRoles; ++role) {
      for (const Group& group : groups_of(static_cast<GroupRole>(role), plan, model)) {
        const auto own = std::find(group.ranks.begin(), group.ranks.end(), rank);
        if (own == group.ranks.end()) continue;
        const auto member = static_cast<int>(own - group.ranks.begin());
        ends_[static_cast<std::size_t>(role)] =
            group.size() == 1
                ? solo_communicator()
                : message_communicator(group, member, transport_.channel(role, group));
      }
    }
    transport_.corrupt_when(rendezvous.corrupt);
    transport_.start();
  }
  ~TcpWorld() override { transport_.finish(kLongestEnd); }
  TcpWorld(const TcpWorld&) = delete;
  TcpWorld& operator=(const TcpWorld&) = delete;

  [[nodiscard]] int ranks() const override { return ranks_; }
  [[nodiscard]] int ranks_on_this_machine() const override { return on_this_machine_; }
  [[nodiscard]] const std::vector<int>& local_ranks() const override { return local_; }
  [[nodiscard]] Communicator& at(int rank, GroupRole role) override {
    EXPECTS(rank == local_.front(), "a process has the communicators of its own rank");
    return *ends_[static_cast<std::size_t>(role)];
  }
  [[nodiscard]] StatusLink* status_link() override { return &transport_; }

 private:
  int ranks_;
  int on_this_machine_;
  std::vector<int> local_;
  TcpTransport transport_;
  std::array<std::unique_ptr<Communicator>, kGroupRoles> ends_;
};

}  // namespace

Result<std::unique_ptr<World>> world(RunThreads& run_threads, const ParallelPlan& plan,
                                     const ModelSpec& model, const Rendezvous& rendezvous) {
  EXPECTS(rendezvous.size == plan.gpus(), "one process per rank of the plan");
  Result<Connected> connected = join_run(rendezvous);
  if (!connected) return connected.error();
  return std::unique_ptr<World>(
      std::make_unique<TcpWorld>(run_threads, plan, model, rendezvous, *std::move(connected)));
}

}  // namespace echelon::tcp
