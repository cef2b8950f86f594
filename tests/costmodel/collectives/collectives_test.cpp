#include "costmodel/collectives/collectives.hpp"

#include "costmodel/calibration/calibration_io.hpp"

#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

/// A group without latency, which isolates the bandwidth terms.
GroupLinks wires(int ranks, int per_domain) {
  return {.ranks = ranks,
          .ranks_per_domain = per_domain,
          .domains = ranks / per_domain,
          .intra = 400_GBps,
          .inter = 100_GBps,
          .inter_per_rank = 50_GBps,
          .intra_exchange = 200_GBps,
          .inter_exchange = 25_GBps,
          .in_switch = BytesPerSecond{},
          .base = Seconds{},
          .intra_hop = Seconds{},
          .inter_hop = Seconds{},
          .switch_base = Seconds{}};
}

GroupLinks with_latency(GroupLinks g) {
  g.base = 10_us;
  g.intra_hop = 1_us;
  g.inter_hop = 5_us;
  return g;
}

}  // namespace

TEST_CASE("a single rank does not communicate") {
  const GroupLinks alone = with_latency(wires(1, 1));
  CHECK(all_reduce(1_GB, alone) == Seconds{});
  CHECK(all_gather(1_GB, alone) == Seconds{});
  CHECK(reduce_scatter(1_GB, alone) == Seconds{});
  CHECK(all_to_all(1_GB, alone) == Seconds{});
  CHECK(send_receive(1_GB, alone) == Seconds{});
}

TEST_CASE("a ring all-gather moves (n-1)/n of the data, an all-reduce twice that") {
  const GroupLinks g = wires(8, 8);
  CHECK(ring_all_gather(8_GB, g).time().in(1_s) == Approx(7e9 / 400e9));
  CHECK(reduce_scatter(8_GB, g).in(1_s) == Approx(7e9 / 400e9));
  CHECK(ring_all_reduce(8_GB, g).time().in(1_s) == Approx(14e9 / 400e9));
}

TEST_CASE("a ring over two nodes runs at the speed of the slower level") {
  const GroupLinks g = wires(16, 8);
  CHECK(ring_all_gather(16_GB, g).time().in(1_s) == Approx(15e9 / 100e9));
}

TEST_CASE("ring latency counts hops between domains separately") {
  const GroupLinks g = with_latency(wires(16, 8));
  CHECK(ring_latency(g, 1).in(1_us) == Approx(14 * 1 + 1 * 5));
  CHECK(ring_latency(g, 2).in(1_us) == Approx(2 * (14 * 1 + 1 * 5)));
}

TEST_CASE(
    "a tree beats the ring for small messages over many nodes, the ring wins for large ones") {
  const GroupLinks g = with_latency(wires(256, 8));
  CHECK(tree_all_reduce(1_KiB, g).time() < ring_all_reduce(1_KiB, g).time());
  CHECK(ring_all_reduce(64_GiB, g).time() < tree_all_reduce(64_GiB, g).time());
  CHECK(all_reduce(1_KiB, g) == tree_all_reduce(1_KiB, g).time());
  CHECK(all_reduce(64_GiB, g) == ring_all_reduce(64_GiB, g).time());
}

TEST_CASE("a tree over two domains sends the data out of each once, a tree over more twice") {
  CHECK(tree_all_reduce(16_GB, wires(16, 8)).wire.in(1_s) == Approx(16e9 / 100e9 / 0.92));
  CHECK(tree_all_reduce(16_GB, wires(32, 8)).wire.in(1_s) == Approx(2 * 16e9 / 100e9 / 0.92));
  // Inside one domain the data goes up and down.
  CHECK(tree_all_reduce(16_GB, wires(8, 8)).wire.in(1_s) == Approx(2 * 16e9 / 400e9 / 0.92));
}

TEST_CASE("with in-switch reduction the data is sent once") {
  GroupLinks g = with_latency(wires(8, 8));
  CHECK(all_reduce(8_GB, g) == ring_all_reduce(8_GB, g).time());
  g.in_switch = 300_GBps;
  g.switch_base = 25_us;
  CHECK(switch_all_reduce(8_GB, g).wire.in(1_s) == Approx(8e9 / 300e9));
  CHECK(all_reduce(8_GB, g) == switch_all_reduce(8_GB, g).time());
  CHECK(chosen_collective(CollectiveKind::all_reduce, 8_GB, g).algorithm == "nvls");
}

TEST_CASE("NVLS of an H100 node runs at the bandwidth its NCCL constants give") {
  // NCCL 2.28: 8 heads of 40 GB/s, 0.85 of them: 272 GB/s, bus bandwidth 476; measured 477.
  const ClusterTopology node = ClusterTopology::load("dgx-h100", 8).value();
  const Calibration hopper =
      prior_calibration(node.gpu(), *find_framework("megatron-core")).value();
  CHECK(apply(node.group({8, 1}), hopper).in_switch.in(1_GBps) == Approx(272));
  CHECK(apply(node.group({2, 1}), hopper).in_switch == BytesPerSecond{});  // two ranks: no NVLS
  const ClusterTopology older = ClusterTopology::load("dgx-a100", 8).value();
  CHECK(apply(older.group({8, 1}), hopper).in_switch == BytesPerSecond{});
}

TEST_CASE("the best mix of protocols and chunks balances latency and bytes") {
  const Transfer transfer{10_us, 9_us, 4_us};
  CHECK(transfer.time().in(1_us) == Approx(10 + 25));  // (3 + 2)²
  for (double x = 0.01; x < 100; x *= 1.1) {
    CHECK(transfer.time() <=
          transfer.base + (1 + x) * transfer.latency + (1 + 1 / x) * transfer.wire + 1e-9 * 1_us);
  }
}

TEST_CASE("a long message gives up no more than two latencies for bandwidth") {
  CHECK(Transfer{10_us, 4_us, 4_us}.time().in(1_us) == Approx(10 + 4 + 4 + 8));
  CHECK(Transfer{10_us, 4_us, 9_us}.time().in(1_us) == Approx(10 + 4 + 9 + 8));
  CHECK(Transfer{10_us, 4_us, 900_us}.time().in(1_us) == Approx(10 + 4 + 900 + 8));
}

TEST_CASE("short messages use LL, long ones Simple, those between LL128") {
  const GroupLinks g = with_latency(wires(8, 8));
  const auto protocol = [&](Bytes size) {
    return chosen_collective(CollectiveKind::all_gather, size, g).protocol;
  };
  CHECK(protocol(64_KiB) == "ll");
  CHECK(protocol(64_MiB) == "ll128");
  CHECK(protocol(8_GiB) == "simple");
  CHECK(chosen_collective(CollectiveKind::send_recv, 64_MiB, g).protocol == "simple");
}

TEST_CASE("a collective has one name here and one in nccl-tests") {
  for (const CollectiveKind kind : all_collectives()) {
    CHECK(collective_named(name_of(kind)) == kind);
  }
  CHECK(collective_named("alltoall") == CollectiveKind::all_to_all);
  CHECK(collective_named("sendrecv") == CollectiveKind::send_recv);
  CHECK_FALSE(collective_named("gather").has_value());
  CHECK(bus_factor(CollectiveKind::all_reduce, 16) == Approx(2 * 15.0 / 16));
  CHECK(bus_factor(CollectiveKind::broadcast, 16) == 1);
}

TEST_CASE("no model beats the bound of the data sheet") {
  for (const char* name : {"dgx-h100", "dgx-a100", "gb200-nvl72", "aws-p3dn", "rtx-4090"}) {
    const ClusterTopology cluster = ClusterTopology::load(name, 0).value();
    const Calibration prior =
        prior_calibration(cluster.gpu(), *find_framework("megatron-core")).value();
    for (const int ranks : {2, 4, 8, 16}) {
      if (ranks > cluster.gpus()) continue;
      const GroupNetwork network = cluster.group({ranks, 1});
      for (const CollectiveKind kind : all_collectives()) {
        for (const Bytes size : {1_KiB, 1_MiB, 16_GiB}) {
          INFO(name << " " << name_of(kind) << " of " << ranks);
          CHECK(collective_bound(kind, size, network) > Seconds{});
          CHECK(collective_bound(kind, size, network) <
                collective_time(kind, size, apply(network, prior)));
        }
      }
    }
  }
}

TEST_CASE("all-to-all is bound by the bytes that one rank sends to other nodes") {
  const GroupLinks g = wires(16, 8);
  CHECK(all_to_all(16_GB, g).in(1_s) == Approx(8e9 / 25e9));
}

TEST_CASE("more bandwidth, fewer bytes and less latency never take longer") {
  for (const int per_domain : {1, 4, 8}) {
    const GroupLinks slow = with_latency(wires(32, per_domain));
    GroupLinks fast = slow;
    fast.intra *= 2;
    fast.inter *= 2;
    fast.inter_per_rank *= 2;
    fast.intra_exchange *= 2;
    fast.inter_exchange *= 2;
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

TEST_CASE("reduce-scatter then all-gather costs one ring all-reduce plus at most one launch") {
  const GroupLinks g = with_latency(wires(64, 8));
  for (const Bytes size : {1_MiB, 256_MiB, 8_GiB}) {
    CHECK(reduce_scatter(size, g) + all_gather(size, g) <=
          ring_all_reduce(size, g).time() + g.base * 1.001);
  }
}
