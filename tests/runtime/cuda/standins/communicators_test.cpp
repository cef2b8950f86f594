#include <atomic>
#include <thread>

#include "runtime/comm/element.hpp"
#include "tests/runtime/cuda/standins/members.hpp"

namespace echelon::standins {
namespace {

template <class Body>
std::vector<std::string> members(int ranks, Settings settings, const Body& body,
                                 const char* name = "group") {
  settings.devices = ranks;
  start(settings);
  ncclUniqueId id;
  CHECK(ncclGetUniqueId(&id) == ncclSuccess);
  return in_threads(ranks, [&](int rank) {
    expect(cudaSetDevice(rank));
    Member me;
    me.rank = rank;
    me.stream = new_stream();
    ncclConfig_t config = named(name);
    expect(ncclCommInitRankConfig(&me.comm, ranks, id, rank, &config));
    body(me);
  });
}

const std::vector<std::string> kGood3(3);

TEST_CASE("collectives of the stand-ins give the results of NCCL") {
  for (const Order order : kOrders) {
    for (std::uint64_t seed = 1; seed < 6; ++seed) {
      Settings settings;
      settings.order = order;
      settings.seed = seed;
      const auto wrong = members(3, settings, [](const Member& me) {
        const auto r = static_cast<float>(me.rank);
        float* const x = on_the_device(std::vector<float>{r, 10 * r, 1, 2, 3, 4});
        float* const y = on_the_device<float>(6);
        expect(ncclAllReduce(x, y, 6, ncclFloat32, ncclSum, me.comm, me.stream));
        expect(me.wait());
        expect(content(y, 3) == std::vector<float>{3, 30, 3}, "sums");
        expect(ncclAllReduce(x, x, 2, ncclFloat32, ncclMax, me.comm, me.stream));
        expect(ncclReduceScatter(x, x + 2 * me.rank, 2, ncclFloat32, ncclSum, me.comm, me.stream));
        expect(me.wait());
        const std::vector<float> parts[] = {{6, 60}, {3, 6}, {9, 12}};
        expect(content(x + 2 * me.rank, 2) == parts[me.rank], "scattered sums");
        expect(ncclAllGather(x + 2 * me.rank, x, 2, ncclFloat32, me.comm, me.stream));
        expect(ncclBroadcast(me.rank == 1 ? x : nullptr, y, 6, ncclFloat32, 1, me.comm, me.stream));
        expect(me.wait());
        expect(content(x, 6) == std::vector<float>{6, 60, 3, 6, 9, 12}, "gathered");
        expect(content(y, 6) == content(x, 6), "broadcast");
        expect(ncclGroupStart());
        expect(ncclSend(x + me.rank, 1, ncclFloat32, (me.rank + 1) % 3, me.comm, me.stream));
        expect(ncclRecv(y, 1, ncclFloat32, (me.rank + 2) % 3, me.comm, me.stream));
        expect(ncclGroupEnd());
        expect(me.wait());
        expect(*y == std::vector<float>{3, 6, 60}[static_cast<std::size_t>(me.rank)], "ring");
        free_memory(me, {x, y});
      });
      CHECK(wrong == kGood3);
      CHECK(complaint([] { check_nothing_left(); }).empty());
    }
  }
}

TEST_CASE("sums of the stand-ins' collectives are in the order of ranks, and rounded once") {
  const auto wrong = members(3, {}, [](const Member& me) {
    // In bf16 1 + 2^-8 is 1; both together are not.
    const float values[] = {1, 0x1p-8F, 0x1p-8F};
    auto* const half = on_the_device(std::vector<Bfloat16>{Bfloat16(values[me.rank])});
    expect(ncclAllReduce(half, half, 1, ncclBfloat16, ncclSum, me.comm, me.stream));
    const float order[] = {1e8F, 1, -1e8F};
    auto* const single = on_the_device(std::vector<float>{order[me.rank]});
    expect(ncclAllReduce(single, single, 1, ncclFloat32, ncclSum, me.comm, me.stream));
    auto* const wide = on_the_device(std::vector<double>{double{order[me.rank]}});
    expect(ncclAllReduce(wide, wide, 1, ncclFloat64, ncclSum, me.comm, me.stream));
    auto* const whole = on_the_device(std::vector<std::int32_t>{me.rank - 5});
    expect(ncclAllReduce(whole, whole, 1, ncclInt32, ncclMax, me.comm, me.stream));
    expect(me.wait());
    expect(static_cast<float>(*half) == 1 + 0x1p-7F, "rounded once");
    expect(*single == 0, "order of ranks");
    expect(*wide == 1, "fp64");
    expect(*whole == -3, "int32");
  });
  CHECK(wrong == kGood3);
}

TEST_CASE("the stand-ins name mismatched calls") {
  const auto wrong_with = [](const auto& call) {
    const auto wrong = members(2, {}, [&](const Member& me) {
      float* const x = on_the_device<float>(8);
      call(me, x);
      expect(me.wait());
    });
    CHECK(wrong[0] == wrong[1]);
    return wrong[0];
  };
  const std::string count = wrong_with([](const Member& me, float* x) {
    const auto n = static_cast<std::size_t>(4 + me.rank);
    ncclAllReduce(x, x, n, ncclFloat32, ncclSum, me.comm, me.stream);
  });
  CHECK(says(count, "call 1 of a communicator"));
  CHECK(says(count, "AllReduce of 4 fp32 sum by rank 0 of 2 of communicator group"));
  CHECK(says(count, "AllReduce of 5 fp32 sum by rank 1 of 2 of communicator group"));
  CHECK(says(wrong_with([](const Member& me, float* x) {
               ncclAllReduce(x, x, 4, me.rank == 0 ? ncclFloat32 : ncclInt32, ncclSum, me.comm,
                             me.stream);
             }),
             "AllReduce of 4 int32 sum"));
  CHECK(says(wrong_with([](const Member& me, float* x) {
               ncclAllReduce(x, x, 4, ncclFloat32, me.rank == 0 ? ncclSum : ncclMax, me.comm,
                             me.stream);
             }),
             "AllReduce of 4 fp32 max"));
  CHECK(says(wrong_with([](const Member& me, float* x) {
               ncclBroadcast(x, x, 4, ncclFloat32, me.rank, me.comm, me.stream);
             }),
             "Broadcast of 4 fp32 from rank 1"));
  CHECK(says(wrong_with([](const Member& me, float* x) {
               if (me.rank == 0) {
                 ncclAllReduce(x, x, 4, ncclFloat32, ncclSum, me.comm, me.stream);
               } else {
                 ncclAllGather(x, x + 4, 2, ncclFloat32, me.comm, me.stream);
               }
             }),
             "AllGather of 2 fp32"));
  CHECK(says(wrong_with([](const Member& me, float* x) {
               if (me.rank == 0) {
                 ncclSend(x, 4, ncclFloat32, 1, me.comm, me.stream);
               } else {
                 ncclRecv(x, 3, ncclFloat32, 0, me.comm, me.stream);
               }
             }),
             "Recv of 3 fp32 from rank 0"));
}

TEST_CASE("operands of the stand-ins' collectives are in device memory, in place or disjoint") {
  const auto wrong_with = [](const auto& call) {
    return members(1, {}, [&](const Member& me) { call(me, on_the_device<float>(8)); })[0];
  };
  CHECK(says(wrong_with([](const Member& me, float* x) {
               ncclAllReduce(x, x, 9, ncclFloat32, ncclSum, me.comm, me.stream);
             }),
             "outside a live allocation"));
  CHECK(says(wrong_with([](const Member& me, float* x) {
               ncclAllReduce(x, x + 1, 4, ncclFloat32, ncclSum, me.comm, me.stream);
             }),
             "overlaps"));
  CHECK(says(wrong_with([](const Member& me, float*) {
               auto* const host = pinned<float>(8);
               ncclAllReduce(host, host, 4, ncclFloat32, ncclSum, me.comm, me.stream);
             }),
             "pinned memory"));
}

TEST_CASE(
    "a ring of sends without a group stands still, and the stand-ins say who waits for whom") {
  Settings settings;
  settings.limit = std::chrono::milliseconds(100);
  const auto wrong = members(2, settings, [](const Member& me) {
    float* const x = on_the_device<float>(2);
    expect(ncclSend(x, 1, ncclFloat32, 1 - me.rank, me.comm, me.stream));
    expect(ncclRecv(x + 1, 1, ncclFloat32, 1 - me.rank, me.comm, me.stream));
    expect(me.wait());
  });
  CHECK(says(wrong[0], "nothing goes on"));
  CHECK(says(wrong[0], "waits for rank 1 in stream"));
  CHECK(says(wrong[0], "waits for rank 0 in stream"));
  CHECK(wrong[1] == wrong[0]);
}

TEST_CASE("calls on one communicator of the stand-ins run one after the other on any streams") {
  Settings settings;
  settings.limit = std::chrono::milliseconds(100);
  std::atomic<cudaEvent_t> after_second = nullptr;
  const auto wrong = members(2, settings, [&](const Member& me) {
    float* const x = on_the_device(std::vector<float>{1, 1});
    cudaStream_t const other = new_stream();
    // Rank 0's first call comes after rank 1's second one, which comes after its first one.
    while (me.rank == 0 && after_second == nullptr) std::this_thread::yield();
    if (me.rank == 0) expect(cudaStreamWaitEvent(me.stream, after_second));
    expect(ncclAllReduce(x, x, 1, ncclFloat32, ncclSum, me.comm, me.stream));
    expect(ncclAllReduce(x + 1, x + 1, 1, ncclFloat32, ncclSum, me.comm, other));
    if (me.rank == 1) {
      cudaEvent_t const event = new_event();
      expect(cudaEventRecord(event, other));
      after_second = event;
    }
    expect(me.wait());
  });
  CHECK(says(wrong[0], "an earlier operation of rank"));
  CHECK(says(wrong[0], "a wait for event 1 waits for event 1 of stream"));
}

TEST_CASE("two ranks on one device of the stand-ins are refused as by NCCL") {
  start(1, Order::random);
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  const auto wrong = in_threads(2, [&](int rank) {
    ncclComm_t comm = nullptr;
    expect(ncclCommInitRank(&comm, 2, id, rank) == ncclInvalidUsage, "refused");
    expect(comm == nullptr, "no communicator");
    constexpr const char* kWhy = "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device";
    expect(std::string(ncclGetLastError(nullptr)).find(kWhy) == 0, "why");
  });
  CHECK(wrong == std::vector<std::string>(2));
  CHECK(complaint([] { check_nothing_left(); }).empty());
}

TEST_CASE("a rank that never joins a communicator of the stand-ins is named") {
  Settings settings;
  settings.limit = std::chrono::milliseconds(50);
  start(settings);
  ncclUniqueId id;
  ncclGetUniqueId(&id);
  ncclComm_t comm = nullptr;
  CHECK(says(complaint([&] { ncclCommInitRank(&comm, 3, id, 1); }), "without rank 0, 2,"));
}

TEST_CASE("nonblocking communicators of the stand-ins enqueue calls when they are polled") {
  bool deferred = false;
  for (std::uint64_t seed = 1; seed < 9; ++seed) {
    Settings settings;
    settings.seed = seed;
    start(settings);
    ncclUniqueId id;
    ncclGetUniqueId(&id);
    ncclComm_t comm = nullptr;
    ncclConfig_t config = named("own", 0);
    const auto finish = [&] {
      ncclResult_t state = ncclInProgress;
      while (state == ncclInProgress) CHECK(ncclCommGetAsyncError(comm, &state) == ncclSuccess);
      CHECK(state == ncclSuccess);
    };
    CHECK(ncclCommInitRankConfig(&comm, 1, id, 0, &config) == ncclInProgress);
    finish();
    cudaStream_t const stream = new_stream();
    auto* const x = on_the_device(std::vector<float>{7});
    auto* const y = on_the_device<float>(1);
    const ncclResult_t result = ncclAllReduce(x, y, 1, ncclFloat32, ncclSum, comm, stream);
    if (result == ncclInProgress) {
      deferred = true;
      CHECK(ncclAllReduce(x, y, 1, ncclFloat32, ncclSum, comm, stream) == ncclInvalidArgument);
      CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
      CHECK(*y != *y);  // it had not joined yet
    }
    finish();
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(*y == 7);
    CHECK(ncclCommFinalize(comm) == ncclInProgress);
    finish();
    CHECK(ncclCommDestroy(comm) == ncclSuccess);
  }
  CHECK(deferred);
}

TEST_CASE(
    "a member of the stand-ins that never arrives leaves the others waiting until they abort") {
  for (const Failure::Kind kind : {Failure::Kind::never_arrives, Failure::Kind::dies}) {
    Settings settings;
    settings.failures = {{kind, 1, 1, "fragile"}};
    std::atomic<int> through = 0;
    const auto wrong = members(
        2, settings,
        [&](const Member& me) {
          float* const x = on_the_device(std::vector<float>{1});
          cudaEvent_t const event = new_event();
          expect(ncclAllReduce(x, x, 1, ncclFloat32, ncclSum, me.comm, me.stream));
          expect(me.wait());
          const ncclResult_t second =
              ncclAllReduce(x, x, 1, ncclFloat32, ncclSum, me.comm, me.stream);
          const bool dies = kind == Failure::Kind::dies && me.rank == 1;
          // Rank 0 may have heard of it before its own call.
          const bool heard = kind == Failure::Kind::dies && second == ncclRemoteError;
          expect(second == (dies    ? ncclSystemError
                            : heard ? ncclRemoteError
                                    : ncclSuccess),
                 "call");
          cudaEventRecord(event, me.stream);
          if (!dies && !heard) {
            for (int i = 0; i < 100; ++i) {
              expect(cudaEventQuery(event) == cudaErrorNotReady, "it stands");
            }
          }
          if (kind == Failure::Kind::dies) {
            ncclResult_t state = ncclSuccess;
            while (state == ncclSuccess) expect(ncclCommGetAsyncError(me.comm, &state));
            expect(state == (me.rank == 1 ? ncclSystemError : ncclRemoteError), "told");
          }
          ++through;
          while (through < 2) std::this_thread::yield();
          expect(ncclCommAbort(me.comm));
          expect(me.wait());
          expect(*x == 2, "the first sum is still there");
        },
        "fragile");
    CHECK(wrong == std::vector<std::string>(2));
  }
}

TEST_CASE("a member of the stand-ins that aborts is an error of the others") {
  const auto wrong = members(2, {}, [&](const Member& me) {
    if (me.rank == 0) {
      expect(ncclCommAbort(me.comm));
      return;
    }
    ncclResult_t state = ncclSuccess;
    for (int i = 0; i < 5000 && state == ncclSuccess; ++i) {
      expect(ncclCommGetAsyncError(me.comm, &state));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    expect(state == ncclRemoteError, "told");
    expect(ncclCommAbort(me.comm));
  });
  CHECK(wrong == std::vector<std::string>(2));
}

TEST_CASE("the time limit of the stand-ins names a member that the test holds back") {
  Settings settings;
  settings.limit = std::chrono::milliseconds(100);
  settings.failures = {{Failure::Kind::never_arrives, 1, 0, ""}};
  const auto wrong = members(2, settings, [&](const Member& me) {
    float* const x = on_the_device<float>(1);
    expect(ncclAllReduce(x, x, 1, ncclFloat32, ncclSum, me.comm, me.stream));
    expect(me.wait());
  });
  CHECK(says(wrong[0], "waits for rank 1, which never arrives"));
}

TEST_CASE("collectives of the stand-ins can be captured, and are matched at every launch") {
  for (std::uint64_t seed = 1; seed < 6; ++seed) {
    Settings settings;
    settings.seed = seed;
    const auto wrong = members(2, settings, [](const Member& me) {
      float* const x = on_the_device(std::vector<float>{1});
      expect(cudaStreamBeginCapture(me.stream, cudaStreamCaptureModeThreadLocal));
      expect(ncclAllReduce(x, x, 1, ncclFloat32, ncclSum, me.comm, me.stream));
      affine(me.stream, x, 1, 1);
      cudaGraph_t graph = nullptr;
      expect(cudaStreamEndCapture(me.stream, &graph));
      cudaGraphExec_t exec = nullptr;
      expect(cudaGraphInstantiate(&exec, graph));
      for (int i = 0; i < 3; ++i) expect(cudaGraphLaunch(exec, me.stream));
      expect(me.wait());
      expect(*x == 15, "((1·2 + 1)·2 + 1)·2 + 1");
    });
    CHECK(wrong == std::vector<std::string>(2));
  }
}

}  // namespace
}  // namespace echelon::standins
