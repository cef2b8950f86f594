// plan topo list|show|check|import, plan models.
#include <filesystem>

#include "cli/request.hpp"
#include "cli/this_machine.hpp"
#include "cli/verbs.hpp"
#include "core/base/files.hpp"
#include "core/base/parse_quantity.hpp"
#include "core/model/model_io.hpp"
#include "report/machines.hpp"
#include "topologies/import/wiring.hpp"

namespace echelon::cli {

Result<Outcome> topo_list_verb(const Invocation& call) {
  std::vector<ClusterTopology> clusters;
  for (const std::string& name : cluster_catalog()) {
    const Result<ClusterTopology> cluster = ClusterTopology::load(name, 0);
    if (!cluster) return cluster.error();
    clusters.push_back(*cluster);
  }
  return Outcome{call.json ? clusters_json(clusters) : clusters_text(clusters, call.style)};
}

Result<Outcome> topo_show_verb(const Invocation& call) {
  const Setting named{call.arguments.words.front(), "topo show"};
  const Result<ClusterTopology> cluster = load_cluster(named.value, 0);
  if (!cluster) return at(named, cluster.error());
  return Outcome{call.json ? cluster_json(*cluster) : cluster_text(*cluster, call.style)};
}

Result<Outcome> topo_check_verb(const Invocation& call) {
  const std::string& path = call.arguments.words.front();
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    return input_error(path, "no such file", "a description file",
                       "`plan topo show NAME` is for names of the catalog");
  }
  // A bare name would be looked up in the catalog first.
  const std::string as_path = path.find('/') == std::string::npos ? "./" + path : path;
  const Result<ClusterTopology> cluster = ClusterTopology::load(as_path, 0);
  if (!cluster) return cluster.error();
  if (call.json) return Outcome{cluster_json(*cluster)};
  std::string out = path + " is a valid description.\n";
  if (!call.quiet) out += "\n" + cluster_text(*cluster, call.style);
  return Outcome{std::move(out)};
}

Result<Outcome> topo_import_verb(const Invocation& call) {
  const std::string& path = call.arguments.words.front();
  const auto gpu = call.arguments.value("gpu");
  if (!gpu) {
    return input_error("--gpu", "no GPU named", "a GPU of the catalog, such as h100",
                       "the file says how GPUs are wired, not what they are");
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
  machine.name = call.arguments.value("name").value_or("imported");
  machine.gpu = std::string(*gpu);
  machine.wiring = *std::move(wiring);
  machine.summary = "A node as " + machine.wiring.source + " shows it";
  if (const auto rate = call.arguments.value("nic-rate")) {
    const Result<BytesPerSecond> parsed = parse_bandwidth(*rate, "--nic-rate");
    if (!parsed) return parsed.error();
    machine.nic_rate = *parsed;
  }
  Result<std::string> description = description_of(machine);
  if (!description) return description.error();
  const auto target = call.arguments.value("output");
  if (!target || *target == "-") return Outcome{*std::move(description)};
  if (const Status written = write_file(std::string(*target), *description); !written) {
    return at({std::string(*target), "--output"}, written.error());
  }
  const Result<ClusterTopology> cluster = ClusterTopology::parse(*description, *target, 0);
  if (!cluster) return cluster.error();
  if (call.json) return Outcome{cluster_json(*cluster)};
  return Outcome{call.quiet ? "" : cluster_text(*cluster, call.style)};
}

Result<Outcome> models_verb(const Invocation& call) {
  std::vector<ListedModel> models;
  for (const CatalogModel& entry : model_catalog()) {
    const Result<ModelSpec> spec = load_model(entry.name);
    if (!spec) return spec.error();
    models.push_back({entry, *spec});
  }
  return Outcome{call.json ? models_json(models) : models_text(models, call.style)};
}

}  // namespace echelon::cli
