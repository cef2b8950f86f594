#include "runtime/comm/tcp/world.hpp"

#include <algorithm>
#include <array>
#include <set>

#include "core/base/expects.hpp"
#include "runtime/comm/message_communicator.hpp"
#include "runtime/comm/solo_communicator.hpp"
#include "runtime/comm/star_communicator.hpp"
#include "runtime/comm/tcp/tcp_transport.hpp"

namespace echelon::tcp {
namespace {

constexpr Seconds kLongestEnd{60};

/// Of all ranks: small calls, over the connections to rank 0.
bool is_star(GroupRole role) { return role == GroupRole::norm || role == GroupRole::control; }

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
        ends_[static_cast<std::size_t>(role)] = end_of(static_cast<GroupRole>(role), group,
                                                       static_cast<int>(own - group.ranks.begin()));
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
  [[nodiscard]] std::unique_ptr<Communicator> end_of(GroupRole role, const Group& group,
                                                     int member) {
    if (group.size() == 1) return solo_communicator();
    const auto messages = [&](Lines lines) {
      return transport_.channel(static_cast<int>(role), group, lines);
    };
    if (is_star(role)) return star_communicator(group, member, messages(Lines::star));
    return message_communicator(group, member, messages(Lines::mesh));
  }

  int ranks_;
  int on_this_machine_;
  std::vector<int> local_;
  TcpTransport transport_;
  std::array<std::unique_ptr<Communicator>, kGroupRoles> ends_;
};

}  // namespace

std::vector<int> data_peers(const ParallelPlan& plan, const ModelSpec& model, int rank) {
  std::set<int> peers;
  for (int role = 0; role < kGroupRoles; ++role) {
    if (is_star(static_cast<GroupRole>(role))) continue;
    for (const Group& group : groups_of(static_cast<GroupRole>(role), plan, model)) {
      if (std::find(group.ranks.begin(), group.ranks.end(), rank) != group.ranks.end())
        peers.insert(group.ranks.begin(), group.ranks.end());
    }
  }
  peers.erase(rank);
  return {peers.begin(), peers.end()};
}

Result<std::unique_ptr<World>> world(RunThreads& run_threads, const ParallelPlan& plan,
                                     const ModelSpec& model, const Rendezvous& rendezvous) {
  EXPECTS(rendezvous.size == plan.gpus(), "one process per rank of the plan");
  Rendezvous with_peers = rendezvous;
  with_peers.data_peers = data_peers(plan, model, rendezvous.rank);
  Result<Connected> connected = join_run(with_peers);
  if (!connected) return connected.error();
  return std::unique_ptr<World>(
      std::make_unique<TcpWorld>(run_threads, plan, model, rendezvous, *std::move(connected)));
}

}  // namespace echelon::tcp
