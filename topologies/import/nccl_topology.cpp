// Reader of NCCL's topology dumps: a subset of XML, and the meaning of its elements.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

#include "core/base/parse_quantity.hpp"
#include "core/base/text.hpp"
#include "topologies/import/wiring.hpp"

namespace echelon {
namespace {

struct Element {
  std::string name;
  std::map<std::string, std::string> attributes;
  std::vector<Element> children;

  [[nodiscard]] std::string operator[](const char* key) const {
    const auto found = attributes.find(key);
    return found == attributes.end() ? "" : found->second;
  }
};

/// Parses elements with attributes; no text, no entities; comments and prologs are skipped.
class TopologyXml {
 public:
  TopologyXml(std::string_view text, std::string_view where) : text_(text), where_(where) {}

  Result<Element> read() {
    skip();
    Element root;
    if (!element(root, 0)) return error();
    skip();
    if (at_ != text_.size()) {
      expected_ = "nothing after </" + root.name + ">";
      return error();
    }
    return root;
  }

 private:
  static constexpr int kDeepest = 64;
  static constexpr std::size_t kMaxElements = 100'000;

  [[nodiscard]] Error error() const {
    const auto line =
        1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at_), '\n');
    std::string found =
        at_ < text_.size() ? in_quotes(text_.substr(at_), 20) : std::string("its end");
    return input_error(fmt::format("{} line {}", where_, line), std::move(found), expected_,
                       "NCCL writes its topology to NCCL_TOPO_DUMP_FILE");
  }
  bool fail(std::string expected) {
    expected_ = std::move(expected);
    return false;
  }
  void skip_blanks() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }
  bool accept(std::string_view what) {
    if (!text_.substr(at_).starts_with(what)) return false;
    at_ += what.size();
    return true;
  }
  void skip() {
    for (skip_blanks();; skip_blanks()) {
      const std::string_view rest = text_.substr(at_);
      const char* end = rest.starts_with("<!--") ? "-->" : rest.starts_with("<?") ? "?>" : nullptr;
      if (end == nullptr) return;
      const std::size_t close = rest.find(end);
      at_ = close == std::string_view::npos ? text_.size()
                                            : at_ + close + std::string_view(end).size();
    }
  }
  std::string word() {
    const std::size_t begin = at_;
    const auto part = [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.' ||
             c == ':';
    };
    while (at_ < text_.size() && part(text_[at_])) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }
  bool attribute(Element& out) {
    std::string key = word();
    skip_blanks();
    if (key.empty() || !accept("=")) return fail("an attribute, or '>'");
    skip_blanks();
    if (!accept("\"")) return fail("a value in quotation marks");
    const std::size_t end = text_.find('"', at_);
    if (end == std::string_view::npos) return fail("the value's closing quotation mark");
    out.attributes[std::move(key)] = std::string(text_.substr(at_, end - at_));
    at_ = end + 1;
    return true;
  }
  bool element(Element& out, int depth) {
    if (depth > kDeepest) return fail("at most 64 nested levels of elements");
    if (++elements_ > kMaxElements) return fail("at most 100,000 elements");
    if (!accept("<")) return fail("an element");
    out.name = word();
    if (out.name.empty()) return fail("the name of an element");
    for (skip_blanks(); !accept(">"); skip_blanks()) {
      if (accept("/>")) return true;
      if (!attribute(out)) return false;
    }
    for (skip(); !accept("</"); skip()) {
      Element child;
      if (!element(child, depth + 1)) return false;
      out.children.push_back(std::move(child));
    }
    if (word() != out.name) return fail("</" + out.name + ">");
    skip_blanks();
    return accept(">") || fail("'>'");
  }

  std::string_view text_;
  std::string_view where_;
  std::size_t at_ = 0;
  std::size_t elements_ = 0;
  std::string expected_;
};

/// A number of links or devices; 0 for any other text.
int small_number(const std::string& text) {
  constexpr int kMaxNumber = 10'000;
  const Result<int> number = parse_int(text, "", 0);
  return number && *number <= kMaxNumber ? *number : 0;
}

/// Bandwidth of a slot, one direction, from "32.0 GT/s PCIe" and "16": 128b/130b coding from 8 GT/s
/// on, else 8b/10b.
/// Source: PCI Express base specifications.
std::optional<BytesPerSecond> slot_rate(const Element& pci) {
  const double transfers = std::strtod(pci["link_speed"].c_str(), nullptr);
  const double width = std::strtod(pci["link_width"].c_str(), nullptr);
  if (transfers <= 0 || width <= 0 || pci["link_speed"].find("GT/s") == std::string::npos) {
    return std::nullopt;
  }
  const double coding = transfers < 8 ? 0.8 : 128.0 / 130;
  return BytesPerSecond{transfers * 1e9 * width / 8 * coding};
}

struct FoundGpu {
  int device = 0;
  std::string bus;
  int socket = 0;
  std::string pcie_switch;  ///< "": none
  std::optional<BytesPerSecond> slot;
  std::vector<std::pair<std::string, int>> links;  ///< target, count
};
struct FoundNic {
  std::string name;
  double megabits = 0;
  int socket = 0;
  std::string pcie_switch;
};

/// Collects GPUs and NICs, one <cpu> element at a time.
struct DeviceCollector {
  std::vector<FoundGpu> gpus;
  std::vector<FoundNic> nics;
  int sockets = 0;

  void add_cpu(const Element& cpu) {
    for (const Element& child : cpu.children) visit(child, nullptr, nullptr);
    ++sockets;
  }

 private:
  /// `outer`: the <pci> directly below the <cpu>; `own`: the innermost <pci> around `element`.
  void visit(const Element& element, const Element* outer, const Element* own) {
    if (element.name == "pci") {
      for (const Element& child : element.children) {
        visit(child, outer == nullptr ? &element : outer, &element);
      }
    } else if (element.name == "gpu") {
      FoundGpu gpu;
      gpu.device = small_number(element["dev"]);
      gpu.socket = sockets;
      if (own != nullptr) {
        gpu.bus = lower_case((*own)["busid"]);
        gpu.slot = slot_rate(*own);
        if (outer != own) gpu.pcie_switch = (*outer)["busid"];
      }
      for (const Element& link : element.children) {
        if (link.name != "nvlink" && link.name != "xgmi") continue;
        gpu.links.emplace_back(lower_case(link["target"]), small_number(link["count"]));
      }
      gpus.push_back(std::move(gpu));
    } else if (element.name == "nic") {
      for (const Element& net : element.children) {
        if (net.name != "net") continue;
        const std::string pcie_switch = outer == own || outer == nullptr ? "" : (*outer)["busid"];
        nics.push_back(
            {net["name"], std::strtod(net["speed"].c_str(), nullptr), sockets, pcie_switch});
      }
    }
  }
};

void place_links(const std::vector<FoundGpu>& gpus, NodeWiring& out) {
  std::map<std::string, int> index;
  for (std::size_t i = 0; i < gpus.size(); ++i) index[gpus[i].bus] = static_cast<int>(i);
  for (std::size_t a = 0; a < gpus.size(); ++a) {
    for (const auto& [target, count] : gpus[a].links) {
      const auto other = index.find(target);
      if (other == index.end()) {
        out.gpus[a].links_to_switch += count;  // an NVSwitch; its name differs between VMs
      } else if (other->second > static_cast<int>(a)) {  // each link appears at both ends
        out.links.push_back({static_cast<int>(a), other->second, count});
      }
    }
  }
}

NodeWiring wiring_of(DeviceCollector found) {
  std::ranges::sort(found.gpus, {}, &FoundGpu::device);
  NodeWiring out;
  out.source = "NCCL's topology dump";
  std::map<std::string, int> switches;
  std::map<int, int> sockets;
  for (const FoundGpu& gpu : found.gpus) {
    NodeWiring::Gpu place;
    place.socket = sockets.try_emplace(gpu.socket, static_cast<int>(sockets.size())).first->second;
    if (!gpu.pcie_switch.empty()) {
      place.pcie_switch =
          switches.try_emplace(gpu.pcie_switch, static_cast<int>(switches.size())).first->second;
    }
    if (gpu.slot) out.gpu_slot = std::min(out.gpu_slot.value_or(*gpu.slot), *gpu.slot);
    out.gpus.push_back(place);
  }
  place_links(found.gpus, out);
  std::vector<NodeWiring::Nic> on_socket;
  std::vector<NodeWiring::Nic> far;
  for (const FoundNic& nic : found.nics) {
    const bool on_gpu_switch = switches.contains(nic.pcie_switch);
    std::vector<int> nearest;
    for (std::size_t i = 0; i < found.gpus.size(); ++i) {
      const FoundGpu& gpu = found.gpus[i];
      if (on_gpu_switch ? gpu.pcie_switch == nic.pcie_switch : gpu.socket == nic.socket) {
        nearest.push_back(static_cast<int>(i));
      }
    }
    NodeWiring::Nic& place = (on_gpu_switch     ? out.nics
                              : nearest.empty() ? far
                                                : on_socket)
                                 .emplace_back();
    place.name = nic.name;
    constexpr double kMegabit = 1e6 / 8;
    if (nic.megabits > 0) place.rate = BytesPerSecond{nic.megabits * kMegabit};
    place.gpus = std::move(nearest);
  }
  if (out.nics.empty()) out.nics = std::move(on_socket.empty() ? far : on_socket);
  return out;
}

}  // namespace

Result<NodeWiring> parse_nccl_topology(std::string_view xml, std::string_view where) {
  const Result<Element> root = TopologyXml(xml, where).read();
  if (!root) return root.error();
  if (root->name != "system") {
    return input_error(std::string(where), "<" + root->name.substr(0, 40) + ">",
                       "<system>, the root of the file NCCL_TOPO_DUMP_FILE",
                       root->name == "graphs" ? "a graph dump contains NCCL's choices, not the "
                                                "topology"
                                              : "");
  }
  DeviceCollector found;
  std::string host;
  for (const Element& cpu : root->children) {
    if (cpu.name != "cpu") continue;
    if (found.sockets == 0) host = cpu["host_hash"];
    if (cpu["host_hash"] == host) found.add_cpu(cpu);
  }
  if (found.gpus.empty()) {
    return input_error(std::string(where), "no <gpu>", "the GPUs of a node",
                       "files in cloud images contain only PCIe; NCCL_TOPO_DUMP_FILE contains all");
  }
  if (found.gpus.size() > kMaxWiredGpus) {
    return input_error(std::string(where), fmt::format("{} GPUs", found.gpus.size()),
                       fmt::format("a node of at most {}", kMaxWiredGpus));
  }
  return wiring_of(std::move(found));
}

}  // namespace echelon
