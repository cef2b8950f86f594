#include "runtime/tcp/world.hpp"

#include <algorithm>
#include <array>

#include "core/base/expects.hpp"
#include "runtime/solo_communicator.hpp"
#include "runtime/tcp/mesh.hpp"

namespace echelon::tcp {
namespace {

constexpr Seconds kLongestEnd{60};

class TcpWorld final : public World {
 public:
  TcpWorld(Crew& crew, const ParallelPlan& plan, const ModelSpec& model, int rank,
           Connected connected)
      : ranks_(static_cast<int>(plan.gpus())),
        on_this_machine_(connected.on_this_machine),
        local_{rank},
        mesh_(crew, rank, std::move(connected.peers)) {
    for (int line = 0; line < kLines; ++line) {
      for (const Group& group : groups_of(static_cast<Line>(line), plan, model)) {
        const auto own = std::find(group.ranks.begin(), group.ranks.end(), rank);
        if (own == group.ranks.end()) continue;
        const auto member = static_cast<int>(own - group.ranks.begin());
        lines_[static_cast<std::size_t>(line)] =
            group.size() == 1 ? solo_communicator()
                              : message_communicator(group, member, mesh_.line(line, group));
      }
    }
    mesh_.start();
  }
  ~TcpWorld() override { mesh_.finish(kLongestEnd); }
  TcpWorld(const TcpWorld&) = delete;
  TcpWorld& operator=(const TcpWorld&) = delete;

  [[nodiscard]] int ranks() const override { return ranks_; }
  [[nodiscard]] int ranks_on_this_machine() const override { return on_this_machine_; }
  [[nodiscard]] const std::vector<int>& local_ranks() const override { return local_; }
  [[nodiscard]] Communicator& at(int rank, Line line) override {
    EXPECTS(rank == local_.front(), "a process has the communicators of its own rank");
    return *lines_[static_cast<std::size_t>(line)];
  }

 private:
  int ranks_;
  int on_this_machine_;
  std::vector<int> local_;
  Mesh mesh_;
  std::array<std::unique_ptr<Communicator>, kLines> lines_;
};

}  // namespace

Result<std::unique_ptr<World>> world(Crew& crew, const ParallelPlan& plan, const ModelSpec& model,
                                     const Meeting& meeting) {
  EXPECTS(meeting.size == plan.gpus(), "one process per rank of the plan");
  Result<Connected> connected = meet(meeting);
  if (!connected) return connected.error();
  return std::unique_ptr<World>(
      std::make_unique<TcpWorld>(crew, plan, model, meeting.rank, *std::move(connected)));
}

}  // namespace echelon::tcp
