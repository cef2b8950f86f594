// plan topo list|show|check|import.
#include <filesystem>

#include "cli/commands/command.hpp"
#include "cli/flags/request.hpp"
#include "cli/flags/this_machine.hpp"
#include "core/base/files.hpp"
#include "core/base/parse_quantity.hpp"
#include "report/machines.hpp"
#include "topologies/import/wiring.hpp"

namespace echelon::cli {

Result<CommandResult> topo_list_command(const CommandContext& context) {
  std::vector<ClusterTopology> clusters;
  for (const std::string& name : cluster_catalog()) {
    const Result<ClusterTopology> cluster = ClusterTopology::load(name, 0);
    if (!cluster) return cluster.error();
    clusters.push_back(*cluster);
  }
  return CommandResult{context.json ? clusters_json(clusters)
                                    : clusters_text(clusters, context.style)};
}

Result<CommandResult> topo_show_command(const CommandContext& context) {
  const Setting named{context.arguments.words.front(), "topo show"};
  const Result<ClusterTopology> cluster = load_cluster(named.value, 0);
  if (!cluster) return at(named, cluster.error());
  return CommandResult{context.json ? cluster_json(*cluster)
                                    : cluster_text(*cluster, context.style)};
}

Result<CommandResult> topo_check_command(const CommandContext& context) {
  const std::string& path = context.arguments.words.front();
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    return input_error(path, "no such file", "a description file",
                       "`plan topo show NAME` shows a cluster of the catalog");
  }
  // A bare name would be looked up in the catalog first.
  const std::string as_path = path.find('/') == std::string::npos ? "./" + path : path;
  const Result<ClusterTopology> cluster = ClusterTopology::load(as_path, 0);
  if (!cluster) return cluster.error();
  const ClusterCheck check = check_cluster(*cluster);
  if (context.json) return CommandResult{check_json(*cluster, check)};
  std::string out = path + " is a valid description.\n";
  if (!context.quiet) out += "\n" + cluster_text(*cluster, context.style);
  return CommandResult{out + check_text(check, context.quiet, context.style)};
}

Result<CommandResult> topo_import_command(const CommandContext& context) {
  const std::string& path = context.arguments.words.front();
  const auto gpu = context.arguments.value("gpu");
  if (!gpu) {
    return input_error("--gpu", "no GPU named", "a GPU of the catalog, such as h100",
                       "the file describes how the GPUs are wired, not which GPUs they are");
  }
  if (const Status there = check_exists(path, "topo import", "a file"); !there) {
    return there.error();
  }
  constexpr std::int64_t kLongest = 16 << 20;
  const Result<std::string> text = read_file(path, kLongest);
  if (!text) return text.error();
  Result<NodeWiring> wiring = parse_wiring(*text, path);
  if (!wiring) return wiring.error();
  WiredMachine machine;
  machine.name = context.arguments.value("name").value_or("imported");
  machine.gpu = std::string(*gpu);
  machine.wiring = *std::move(wiring);
  machine.summary = "A node as " + machine.wiring.source + " shows it";
  if (const auto rate = context.arguments.value("nic-rate")) {
    const Result<BytesPerSecond> parsed = parse_bandwidth(*rate, "--nic-rate");
    if (!parsed) return parsed.error();
    machine.nic_rate = *parsed;
  }
  Result<std::string> description = description_of(machine);
  if (!description) return description.error();
  const auto target = context.arguments.value("output");
  if (!target || *target == "-") return CommandResult{*std::move(description)};
  if (const Status written = write_file(std::string(*target), *description); !written) {
    return at({std::string(*target), "--output"}, written.error());
  }
  const Result<ClusterTopology> cluster = ClusterTopology::parse(*description, *target, 0);
  if (!cluster) return cluster.error();
  if (context.json) return CommandResult{cluster_json(*cluster)};
  return CommandResult{context.quiet ? "" : cluster_text(*cluster, context.style)};
}

}  // namespace echelon::cli
