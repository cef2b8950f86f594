// Ranks that share an emulated GPU.
#include <array>

#include "runtime/comm/thread_communicator.hpp"
#include "runtime/cuda/comm/communicators.hpp"
#include "tests/runtime/cuda/backend/device_memory.hpp"

namespace echelon {
namespace {

using Ends = std::vector<std::unique_ptr<Communicator>>;

/// Members of a group on one GPU.
struct SharedGpu {
  SharedGpu(RunThreads& run_threads, const Group& group) {
    std::vector<cuda::Stream> streams;
    for (int member = 0; member < group.size(); ++member) {
      streams.push_back(all_operands.emplace_back().stream());
    }
    ends = cuda::loopback_communicators(run_threads, group, streams);
  }
  std::deque<DeviceOperands> all_operands;
  Ends ends;
};

/// The results of all members; nothing runs on the GPU before everything is enqueued, except in the
/// eager order.
std::vector<Raw> on_shared_gpu(RunThreads& run_threads, int members, std::int64_t count,
                               Element element, std::uint64_t seed) {
  SharedGpu gpu(run_threads, group_of(members));
  for (std::size_t member = 0; member < gpu.ends.size(); ++member) {
    run_threads.add("rank " + std::to_string(member), [&, member] {
      all_operations(*gpu.ends[member], count, element, seed, gpu.all_operands[member]);
    });
  }
  run_threads.run();
  std::vector<Raw> all;
  for (const DeviceOperands& operands : gpu.all_operands) all.push_back(operands.kept());
  return all;
}

std::vector<Raw> between_threads(int members, std::int64_t count, Element element,
                                 std::uint64_t seed) {
  RunThreads run_threads(Seconds{60});
  const Ends ends = thread_communicators(run_threads, group_of(members));
  std::vector<Raw> all(ends.size());
  for (std::size_t member = 0; member < ends.size(); ++member) {
    run_threads.add("rank " + std::to_string(member), [&, member] {
      all[member] = all_operations(*ends[member], count, element, seed);
    });
  }
  run_threads.run();
  return all;
}

void check_same_bits(RunThreads& run_threads, int members, std::int64_t count, Element element,
                     const standins::Settings& machine) {
  CAPTURE(members, count, name_of(element), static_cast<int>(machine.order), machine.seed);
  standins::start(machine);
  const auto found = on_shared_gpu(run_threads, members, count, element, machine.seed);
  const bool same = found == between_threads(members, count, element, machine.seed);
  REQUIRE(same);
  standins::check_nothing_left();
}

TEST_CASE("ranks that share a GPU get the bits that threads get, in every order of its streams") {
  std::uint64_t seed = 0;
  for (const standins::Order order : kOrders) {
    for (const int members : {2, 3, 5}) {
      for (const Element element : kElements) {
        RunThreads run_threads(Seconds{60});
        check_same_bits(run_threads, members, std::array{1, 7, 300}[seed % 3], element,
                        settings_of(seed, order, 1));
        ++seed;
      }
    }
  }
}

TEST_CASE("ranks that share a GPU may make their calls in any order") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Numbers numbers(seed);
    const int members = 2 + static_cast<int>(numbers.below(4));
    const std::int64_t count = std::array{0, 1, 33, 500}[numbers.below(4)];
    const Element element = kElements[numbers.below(4)];
    RunThreads run_threads(
        [&](const std::vector<int>& ready) { return numbers.below(ready.size()); });
    check_same_bits(run_threads, members, count, element, settings_of(seed, kOrders[seed % 4], 1));
  }
}

/// The message of the failure that ends two members that do this.
template <class Zero, class One>
std::string failure_on_gpu(RunFailure::Kind kind, Seconds deadline, Zero&& zero, One&& one) {
  standins::start(settings_of(1, standins::Order::random, 1));
  std::string text;
  {
    RunThreads run_threads(deadline);
    SharedGpu gpu(run_threads, {"dp (reduce)", {4, 6, 9}});
    run_threads.add("rank 4", [&] { zero(*gpu.ends[0], gpu.all_operands[0]); });
    run_threads.add("rank 6", [&] { one(*gpu.ends[1], gpu.all_operands[1]); });
    try {
      run_threads.run();
    } catch (const RunFailure& failure) {
      CHECK(failure.kind() == kind);
      text = failure.what();
    }
  }
  standins::check_nothing_left();
  return text;
}

TEST_CASE(
    "ranks that share a GPU and make mismatched calls get an error with both calls and the group") {
  const auto reduce = [](std::int64_t count, Element element) {
    return [count, element](Communicator& comm, DeviceOperands& operands) {
      comm.all_reduce(operands.place(Raw(1024)), count, element, Reduction::sum);
    };
  };
  const auto send = [](int to) {
    return [to](Communicator& comm, DeviceOperands& operands) {
      comm.send(operands.place(Raw(32)), 8, Element::f32, to);
    };
  };
  const auto exchange = [](const std::vector<std::int64_t>& to,
                           const std::vector<std::int64_t>& from) {
    return [to, from](Communicator& comm, DeviceOperands& operands) {
      comm.all_to_all(operands.place(Raw(32)), to, operands.place(Raw(32)), from, Element::f32);
    };
  };
  const auto reported = [](auto&& zero, auto&& one) {
    return failure_on_gpu(RunFailure::Kind::defect, Seconds{20}, zero, one);
  };
  const std::string who = "dp (reduce) group of ranks {4,6,9}: rank 4 calls ";
  CHECK(reported(reduce(64, Element::f32), reduce(65, Element::f32)) ==
        who + "all_reduce of 64 f32, rank 6 all_reduce of 65 f32");
  CHECK(reported(reduce(64, Element::f32), reduce(64, Element::bf16)) ==
        who + "all_reduce of 64 f32, rank 6 all_reduce of 64 bf16");
  CHECK(reported(exchange({1, 5, 2}, {1, 3, 0}), exchange({3, 0, 0}, {4, 0, 1})) ==
        "dp (reduce) group of ranks {4,6,9}: in an all_to_all of f32 rank 4 sends 5 to rank 6, "
        "which expects 4");
  CHECK(reported(send(1), send(0)) ==
        who + "send of 8 f32 to rank 6, rank 6 send of 8 f32 to rank 4");
  CHECK(reported(reduce(3, Element::f64), send(0)) ==
        who + "all_reduce of 3 f64, rank 6 send of 8 f32 to rank 4");
}

TEST_CASE("a rank missing on a shared GPU is a hang, and nothing remains allocated") {
  const auto reduce = [](Communicator& comm, DeviceOperands& operands) {
    comm.all_reduce(operands.place(Raw(4)), 1, Element::f32, Reduction::sum);
  };
  const auto receive = [](Communicator& comm, DeviceOperands& operands) {
    comm.receive(operands.place(Raw(4)), 1, Element::f32, 1);
  };
  const auto nothing = [](Communicator&, DeviceOperands&) {};
  const auto reported = [&](auto&& zero) {
    return failure_on_gpu(RunFailure::Kind::hang, Seconds{0.05}, zero, nothing);
  };
  const std::string all = reported(reduce);
  INFO(all);
  CHECK(all.find(
            "all_reduce of 1 f32 in the dp (reduce) group of ranks {4,6,9} waits for rank 6 9") !=
        std::string::npos);
  const std::string one = reported(receive);
  INFO(one);
  CHECK(one.find("receive of 1 f32 from rank 6 in the dp (reduce) group of ranks {4,6,9} waits for "
                 "rank 6") != std::string::npos);
}

TEST_CASE("a rank that is alone on a GPU copies on its stream, and only if necessary") {
  standins::start(settings_of(3, standins::Order::random, 1));
  {
    DeviceOperands operands;
    const auto comm = cuda::solo_communicator(operands.stream());
    all_operations(*comm, 50, Element::f32, 5, operands);
    HostOperands host;
    RunThreads run_threads;
    all_operations(*thread_communicators(run_threads, group_of(1))[0], 50, Element::f32, 5, host);
    const bool same = operands.kept() == host.kept();
    CHECK(same);
  }
  standins::check_nothing_left();
}

}  // namespace
}  // namespace echelon
