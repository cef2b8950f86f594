// Ranks with one GPU each, through stand-ins of NCCL.
#include "runtime/cuda/comm/nccl.hpp"

#include <cuda_runtime_api.h>

#include <array>
#include <cstring>

#include "runtime/comm/thread_communicator.hpp"
#include "tests/runtime/cuda/backend/device_memory.hpp"

namespace echelon {
namespace {

/// A GPU and a thread per member. `work` receives its communicator and its operands.
class OwnGpus {
 public:
  using Work = std::function<void(Communicator& comm, DeviceOperands& operands)>;

  OwnGpus(RunThreads& run_threads, const Group& group, bool blocking = false)
      : run_threads_(run_threads),
        group_(group),
        nccl_(run_threads, {}, kLimit, {.blocking = blocking}) {
    for (int member = 0; member < group.size(); ++member) {
      cudaSetDevice(member);
      operands_.emplace_back();
    }
    ends_.resize(operands_.size());
  }
  /// During a failure, streams end only after the operations they wait for are aborted.
  ~OwnGpus() {
    if (run_threads_.stopping()) nccl_.abort_all();
    ends_.clear();
  }
  void add(int member, const Work& work) {
    run_threads_.add("rank " + std::to_string(group_.rank(member)), [this, member, work] {
      const auto slot = static_cast<std::size_t>(member);
      cudaSetDevice(member);
      ends_[slot] = nccl_.join(group_, member, id_, operands_[slot].stream());
      work(*ends_[slot], operands_[slot]);
      wait(operands_[slot].stream(), group_.rank(member));
    });
  }
  [[nodiscard]] cuda::Nccl& nccl() { return nccl_; }
  [[nodiscard]] std::vector<Raw> kept() const {
    std::vector<Raw> all;
    for (const DeviceOperands& operands : operands_) all.push_back(operands.kept());
    return all;
  }

 private:
  static constexpr Seconds kLimit{5};
  /// As the end of a step does.
  void wait(cudaStream_t stream, int rank) {
    run_threads_.poll(
        [&] {
          nccl_.check(rank);
          return cudaStreamQuery(stream) == cudaSuccess;
        },
        [] { return std::string("the GPU"); });
  }

  RunThreads& run_threads_;
  const Group group_;
  const cuda::NcclId id_ = cuda::new_nccl_id();
  std::deque<DeviceOperands> operands_;
  cuda::Nccl nccl_;
  std::vector<std::unique_ptr<Communicator>> ends_;
};

TEST_CASE("every operation through NCCL is correct, in every order of streams") {
  std::uint64_t seed = 0;
  for (const standins::Order order : kOrders) {
    for (const int members : {2, 3, 5}) {
      for (const Element element : kElements) {
        const std::int64_t count = std::array{0, 1, 7, 300}[seed % 4];
        const bool blocking = seed % 3 == 0;
        CAPTURE(blocking, static_cast<int>(order), members, name_of(element), count);
        standins::start(settings_of(++seed, order, members));
        std::vector<Raw> found;
        {
          RunThreads run_threads(Seconds{20});
          OwnGpus gpus(run_threads, group_of(members), blocking);
          for (int member = 0; member < members; ++member) {
            gpus.add(member, [&](Communicator& comm, DeviceOperands& operands) {
              all_operations(comm, count, element, seed, operands);
            });
          }
          run_threads.run();
          found = gpus.kept();
        }
        standins::check_nothing_left();
        // The stand-ins sum in the order of ranks, which NCCL does not promise.
        RunThreads threads(Seconds{20});
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

/// The failures that end two of the members of {4,6} that do this.
RunFailure failure_of(const standins::Settings& machine, Seconds deadline,
                      const OwnGpus::Work& zero, const OwnGpus::Work& one, bool blocking = false) {
  standins::start(machine);
  RunFailure found(RunFailure::Kind::defect, "no failure");
  {
    RunThreads run_threads(deadline);
    OwnGpus gpus(run_threads, {"tp", {4, 6}}, blocking);
    gpus.add(0, zero);
    if (one) gpus.add(1, one);
    try {
      run_threads.run();
    } catch (const RunFailure& failure) {
      found = failure;
    }
  }
  standins::check_nothing_left();  // abort let all streams end
  return found;
}

void reduce_twice(Communicator& comm, DeviceOperands& operands) {
  for (int i = 0; i < 2; ++i) {
    comm.all_reduce(operands.place(Raw(256)), 64, Element::f32, Reduction::sum);
  }
}

bool says(const RunFailure& failure, const std::string& part) {
  INFO(failure.what());
  return std::string(failure.what()).find(part) != std::string::npos;
}

TEST_CASE("waiting for a member that does not join ends with the name of the group") {
  for (const bool blocking : {false, true}) {
    const RunFailure found = failure_of(settings_of(1, standins::Order::random, 2), Seconds{0.1},
                                        reduce_twice, {}, blocking);
    CHECK(found.kind() == RunFailure::Kind::hang);
    CHECK(says(found, "joining in the tp group of ranks {4,6}"));
  }
}

TEST_CASE("a call that does not return from NCCL is a hang, and aborting it ends the call") {
  standins::Settings machine = settings_of(1, standins::Order::random, 2);
  for (const int rank : {0, 1})
    machine.failures.push_back({standins::Failure::Kind::never_returns, rank, 1, "tp"});
  const RunFailure found = failure_of(machine, Seconds{0.2}, reduce_twice, reduce_twice, true);
  CHECK(found.kind() == RunFailure::Kind::hang);
  CHECK(says(found, "all_reduce of 64 f32 in the tp group of ranks {4,6} does not return"));
}

TEST_CASE("a call that NCCL never finishes is a hang, and aborting it ends the streams") {
  for (const standins::Order order : kOrders) {
    standins::Settings machine = settings_of(2, order, 2);
    machine.failures = {{standins::Failure::Kind::never_arrives, 1, 1, "tp"}};
    for (const bool blocking : {false, true}) {
      const RunFailure found =
          failure_of(machine, Seconds{0.2}, reduce_twice, reduce_twice, blocking);
      CHECK(found.kind() == RunFailure::Kind::hang);
      CHECK(says(found, "the GPU"));
    }
  }
}

TEST_CASE("a member that dies is lost to the others, with the group and NCCL's reason") {
  for (const standins::Order order : kOrders) {
    standins::Settings machine = settings_of(3, order, 2);
    machine.failures = {{standins::Failure::Kind::dies, 1, 1, "tp"}};
    for (const bool blocking : {false, true}) {
      const RunFailure found =
          failure_of(machine, Seconds{5}, reduce_twice, reduce_twice, blocking);
      CHECK(found.kind() == RunFailure::Kind::peer_lost);
      CHECK(says(found, "tp group of ranks {4,6}: NCCL says"));
    }
  }
}

std::string failure_of_nccl(RunThreads& run_threads) {
  try {
    run_threads.run();
  } catch (const RunFailure& failure) {
    return failure.what();
  }
  return "";
}

TEST_CASE("two members on one GPU are refused with NCCL's reason") {
  standins::start(settings_of(4, standins::Order::random, 1));
  {
    RunThreads run_threads(Seconds{5});
    cuda::Nccl nccl(run_threads);
    const cuda::NcclId id = cuda::new_nccl_id();
    DeviceOperands operands;
    for (const int member : {0, 1}) {
      run_threads.add("rank", [&, member] {
        static_cast<void>(nccl.join(group_of(2), member, id, operands.stream()));
      });
    }
    CHECK(failure_of_nccl(run_threads)
              .find("joining in the tp group of ranks {0,1}: NCCL says invalid usage "
                    "(Duplicate GPU detected") != std::string::npos);
  }
  standins::check_nothing_left();
}

TEST_CASE("calls to NCCL after it was aborted fail") {
  standins::start(settings_of(5, standins::Order::random, 2));
  {
    RunThreads run_threads(Seconds{5});
    OwnGpus gpus(run_threads, group_of(2));
    for (const int member : {0, 1}) {
      gpus.add(member, [&](Communicator& comm, DeviceOperands& operands) {
        gpus.nccl().abort_all();
        gpus.nccl().abort_all();
        gpus.nccl().check(member);
        reduce_twice(comm, operands);
      });
    }
    CHECK(failure_of_nccl(run_threads).find("given up") != std::string::npos);
  }
  standins::check_nothing_left();
}

/// Four members are split into {0,2} and {1}; 3 goes into no group. The sums of the groups'
/// numbers.
std::vector<std::int32_t> sums_of_split(bool blocking, int absent, std::string& failure) {
  standins::start(settings_of(7, standins::Order::random, 4));
  std::vector<std::int32_t> sums(4);
  {
    RunThreads run_threads(Seconds{absent < 0 ? 20.0 : 0.2});
    OwnGpus gpus(run_threads, group_of(4), blocking);
    const std::vector<Group> groups{{"pair", {0, 2}}, {"one", {1}}};
    for (int rank = 0; rank < 4; ++rank) {
      gpus.add(rank, [&, rank](Communicator& all, DeviceOperands& operands) {
        if (rank == absent) return;
        const int number = rank == 1 ? 1 : 0;
        const auto part =
            gpus.nccl().split(all, rank == 3 ? nullptr : &groups[std::size_t(number)], number,
                              rank / 2, operands.stream(), {.max_ctas = 4, .shares = true});
        REQUIRE((part == nullptr) == (rank == 3));
        if (part == nullptr) return;
        Raw own(sizeof(std::int32_t));
        const std::int32_t mine = 1 << rank;
        std::memcpy(own.data(), &mine, sizeof mine);
        std::byte* const sum = operands.place(own);
        part->all_reduce(sum, 1, Element::i32, Reduction::sum);
        operands.keep(sum, sizeof mine);
      });
    }
    failure = failure_of_nccl(run_threads);
    if (failure.empty()) {
      const std::vector<Raw> kept = gpus.kept();
      for (std::size_t rank = 0; rank < 3; ++rank)
        std::memcpy(&sums[rank], kept[rank].data(), sizeof sums[rank]);
    }
  }
  standins::check_nothing_left();
  return sums;
}

TEST_CASE("communicators that are split off connect the members of each group, and of none") {
  for (const bool blocking : {false, true}) {
    std::string failure;
    CHECK(sums_of_split(blocking, -1, failure) == std::vector<std::int32_t>{5, 2, 5, 0});
    CHECK(failure == "");
    sums_of_split(blocking, 2, failure);
    INFO(failure);
    CHECK(failure.find("splitting in the ") != std::string::npos);
  }
}

}  // namespace
}  // namespace echelon
