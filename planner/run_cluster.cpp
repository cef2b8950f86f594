#include "planner/run_cluster.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "topologies/describe.hpp"

namespace echelon {

namespace {

/// A GPU as tables of runs name it, and the machine it is usually sold in.
struct RunGpu {
  std::string_view name;   ///< column `gpu`
  std::string_view gpu;    ///< JSON: a name of the GPU catalog, or a whole description
  double nvlink_GBps = 0;  ///< one GPU, one direction, all its links; 0: PCIe only
  double pcie_GBps = 0;    ///< one GPU, one direction; NVLink-C2C where that leads to the host
  double nic_gbps = 400;   ///< usual network of a node, per GPU
  int trays = 1;           ///< nodes inside one NVLink domain
};

/// Jobs take 64 of a rack's 72 GPUs, 16 of its 18 trays, so that powers of two fit: published runs
/// of NVL72 racks use 64, 128, 256 ... GPUs and expert groups of 32 and 64.
constexpr int kTraysInUse = 16;

// Link rates of one direction, all links of a GPU. Sources:
// * NVLink 2 / 3 / 4 / 5: 150 / 300 / 450 / 900 GB/s, PCIe 4 / 5 x16 32 / 64 GB/s before coding,
// twice
//   and half of it for PCIe 6 and 3, Infinity Fabric of MI250X 7 x 50, of MI300X and MI325X 7 x 64
//   GB/s: stas00/ml-engineering@0030e63, network/README.md ("PCIe", "NVLink", "Infinity Fabric").
// * NVLink-C2C of GB200 and GB300: topologies/catalog/clusters/gb200-nvl72.json.
// * A800: NVLink cut to 400 GB/s in both directions (tweakers.net/nieuws/203182, after Reuters);
// H800
//   likewise (topologies/catalog/clusters/dgx-h800.json).
// * MI355X: 7 links (AMD at Hot Chips 2025) of about 153 GB/s in both directions
//   (humeconsulting.co, AMD MI355X).
// * Cards without NVLink here: PCIe generation of the card's data sheet.
// * Networks: dgx-v100, dgx-a100, dgx-h100, dgx-b200, dgx-b300, gb200- and gb300-nvl72 in
//   topologies/clusters, one NIC per GPU; those of AMD's GPUs, of GH200 and of cards on PCIe are
//   assumed. A row that leaves out its network says so among what was inferred.
const std::array kGpus = {
    RunGpu{"A100-SXM4-40GB", R"("A100-SXM4-40GB")", 300, 32, 200},
    RunGpu{"A100-SXM4-80GB", R"("A100-SXM4-80GB")", 300, 32, 200},
    RunGpu{"A800-SXM4-80GB", R"("A100-SXM4-80GB")", 200, 32, 200},
    RunGpu{"H100-SXM5-80GB", R"("H100-SXM5-80GB")", 450, 64, 400},
    RunGpu{"H100-SXM-96GB-HBM2e-500W",
           R"({"name": "H100-SXM-96GB-HBM2e-500W", "memory": "95 GiB", "hbm": "2.4 TB/s",)"
           R"( "bf16": "989 TFLOP/s", "tf32": "494.5 TFLOP/s", "fp8": "1979 TFLOP/s", "sms": 132,)"
           R"( "fp32": "67 TFLOP/s", "compute_capability": 9.0})",
           450, 64, 400},
    RunGpu{"H200-SXM5-141GB", R"("H200-SXM-141GB")", 450, 64, 400},
    RunGpu{"H800-SXM5-80GB", R"("H800-SXM-80GB")", 200, 64, 400},
    RunGpu{"B200-SXM-180GB", R"("B200-SXM")", 900, 64, 400},
    RunGpu{"B300-SXM-270GB", R"("B300-SXM")", 900, 128, 800},
    RunGpu{"GB200", R"("GB200")", 900, 450, 400, kTraysInUse},
    RunGpu{"GB300", R"("GB300")", 900, 450, 800, kTraysInUse},
    RunGpu{"V100-SXM2-32GB", R"("V100-SXM2-32GB")", 150, 16, 100},
    RunGpu{"MI300X 192GB", R"("MI300X")", 448, 64, 400},
    RunGpu{"MI325X", R"("MI325X")", 448, 64, 400},
    RunGpu{"MI355X", R"("MI355X")", 535.5, 64, 400},
    RunGpu{"MI250X", R"("MI250X")", 350, 32, 200},
    RunGpu{"GH200-96", R"("GH200-96")", 450, 64, 400},
    RunGpu{"H100-NVL-94GB", R"("H100-NVL-94GB")", 0, 64, 100},
    RunGpu{"H100-PCIe-80GB", R"("H100-PCIe-80GB")", 0, 64, 100},
    RunGpu{"A100-PCIe-80GB", R"("A100-PCIe-80GB")", 0, 32, 50},
    RunGpu{"L40S", R"("L40S")", 0, 32, 50},
    RunGpu{"L4", R"("L4")", 0, 32, 25},
    RunGpu{"A10", R"("A10")", 0, 32, 25},
    RunGpu{"T4", R"("T4")", 0, 16, 25},
    RunGpu{"RTX 3090", R"("RTX 3090")", 0, 32, 25},
    RunGpu{"RTX-4090", R"("RTX 4090")", 0, 32, 25},
    RunGpu{"RTX A6000 48GB",
           R"({"name": "RTX-A6000-48GB", "memory": "48 GB", "hbm": "768 GB/s",)"
           R"( "bf16": "154.8 TFLOP/s", "tf32": "77.4 TFLOP/s", "fp32": "38.7 TFLOP/s",)"
           R"( "sms": 84, "compute_capability": 8.6})",
           0, 32, 25},
};
constexpr std::int64_t kUsualGpusPerNode = 8;

/// The table's own name, corrected where its memory column contradicts it.
std::string_view gpu_name(const RunRow& row) {
  const bool half = row.gpu_memory_gb && *row.gpu_memory_gb <= 40;
  return row.gpu == "A100-SXM4-80GB" && half ? "A100-SXM4-40GB" : std::string_view(row.gpu);
}

/// "NVIDIA H100 80GB HBM3" → nvidia, h100, 80gb, hbm3.
std::vector<std::string> gpu_words(std::string_view name) {
  std::vector<std::string> words(1);
  for (const char c : name) {
    const bool upper = c >= 'A' && c <= 'Z';
    if (upper || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) {
      words.back() += upper ? static_cast<char>(c - 'A' + 'a') : c;
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

/// "RTX 4090", "rtx-4090" and "RTX4090" are one name.
std::string plain_gpu_name(std::string_view name) {
  std::string plain;
  for (const std::string& word : gpu_words(name)) plain += word;
  return plain;
}

/// How many words of a GPU's name `words` hold, and 1 more when its chip alone means that GPU (the
/// alias "h100"); 0 without the chip, its first word with a digit.
std::size_t likeness(const GpuSummary& gpu, const std::vector<std::string>& words) {
  const std::vector<std::string> own = gpu_words(gpu.spec.name);
  const auto chip = std::ranges::find_if(own, [](const std::string& word) {
    return word.find_first_of("0123456789") != std::string::npos;
  });
  if (chip == own.end() || std::ranges::count(words, *chip) == 0) return 0;
  const auto shared = std::ranges::count_if(
      own, [&](const std::string& word) { return std::ranges::count(words, word) > 0; });
  return 2 * static_cast<std::size_t>(shared) +
         (std::ranges::count(gpu.aliases, *chip) > 0 ? 1 : 0);
}

/// The entry for a name as tables, drivers or vendors write it; null for a chip we do not know.
const RunGpu* find_run_gpu(std::string_view name) {
  const std::string plain = plain_gpu_name(name);
  const auto* exact = std::ranges::find_if(
      kGpus, [&](const RunGpu& gpu) { return plain_gpu_name(gpu.name) == plain; });
  if (exact != kGpus.end()) return exact;
  const std::vector<std::string> words = gpu_words(name);
  std::string nearest;
  std::size_t best = 0;
  for (const GpuSummary& gpu : list_gpus()) {
    const bool is_alias = std::ranges::any_of(
        gpu.aliases, [&](const std::string& alias) { return plain_gpu_name(alias) == plain; });
    if (is_alias || plain_gpu_name(gpu.spec.name) == plain) {
      nearest = fmt::format("\"{}\"", gpu.spec.name);
      break;
    }
    if (const std::size_t like = likeness(gpu, words); like > best) {
      best = like;
      nearest = fmt::format("\"{}\"", gpu.spec.name);
    }
  }
  const auto* like = std::ranges::find(kGpus, nearest, &RunGpu::gpu);
  return like == kGpus.end() ? nullptr : like;
}

std::int64_t node_gpus(const RunRow& row, std::int64_t gpus) {
  return row.gpus_per_node.value_or(std::min(kUsualGpusPerNode, gpus));
}

std::string description(const RunGpu& known, std::int64_t per_node, double nic_gbps) {
  std::string text = fmt::format(R"({{"schema": 1, "name": "{} x {}", "gpu": {}, "node": {{)",
                                 per_node, known.name, known.gpu);
  text += fmt::format(R"("gpus": {}, "interconnect": )", per_node);
  text += known.nvlink_GBps > 0
              ? fmt::format(R"({{"kind": "nvswitch", "per_gpu": "{} GB/s"}})", known.nvlink_GBps)
              : std::string(R"({"kind": "pcie"})");
  text += fmt::format(R"(, "pcie": {{"gpu_link": "{} GB/s"}})", known.pcie_GBps);
  text += fmt::format(R"(, "nics": {{"count": {}, "rate": "{} Gbps"}})", per_node,
                      nic_gbps / static_cast<double>(per_node));
  text += "}";
  if (known.trays > 1) {
    text += fmt::format(
        R"(, "fabric": {{"tiers": [{{"name": "nvlink-rack", "kind": "nvlink", "multiplicity": {},)"
        R"( "latency": "0 us"}}, {{"name": "network", "multiplicity": 1000000, "latency": "0 us"}}]}})",
        known.trays);
  }
  return text + "}";
}

}  // namespace

std::string cluster_key(const RunRow& row, std::int64_t gpus) {
  return fmt::format("{}|{}|{}|{}", gpu_name(row), gpus, node_gpus(row, gpus),
                     row.nic_gbps_per_node.value_or(0));
}

Result<ClusterTopology> cluster_of(const RunRow& row, std::int64_t gpus,
                                   std::vector<std::string>& inferred) {
  const std::string_view name = gpu_name(row);
  const RunGpu* known = find_run_gpu(name);
  if (known == nullptr) {
    std::vector<std::string_view> names;
    for (const RunGpu& one : kGpus) names.push_back(one.name);
    return input_error("gpu", fmt::format("unknown GPU '{}'", row.gpu.substr(0, 60)),
                       fmt::format("one of {}", fmt::join(names, ", ")));
  }
  const std::int64_t per_node = node_gpus(row, gpus);
  double nic_gbps = row.nic_gbps_per_node.value_or(0);
  if (name != known->name) {
    inferred.push_back(fmt::format("GPU '{}' taken for {}", row.gpu.substr(0, 60), known->name));
  }
  if (name != row.gpu) {
    inferred.push_back(fmt::format("the GPU is {}: the row says {} GB", name, *row.gpu_memory_gb));
  }
  if (nic_gbps == 0) {
    nic_gbps = known->nic_gbps * static_cast<double>(per_node);
    if (gpus > per_node) {
      inferred.push_back(fmt::format("a network of {:g} Gbit/s per node", nic_gbps));
    }
  }
  return ClusterTopology::parse(description(*known, per_node, nic_gbps), "the machine of the row",
                                gpus);
}

std::optional<Seconds> measured_ring_step(const RunRow& row) {
  if (!row.net_allgather_busbw_GBps || !row.net_reducescatter_busbw_GBps || !row.gpus) return {};
  constexpr Bytes kMeasured{1.07e9};
  const BytesPerSecond seen =
      std::max(*row.net_allgather_busbw_GBps, *row.net_reducescatter_busbw_GBps) * 1_GBps;
  return (kMeasured / seen - kMeasured / MeasuredNetwork::kUnhindered) /
         static_cast<double>(*row.gpus);
}

std::optional<Seconds> measured_hop(const RunRow& row) {
  const auto step = measured_ring_step(row);
  if (!step) return {};
  const auto gpus = static_cast<double>(*row.gpus);
  const double nodes = std::ceil(gpus / static_cast<double>(node_gpus(row, *row.gpus)));
  return nodes > 1 ? *step * (gpus / (nodes - 1)) : *step;
}

std::optional<MeasuredNetwork> measured_network(const RunRow& row, const ClusterTopology& cluster) {
  if (!row.net_allreduce_busbw_GBps || cluster.nodes() < 2) return {};
  MeasuredNetwork network{*row.net_allreduce_busbw_GBps * 1_GBps, Seconds{}};
  constexpr Seconds kLeastHop = 20_us;  // below it the bandwidths do not tell a latency
  if (const auto hop = measured_hop(row)) network.hop = std::max(kLeastHop, *hop);
  return network;
}

bool has_slow_network(const RunRow& row) {
  const std::optional<Seconds> hop = measured_hop(row);
  return hop && MeasuredNetwork{{}, *hop}.stalls();
}

}  // namespace echelon
