// NCCL's stand-in between processes.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <new>
#include <utility>

#include "runtime/comm/element.hpp"
#include "tests/runtime/cuda/standins/members.hpp"

namespace echelon::standins {
namespace {

/// State that the processes of a test share in addition to the stand-in's.
struct Board {
  ncclUniqueId id;
  std::atomic<int> step = 0;
  char wrong[4][4096] = {};
  unsigned char results[8][256] = {};

  void reach(int number) { step = std::max(step.load(), number); }
  void await(int number) const {
    for (int i = 0; step < number; ++i) {
      expect(i < 20000, "the other process does not come");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
};

/// The processes of a test, each with its own machine.
class Processes {
 public:
  using Body = std::function<void(int process, Board& board)>;

  Processes(int count, const Body& body) {
    void* const memory =
        mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    board_ = new (memory) Board;
    for (int process = 0; process < count; ++process) {
      const pid_t pid = fork();
      REQUIRE(pid >= 0);
      if (pid == 0) live(process, body);
      pids_.push_back(pid);
    }
  }
  ~Processes() {
    for (const pid_t pid : pids_) {
      if (pid > 0) kill(pid, SIGKILL);  // 0 would be all of the group
    }
    static_cast<void>(ended());
    munmap(board_, sizeof(Board));
  }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  [[nodiscard]] Board& board() const { return *board_; }
  void end(int process) {
    const pid_t pid = std::exchange(pids_[static_cast<std::size_t>(process)], 0);
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  /// The faults that each of them reported.
  [[nodiscard]] std::vector<std::string> ended() {
    std::vector<std::string> wrong;
    for (pid_t& pid : pids_) {
      wrong.emplace_back(board_->wrong[wrong.size()]);
      if (pid == 0) continue;
      int status = 0;
      waitpid(std::exchange(pid, 0), &status, 0);
      wrong.back() = board_->wrong[wrong.size() - 1];
      if (status != 0 && wrong.back().empty()) wrong.back() = "ended by a signal";
    }
    return wrong;
  }

 private:
  [[noreturn]] void live(int process, const Body& body) const {
    try {
      body(process, *board_);
    } catch (const std::exception& error) {
      std::strncpy(board_->wrong[process], error.what(), sizeof board_->wrong[0] - 1);
    }
    _exit(*board_->wrong[process] == '\0' ? 0 : 1);
  }

  Board* board_ = nullptr;
  std::vector<pid_t> pids_;
};

const std::vector<std::string> kGood2(2);

Settings machine_of(int process, int devices) {
  Settings settings;
  settings.seed = static_cast<std::uint64_t>(process) + 1;
  settings.devices = devices;
  settings.first_device = process * devices;
  return settings;
}

/// The same number of members in each process, one thread each. The first process creates the
/// identifier.
void members_of(int process, int devices, int ranks, Board& board, const Settings& settings,
                const std::function<void(const Member&)>& body) {
  start(settings);
  if (process == 0) {
    expect(ncclGetUniqueId(&board.id));
    board.reach(1);
  }
  board.await(1);
  const auto wrong = in_threads(devices, [&](int device) {
    expect(cudaSetDevice(device));
    Member me;
    me.rank = process * devices + device;
    me.stream = new_stream();
    ncclConfig_t config = named("between");
    expect(ncclCommInitRankConfig(&me.comm, ranks, board.id, me.rank, &config));
    body(me);
  });
  for (const std::string& one : wrong) {
    if (!one.empty()) throw std::runtime_error(one);
  }
}

/// One member in each of two processes.
Processes pair(const std::function<void(const Member&, Board&)>& body, Settings common = {}) {
  return Processes(2, [body, common](int process, Board& board) {
    Settings settings = common;
    settings.first_device = process;
    members_of(process, 1, 2, board, settings, [&](const Member& me) { body(me, board); });
  });
}

/// Every kind of call, on numbers whose sums depend on their order and rounding.
void use_all_calls(const Member& me, Board& board) {
  constexpr std::size_t kCount = 6;
  const auto r = static_cast<std::size_t>(me.rank);
  const float tricky[] = {1e8F, 0.1F, -1e8F, 0x1p-8F};
  std::vector<float> values;
  for (std::size_t i = 0; i < 4 * kCount; ++i) {
    values.push_back(tricky[(r + i) % 4] + static_cast<float>(i));
  }
  std::vector<Bfloat16> halves;
  for (const float value : values) halves.emplace_back(value);
  float* const x = on_the_device(values);
  float* const y = on_the_device<float>(4 * kCount);
  auto* const half = on_the_device(halves);
  expect(ncclAllReduce(x, y, kCount, ncclFloat32, ncclSum, me.comm, me.stream));
  expect(ncclReduceScatter(x, y + kCount, 1, ncclFloat32, ncclSum, me.comm, me.stream));
  expect(ncclAllReduce(x + 1, y + kCount + 1, 1, ncclFloat32, ncclMax, me.comm, me.stream));
  expect(ncclAllGather(x + 2, y + kCount + 2, 2, ncclFloat32, me.comm, me.stream));
  expect(ncclBroadcast(me.rank == 2 ? x : nullptr, y + kCount + 10, 3, ncclFloat32, 2, me.comm,
                       me.stream));
  expect(ncclAllReduce(half, half, kCount, ncclBfloat16, ncclSum, me.comm, me.stream));
  expect(ncclGroupStart());
  expect(ncclSend(x + 4, 1, ncclFloat32, (me.rank + 1) % 4, me.comm, me.stream));
  expect(ncclSend(x + 5, 1, ncclFloat32, (me.rank + 1) % 4, me.comm, me.stream));
  expect(ncclRecv(x, 1, ncclFloat32, (me.rank + 3) % 4, me.comm, me.stream));
  expect(ncclRecv(x + 1, 1, ncclFloat32, (me.rank + 3) % 4, me.comm, me.stream));
  expect(ncclGroupEnd());
  expect(me.wait());
  unsigned char* to = board.results[me.rank];
  const auto keep = [&to](const void* from, std::size_t bytes) {
    std::memcpy(to, from, bytes);
    to += bytes;
  };
  keep(y, (kCount + 13) * sizeof(float));
  keep(half, kCount * sizeof *half);
  keep(x, 2 * sizeof(float));
  free_memory(me, {x, y, half});
}

TEST_CASE("the stand-ins' collectives give the same bits between processes as between threads") {
  Processes threads(1, [](int process, Board& board) {
    members_of(process, 4, 4, board, machine_of(process, 4),
               [&](const Member& me) { use_all_calls(me, board); });
  });
  CHECK(threads.ended() == std::vector<std::string>(1));
  for (const Order order : kOrders) {
    for (const int devices : {1, 2}) {
      Processes processes(4 / devices, [order, devices](int process, Board& board) {
        Settings settings = machine_of(process, devices);
        settings.order = order;
        members_of(process, devices, 4, board, settings,
                   [&](const Member& me) { use_all_calls(me, board); });
        check_nothing_left();
      });
      CHECK(processes.ended() == std::vector<std::string>(static_cast<std::size_t>(4 / devices)));
      CHECK(std::memcmp(processes.board().results, threads.board().results,
                        sizeof threads.board().results) == 0);
    }
  }
}

TEST_CASE("mismatched calls are named in both processes of the stand-ins") {
  Processes processes = pair([](const Member& me, Board&) {
    float* const x = on_the_device<float>(8);
    const auto count = static_cast<std::size_t>(4 + me.rank);
    expect(ncclAllReduce(x, x, count, ncclFloat32, ncclSum, me.comm, me.stream));
    expect(me.wait());
  });
  for (const std::string& wrong : processes.ended()) {
    CHECK(says(wrong, "call 1 of a communicator is AllReduce of "));
    CHECK(says(wrong, "4 fp32 sum by rank 0 of 2 of communicator between"));
    CHECK(says(wrong, "5 fp32 sum by rank 1 of 2 of communicator between"));
  }
}

TEST_CASE("streams of the stand-ins proceed for another process while their own is busy") {
  Processes processes = pair([](const Member& me, Board& board) {
    float* const x = on_the_device(std::vector<float>{1});
    expect(ncclAllReduce(x, x, 1, ncclFloat32, ncclSum, me.comm, me.stream));
    if (me.rank == 1) board.await(2);
    expect(me.wait());
    board.reach(2);
    expect(*x == 2, "sum");
    free_memory(me, {x});
  });
  CHECK(processes.ended() == kGood2);
}

TEST_CASE("the time limit of the stand-ins counts while no process makes progress") {
  Settings settings;
  settings.limit = std::chrono::milliseconds(300);
  Processes processes = pair(
      [](const Member& me, Board& board) {
        float* const x = on_the_device(std::vector<float>{1});
        const auto sum = [&] {
          expect(ncclAllReduce(x, x, 1, ncclFloat32, ncclSum, me.comm, me.stream));
        };
        for (int i = 0; me.rank == 1 && i < 100; ++i) {
          affine(me.stream, x, 0, 1);
          expect(me.wait());
          std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
        sum();
        expect(me.wait());
        expect(*x == 2, "a second is not too long");
        if (me.rank == 1) return board.await(2);
        sum();
        const std::string stuck = complaint([&] { static_cast<void>(me.wait()); });
        board.reach(2);
        throw std::runtime_error(stuck);
      },
      settings);
  const auto wrong = processes.ended();
  CHECK(says(wrong[0], "nothing goes on"));
  CHECK(says(wrong[0], "waits for rank 1 to call (number 2)"));
  CHECK(wrong[1].empty());
}

TEST_CASE("two processes on one device of the stand-ins are refused as by NCCL") {
  Processes processes(2, [](int process, Board& board) {
    start(Settings{});
    if (process == 0) {
      expect(ncclGetUniqueId(&board.id));
      board.reach(1);
    }
    board.await(1);
    ncclComm_t comm = nullptr;
    expect(ncclCommInitRank(&comm, 2, board.id, process) == ncclInvalidUsage, "refused");
    expect(std::string(ncclGetLastError(nullptr)).find("Duplicate GPU detected") == 0, "why");
  });
  CHECK(processes.ended() == kGood2);
}

/// The second process is killed after one reduction of both; the first one has a call that waits
/// for it, and polls for a short time until it learns of the loss.
std::string heard_of_a_killed_process(bool over_network) {
  Settings settings;
  settings.over_network = over_network;
  Processes processes = pair(
      [](const Member& me, Board& board) {
        float* const x = on_the_device(std::vector<float>{1});
        expect(ncclAllReduce(x, x, 1, ncclFloat32, ncclSum, me.comm, me.stream));
        expect(me.wait());
        if (me.rank == 1) {
          board.reach(2);
          board.await(1000);
        }
        expect(ncclAllReduce(x, x, 1, ncclFloat32, ncclSum, me.comm, me.stream));
        board.await(3);
        ncclResult_t state = ncclSuccess;
        for (int i = 0; i < 300 && state == ncclSuccess; ++i) {
          expect(ncclCommGetAsyncError(me.comm, &state));
          expect(cudaStreamQuery(me.stream) == cudaErrorNotReady, "it stands");
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        expect(ncclCommAbort(me.comm));
        expect(me.wait());
        expect(*x == 2, "the first sum is still there");
        expect(cudaFree(x));
        expect(cudaStreamDestroy(me.stream));
        check_nothing_left();
        expect(state);
      },
      settings);
  processes.board().await(2);
  processes.end(1);
  processes.board().reach(3);
  return processes.ended()[0];
}

TEST_CASE(
    "a killed process is an error of the stand-ins over a network, and nothing within a host") {
  CHECK(heard_of_a_killed_process(true) == ncclGetErrorString(ncclRemoteError));
  CHECK(heard_of_a_killed_process(false).empty());
}

TEST_CASE("a process of the stand-ins can be killed at any time without blocking the others") {
  for (int i = 0; i < 10; ++i) {
    Settings settings;
    settings.over_network = true;
    Processes processes = pair(
        [](const Member& me, Board& board) {
          constexpr std::size_t kCount = 100000;
          float* const x = on_the_device(std::vector<float>(kCount, 1));
          board.reach(2);
          for (;;) {
            const ncclResult_t result =
                ncclAllReduce(x, x, kCount, ncclFloat32, ncclMax, me.comm, me.stream);
            ncclResult_t state = result;
            while (state == ncclSuccess && cudaStreamQuery(me.stream) == cudaErrorNotReady) {
              expect(ncclCommGetAsyncError(me.comm, &state));
            }
            if (state == ncclSuccess) continue;
            expect(ncclCommAbort(me.comm));
            expect(me.wait());
            expect(state);
          }
        },
        settings);
    processes.board().await(2);
    std::this_thread::sleep_for(std::chrono::milliseconds(3 * i));
    processes.end(1);
    CHECK(processes.ended()[0] == ncclGetErrorString(ncclRemoteError));
  }
}

TEST_CASE("an identifier of an ended process is refused by the stand-ins") {
  Processes processes(1, [](int, Board& board) {
    start(Settings{});
    expect(ncclGetUniqueId(&board.id));
  });
  CHECK(processes.ended() == std::vector<std::string>(1));
  start(Settings{});
  ncclComm_t comm = nullptr;
  CHECK(ncclCommInitRank(&comm, 2, processes.board().id, 1) == ncclInvalidArgument);
  CHECK(says(ncclGetLastError(nullptr), "of a process that is gone"));
}

}  // namespace
}  // namespace echelon::standins
