// plan topo list|show|check, plan models.
#include <filesystem>

#include "cli/request.hpp"
#include "cli/this_machine.hpp"
#include "cli/verbs.hpp"
#include "core/model_io.hpp"
#include "report/machines.hpp"

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
