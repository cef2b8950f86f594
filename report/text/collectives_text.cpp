#include "report/collectives.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "report/format.hpp"
#include "report/text/table.hpp"

namespace echelon {

namespace {

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

/// The rows of one collective and size: one line of the table.
struct SameSize {
  const CollectiveRow* bound = nullptr;
  const CollectiveRow* model = nullptr;
  const CollectiveRow* measured = nullptr;
};

std::vector<SameSize> side_by_side(const std::vector<CollectiveRow>& rows) {
  std::vector<SameSize> lines;
  const CollectiveRow* last = nullptr;
  for (const CollectiveRow& row : rows) {
    if (last == nullptr || last->kind != row.kind || last->bytes != row.bytes) lines.emplace_back();
    SameSize& line = lines.back();
    if (row.layer == CollectiveLayer::bound) line.bound = &row;
    if (row.layer == CollectiveLayer::model) line.model = &row;
    if (row.layer == CollectiveLayer::measured) line.measured = &row;
    last = &row;
  }
  return lines;
}

std::string fit_words(const CollectiveFitReport& report, const TextStyle& style) {
  std::string text = fmt::format(
      "Fitted to {} of {} in {} (from {}): {:.3f} of the bandwidth and {:.3f} of the latency of "
      "the calibration; log-mean error {} before, {} after",
      report.fitted, counted(report.rows, "row"), report.table,
      size_words(static_cast<std::int64_t>(kFitFrom.in(kByte))), report.fit.bandwidth,
      report.fit.latency, percent(report.before), percent(report.after));
  if (report.left_out.sizes) {
    text += fmt::format(", {} on every second size left out", percent(*report.left_out.sizes));
  }
  if (report.left_out.kinds) {
    text += fmt::format(", {} on each collective left out", percent(*report.left_out.kinds));
  }
  return folded(text + ".", "", style);
}

}  // namespace

std::string_view name_of(CollectiveLayer layer) {
  switch (layer) {
    case CollectiveLayer::bound: return "bound";
    case CollectiveLayer::model: return "model";
    case CollectiveLayer::measured: return "measured";
  }
  return "";
}

std::vector<CollectiveRow> collective_rows(CollectiveKind kind, std::int64_t bytes,
                                           const ClusterTopology& cluster,
                                           const Calibration& calibration,
                                           std::span<const MeasuredCollective> measured) {
  const int ranks = cluster.gpus();
  const int nodes = (ranks + cluster.gpus_per_node() - 1) / cluster.gpus_per_node();
  const GroupNetwork network = cluster.group({ranks, 1});
  const Bytes payload{static_cast<double>(bytes)};
  std::vector<CollectiveRow> rows;
  const auto add = [&](CollectiveLayer layer, Seconds time, std::string_view algorithm,
                       std::string_view protocol) {
    CollectiveRow row{.kind = kind,
                      .ranks = ranks,
                      .nodes = nodes,
                      .bytes = bytes,
                      .time = time,
                      .algorithm_bandwidth = payload / time,
                      .bus_bandwidth = payload / time * bus_factor(kind, ranks),
                      .algorithm = algorithm,
                      .protocol = protocol,
                      .layer = layer};
    rows.push_back(row);
  };
  add(CollectiveLayer::bound, collective_bound(kind, payload, network), "any", "any");
  const ChosenCollective chosen = chosen_collective(kind, payload, apply(network, calibration));
  add(CollectiveLayer::model, chosen.transfer.time(), chosen.algorithm, chosen.protocol);
  if (const auto time = measured_time(measured, kind, nodes, ranks, payload)) {
    add(CollectiveLayer::measured, *time, "unreported", "unreported");
  }
  return rows;
}

CollectiveFitReport fit_report(std::string table, std::span<const PlacedCollective> rows,
                               const Calibration& calibration) {
  const CollectiveFit fit = fit_collectives(rows, calibration);
  return {.table = std::move(table),
          .rows = std::ssize(rows),
          .fitted = std::count_if(rows.begin(), rows.end(),
                                  [](const auto& row) { return row.bytes >= kFitFrom; }),
          .fit = fit,
          .before = log_mean_error(rows, calibration).value_or(0),
          .after = log_mean_error(rows, fitted(calibration, fit)).value_or(0),
          .left_out = left_out_errors(rows, calibration)};
}

std::string collectives_text(const std::vector<CollectiveRow>& rows,
                             const std::optional<CollectiveFitReport>& fit,
                             const ClusterTopology& cluster, const TextStyle& style) {
  std::string out;
  if (!rows.empty()) {
    out = folded(fmt::format("{} on {}; sizes and bus bandwidth as nccl-tests counts them",
                             counted(rows.front().ranks, "rank"), cluster.name()),
                 "", style) +
          "\n";
  }
  const bool any_measured = std::any_of(rows.begin(), rows.end(), [](const CollectiveRow& row) {
    return row.layer == CollectiveLayer::measured;
  });
  std::vector<Table::Column> columns = {{"operation", Table::Align::left, 0},
                                        {"size"},
                                        {"time"},
                                        {"bus GB/s"},
                                        {"algorithm", Table::Align::left, 2},
                                        {"bound", Table::Align::right, 1}};
  if (any_measured) columns.push_back({"measured"});
  Table table(std::move(columns));
  for (const SameSize& line : side_by_side(rows)) {
    std::vector<Cell> cells = {std::string(name_of(line.model->kind)),
                               size_words(line.model->bytes),
                               duration(line.model->time),
                               fmt::format("{:.2f}", line.model->bus_bandwidth.in(1_GBps)),
                               fmt::format("{}, {}", line.model->algorithm, line.model->protocol),
                               duration(line.bound->time)};
    if (any_measured) {
      cells.emplace_back(line.measured == nullptr ? std::string{} : duration(line.measured->time));
    }
    table.add(std::move(cells));
  }
  out += table.text(style);
  if (fit) out += "\n" + fit_words(*fit, style);
  return out;
}

}  // namespace echelon
