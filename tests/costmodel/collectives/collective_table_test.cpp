#include "costmodel/collectives/collective_table.hpp"

#include "costmodel/calibration/calibration_io.hpp"
#include "costmodel/collectives/collectives_fit.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

ClusterTopology hopper_nodes() { return ClusterTopology::load("dgx-h100", 0).value(); }

Calibration hopper_rates() {
  return prior_calibration(hopper_nodes().gpu(), *find_framework("megatron-core")).value();
}

/// A table that our own model generated with other rates.
std::vector<MeasuredCollective> written_by(const Calibration& rates) {
  std::vector<MeasuredCollective> rows;
  for (const int nodes : {1, 2}) {
    const int ranks = 8 * nodes;
    const ClusterTopology cluster = hopper_nodes().resized(ranks).value();
    for (const CollectiveKind kind : {CollectiveKind::all_gather, CollectiveKind::all_to_all}) {
      for (Bytes size = 1_KiB; size <= 4_GiB; size *= 2) {
        const Seconds time = collective_time(kind, size, apply(cluster.group({ranks, 1}), rates));
        rows.push_back({.kind = kind,
                        .nodes = nodes,
                        .ranks = ranks,
                        .bytes = size,
                        .time = time,
                        .machine = "",
                        .setting = "",
                        .source = ""});
      }
    }
  }
  return rows;
}

}  // namespace

TEST_CASE("times are interpolated log-log between two measured sizes, and unknown beyond them") {
  const auto rows = parse_collective_table(
                        "bytes,op,time_us,ranks,nodes,more\n"
                        "1024,allreduce,10,8,1,x\n"
                        "1024,all_reduce,40,8,1,x\n"
                        "4096,allreduce,80,8,1,x\n"
                        "65536,allreduce,99,8,1,x\n",
                        "t.csv")
                        .value();
  const auto at = [&](Bytes size) {
    return measured_time(rows, CollectiveKind::all_reduce, 1, 8, size);
  };
  CHECK(at(1_KiB)->in(1_us) == Approx(20));  // √(10 · 40)
  CHECK(at(2_KiB)->in(1_us) == Approx(40));  // √(20 · 80)
  CHECK_FALSE(at(512_B).has_value());
  CHECK_FALSE(at(8_KiB).has_value());  // 4 KiB to 64 KiB is too wide a gap
  CHECK_FALSE(at(128_KiB).has_value());
  CHECK_FALSE(measured_time(rows, CollectiveKind::all_reduce, 2, 8, 1_KiB).has_value());
  CHECK_FALSE(measured_time(rows, CollectiveKind::broadcast, 1, 8, 1_KiB).has_value());
}

TEST_CASE("a fit recovers the two rates that a table was generated with") {
  const Calibration prior = hopper_rates();
  const CollectiveFit truth{0.7, 1.9};
  const auto rows = place_collectives(written_by(fitted(prior, truth)), hopper_nodes()).value();
  const CollectiveFit found = fit_collectives(rows, prior);
  CHECK(found.bandwidth == Approx(truth.bandwidth).epsilon(0.03));
  CHECK(found.latency == Approx(truth.latency).epsilon(0.1));
  CHECK(*log_mean_error(rows, fitted(prior, found)) < 0.02);
  CHECK(*log_mean_error(rows, prior) > 0.2);
  const LeftOut left_out = left_out_errors(rows, prior);
  CHECK(*left_out.sizes < 0.02);
  CHECK(*left_out.kinds < 0.1);
}

TEST_CASE("rates that the rows do not determine are unchanged") {
  const Calibration prior = hopper_rates();
  const auto rows = place_collectives(written_by(prior), hopper_nodes()).value();
  const CollectiveFit same = fit_collectives(rows, prior);
  CHECK(same.bandwidth == 1);
  CHECK(same.latency == 1);
  const CollectiveFit nothing = fit_collectives({}, prior);
  CHECK(nothing.latency == 1);
  CHECK_FALSE(log_mean_error({}, prior).has_value());
}

TEST_CASE("rows are placed on whole nodes, a part of one, or one GPU of each") {
  const auto network = [](int nodes, int ranks) {
    const MeasuredCollective row{.kind = CollectiveKind::all_reduce,
                                 .nodes = nodes,
                                 .ranks = ranks,
                                 .bytes = 1_MiB,
                                 .time = 1_ms,
                                 .machine = "",
                                 .setting = "",
                                 .source = ""};
    return place_collectives(std::span(&row, 1), hopper_nodes());
  };
  CHECK(network(2, 16)->front().network.ranks_per_domain == 8);
  CHECK(network(1, 4)->front().network.domains == 1);
  const GroupNetwork singles = network(4, 4)->front().network;
  CHECK(singles.domains == 4);
  CHECK(singles.inter.in(1_Gbps) == Approx(400));
  CHECK_FALSE(network(2, 8).ok());
}
