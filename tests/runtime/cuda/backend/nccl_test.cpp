// Ranks with GPUs of their own, through stand-ins of NCCL.
#include "runtime/cuda/nccl.hpp"

#include <cuda_runtime_api.h>

#include <array>

#include "runtime/thread_communicator.hpp"
#include "tests/runtime/cuda/backend/device_room.hpp"

namespace echelon {
namespace {

/// A GPU and a thread per member. `work` is told its end and its room.
class OwnGpus {
 public:
  using Work = std::function<void(Communicator& line, DeviceRoom& room)>;

  OwnGpus(Crew& crew, const Group& group) : crew_(crew), group_(group), nccl_(crew, {}, kLimit) {
    for (int member = 0; member < group.size(); ++member) {
      cudaSetDevice(member);
      rooms_.emplace_back();
    }
    ends_.resize(rooms_.size());
  }
  /// While a run fails streams end only when what they wait for is given up.
  ~OwnGpus() {
    if (crew_.stopping()) nccl_.abort_all();
    ends_.clear();
  }
  void add(int member, const Work& work) {
    crew_.add("rank " + std::to_string(group_.rank(member)), [this, member, work] {
      const auto slot = static_cast<std::size_t>(member);
      cudaSetDevice(member);
      ends_[slot] = nccl_.join(group_, member, id_, rooms_[slot].stream());
      work(*ends_[slot], rooms_[slot]);
      wait(rooms_[slot].stream());
    });
  }
  [[nodiscard]] cuda::Nccl& nccl() { return nccl_; }
  [[nodiscard]] std::vector<Raw> kept() const {
    std::vector<Raw> all;
    for (const DeviceRoom& room : rooms_) all.push_back(room.kept());
    return all;
  }

 private:
  static constexpr Seconds kLimit{5};
  /// As the end of a step does.
  void wait(cudaStream_t stream) {
    crew_.poll(
        [&] {
          nccl_.check();
          return cudaStreamQuery(stream) == cudaSuccess;
        },
        [] { return std::string("the GPU"); });
  }

  Crew& crew_;
  const Group group_;
  const cuda::NcclId id_ = cuda::new_nccl_id();
  std::deque<DeviceRoom> rooms_;
  cuda::Nccl nccl_;
  std::vector<std::unique_ptr<Communicator>> ends_;
};

TEST_CASE("every operation through NCCL gives what it should, in every order of streams") {
  std::uint64_t seed = 0;
  for (const standins::Order order : kOrders) {
    for (const int members : {2, 3, 5}) {
      for (const Element element : kElements) {
        const std::int64_t count = std::array{0, 1, 7, 300}[seed % 4];
        CAPTURE(static_cast<int>(order), members, name_of(element), count);
        standins::start(settings_of(++seed, order, members));
        std::vector<Raw> found;
        {
          Crew crew(Seconds{20});
          OwnGpus gpus(crew, group_of(members));
          for (int member = 0; member < members; ++member) {
            gpus.add(member, [&](Communicator& line, DeviceRoom& room) {
              all_operations(line, count, element, seed, room);
            });
          }
          crew.run();
          found = gpus.kept();
        }
        standins::check_nothing_left();
        // The stand-ins add up in the order of ranks, as NCCL does not promise.
        Crew threads(Seconds{20});
        const auto ends = thread_communicators(threads, group_of(members));
        std::vector<Raw> expected(ends.size());
        for (std::size_t member = 0; member < ends.size(); ++member) {
          threads.add("rank", [&, member] {
            expected[member] = all_operations(*ends[member], count, element, seed);
          });
        }
        threads.run();
        const bool same = found == expected;
        REQUIRE(same);
      }
    }
  }
}

/// What ends two of the members of {4,6} that do this.
RunFailure failure_of(const standins::Settings& machine, Seconds deadline,
                      const OwnGpus::Work& zero, const OwnGpus::Work& one) {
  standins::start(machine);
  RunFailure found(RunFailure::Kind::defect, "no failure");
  {
    Crew crew(deadline);
    OwnGpus gpus(crew, {"tp", {4, 6}});
    gpus.add(0, zero);
    if (one) gpus.add(1, one);
    try {
      crew.run();
    } catch (const RunFailure& failure) {
      found = failure;
    }
  }
  standins::check_nothing_left();  // abort let all streams end
  return found;
}

void reduce_twice(Communicator& line, DeviceRoom& room) {
  for (int i = 0; i < 2; ++i) {
    line.all_reduce(room.put(Raw(256)), 64, Element::f32, Reduction::sum);
  }
}

bool says(const RunFailure& failure, const std::string& part) {
  INFO(failure.what());
  return std::string(failure.what()).find(part) != std::string::npos;
}

TEST_CASE("who waits for a member that does not join is told which group") {
  const RunFailure found =
      failure_of(settings_of(1, standins::Order::random, 2), Seconds{0.1}, reduce_twice, {});
  CHECK(found.kind() == RunFailure::Kind::hang);
  CHECK(says(found, "joining in the tp group of ranks {4,6}"));
}

TEST_CASE("a call that NCCL never finishes is a hang, and giving up ends the streams") {
  for (const standins::Order order : kOrders) {
    standins::Settings machine = settings_of(2, order, 2);
    machine.failures = {{standins::Failure::Kind::never_arrives, 1, 1, "tp"}};
    const RunFailure found = failure_of(machine, Seconds{0.2}, reduce_twice, reduce_twice);
    CHECK(found.kind() == RunFailure::Kind::hang);
    CHECK(says(found, "the GPU"));
  }
}

TEST_CASE("a member that dies is lost to the others, with the group and NCCL's reason") {
  for (const standins::Order order : kOrders) {
    standins::Settings machine = settings_of(3, order, 2);
    machine.failures = {{standins::Failure::Kind::dies, 1, 1, "tp"}};
    const RunFailure found = failure_of(machine, Seconds{5}, reduce_twice, reduce_twice);
    CHECK(found.kind() == RunFailure::Kind::peer_lost);
    CHECK(says(found, "tp group of ranks {4,6}: NCCL says"));
  }
}

std::string told_by(Crew& crew) {
  try {
    crew.run();
  } catch (const RunFailure& failure) {
    return failure.what();
  }
  return "";
}

TEST_CASE("two members on one GPU are refused with NCCL's reason") {
  standins::start(settings_of(4, standins::Order::random, 1));
  {
    Crew crew(Seconds{5});
    cuda::Nccl nccl(crew);
    const cuda::NcclId id = cuda::new_nccl_id();
    DeviceRoom room;
    for (const int member : {0, 1}) {
      crew.add("rank", [&, member] {
        static_cast<void>(nccl.join(group_of(2), member, id, room.stream()));
      });
    }
    CHECK(told_by(crew).find("joining in the tp group of ranks {0,1}: NCCL says invalid usage "
                             "(Duplicate GPU detected") != std::string::npos);
  }
  standins::check_nothing_left();
}

TEST_CASE("who calls NCCL after it was given up gets a failure") {
  standins::start(settings_of(5, standins::Order::random, 2));
  {
    Crew crew(Seconds{5});
    OwnGpus gpus(crew, group_of(2));
    for (const int member : {0, 1}) {
      gpus.add(member, [&](Communicator& line, DeviceRoom& room) {
        gpus.nccl().abort_all();
        gpus.nccl().abort_all();
        gpus.nccl().check();
        reduce_twice(line, room);
      });
    }
    CHECK(told_by(crew).find("given up") != std::string::npos);
  }
  standins::check_nothing_left();
}

}  // namespace
}  // namespace echelon
