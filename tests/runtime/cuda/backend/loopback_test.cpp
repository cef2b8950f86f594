// Ranks that share an emulated GPU.
#include <array>

#include "runtime/cuda/communicators.hpp"
#include "runtime/thread_communicator.hpp"
#include "tests/runtime/cuda/backend/device_room.hpp"

namespace echelon {
namespace {

using Ends = std::vector<std::unique_ptr<Communicator>>;

/// Members of a group on one GPU.
struct SharedGpu {
  SharedGpu(Crew& crew, const Group& group) {
    std::vector<cuda::Stream> streams;
    for (int member = 0; member < group.size(); ++member) {
      streams.push_back(rooms.emplace_back().stream());
    }
    ends = cuda::loopback_communicators(crew, group, streams);
  }
  std::deque<DeviceRoom> rooms;
  Ends ends;
};

/// What all members keep; nothing runs on the GPU before all is put there, save where the order is
/// eager.
std::vector<Raw> on_shared_gpu(Crew& crew, int members, std::int64_t count, Element element,
                               std::uint64_t seed) {
  SharedGpu gpu(crew, group_of(members));
  for (std::size_t member = 0; member < gpu.ends.size(); ++member) {
    crew.add("rank " + std::to_string(member), [&, member] {
      all_operations(*gpu.ends[member], count, element, seed, gpu.rooms[member]);
    });
  }
  crew.run();
  std::vector<Raw> all;
  for (const DeviceRoom& room : gpu.rooms) all.push_back(room.kept());
  return all;
}

std::vector<Raw> between_threads(int members, std::int64_t count, Element element,
                                 std::uint64_t seed) {
  Crew crew(Seconds{60});
  const Ends ends = thread_communicators(crew, group_of(members));
  std::vector<Raw> all(ends.size());
  for (std::size_t member = 0; member < ends.size(); ++member) {
    crew.add("rank " + std::to_string(member),
             [&, member] { all[member] = all_operations(*ends[member], count, element, seed); });
  }
  crew.run();
  return all;
}

void check_alike(Crew& crew, int members, std::int64_t count, Element element,
                 const standins::Settings& machine) {
  CAPTURE(members, count, name_of(element), static_cast<int>(machine.order), machine.seed);
  standins::start(machine);
  const auto found = on_shared_gpu(crew, members, count, element, machine.seed);
  const bool same = found == between_threads(members, count, element, machine.seed);
  REQUIRE(same);
  standins::check_nothing_left();
}

TEST_CASE("ranks that share a GPU get the bits that threads get, in every order of its streams") {
  std::uint64_t seed = 0;
  for (const standins::Order order : kOrders) {
    for (const int members : {2, 3, 5}) {
      for (const Element element : kElements) {
        Crew crew(Seconds{60});
        check_alike(crew, members, std::array{1, 7, 300}[seed % 3], element,
                    settings_of(seed, order, 1));
        ++seed;
      }
    }
  }
}

TEST_CASE("ranks that share a GPU may come to their calls in any order") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Numbers numbers(seed);
    const int members = 2 + static_cast<int>(numbers.below(4));
    const std::int64_t count = std::array{0, 1, 33, 500}[numbers.below(4)];
    const Element element = kElements[numbers.below(4)];
    Crew crew([&](const std::vector<int>& ready) { return numbers.below(ready.size()); });
    check_alike(crew, members, count, element, settings_of(seed, kOrders[seed % 4], 1));
  }
}

/// The message of what ends two members that do this.
template <class Zero, class One>
std::string told_on_gpu(RunFailure::Kind kind, Seconds deadline, Zero&& zero, One&& one) {
  standins::start(settings_of(1, standins::Order::random, 1));
  std::string text;
  {
    Crew crew(deadline);
    SharedGpu gpu(crew, {"dp (reduce)", {4, 6, 9}});
    crew.add("rank 4", [&] { zero(*gpu.ends[0], gpu.rooms[0]); });
    crew.add("rank 6", [&] { one(*gpu.ends[1], gpu.rooms[1]); });
    try {
      crew.run();
    } catch (const RunFailure& failure) {
      CHECK(failure.kind() == kind);
      text = failure.what();
    }
  }
  standins::check_nothing_left();
  return text;
}

TEST_CASE("ranks that share a GPU and ask for different things are told both and the group") {
  const auto reduce = [](std::int64_t count, Element element) {
    return [count, element](Communicator& line, DeviceRoom& room) {
      line.all_reduce(room.put(Raw(1024)), count, element, Reduction::sum);
    };
  };
  const auto send = [](int to) {
    return [to](Communicator& line, DeviceRoom& room) {
      line.send(room.put(Raw(32)), 8, Element::f32, to);
    };
  };
  const auto told = [](auto&& zero, auto&& one) {
    return told_on_gpu(RunFailure::Kind::defect, Seconds{20}, zero, one);
  };
  const std::string who = "dp (reduce) group of ranks {4,6,9}: rank 4 calls ";
  CHECK(told(reduce(64, Element::f32), reduce(65, Element::f32)) ==
        who + "all_reduce of 64 f32, rank 6 all_reduce of 65 f32");
  CHECK(told(reduce(64, Element::f32), reduce(64, Element::bf16)) ==
        who + "all_reduce of 64 f32, rank 6 all_reduce of 64 bf16");
  CHECK(told(send(1), send(0)) == who + "send of 8 f32 to rank 6, rank 6 send of 8 f32 to rank 4");
  CHECK(told(reduce(3, Element::f64), send(0)) ==
        who + "all_reduce of 3 f64, rank 6 send of 8 f32 to rank 4");
}

TEST_CASE("a rank that never comes to a shared GPU is a hang, and nothing is left there") {
  const auto reduce = [](Communicator& line, DeviceRoom& room) {
    line.all_reduce(room.put(Raw(4)), 1, Element::f32, Reduction::sum);
  };
  const auto receive = [](Communicator& line, DeviceRoom& room) {
    line.receive(room.put(Raw(4)), 1, Element::f32, 1);
  };
  const auto nothing = [](Communicator&, DeviceRoom&) {};
  const auto told = [&](auto&& zero) {
    return told_on_gpu(RunFailure::Kind::hang, Seconds{0.05}, zero, nothing);
  };
  const std::string all = told(reduce);
  INFO(all);
  CHECK(all.find(
            "all_reduce of 1 f32 in the dp (reduce) group of ranks {4,6,9} waits for rank 6 9") !=
        std::string::npos);
  const std::string one = told(receive);
  INFO(one);
  CHECK(one.find("receive of 1 f32 from rank 6 in the dp (reduce) group of ranks {4,6,9} waits for "
                 "rank 6") != std::string::npos);
}

TEST_CASE("a rank that is alone on a GPU copies on its stream, and only where it has to") {
  standins::start(settings_of(3, standins::Order::random, 1));
  {
    DeviceRoom room;
    const auto line = cuda::solo_communicator(room.stream());
    all_operations(*line, 50, Element::f32, 5, room);
    HostRoom host;
    Crew crew;
    all_operations(*thread_communicators(crew, group_of(1))[0], 50, Element::f32, 5, host);
    const bool same = room.kept() == host.kept();
    CHECK(same);
  }
  standins::check_nothing_left();
}

}  // namespace
}  // namespace echelon
