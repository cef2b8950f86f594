// Reads nccl-tests tables with libcsv.
#include <csv.h>
#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>

#include "core/base/did_you_mean.hpp"
#include "core/base/embedded.hpp"
#include "core/base/expects.hpp"
#include "core/base/files.hpp"
#include "core/base/text.hpp"
#include "costmodel/collectives/collective_table.hpp"

namespace echelon {
namespace {

constexpr std::int64_t kLongestTable = std::int64_t{1} << 26;
constexpr std::array<std::string_view, 5> kNeeded = {"op", "nodes", "ranks", "bytes", "time_us"};

using Cells = std::vector<std::string>;

/// Collects cells and rows; libcsv calls back.
struct RowCollector {
  Cells cells;
  std::vector<Cells> rows;

  static void on_cell(void* bytes, std::size_t size, void* self) {
    static_cast<RowCollector*>(self)->cells.emplace_back(static_cast<const char*>(bytes), size);
  }
  static void on_row(int, void* self) {
    auto* collector = static_cast<RowCollector*>(self);
    collector->rows.push_back(std::move(collector->cells));
    collector->cells.clear();
  }
};

Result<std::vector<Cells>> rows_of(std::string_view text, std::string_view where) {
  csv_parser parser{};
  EXPECTS(csv_init(&parser, CSV_STRICT | CSV_STRICT_FINI) == 0, "libcsv does not start");
  RowCollector collector;
  const std::size_t taken = csv_parse(&parser, text.data(), text.size(), RowCollector::on_cell,
                                      RowCollector::on_row, &collector);
  const bool whole = taken == text.size() && csv_fini(&parser, RowCollector::on_cell,
                                                      RowCollector::on_row, &collector) == 0;
  csv_free(&parser);
  if (!whole) {
    return input_error(fmt::format("{} row {}", where, collector.rows.size() + 1),
                       "a quote in the wrong place or never closed", "quotes around whole cells");
  }
  if (collector.rows.size() < 2) {
    return input_error(std::string(where), "no row below a header",
                       "a table of measured collectives with columns op, nodes, ranks, bytes, "
                       "time_us");
  }
  return std::move(collector.rows);
}

/// The columns of one table by name.
class CollectiveColumns {
 public:
  explicit CollectiveColumns(const Cells& header) : header_(header) {}

  [[nodiscard]] Status check(std::string_view where) const {
    for (const std::string_view name : kNeeded) {
      if (at(name)) continue;
      return input_error(std::string(where), fmt::format("no column '{}'", name),
                         "columns op, nodes, ranks, bytes and time_us",
                         did_you_mean(name, header_));
    }
    return Done{};
  }
  [[nodiscard]] std::string text(const Cells& row, std::string_view name) const {
    const std::optional<std::size_t> column = at(name);
    return column && *column < row.size() ? row[*column] : "";
  }
  /// At least `least`, or nothing.
  [[nodiscard]] std::optional<double> number(const Cells& row, std::string_view name,
                                             double least) const {
    const std::string cell = text(row, name);
    double value = 0;
    const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    constexpr double kMost = 1e16;
    const bool good = error == std::errc{} && end == cell.data() + cell.size();
    if (!good || !(value >= least) || !(value <= kMost)) return std::nullopt;
    return value;
  }

 private:
  [[nodiscard]] std::optional<std::size_t> at(std::string_view name) const {
    for (std::size_t i = 0; i < header_.size(); ++i) {
      if (header_[i] == name) return i;
    }
    return std::nullopt;
  }
  const Cells& header_;
};

Result<MeasuredCollective> measured_row(const CollectiveColumns& columns, const Cells& row,
                                        const std::string& where) {
  const auto wrong = [&](std::string_view column, std::string expected) {
    return input_error(where, fmt::format("{} {}", column, in_quotes(columns.text(row, column))),
                       std::move(expected));
  };
  constexpr double kMostRanks = 1 << 20;
  constexpr double kLeastMicroseconds = 1e-3;
  const auto kind = collective_named(columns.text(row, "op"));
  if (!kind) return wrong("op", "a collective, as all_reduce");
  const auto nodes = columns.number(row, "nodes", 1);
  if (!nodes || *nodes != std::floor(*nodes)) return wrong("nodes", "a whole number from 1");
  const auto ranks = columns.number(row, "ranks", 2);
  if (!ranks || *ranks != std::floor(*ranks) || *ranks > kMostRanks || *ranks < *nodes) {
    return wrong("ranks", "a whole number from 2, at least one on each node");
  }
  const auto bytes = columns.number(row, "bytes", 1);
  if (!bytes) return wrong("bytes", "a positive number");
  const auto time = columns.number(row, "time_us", kLeastMicroseconds);
  if (!time) return wrong("time_us", "a positive number of microseconds");
  return MeasuredCollective{.kind = *kind,
                            .nodes = static_cast<int>(*nodes),
                            .ranks = static_cast<int>(*ranks),
                            .bytes = Bytes{*bytes},
                            .time = *time * 1_us,
                            .machine = columns.text(row, "machine"),
                            .setting = columns.text(row, "algo_env"),
                            .source = columns.text(row, "source")};
}

}  // namespace

Result<std::vector<MeasuredCollective>> parse_collective_table(std::string_view csv,
                                                               std::string_view where) {
  const Result<std::vector<Cells>> rows = rows_of(csv, where);
  if (!rows) return rows.error();
  const CollectiveColumns columns(rows->front());
  if (const Status fine = columns.check(where); !fine) return fine.error();
  std::vector<MeasuredCollective> table;
  for (std::size_t i = 1; i < rows->size(); ++i) {
    const Result<MeasuredCollective> row =
        measured_row(columns, (*rows)[i], fmt::format("{} row {}", where, i + 1));
    if (!row) return row.error();
    table.push_back(*row);
  }
  return table;
}

Result<std::vector<MeasuredCollective>> read_collective_table(const std::string& path) {
  const Result<std::string> text = read_file(path, kLongestTable);
  if (!text) return text.error();
  return parse_collective_table(*text, path);
}

std::vector<MeasuredCollective> shipped_collective_table(std::string_view cluster) {
  for (const EmbeddedFile& file : embedded_collective_tables()) {
    if (file.name != cluster) continue;
    Result<std::vector<MeasuredCollective>> table =
        parse_collective_table(file.content, "shipped table " + std::string(file.name));
    return std::move(table).value();  // ours: a test reads every one
  }
  return {};
}

}  // namespace echelon
