// plan topo collectives.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "cli/commands/command.hpp"
#include "cli/flags/request.hpp"
#include "core/base/did_you_mean.hpp"
#include "core/base/files.hpp"
#include "core/base/parse_quantity.hpp"
#include "core/base/text.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "report/collectives.hpp"
#include "topologies/description/catalog.hpp"

namespace echelon::cli {

namespace {

/// Sizes from 1 KiB to 1 GiB, a factor 4 apart.
std::vector<std::int64_t> default_sizes() {
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = 1024; size <= (std::int64_t{1} << 30); size *= 4) sizes.push_back(size);
  return sizes;
}

Result<std::vector<std::int64_t>> sizes_of(const Settings& settings) {
  const Setting* setting = settings.find("bytes");
  if (setting == nullptr) return default_sizes();
  std::vector<std::int64_t> sizes;
  std::string_view rest = setting->value;
  while (true) {
    const std::string_view item = rest.substr(0, rest.find(','));
    const Result<Bytes> size = parse_bytes(item, setting->where);
    if (!size) return size.error();
    constexpr double kMost = 1e15;
    if (size->in(kByte) < 1 || size->in(kByte) > kMost) {
      return input_error(setting->where, in_quotes(item), "a size between 1 byte and 1e15 bytes");
    }
    sizes.push_back(static_cast<std::int64_t>(size->in(kByte)));
    if (item.size() == rest.size()) return sizes;
    rest.remove_prefix(item.size() + 1);
  }
}

Result<std::vector<CollectiveKind>> operations_of(const Settings& settings) {
  const auto kinds = all_collectives();
  const Setting* setting = settings.find("op");
  if (setting == nullptr) return std::vector<CollectiveKind>(kinds.begin(), kinds.end());
  if (const auto kind = collective_named(setting->value)) return std::vector<CollectiveKind>{*kind};
  std::vector<std::string> known;
  for (const CollectiveKind kind : kinds) known.emplace_back(name_of(kind));
  return input_error(setting->where, in_quotes(setting->value),
                     fmt::format("one of {}", fmt::join(known, ", ")),
                     did_you_mean(setting->value, known));
}

Result<std::int64_t> ranks_of(const Settings& settings) {
  const Setting* setting = settings.find("ranks");
  if (setting == nullptr) return std::int64_t{0};
  return parse_count(setting->value, setting->where, 2);
}

/// The table named by --fit; one machine's.
Result<std::vector<MeasuredCollective>> table_of(const Setting& named) {
  const Status there = check_exists(named.value, named.where, "a table of nccl-tests");
  if (!there) return there.error();
  Result<std::vector<MeasuredCollective>> table = read_collective_table(named.value);
  if (!table) return at(named, table.error());
  std::set<std::string> machines;
  for (const MeasuredCollective& row : *table) machines.insert(row.machine);
  if (machines.size() > 1) {
    return input_error(named.where,
                       fmt::format("rows of {} machines, '{}' and '{}' among them", machines.size(),
                                   *machines.begin(), *std::next(machines.begin())),
                       "rows of one machine", "keep the rows of one");
  }
  return table;
}

/// Fits the rates of `machine` to the table and puts them into its calibration.
Result<CollectiveFitReport> fit_to(const Setting& named,
                                   const std::vector<MeasuredCollective>& table,
                                   HardwareModel& machine) {
  const Result<std::vector<PlacedCollective>> placed = place_collectives(table, machine.cluster);
  if (!placed) return at(named, placed.error());
  const CollectiveFitReport report = fit_report(named.value, *placed, machine.calibration);
  if (report.fitted == 0) {
    return input_error(named.where, "no row of 1 MiB or more", "rows of at least 1 MiB");
  }
  machine.calibration = fitted(machine.calibration, report.fit);
  machine.calibration.name += " fitted to collectives";
  machine.calibration.fitted_to += "; its network rates: collectives of " + named.value;
  machine.calibration.gpu_family = machine.cluster.gpu().name;
  for (Calibration::Source& source : machine.calibration.sources) {
    const bool bandwidth = source.field == "link_efficiency" || source.field == "nic_efficiency";
    const bool latency = source.field == "collective_base" || source.field == "intra_hop" ||
                         source.field == "inter_hop" || source.field == "switch_base";
    if (!bandwidth && !latency) continue;
    source.text = fmt::format("{:.4f} x ({}), fitted to {}",
                              bandwidth ? report.fit.bandwidth : report.fit.latency, source.text,
                              named.value);
  }
  return report;
}

}  // namespace

Result<CommandResult> topo_collectives_command(const CommandContext& context) {
  const Result<std::vector<CollectiveKind>> operations = operations_of(context.settings);
  if (!operations) return operations.error();
  const Result<std::vector<std::int64_t>> sizes = sizes_of(context.settings);
  if (!sizes) return sizes.error();
  const Result<std::int64_t> ranks = ranks_of(context.settings);
  if (!ranks) return ranks.error();
  const Setting* fit = context.settings.find("fit");
  const std::optional<std::string> output = context.arguments.value("output");
  if (output && fit == nullptr) {
    return input_error("--output", "nothing to write", "--fit TABLE together with it");
  }
  if (output && *output == "-" && context.json) {
    return input_error("--output", "standard output, which --json uses", "a file name");
  }
  std::vector<std::string> assumptions;
  Result<HardwareModel> machine = hardware_model_of(context.settings, *ranks, assumptions);
  if (machine && machine->cluster.gpus() < 2) {  // of a machine of one GPU: two of them
    assumptions.clear();
    machine = hardware_model_of(context.settings, 2, assumptions);
  }
  if (!machine) {
    Error error = machine.error();
    if (error.where == "--gpus") error.where = "--ranks";
    return error;
  }
  std::vector<MeasuredCollective> measured;
  std::optional<CollectiveFitReport> report;
  if (fit != nullptr) {
    Result<std::vector<MeasuredCollective>> table = table_of(*fit);
    if (!table) return table.error();
    measured = *std::move(table);
    const Result<CollectiveFitReport> found = fit_to(*fit, measured, *machine);
    if (!found) return found.error();
    report = *found;
  } else if (find_embedded_cluster(machine->cluster_name)) {
    measured = shipped_collective_table(machine->cluster.name());
  }
  std::vector<CollectiveRow> rows;
  for (const CollectiveKind kind : *operations) {
    for (const std::int64_t size : *sizes) {
      const auto priced =
          collective_rows(kind, size, machine->cluster, machine->calibration, measured);
      rows.insert(rows.end(), priced.begin(), priced.end());
    }
  }
  CommandResult result{context.json
                           ? collectives_json(rows, report)
                           : collectives_text(rows, report, machine->cluster, context.style)};
  if (output) {
    const std::string text = calibration_to_json(machine->calibration);
    if (*output == "-") return CommandResult{text};
    result.note(write_named(context, "output", text));
  }
  return result;
}

}  // namespace echelon::cli
