// Measured collectives: rows of nccl-tests, and their place on a described machine.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"
#include "costmodel/collectives/collectives.hpp"

namespace echelon {

/// One line of an nccl-tests table; sizes as it counts them.
struct MeasuredCollective {
  CollectiveKind kind = CollectiveKind::none;
  int nodes = 1;
  int ranks = 2;
  Bytes bytes;
  Seconds time;
  std::string machine;  ///< as the table names it; "" when it does not
  std::string setting;  ///< of the library, from the column algo_env
  std::string source;
};

/// Reads comma-separated values with the columns op, nodes, ranks, bytes and time_us, and
/// optionally machine, algo_env and source; other columns are ignored. An invalid cell is an error
/// that names its row.
[[nodiscard]] Result<std::vector<MeasuredCollective>> parse_collective_table(
    std::string_view csv, std::string_view where);
[[nodiscard]] Result<std::vector<MeasuredCollective>> read_collective_table(
    const std::string& path);

/// The table shipped for a cluster of the catalog (costmodel/catalog/collectives/), or no rows.
[[nodiscard]] std::vector<MeasuredCollective> shipped_collective_table(std::string_view cluster);

/// The measured time of this collective: the geometric mean of the rows of that size, or a straight
/// line in the logarithms between the next smaller and the next larger size, at most four times
/// apart. Nothing beyond the measured sizes.
[[nodiscard]] std::optional<Seconds> measured_time(std::span<const MeasuredCollective> rows,
                                                   CollectiveKind kind, int nodes, int ranks,
                                                   Bytes bytes);

/// A measured collective and the network its group sees: all GPUs of the nodes, the first GPUs of
/// one node, or one GPU of each node.
struct PlacedCollective {
  CollectiveKind kind = CollectiveKind::none;
  Bytes bytes;
  Seconds time;
  GroupNetwork network;
};
[[nodiscard]] Result<std::vector<PlacedCollective>> place_collectives(
    std::span<const MeasuredCollective> rows, const ClusterTopology& cluster);

}  // namespace echelon
