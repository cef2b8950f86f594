#include "costmodel/collectives.hpp"

#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

/// A group without latency, so that the bandwidth terms stand alone.
GroupLinks wires(int ranks, int per_domain) {
  return {.ranks = ranks,
          .ranks_per_domain = per_domain,
          .domains = ranks / per_domain,
          .intra = 400_GBps,
          .inter = 100_GBps,
          .inter_per_rank = 50_GBps,
          .base = Seconds{},
          .intra_hop = Seconds{},
          .inter_hop = Seconds{}};
}

GroupLinks with_latency(GroupLinks g) {
  g.base = 10_us;
  g.intra_hop = 1_us;
  g.inter_hop = 5_us;
  return g;
}

}  // namespace

TEST_CASE("one rank communicates nothing") {
  const GroupLinks alone = with_latency(wires(1, 1));
  CHECK(all_reduce(1_GB, alone) == Seconds{});
  CHECK(all_gather(1_GB, alone) == Seconds{});
  CHECK(reduce_scatter(1_GB, alone) == Seconds{});
  CHECK(all_to_all(1_GB, alone) == Seconds{});
  CHECK(send_receive(1_GB, alone) == Seconds{});
}

TEST_CASE("a ring all-gather moves (n-1)/n of the data, an all-reduce twice that") {
  const GroupLinks g = wires(8, 8);
  CHECK(ring_all_gather(8_GB, g).in(1_s) == Approx(7e9 / 400e9));
  CHECK(ring_reduce_scatter(8_GB, g).in(1_s) == Approx(7e9 / 400e9));
  CHECK(ring_all_reduce(8_GB, g).in(1_s) == Approx(14e9 / 400e9));
}

TEST_CASE("a ring over two nodes runs at the speed of the slower level") {
  const GroupLinks g = wires(16, 8);
  CHECK(ring_all_gather(16_GB, g).in(1_s) == Approx(15e9 / 100e9));
}

TEST_CASE("ring latency counts the domain borders apart") {
  const GroupLinks g = with_latency(wires(16, 8));
  CHECK(ring_latency(g, 1).in(1_us) == Approx(14 * 1 + 1 * 5));
  CHECK(ring_latency(g, 2).in(1_us) == Approx(2 * (14 * 1 + 1 * 5)));
}

TEST_CASE(
    "a tree beats the ring for small messages over many nodes, the ring wins for large ones") {
  const GroupLinks g = with_latency(wires(256, 8));
  CHECK(tree_all_reduce(1_KiB, g) < ring_all_reduce(1_KiB, g));
  CHECK(ring_all_reduce(64_GiB, g) < tree_all_reduce(64_GiB, g));
  CHECK(all_reduce(1_KiB, g) <= tree_all_reduce(1_KiB, g));
}

TEST_CASE("the two-level all-reduce sends 2(N-1)/N of the data between nodes") {
  const GroupLinks g = wires(16, 8);
  CHECK(hierarchical_all_reduce(16_GB, g).in(1_s) == Approx(2 * 14e9 / 400e9 + 2 * 8e9 / 100e9));
}

TEST_CASE("all-to-all is bound by what one rank sends to other nodes") {
  const GroupLinks g = wires(16, 8);
  CHECK(all_to_all(16_GB, g).in(1_s) == Approx(8e9 / 50e9));
}

TEST_CASE("more bandwidth, fewer bytes and less latency never take longer") {
  for (const int per_domain : {1, 4, 8}) {
    const GroupLinks slow = with_latency(wires(32, per_domain));
    GroupLinks fast = slow;
    fast.intra *= 2;
    fast.inter *= 2;
    fast.inter_per_rank *= 2;
    GroupLinks prompt = slow;
    prompt.intra_hop /= 2;
    prompt.inter_hop /= 2;
    for (const Bytes size : {1_KiB, 1_MiB, 256_MiB, 16_GiB}) {
      for (const auto op :
           {&all_reduce, &all_gather, &reduce_scatter, &all_to_all, &send_receive}) {
        CHECK(op(size, fast) <= op(size, slow));
        CHECK(op(size, prompt) <= op(size, slow));
        CHECK(op(size / 2, slow) <= op(size, slow));
      }
    }
  }
}

TEST_CASE("reduce-scatter then all-gather costs one ring all-reduce and at most one more start") {
  const GroupLinks g = with_latency(wires(64, 8));
  for (const Bytes size : {1_MiB, 256_MiB, 8_GiB}) {
    CHECK(reduce_scatter(size, g) + all_gather(size, g) <=
          ring_all_reduce(size, g) + g.base * 1.001);
  }
}
