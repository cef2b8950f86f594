// plan topo list|show|check|collectives, plan models.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "cli/request.hpp"
#include "cli/verbs.hpp"
#include "core/model_io.hpp"
#include "core/nearest.hpp"
#include "core/number.hpp"
#include "report/machines.hpp"

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
      return input_error(setting->where, fmt::format("'{}'", item.substr(0, 40)),
                         "a size between 1 byte and 1e15 bytes");
    }
    sizes.push_back(static_cast<std::int64_t>(size->in(kByte)));
    if (item.size() == rest.size()) return sizes;
    rest.remove_prefix(item.size() + 1);
  }
}

Result<std::vector<std::string_view>> operations_of(const Settings& settings) {
  const auto names = collective_names();
  const Setting* setting = settings.find("op");
  if (setting == nullptr) return std::vector<std::string_view>(names.begin(), names.end());
  const auto at = std::find(names.begin(), names.end(), setting->value);
  if (at != names.end()) return std::vector<std::string_view>{*at};
  const std::vector<std::string> known(names.begin(), names.end());
  return input_error(setting->where, fmt::format("'{}'", setting->value.substr(0, 40)),
                     fmt::format("one of {}", fmt::join(known, ", ")),
                     did_you_mean(setting->value, known));
}

}  // namespace

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
  const Result<ClusterTopology> cluster = ClusterTopology::load(named.value, 0);
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

Result<Outcome> topo_collectives_verb(const Invocation& call) {
  const Result<std::vector<std::string_view>> operations = operations_of(call.settings);
  if (!operations) return operations.error();
  const Result<std::vector<std::int64_t>> sizes = sizes_of(call.settings);
  if (!sizes) return sizes.error();
  std::int64_t ranks = 0;
  if (const Setting* setting = call.settings.find("ranks")) {
    const Result<std::int64_t> count = parse_count(setting->value, setting->where, 2);
    if (!count) return count.error();
    ranks = *count;
  }
  std::vector<std::string> assumptions;
  const Result<Machine> machine = machine_of(call.settings, ranks, assumptions);
  if (!machine) {
    Error error = machine.error();
    if (error.where == "--gpus") error.where = "--ranks";
    return error;
  }
  std::vector<CollectiveRow> rows;
  for (const std::string_view op : *operations) {
    for (const std::int64_t size : *sizes) {
      rows.push_back(priced_collective(op, machine->cluster.gpus(), size, machine->cluster,
                                       machine->calibration));
    }
  }
  return Outcome{call.json ? collectives_json(rows)
                           : collectives_text(rows, machine->cluster, call.style)};
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
