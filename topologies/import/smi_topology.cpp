// Reader of the output of `nvidia-smi topo -m`.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "core/base/parse_quantity.hpp"
#include "core/base/text.hpp"
#include "topologies/import/wiring.hpp"

namespace echelon {
namespace {

/// Removes carriage returns and the escape sequences that underline the header.
std::string plain_text(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') {
      while (i < text.size() && text[i] != 'm') ++i;
    } else if (text[i] != '\r') {
      out += text[i];
    }
  }
  return out;
}

std::string trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(" \t") - first + 1));
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    out.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

/// Splits a line at tabs, or at blanks if it has no tabs.
std::vector<std::string> cells_of(const std::string& line) {
  const char separator = line.find('\t') == std::string::npos ? ' ' : '\t';
  std::vector<std::string> out;
  std::size_t begin = 0;
  while (begin <= line.size()) {
    const std::size_t end = std::min(line.find(separator, begin), line.size());
    std::string cell = trimmed(std::string_view(line).substr(begin, end - begin));
    if (separator == '\t' || !cell.empty()) out.push_back(std::move(cell));
    begin = end + 1;
  }
  return out;
}

std::optional<int> number_after(std::string_view prefix, std::string_view text) {
  if (!text.starts_with(prefix)) return std::nullopt;
  constexpr int kMaxNumber = 10'000;
  const Result<int> number = parse_int(text.substr(prefix.size()), "", 0);
  if (!number || *number > kMaxNumber) return std::nullopt;
  return *number;
}

bool same_switch(const std::string& relation) { return relation == "PIX" || relation == "PXB"; }
bool within_socket(const std::string& relation) {
  return same_switch(relation) || relation == "PHB" || relation == "NODE";
}
bool is_relation(const std::string& cell) {
  return cell == "X" || cell == "SYS" || cell == "SOC" || cell == "PSB" || within_socket(cell) ||
         number_after("NV", cell).has_value();
}

/// Groups of connected GPUs, numbered by their first member.
class Groups {
 public:
  explicit Groups(std::size_t size) : of_(size) { std::iota(of_.begin(), of_.end(), 0); }
  void join(std::size_t a, std::size_t b) {
    const int from = std::max(of_[a], of_[b]);
    const int into = std::min(of_[a], of_[b]);
    std::replace(of_.begin(), of_.end(), from, into);
  }
  [[nodiscard]] int of(std::size_t i) const { return of_[i]; }

 private:
  std::vector<int> of_;
};

struct Matrix {
  std::vector<std::string> columns;             ///< GPUs first
  std::vector<std::vector<std::string>> rows;   ///< one per GPU, by column
  std::vector<std::optional<int>> numa;         ///< per GPU
  std::vector<std::string> affinity;            ///< per GPU, to CPUs: "0-71"; "" if unknown
  std::map<std::string, std::string> nic_name;  ///< "NIC0": "mlx5_0"

  [[nodiscard]] std::size_t gpus() const { return rows.size(); }
};

Error no_matrix(std::string found, std::string_view text, std::string_view where) {
  const bool log = text.find("NCCL INFO") != std::string_view::npos;
  return input_error(std::string(where), std::move(found),
                     "the output of `nvidia-smi topo -m` or `rocm-smi --showtopo`, or the file "
                     "that NCCL or RCCL writes to NCCL_TOPO_DUMP_FILE",
                     log ? "a log of NCCL_DEBUG=INFO: run the same with "
                           "NCCL_TOPO_DUMP_FILE=topology.xml and import that file"
                         : "");
}

Result<Matrix> read_matrix(std::string_view text, std::string_view where) {
  Matrix out;
  bool has_affinity = false;
  bool has_numa = false;
  for (const std::string& line : lines_of(plain_text(text))) {
    std::vector<std::string> cells = cells_of(line);
    if (out.columns.empty()) {
      std::erase(cells, "");
      if (cells.empty() || cells.front() != "GPU0") continue;
      for (const std::string& cell : cells) {
        if (cell.starts_with("CPU") || cell.starts_with("NUMA")) break;
        out.columns.push_back(cell);
      }
      has_affinity = line.find("CPU Affinity") != std::string::npos;
      has_numa = line.find("NUMA Affinity") != std::string::npos;
      continue;
    }
    const std::string label = cells.empty() ? "" : cells.front();
    if (const std::size_t colon = label.find(": "); label.starts_with("NIC") && colon < 8) {
      out.nic_name[label.substr(0, colon)] = trimmed(label.substr(colon + 2));
    } else if (label.starts_with("NIC") && label.ends_with(":") && cells.size() == 2) {
      out.nic_name[label.substr(0, label.size() - 1)] = cells[1];
    }
    if (number_after("GPU", label) != static_cast<int>(out.gpus())) continue;
    if (cells.size() <= out.columns.size()) {
      return input_error(std::string(where),
                         fmt::format("a row of {} with {} entries", label, cells.size() - 1),
                         fmt::format("{}, as in the header", out.columns.size()));
    }
    const auto first = cells.begin() + 1;
    const auto last = first + static_cast<std::ptrdiff_t>(out.columns.size());
    out.rows.emplace_back(first, last);
    for (const std::string& cell : out.rows.back()) {
      if (is_relation(cell)) continue;
      return input_error(std::string(where),
                         fmt::format("{} in the row of {}", in_quotes(cell), label),
                         "X, NV#, PIX, PXB, PHB, NODE or SYS");
    }
    const std::size_t affinity = out.columns.size() + 1;
    const bool known = has_affinity && cells.size() > affinity && cells[affinity] != "N/A";
    out.affinity.push_back(known ? cells[affinity] : "");
    out.numa.push_back(has_numa && cells.size() > affinity + 1
                           ? number_after("", cells[affinity + 1])
                           : std::nullopt);
  }
  if (out.gpus() > kMaxWiredGpus) {
    return input_error(std::string(where), fmt::format("{} GPUs", out.gpus()),
                       fmt::format("a node of at most {}", kMaxWiredGpus));
  }
  const auto named = std::ranges::count_if(
      out.columns, [](const std::string& c) { return number_after("GPU", c).has_value(); });
  if (out.columns.empty() || static_cast<std::size_t>(named) != out.gpus()) {
    return no_matrix(out.columns.empty() ? "no matrix of GPUs"
                                         : fmt::format("{} rows for {} GPUs", out.gpus(), named),
                     text, where);
  }
  return out;
}

/// Numbers distinct keys from 0, in the order of the GPUs.
template <class Key>
int numbered(std::map<Key, int>& seen, const Key& key) {
  return seen.try_emplace(key, static_cast<int>(seen.size())).first->second;
}

void place_gpus(const Matrix& m, NodeWiring& out) {
  const std::size_t gpus = m.gpus();
  Groups sockets(gpus);
  Groups switches(gpus);
  std::vector<bool> has_switch(gpus, false);
  for (std::size_t a = 0; a < gpus; ++a) {
    for (std::size_t column = 0; column < m.columns.size(); ++column) {
      const std::string& relation = m.rows[a][column];
      if (same_switch(relation)) has_switch[a] = true;
      for (std::size_t b = 0; b < gpus; ++b) {
        const std::string& other = column < gpus ? relation : m.rows[b][column];
        if (column < gpus && b != column) continue;
        if (same_switch(relation) && same_switch(other)) switches.join(a, b);
        if (within_socket(relation) && within_socket(other)) sockets.join(a, b);
      }
    }
  }
  const bool numa_known = std::ranges::all_of(m.numa, [](const auto& n) { return n.has_value(); });
  const bool affinity_known =
      std::ranges::none_of(m.affinity, [](const std::string& a) { return a.empty(); });
  const bool crosses_sockets = std::ranges::any_of(m.rows, [](const std::vector<std::string>& row) {
    return std::ranges::any_of(row, [](const std::string& r) { return r == "SYS" || r == "SOC"; });
  });
  std::map<int, int> socket_numbers;
  std::map<std::string, int> affinity_numbers;
  std::map<int, int> switch_numbers;
  for (std::size_t a = 0; a < gpus; ++a) {
    NodeWiring::Gpu gpu;
    if (numa_known || (crosses_sockets && !affinity_known)) {
      gpu.socket = numbered(socket_numbers, numa_known ? *m.numa[a] : sockets.of(a));
    } else if (affinity_known) {
      gpu.socket = numbered(affinity_numbers, m.affinity[a]);
    }
    if (has_switch[a]) gpu.pcie_switch = numbered(switch_numbers, switches.of(a));
    out.gpus.push_back(gpu);
  }
}

/// On a mesh the links of a GPU to its peers sum to at most its number of links; with switches
/// every pair shows all of them. The largest number is 18 (NVLink 4 and 5); the first generation
/// without switches has 6 (DGX-1 with V100, whose pairs have 1 or 2).
void place_nvlinks(const Matrix& m, NodeWiring& out) {
  constexpr int kMaxLinks = 18;
  const std::size_t gpus = m.gpus();
  std::vector<GpuLink> links;
  for (std::size_t a = 0; a < gpus; ++a) {
    for (std::size_t b = a + 1; b < gpus; ++b) {
      if (const auto count = number_after("NV", m.rows[a][b]); count && *count > 0) {
        links.push_back({static_cast<int>(a), static_cast<int>(b), *count});
      }
    }
  }
  const bool all = gpus > 2 && links.size() == gpus * (gpus - 1) / 2;
  const bool equal_counts = std::ranges::all_of(
      links, [&](const GpuLink& link) { return link.count == links.front().count; });
  if (all && equal_counts && links.front().count * static_cast<int>(gpus - 1) > kMaxLinks) {
    for (NodeWiring::Gpu& gpu : out.gpus) gpu.links_to_switch = links.front().count;
    return;
  }
  out.links = std::move(links);
}

void place_nics(const Matrix& m, NodeWiring& out) {
  std::vector<NodeWiring::Nic> on_switch;
  std::vector<NodeWiring::Nic> on_socket;
  std::vector<NodeWiring::Nic> far;
  for (std::size_t column = m.gpus(); column < m.columns.size(); ++column) {
    const auto seen_by = [&](bool (*joined)(const std::string&)) {
      NodeWiring::Nic nic;
      const auto name = m.nic_name.find(m.columns[column]);
      nic.name = name == m.nic_name.end() ? m.columns[column] : name->second;
      for (std::size_t a = 0; a < m.gpus(); ++a) {
        if (joined(m.rows[a][column])) nic.gpus.push_back(static_cast<int>(a));
      }
      return nic;
    };
    if (NodeWiring::Nic nic = seen_by(same_switch); !nic.gpus.empty()) {
      on_switch.push_back(std::move(nic));
    } else if (nic = seen_by(within_socket); !nic.gpus.empty()) {
      on_socket.push_back(std::move(nic));
    } else {
      far.push_back(std::move(nic));
    }
  }
  out.nics = std::move(!on_switch.empty() ? on_switch : !on_socket.empty() ? on_socket : far);
}

}  // namespace

Result<NodeWiring> parse_smi_topology(std::string_view text, std::string_view where) {
  const Result<Matrix> matrix = read_matrix(text, where);
  if (!matrix) return matrix.error();
  NodeWiring out;
  out.source = "nvidia-smi topo -m";
  place_gpus(*matrix, out);
  place_nvlinks(*matrix, out);
  place_nics(*matrix, out);
  return out;
}

Result<NodeWiring> parse_wiring(std::string_view text, std::string_view where) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  const bool xml = first != std::string_view::npos && text[first] == '<';
  if (xml) return parse_nccl_topology(text, where);
  const bool rocm = text.find("Link Type between two GPUs") != std::string_view::npos;
  return rocm ? parse_rocm_topology(text, where) : parse_smi_topology(text, where);
}

}  // namespace echelon
