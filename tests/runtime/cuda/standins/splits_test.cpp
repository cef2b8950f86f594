#include "tests/runtime/cuda/standins/members.hpp"

namespace echelon::standins {
namespace {

/// Threads of so many ranks, with a communicator of all. `share`: its splitShare.
template <class Body>
std::vector<std::string> all_members(int ranks, int limit, int share, const Body& body) {
  Settings settings;
  settings.devices = ranks;
  settings.limit = std::chrono::milliseconds(limit);
  start(settings);
  ncclUniqueId id;
  CHECK(ncclGetUniqueId(&id) == ncclSuccess);
  return in_threads(ranks, [&](int rank) {
    expect(cudaSetDevice(rank));
    Member me;
    me.rank = rank;
    me.stream = new_stream();
    ncclConfig_t config = named("whole");
    config.splitShare = share;
    expect(ncclCommInitRankConfig(&me.comm, ranks, id, rank, &config));
    body(me);
  });
}

/// Rank 0 calls in the whole communicator first, rank 1 in the part of it, on two streams each.
std::vector<std::string> crossed_calls(int share) {
  return all_members(2, 200, share, [&](const Member& me) {
    ncclConfig_t config = named("part");
    Member part = me;
    part.stream = new_stream();
    expect(ncclCommSplit(me.comm, 0, 1 - me.rank, &part.comm, &config));
    int rank = -1;
    expect(ncclCommUserRank(part.comm, &rank));
    expect(rank == 1 - me.rank, "the order of keys");
    float* const x = on_the_device<float>(1);
    float* const y = on_the_device<float>(1);
    const auto whole = [&] {
      expect(ncclAllReduce(x, x, 1, ncclFloat32, ncclSum, me.comm, me.stream));
    };
    if (me.rank == 0) whole();
    expect(ncclAllReduce(y, y, 1, ncclFloat32, ncclSum, part.comm, part.stream));
    if (me.rank == 1) whole();
    expect(me.wait());
    expect(part.wait());
  });
}

TEST_CASE("communicators that share resources run their calls one after the other") {
  CHECK(crossed_calls(0) == std::vector<std::string>(2));
  CHECK(crossed_calls(1).front().find("nothing goes on") != std::string::npos);
}

TEST_CASE("ranks without a color are in no part of a split communicator") {
  const auto wrong = all_members(3, 30000, 0, [](const Member& me) {
    ncclConfig_t config = named("part");
    ncclComm_t part = nullptr;
    expect(ncclCommSplit(me.comm, me.rank == 1 ? NCCL_SPLIT_NOCOLOR : 5, me.rank, &part, &config));
    expect((part == nullptr) == (me.rank == 1), "a part");
    if (part == nullptr) return;
    int size = 0;
    expect(ncclCommCount(part, &size));
    expect(size == 2, "two members");
  });
  CHECK(wrong == std::vector<std::string>(3));
}

TEST_CASE("a split waits for all members of the communicator") {
  const auto wrong = all_members(2, 100, 0, [](const Member& me) {
    ncclConfig_t config = named("part");
    ncclComm_t part = nullptr;
    if (me.rank == 0) expect(ncclCommSplit(me.comm, 0, 0, &part, &config));
  });
  CHECK(wrong.front().find("ncclCommSplit of rank 0") != std::string::npos);
}

}  // namespace
}  // namespace echelon::standins
