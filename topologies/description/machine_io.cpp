// Complete cluster descriptions: GPU, node, fabric, size, and all checks that need no graph.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/base/saturated_product.hpp"
#include "core/base/text.hpp"
#include "core/json/document_kind_io.hpp"
#include "topologies/description/catalog.hpp"
#include "topologies/description/node_io.hpp"
#include "topologies/description/quantity_io.hpp"

namespace echelon {

namespace {

constexpr int kMaxRails = 256;
constexpr NumberRule kLatency{Dimension::time, 0, 1};
constexpr NumberRule kOversubscription{Dimension::ratio, 1, 1000};

void read_tier(Document& document, const Json& object, const std::string& at,
               MachineDescription& machine) {
  Section in(object, document.where(), at);
  FabricTier tier;
  tier.name = in.reader.string("name");
  const std::string kind = in.reader.has("kind") ? in.reader.choice("kind", {"network", "nvlink"})
                                                 : std::string("network");
  tier.multiplicity = document.count(in, "multiplicity", 1, 1'000'000);
  tier.oversubscription = document.number_or(in, "oversubscription", kOversubscription,
                                             {1, "", "full bandwidth to the tier above"});
  tier.latency = Seconds{document.number(in, "latency", kLatency)};
  document.keep(in.reader.finish());
  if (kind == "nvlink" && machine.nvlink_tiers != static_cast<int>(machine.tiers.size())) {
    document.fail(at + "/kind", "an NVLink tier above a network tier",
                  "NVLink tiers first, from the node outwards");
  }
  if (kind == "nvlink" && machine.interconnect != Interconnect::nvswitch) {
    document.fail(at + "/kind",
                  fmt::format("an NVLink tier above {} nodes", name_of(machine.interconnect)),
                  "nodes with interconnect \"nvswitch\"");
  }
  if (kind == "nvlink") ++machine.nvlink_tiers;
  machine.tiers.push_back(std::move(tier));
  if (machine.domain_gpus() > kMaxGpusPerDomain) {
    document.fail(at + "/multiplicity",
                  fmt::format("an NVLink domain of {} GPUs", machine.domain_gpus()),
                  fmt::format("at most {}", kMaxGpusPerDomain));
  }
}

/// Oversubscription is that of links to the tier above, which the outermost tier and one of
/// NVLinks, whose nodes have NICs, do not have.
void check_oversubscription(Document& document, const MachineDescription& machine) {
  for (std::size_t i = 0; i < machine.tiers.size() && !document.error(); ++i) {
    const FabricTier& tier = machine.tiers[i];
    const bool nvlink = static_cast<int>(i) < machine.nvlink_tiers;
    if (tier.oversubscription <= 1 || (!nvlink && i + 1 < machine.tiers.size())) continue;
    document.fail(fmt::format("/fabric/tiers/{}/oversubscription", i),
                  fmt::format("{:g} at {}", tier.oversubscription,
                              nvlink ? "an NVLink tier" : "the outermost tier"),
                  "1: it has no links to a tier above it",
                  "the oversubscription of a leaf is that of its links to the spine, and stands at "
                  "the leaf; a leaf of one node has the multiplicity 1");
  }
}

void read_fabric(Document& document, const Json& object, MachineDescription& machine) {
  Section in(object, document.where(), "/fabric");
  machine.rails = document.count_or(in, "rails", 0, kMaxRails, {0, "", "not wired in rails"});
  const Json* tiers = in.reader.member("tiers");
  for (std::size_t i = 0;
       tiers != nullptr && tiers->is_array() && i < tiers->size() && !document.error(); ++i) {
    read_tier(document, (*tiers)[i], fmt::format("/fabric/tiers/{}", i), machine);
  }
  if (machine.tiers.empty() && !document.error()) {
    document.fail("/fabric/tiers", "no tiers", "at least one tier with name and multiplicity");
  }
  check_oversubscription(document, machine);
  document.keep(in.reader.finish());
}

/// "gpu": a catalog name, or an object.
void read_gpu_member(Document& document, const Json& member, MachineDescription& machine) {
  GpuDescription gpu;
  if (member.is_string()) {
    const Result<GpuDescription> known =
        load_gpu(member.get<std::string>(), document.where() + " at /gpu");
    if (!known) return document.keep(Status(known.error()));
    gpu = *known;
    for (Fact& fact : gpu.facts) document.add(std::move(fact));
  } else if (!member.is_object()) {
    return document.fail(
        "/gpu", member.is_array() ? "a list" : printable(member.dump()),
        "the name of a GPU of the catalog, such as \"h100\", or an object with its "
        "data-sheet numbers");
  } else {
    gpu = read_gpu(document, member, "/gpu");
  }
  machine.gpu = gpu.spec;
  machine.price_per_gpu_hour = gpu.price_per_hour;
}

}  // namespace

std::string_view name_of(Interconnect kind) {
  switch (kind) {
    case Interconnect::nvswitch: return "nvswitch";
    case Interconnect::nvlink_mesh: return "nvlink-mesh";
    case Interconnect::nvlink_bridge: return "nvlink-bridge";
    case Interconnect::pcie: return "pcie";
  }
  return "";
}

std::int64_t MachineDescription::domain_gpus() const {
  std::int64_t gpus = node.gpus;
  for (int tier = 0; tier < nvlink_tiers; ++tier) {
    gpus = saturated_product({gpus, tiers[static_cast<std::size_t>(tier)].multiplicity});
  }
  return gpus;
}

Result<MachineDescription> parse_machine(std::string_view json, std::string_view where) {
  const Result<Json> parsed = parse_json(json, where);
  if (!parsed) return parsed.error();
  if (const Status kind = check_kind(*parsed, where, DocumentKind::cluster); !kind) {
    return kind.error();
  }
  Document document{std::string(where), ""};
  Section root(*parsed, document.where(), "");
  MachineDescription machine;
  check_schema(root, document);
  document.read_sources(root);
  machine.name = root.reader.string("name");
  machine.summary = root.reader.string_or("description", "");
  machine.notes = root.reader.string_or("notes", "");
  if (const Json* aliases = root.reader.member("aliases")) {
    for (const Json& alias : *aliases) {
      if (alias.is_string()) machine.aliases.push_back(alias.get<std::string>());
    }
  }
  const auto part = [&](const char* key) -> const Json* {
    const Json* member = root.reader.member(key);
    if (member == nullptr) document.fail(root.at(key), "the key is missing", "an object");
    return document.error() ? nullptr : member;
  };
  if (const Json* member = part("gpu")) read_gpu_member(document, *member, machine);
  if (const Json* member = part("node")) read_node(document, *member, machine);
  const Json* fabric = root.reader.member("fabric");
  if (fabric != nullptr && !document.error()) read_fabric(document, *fabric, machine);
  if (fabric == nullptr && !machine.nics.empty()) {
    machine.tiers.push_back({"network", 1'000'000, 1, Seconds{}});
    document.add({"fabric.tiers.0.oversubscription", "1", "",
                  "assumed: without a description the fabric is non-blocking", true});
  }
  constexpr NumberRule kGpus{Dimension::count, 1, 1e8};
  machine.default_gpus = static_cast<std::int64_t>(
      document.optional_number(root, "gpus", kGpus).value_or(machine.node.gpus));
  if (const auto max_gpus = document.optional_number(root, "max_gpus", kGpus)) {
    machine.max_gpus = static_cast<std::int64_t>(*max_gpus);
  }
  if (const auto price = document.optional_number(root, "price_per_gpu_hour",
                                                  {Dimension::money_rate, 1e-6, 1e6})) {
    machine.price_per_gpu_hour = Dollars{*price};
  }
  if (const auto mtbf =
          document.optional_number(root, "mtbf_per_node", {Dimension::time, 1, 1e12})) {
    machine.mtbf_per_node = Seconds{*mtbf};
  }
  document.keep(root.reader.finish());
  if (document.error()) return *document.error();
  machine.facts = document.take_facts();
  return machine;
}

}  // namespace echelon
