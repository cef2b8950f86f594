#include "topologies/import/wiring.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/json/json_io.hpp"
#include "topologies/description/catalog.hpp"

namespace echelon {
namespace {

Json quantity_of(double value, const char* unit, const std::string& source) {
  return Json{{"value", value}, {"unit", unit}, {"source", source}};
}
Json count_of(double value, const std::string& source) {
  return Json{{"value", value}, {"source", source}};
}

/// A number that applies from a compute capability on, up to the next entry.
struct ByGeneration {
  double compute_capability;
  double value;
};

/// GB/s of one NVLink and direction. Source: NVIDIA's data sheets and white papers of P100 (20),
/// V100, A100, H100 (25), RTX 3090 and A40 (112.5 both ways over 4), B200 (1800 both ways over 18),
/// Rubin (3000 both ways over 36, topologies/catalog/clusters/vr-nvl72.json).
constexpr std::array kLinkRates{ByGeneration{6, 20},
                                ByGeneration{7, 25},
                                ByGeneration{8, 25},
                                ByGeneration{8.55, 14.0625},
                                ByGeneration{9, 25},
                                ByGeneration{10, 50},
                                ByGeneration{10.7, 1500. / 36},
                                ByGeneration{11, 50}};
/// GB/s of a slot of 16 lanes. Source: the GPUs' data sheets: PCIe 3, 4 (A100, Ada), 5 (Hopper,
/// Blackwell), 6 (Rubin).
constexpr std::array kSlots{ByGeneration{6, 15.75}, ByGeneration{8, 31.5}, ByGeneration{9, 63.0},
                            ByGeneration{10.7, 121.0}, ByGeneration{11, 63.0}};
/// Dense bf16 FLOPs per SM and cycle. Source: peaks of the data sheets over SMs and boost clock:
/// A100 312 TFLOP/s / (108 · 1.41 GHz), A40 and L40S, H100 989.4 / (132 · 1.83), B200.
constexpr std::array kTensorFlops{ByGeneration{7, 1024}, ByGeneration{8, 2048},
                                  ByGeneration{8.55, 1024}, ByGeneration{9, 4096},
                                  ByGeneration{10, 8192}};

/// GB/s of one xGMI link and direction. Source: as in the catalog's frontier, mi300x and mi355x
/// (stas00/ml-engineering network/README.md@744d01e).
constexpr std::array kXgmiRates{std::pair("cdna2", 50.0), std::pair("cdna3", 64.0),
                                std::pair("cdna4", 76.5)};

template <std::size_t N>
double of_generation(const std::array<ByGeneration, N>& table, double compute_capability) {
  double value = table.front().value;
  for (const ByGeneration& each : table) {
    if (compute_capability >= each.compute_capability - 0.01) value = each.value;
  }
  return value;
}

/// The "gpu" member of a description.
struct Described {
  Json json;
  double compute_capability = 0;
  std::string family;
  bool module = false;     ///< SXM: a module whose board joins it to others with NVLink
  bool superchip = false;  ///< joined to a Grace or Vera CPU by NVLink-C2C

  /// The compute capability of NVIDIA's GPUs with the same PCIe, of AMD's, which have none: PCIe 4
  /// of MI250X, PCIe 5 from MI300X on, PCIe 6 of MI455X (AMD's data sheets).
  [[nodiscard]] double slot_generation() const {
    if (!family.starts_with("cdna")) return compute_capability;
    return family == "cdna2" ? 8 : family == "cdna5" ? 10.7 : 9;
  }
};

Result<Described> catalog_gpu(const std::string& name) {
  const Result<GpuDescription> known = load_gpu(name, "--gpu");
  if (!known) return known.error();
  const std::string& model = known->spec.name;
  constexpr std::array kSuperchips{"GH200", "GB200", "GB300", "VR200"};
  const bool superchip =
      std::ranges::any_of(kSuperchips, [&](const char* each) { return model.starts_with(each); });
  return Described{Json(name), known->spec.compute_capability, known->spec.family,
                   model.find("SXM") != std::string::npos, superchip};
}

/// Memory and SMs as reported by CUDA; peaks from the catalog, else by generation.
Described reported_gpu(const GpuFacts& facts) {
  const std::string cuda = "reported by CUDA";
  Json gpu{{"name", facts.name}, {"memory", quantity_of(facts.memory.in(1_GiB), "GiB", cuda)}};
  const std::optional<std::string> name = catalog_gpu_of_driver(facts.name);
  constexpr double kTera = 1e-12;  // FLOP/s to TFLOP/s
  if (name) {
    const GpuSpec known = load_gpu(*name, "")->spec;
    const std::string sheet = "catalog: " + *name;
    const auto peak = [&](const char* key, FlopsPerSecond rate) {
      const double value = kTera * rate.in(FlopsPerSecond{1.0});
      if (value > 0) gpu[key] = quantity_of(value, "TFLOP/s", sheet);
    };
    gpu["hbm"] = quantity_of(known.hbm.in(1_GBps), "GB/s", sheet);
    peak("fp64", known.fp64);
    peak("fp32", known.fp32);
    peak("tf32", known.tf32);
    peak("bf16", known.bf16);
    peak("fp16", known.fp16);
    peak("fp8", known.fp8);
  } else {
    // Data is transferred on both edges of the memory clock. If CUDA reports no clocks, round
    // numbers are used: the rates of a calibration are fractions of these numbers, and the products
    // equal the measured rates.
    constexpr double kMegabit = 2 * 1e6 / 8 * 1e-9;  // in GB/s
    const double hbm = kMegabit * facts.memory_clock_mhz * facts.memory_bits;
    gpu["hbm"] = hbm > 0 ? quantity_of(hbm, "GB/s",
                                       fmt::format("{} MHz · {} bits, reported by CUDA",
                                                   facts.memory_clock_mhz, facts.memory_bits))
                         : quantity_of(1000, "GB/s", "assumed: memory clock unavailable");
    const double each = of_generation(kTensorFlops, facts.compute_capability);
    const double clock = facts.clock_mhz > 0 ? facts.clock_mhz : 1500;
    gpu["bf16"] = quantity_of(
        kTera * 1e6 * clock * each * facts.sms, "TFLOP/s",
        fmt::format(
            "assumed: {} SMs · {} MHz · {} FLOP per cycle, as other GPUs of compute capability "
            "{:.1f}",
            facts.sms, clock, each, facts.compute_capability));
  }
  gpu["sms"] = count_of(facts.sms, cuda);
  if (facts.clock_mhz > 0) gpu["boost"] = quantity_of(facts.clock_mhz, "MHz", cuda);
  if (facts.l2 > Bytes{}) gpu["l2"] = quantity_of(facts.l2.in(1_MB), "MB", cuda);
  gpu["compute_capability"] = count_of(facts.compute_capability, cuda);
  return {std::move(gpu), facts.compute_capability, {}, false, false};
}

Result<Described> gpu_of(const WiredMachine& machine) {
  if (const auto* name = std::get_if<std::string>(&machine.gpu)) return catalog_gpu(*name);
  return reported_gpu(std::get<GpuFacts>(machine.gpu));
}

/// GB/s of one link between GPUs, and its name.
std::pair<double, const char*> link_of(const Described& gpu) {
  for (const auto& [family, rate] : kXgmiRates) {
    if (gpu.family == family) return {rate, "xGMI links"};
  }
  return {of_generation(kLinkRates, gpu.compute_capability), "NVLinks"};
}

Result<Json> interconnect_of(const NodeWiring& wiring, const Described& gpu) {
  const auto& gpus = wiring.gpus;
  const int min_links =
      std::ranges::min_element(gpus, {}, &NodeWiring::Gpu::links_to_switch)->links_to_switch;
  const int max_links =
      std::ranges::max_element(gpus, {}, &NodeWiring::Gpu::links_to_switch)->links_to_switch;
  const auto [each, links_name] = link_of(gpu);
  const auto rate = [&, each = each, links_name = links_name](int count) {
    return quantity_of(count * each, "GB/s",
                       fmt::format("{}: {} {}; data sheet: {:g} GB/s each", wiring.source, count,
                                   links_name, each));
  };
  if (min_links > 0) return Json{{"kind", "nvswitch"}, {"per_gpu", rate(min_links)}};
  if (max_links > 0) {
    return input_error(wiring.source, "GPUs with and GPUs without links to an NVSwitch",
                       "identically wired GPUs", "describe the machine by hand");
  }
  if (wiring.links.empty()) return Json{{"kind", "pcie"}};
  if (gpu.family == "cdna5") {
    return input_error(
        wiring.source, "links between GPUs of CDNA 5, which are UALoE through switches",
        "GPUs joined by xGMI or NVLink", "start from the catalog's machine: plan topo show helios");
  }
  std::vector<int> group(gpus.size());
  for (std::size_t i = 0; i < group.size(); ++i) group[i] = static_cast<int>(i);
  Json links = Json::array();
  Json pairs = Json::array();
  int narrowest = wiring.links.front().count;
  for (const GpuLink& link : wiring.links) {
    links.push_back({link.a, link.b, link.count});
    pairs.push_back({link.a, link.b});
    narrowest = std::min(narrowest, link.count);
    const int from = group[static_cast<std::size_t>(link.b)];
    std::ranges::replace(group, from, group[static_cast<std::size_t>(link.a)]);
  }
  const bool connected = std::ranges::all_of(group, [&](int of) { return of == group.front(); });
  if (connected) return Json{{"kind", "nvlink-mesh"}, {"link", rate(1)}, {"links", links}};
  return Json{{"kind", "nvlink-bridge"}, {"link", rate(narrowest)}, {"pairs", pairs}};
}

Json slot_of(const WiredMachine& machine, const Described& gpu) {
  const NodeWiring& wiring = machine.wiring;
  if (wiring.gpu_slot) {
    return quantity_of(wiring.gpu_slot->in(1_GBps), "GB/s", wiring.source + ": speed and width");
  }
  if (machine.measured_copies) {
    const double measured = machine.measured_copies->in(1_GBps);
    for (const auto& [rate, what] :
         {std::pair(15.75, "PCIe 3"), {31.5, "PCIe 4"}, {63.0, "PCIe 5"}, {126.0, "PCIe 6"}}) {
      if (measured > rate) continue;
      return quantity_of(rate, "GB/s",
                         fmt::format("{} x16, the slowest line rate above the {:.3g} GB/s that "
                                     "copies reach",
                                     what, measured));
    }
    return quantity_of(measured, "GB/s", "measured copies, faster than PCIe 6 x16");
  }
  const std::string of_gpu = gpu.family.starts_with("cdna")
                                 ? gpu.family
                                 : fmt::format("compute capability {:.1f}", gpu.compute_capability);
  return quantity_of(of_generation(kSlots, gpu.slot_generation()), "GB/s",
                     fmt::format("assumed: 16 lanes of the PCIe generation of {}; {} does not "
                                 "contain it",
                                 of_gpu, wiring.source));
}

Json pcie_of(const WiredMachine& machine, const Described& gpu_type) {
  const NodeWiring& wiring = machine.wiring;
  Json pcie{{"gpu_link", slot_of(machine, gpu_type)}};
  if (gpu_type.superchip) {
    pcie["nic_link"] = pcie["gpu_link"];
    pcie["gpu_link"] = quantity_of(450, "GB/s", "data sheet: NVLink-C2C 450 GB/s per direction");
    pcie["c2c"] = true;
  }
  Json sockets = Json::array();
  std::vector<std::vector<int>> switches;
  int last_socket = 0;
  for (std::size_t i = 0; i < wiring.gpus.size(); ++i) {
    const NodeWiring::Gpu& gpu = wiring.gpus[i];
    sockets.push_back(gpu.socket);
    last_socket = std::max(last_socket, gpu.socket);
    if (!gpu.pcie_switch) continue;
    const auto at = static_cast<std::size_t>(*gpu.pcie_switch);
    if (switches.size() <= at) switches.resize(at + 1);
    switches[at].push_back(static_cast<int>(i));
  }
  if (last_socket > 0) {
    pcie["sockets"] = count_of(last_socket + 1, wiring.source);
    pcie["gpu_sockets"] = sockets;
    pcie["socket_link"] = quantity_of(16, "GB/s",
                                      "assumed: NCCL 2.28 src/graph/topo.h: AMD inter-socket 16 "
                                      "GB/s, the lowest value for current CPUs");
  }
  if (!switches.empty()) pcie["switches"] = switches;
  return pcie;
}

/// The cards with a known rate, all with the rate of the slowest one; nothing if there are none.
std::optional<Json> nics_of(const WiredMachine& machine, std::string& omitted) {
  const bool far =
      std::ranges::all_of(machine.wiring.nics, [](const auto& nic) { return nic.gpus.empty(); });
  std::optional<BytesPerSecond> slowest;
  Json nearest = Json::array();
  bool all_in_wiring = true;
  for (const NodeWiring::Nic& nic : machine.wiring.nics) {
    const auto rate = nic.rate ? nic.rate : machine.nic_rate;
    if (!rate) {
      omitted += (omitted.empty() ? "" : ", ") + nic.name;
      continue;
    }
    all_in_wiring = all_in_wiring && nic.rate.has_value();
    slowest = std::min(slowest.value_or(*rate), *rate);
    nearest.push_back(nic.gpus);
  }
  if (!slowest) return std::nullopt;
  return Json{
      {"count", count_of(static_cast<double>(nearest.size()), machine.wiring.source)},
      {"rate", quantity_of(8 * slowest->in(1_GBps), "Gbps",
                           all_in_wiring ? machine.wiring.source : std::string("--nic-rate"))},
      {"next_to", far ? Json("sockets") : nearest}};
}

/// What the description may lack, or have too much of.
std::string notes_of(const WiredMachine& machine, const Described& gpu, const Json& interconnect,
                     const std::string& omitted, bool has_nics) {
  std::string notes;
  const auto add = [&](const std::string& note) { notes += (notes.empty() ? "" : "; ") + note; };
  if (!omitted.empty()) add("omitted, because their rate is unknown (--nic-rate): " + omitted);
  const auto& nics = machine.wiring.nics;
  if (has_nics && nics.front().gpus.empty()) {
    add("no card is near a GPU, so all are taken for cards of the job: take out those of "
        "storage and management");
  }
  if (gpu.module && machine.wiring.gpus.size() > 1 && interconnect.at("kind") == "pcie") {
    add("no NVLinks, which SXM modules have: `nvidia-smi topo -mp` leaves them out, -m shows them");
  }
  if (gpu.family == "cdna2" && interconnect.at("kind") == "nvlink-mesh" &&
      machine.wiring.source == "rocm-smi --showtopo") {
    add("one xGMI link between any two dies is assumed, of the 4 within an MI250X and of the "
        "1 or 2 outside: see the catalog's frontier");
  }
  return notes;
}

}  // namespace

Result<std::string> description_of(const WiredMachine& machine) {
  const Result<Described> gpu = gpu_of(machine);
  if (!gpu) return gpu.error();
  const Result<Json> interconnect = interconnect_of(machine.wiring, *gpu);
  if (!interconnect) return interconnect.error();
  Json node{
      {"name", machine.name},
      {"gpus", count_of(static_cast<double>(machine.wiring.gpus.size()), machine.wiring.source)},
      {"interconnect", *interconnect},
      {"pcie", pcie_of(machine, *gpu)}};
  std::string omitted;
  if (const auto nics = nics_of(machine, omitted)) node["nics"] = *nics;
  if (machine.cpu_memory) {
    node["cpu_memory"] = quantity_of(machine.cpu_memory->in(1_GB), "GB", "the operating system");
  }
  Json root{{"schema", 1}, {"name", machine.name}, {"description", machine.summary}};
  if (const std::string notes =
          notes_of(machine, *gpu, *interconnect, omitted, node.contains("nics"));
      !notes.empty()) {
    root["notes"] = notes;
  }
  root["gpu"] = gpu->json;
  root["node"] = std::move(node);
  // Names of cards may contain any bytes.
  std::string text = root.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  if (const auto read = parse_machine(text, machine.wiring.source); !read) return read.error();
  return text;
}

std::optional<std::string> catalog_gpu_of_driver(std::string_view name) {
  for (const std::string& known : gpu_catalog()) {
    const Result<GpuDescription> gpu = load_gpu(known, "catalog");
    if (gpu && std::ranges::count(gpu->driver_names, name) > 0) return known;
  }
  return std::nullopt;
}

}  // namespace echelon
