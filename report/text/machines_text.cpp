#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/parse_quantity.hpp"
#include "report/format.hpp"
#include "report/machines.hpp"
#include "report/text/table.hpp"
#include "topologies/description/description.hpp"

namespace echelon {

namespace {

std::string gbit(BytesPerSecond rate) { return fmt::format("{:.4g}", rate.in(1_Gbps)); }

BytesPerSecond node_network(const NodeSpec& node) { return node.nic * node.nics; }

std::string rate_or_none(FlopsPerSecond rate) {
  return rate > FlopsPerSecond{} ? fmt::format("{:.4g} TFLOP/s", rate.in(1_TFLOPS)) : "none";
}

}  // namespace

std::string clusters_text(const std::vector<ClusterTopology>& clusters, const TextStyle& style) {
  Table table({{"name", Table::Align::left, 0},
               {"GPUs"},
               {"per node"},
               {"GPU", Table::Align::left, 0},
               {"memory GiB", Table::Align::right, 2},
               {"link GB/s", Table::Align::right, 3},
               {"node network Gbit/s", Table::Align::right, 1},
               {"USD/GPU h", Table::Align::right, 4}});
  for (const ClusterTopology& cluster : clusters) {
    const auto price = cluster.price_per_gpu_hour();
    table.add({cluster.name(), grouped(cluster.gpus()), std::to_string(cluster.node().gpus),
               cluster.gpu().name, gib(cluster.gpu().memory),
               fmt::format("{:.4g}", cluster.node().gpu_link.in(1_GBps)),
               gbit(node_network(cluster.node())),
               price ? fmt::format("{:.2f}", price->in(kDollar)) : "-"});
  }
  return table.text(style) + "\n" +
         folded(
             "GPUs: the size of the description; --gpus asks for another. Link: one GPU, one "
             "direction. `plan topo show NAME` says more; a description file of your own works "
             "wherever a name does.",
             "", style);
}

std::string cluster_text(const ClusterTopology& cluster, const TextStyle& style) {
  const GpuSpec& gpu = cluster.gpu();
  const NodeSpec& node = cluster.node();
  Table table({{"", Table::Align::left, 0}, {"", Table::Align::left, 0}});
  const auto add = [&](const char* name, std::string value) {
    table.add({name, std::move(value)});
  };
  add("size", fmt::format("{}: {} of {}, NVLink or PCIe domain of {}",
                          counted(cluster.gpus(), "GPU"), counted(cluster.nodes(), "node"),
                          cluster.gpus_per_node(), cluster.domain_gpus()));
  if (cluster.machine().nvlink_tiers > 0) {
    add("larger jobs", "equally many GPUs of each NVLink domain, where their nodes divide so");
  }
  add("GPU", gpu.compute_capability > 0 ? fmt::format("{}, compute capability {:.1f}, {} SMs",
                                                      gpu.name, gpu.compute_capability, gpu.sms)
                                        : fmt::format("{}, {} CUs", gpu.name, gpu.sms));
  add("GPU memory", fmt::format("{:.2f} GiB at {:.4g} GB/s, L2 {:.4g} MiB", gpu.memory.in(1_GiB),
                                gpu.hbm.in(1_GBps), gpu.l2.in(1_MiB)));
  add("dense peak",
      fmt::format("bf16 {}, fp8 {}, fp16 {}, tf32 {}", rate_or_none(gpu.bf16),
                  rate_or_none(gpu.fp8), rate_or_none(gpu.fp16), rate_or_none(gpu.tf32)));
  add("in the node",
      fmt::format("{}, {:.4g} GB/s of one GPU in one direction, PCIe {:.4g} GB/s{}",
                  node.interconnect, node.gpu_link.in(1_GBps), node.pcie.in(1_GBps),
                  cluster.machine().pcie.peer_access ? "" : ", between GPUs through host memory"));
  add("network",
      node.nics == 0
          ? std::string("none")
          : fmt::format("{}{} of {} Gbit/s = {:.4g} GB/s of one node in one direction",
                        node.nic_kind ? fmt::format("{}, ", name_of(*node.nic_kind)) : "",
                        counted(node.nics, "NIC"), gbit(node.nic), node_network(node).in(1_GBps)));
  for (const FabricTier& tier : cluster.tiers()) {
    add("fabric",
        fmt::format("{}: {} units, oversubscription {:.3g}, {} more latency", tier.name,
                    grouped(tier.multiplicity), tier.oversubscription, duration(tier.latency)));
  }
  add("CPU memory", node.cpu_memory > Bytes{}
                        ? fmt::format("{} of one node", with_gib(node.cpu_memory))
                        : std::string("not described: no plan offloads to it"));
  if (node.nvme) add("NVMe", fmt::format("{:.4g} TB of one node", node.nvme->in(1_TB)));
  if (const auto price = cluster.price_per_gpu_hour()) {
    add("price", fmt::format("{:.2f} USD per GPU hour", price->in(kDollar)));
  }
  if (const auto mtbf = cluster.mtbf_per_node()) {
    add("failures", fmt::format("one node fails every {}", duration(*mtbf)));
  }
  std::string out = painted(cluster.name(), Paint::bold, style) + "\n";
  if (!cluster.description().empty()) out += folded(cluster.description(), "", style);
  out += "\n" + table.text(style);
  const std::string& notes = cluster.machine().notes;
  return notes.empty() ? out : out + "\n" + folded(notes, "", style);
}

std::string check_text(const ClusterCheck& check, bool brief, const TextStyle& style) {
  std::string out;
  const auto list = [&](const std::string& title, const std::vector<std::string>& lines) {
    if (lines.empty()) return;
    out += "\n" + painted(title, Paint::bold, style) + "\n";
    for (const std::string& line : lines) out += folded(line, "  ", style);
  };
  if (!brief) list("verified", check.verified);
  list(counted(static_cast<std::int64_t>(check.warnings.size()), "warning"), check.warnings);
  return out;
}

std::string models_text(const std::vector<ListedModel>& models, const TextStyle& style) {
  Table table({{"name", Table::Align::left, 0},
               {"parameters"},
               {"layers"},
               {"hidden"},
               {"heads"},
               {"kv heads", Table::Align::right, 2},
               {"vocabulary", Table::Align::right, 4},
               {"context", Table::Align::right, 3},
               {"also known as", Table::Align::left, 1}});
  for (const ListedModel& model : models) {
    const ModelSpec& spec = model.spec;
    table.add({model.entry.name, human_count(static_cast<double>(spec.parameters())),
               std::to_string(spec.layers), std::to_string(spec.hidden), std::to_string(spec.heads),
               std::to_string(spec.kv_heads), grouped(spec.vocab),
               spec.max_positions > 0 ? grouped(spec.max_positions) : "-",
               fmt::format("{}", fmt::join(model.entry.aliases, ", "))});
  }
  return table.text(style) + "\n" +
         folded("A path to a HuggingFace config.json works wherever a name does.", "", style);
}

}  // namespace echelon
