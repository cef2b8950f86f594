#include <fmt/format.h>

#include <array>
#include <cmath>

#include "core/expects.hpp"
#include "costmodel/collectives.hpp"
#include "report/machines.hpp"
#include "report/table.hpp"
#include "report/words.hpp"

namespace echelon {

namespace {

constexpr std::array<std::string_view, 5> kNames = {"all_reduce", "all_gather", "reduce_scatter",
                                                    "all_to_all", "send_recv"};

struct Timed {
  Seconds time;
  std::string_view algorithm;
};

Timed timed(std::string_view op, Bytes bytes, const GroupLinks& links) {
  if (op == "all_reduce") {
    const Seconds best = all_reduce(bytes, links);
    if (best == ring_all_reduce(bytes, links)) return {best, "ring"};
    return {best, best == tree_all_reduce(bytes, links) ? "tree" : "hierarchical"};
  }
  if (op == "all_gather") {
    const Seconds best = all_gather(bytes, links);
    return {best, best == ring_all_gather(bytes, links) ? "ring" : "hierarchical"};
  }
  if (op == "reduce_scatter") {
    const Seconds best = reduce_scatter(bytes, links);
    return {best, best == ring_reduce_scatter(bytes, links) ? "ring" : "hierarchical"};
  }
  if (op == "all_to_all") return {all_to_all(bytes, links), "direct"};
  EXPECTS(op == "send_recv", "an unknown collective: " + std::string(op));
  return {send_receive(bytes, links), "direct"};
}

double bus_factor(std::string_view op, int ranks) {
  if (op == "send_recv") return 1;
  const double share = (ranks - 1.0) / ranks;
  return op == "all_reduce" ? 2 * share : share;
}

/// "64 MiB" where it is exact, else bytes.
std::string size_words(std::int64_t bytes) {
  static constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (bytes % 1024 == 0 && bytes > 0 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  return fmt::format("{} {}", grouped(bytes), kUnits[unit]);
}

}  // namespace

std::span<const std::string_view> collective_names() { return kNames; }

CollectiveRow priced_collective(std::string_view op, int ranks, std::int64_t bytes,
                                const ClusterTopology& cluster, const Calibration& calibration) {
  const GroupLinks links = apply(cluster.group(ranks, 1), calibration);
  const Bytes payload{static_cast<double>(bytes)};
  const auto [time, algorithm] = timed(op, payload, links);
  CollectiveRow row{.op = op,
                    .ranks = ranks,
                    .nodes = (ranks + cluster.gpus_per_node() - 1) / cluster.gpus_per_node(),
                    .bytes = bytes,
                    .time = time,
                    .algorithm_bandwidth = {},
                    .bus_bandwidth = {},
                    .algorithm = algorithm};
  if (time > Seconds{}) {
    row.algorithm_bandwidth = payload / time;
    row.bus_bandwidth = row.algorithm_bandwidth * bus_factor(op, ranks);
  }
  return row;
}

std::string collectives_text(const std::vector<CollectiveRow>& rows, const ClusterTopology& cluster,
                             const TextStyle& style) {
  std::string out;
  if (!rows.empty()) {
    out = folded(fmt::format("{} on {}; sizes and bus bandwidth as nccl-tests counts them",
                             counted(rows.front().ranks, "rank"), cluster.name()),
                 "", style) +
          "\n";
  }
  Table table({{"operation", Table::Align::left, 0},
               {"size"},
               {"time"},
               {"bus GB/s"},
               {"algorithm GB/s", Table::Align::right, 1},
               {"algorithm", Table::Align::left, 2}});
  for (const CollectiveRow& row : rows) {
    table.add({std::string(row.op), size_words(row.bytes), duration(row.time),
               fmt::format("{:.2f}", row.bus_bandwidth.in(1_GBps)),
               fmt::format("{:.2f}", row.algorithm_bandwidth.in(1_GBps)),
               std::string(row.algorithm)});
  }
  return out + table.text(style);
}

}  // namespace echelon
