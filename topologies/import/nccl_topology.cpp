// The topology NCCL dumps: a small part of XML, and what its elements mean.
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
  std::vector<Element> inside;

  [[nodiscard]] std::string operator[](const char* key) const {
    const auto found = attributes.find(key);
    return found == attributes.end() ? "" : found->second;
  }
};

/// Elements with attributes; no text, no entities, comments and prologs passed over.
class TopologyXml {
 public:
  TopologyXml(std::string_view text, std::string_view where) : text_(text), where_(where) {}

  Result<Element> read() {
    skip();
    Element root;
    if (!element(root, 0)) return wrong();
    skip();
    if (at_ != text_.size()) {
      expected_ = "nothing behind </" + root.name + ">";
      return wrong();
    }
    return root;
  }

 private:
  static constexpr int kDeepest = 64;
  static constexpr std::size_t kMostElements = 100'000;

  [[nodiscard]] Error wrong() const {
    const auto line =
        1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at_), '\n');
    std::string found = at_ < text_.size() ? "'" + std::string(text_.substr(at_, 20)) + "'"
                                           : std::string("its end");
    std::replace(found.begin(), found.end(), '\n', ' ');
    return input_error(fmt::format("{} line {}", where_, line), std::move(found), expected_,
                       "NCCL writes such a file to NCCL_TOPO_DUMP_FILE");
  }
  bool fail(std::string expected) {
    expected_ = std::move(expected);
    return false;
  }
  void blanks() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }
  bool take(std::string_view what) {
    if (!text_.substr(at_).starts_with(what)) return false;
    at_ += what.size();
    return true;
  }
  void skip() {
    for (blanks();; blanks()) {
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
    blanks();
    if (key.empty() || !take("=")) return fail("an attribute, or '>'");
    blanks();
    if (!take("\"")) return fail("a value in quotation marks");
    const std::size_t end = text_.find('"', at_);
    if (end == std::string_view::npos) return fail("the value's closing quotation mark");
    out.attributes[std::move(key)] = std::string(text_.substr(at_, end - at_));
    at_ = end + 1;
    return true;
  }
  bool element(Element& out, int depth) {
    if (depth > kDeepest) return fail("elements nested 64 deep at most");
    if (++elements_ > kMostElements) return fail("100,000 elements at most");
    if (!take("<")) return fail("an element");
    out.name = word();
    if (out.name.empty()) return fail("the name of an element");
    for (blanks(); !take(">"); blanks()) {
      if (take("/>")) return true;
      if (!attribute(out)) return false;
    }
    for (skip(); !take("</"); skip()) {
      Element child;
      if (!element(child, depth + 1)) return false;
      out.inside.push_back(std::move(child));
    }
    if (word() != out.name) return fail("</" + out.name + ">");
    blanks();
    return take(">") || fail("'>'");
  }

  std::string_view text_;
  std::string_view where_;
  std::size_t at_ = 0;
  std::size_t elements_ = 0;
  std::string expected_;
};

/// 0 for what is no number of links or devices.
int small_number(const std::string& text) {
  constexpr int kMost = 10'000;
  const Result<int> number = parse_int(text, "", 0);
  return number && *number <= kMost ? *number : 0;
}

/// "32.0 GT/s PCIe" and "16": one direction. 128b/130b from 8 GT/s on, else 8b/10b.
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

/// One <cpu> after the other.
struct Search {
  std::vector<FoundGpu> gpus;
  std::vector<FoundNic> nics;
  int sockets = 0;

  void cpu(const Element& cpu) {
    for (const Element& child : cpu.inside) below(child, nullptr, nullptr);
    ++sockets;
  }

 private:
  /// `outer`: the <pci> right below the <cpu>; `own`: the innermost around `element`.
  void below(const Element& element, const Element* outer, const Element* own) {
    if (element.name == "pci") {
      for (const Element& child : element.inside) {
        below(child, outer == nullptr ? &element : outer, &element);
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
      for (const Element& link : element.inside) {
        if (link.name != "nvlink") continue;
        gpu.links.emplace_back(lower_case(link["target"]), small_number(link["count"]));
      }
      gpus.push_back(std::move(gpu));
    } else if (element.name == "nic") {
      for (const Element& net : element.inside) {
        if (net.name != "net") continue;
        const std::string behind = outer == own || outer == nullptr ? "" : (*outer)["busid"];
        nics.push_back({net["name"], std::strtod(net["speed"].c_str(), nullptr), sockets, behind});
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
        out.gpus[a].links_to_switch += count;  // an NVSwitch, by whatever name a VM gives it
      } else if (other->second > static_cast<int>(a)) {  // each link is told at both ends
        out.links.push_back({static_cast<int>(a), other->second, count});
      }
    }
  }
}

NodeWiring wiring_of(Search found) {
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
  std::vector<NodeWiring::Nic> far;
  for (const FoundNic& nic : found.nics) {
    const bool behind = switches.contains(nic.pcie_switch);
    std::vector<int> beside;
    for (std::size_t i = 0; i < found.gpus.size(); ++i) {
      const FoundGpu& gpu = found.gpus[i];
      if (behind ? gpu.pcie_switch == nic.pcie_switch : gpu.socket == nic.socket) {
        beside.push_back(static_cast<int>(i));
      }
    }
    if (beside.empty()) continue;
    NodeWiring::Nic& place = (behind ? out.nics : far).emplace_back();
    place.name = nic.name;
    constexpr double kMegabit = 1e6 / 8;
    if (nic.megabits > 0) place.rate = BytesPerSecond{nic.megabits * kMegabit};
    place.gpus = std::move(beside);
  }
  if (out.nics.empty()) out.nics = std::move(far);
  return out;
}

}  // namespace

Result<NodeWiring> parse_nccl_topology(std::string_view xml, std::string_view where) {
  const Result<Element> root = TopologyXml(xml, where).read();
  if (!root) return root.error();
  if (root->name != "system") {
    return input_error(std::string(where), "<" + root->name.substr(0, 40) + ">",
                       "<system>, as NCCL writes to NCCL_TOPO_DUMP_FILE",
                       root->name == "graphs" ? "a graph dump says what NCCL chose, not what is "
                                                "there"
                                              : "");
  }
  Search found;
  std::string host;
  for (const Element& cpu : root->inside) {
    if (cpu.name != "cpu") continue;
    if (found.sockets == 0) host = cpu["host_hash"];
    if (cpu["host_hash"] == host) found.cpu(cpu);
  }
  if (found.gpus.empty()) {
    return input_error(std::string(where), "no <gpu>", "the GPUs of a node",
                       "files that cloud images ship hold PCIe alone; NCCL_TOPO_DUMP_FILE has all");
  }
  if (found.gpus.size() > kMostWiredGpus) {
    return input_error(std::string(where), fmt::format("{} GPUs", found.gpus.size()),
                       fmt::format("a node of at most {}", kMostWiredGpus));
  }
  return wiring_of(std::move(found));
}

}  // namespace echelon
