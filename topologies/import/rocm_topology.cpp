// Reader of the output of `rocm-smi --showtopo`.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "core/base/parse_quantity.hpp"
#include "core/base/text.hpp"
#include "topologies/import/wiring.hpp"

namespace echelon {
namespace {

using Table = std::vector<std::vector<std::string>>;  ///< [from][to]

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(std::move(word));
  return words;
}

/// The rows "GPU0 0 15 ..." below the heading that contains `title`; empty without the heading.
Table table_below(const std::string& text, const std::string& title) {
  Table rows;
  const std::size_t begin = text.find(title);
  if (begin == std::string::npos) return rows;
  std::istringstream in(text.substr(begin));
  std::string line;
  std::getline(in, line);
  while (std::getline(in, line) && line.find("===") == std::string::npos) {
    std::vector<std::string> words = words_of(line);
    if (words.size() < 2 || words.front() != fmt::format("GPU{}", rows.size())) continue;
    if (words[1].starts_with("GPU")) continue;  // the header
    rows.emplace_back(words.begin() + 1, words.end());
  }
  return rows;
}

/// The NUMA node of each GPU, from "GPU[3] : (Topology) Numa Node: 1"; 0 where there is none.
void place_sockets(const std::string& text, NodeWiring& out) {
  std::map<int, int> numbers;
  for (std::size_t gpu = 0; gpu < out.gpus.size(); ++gpu) {
    const std::string key = fmt::format("GPU[{}]", gpu);
    int node = 0;
    for (std::size_t at = text.find(key); at != std::string::npos; at = text.find(key, at + 1)) {
      const std::string line = text.substr(at, text.find('\n', at) - at);
      const std::size_t value = line.find("Numa Node:");
      if (value == std::string::npos) continue;
      const std::vector<std::string> words = words_of(line.substr(value));
      const Result<int> number = parse_int(words.size() > 2 ? words[2] : "", "", 0);
      node = number ? *number : 0;
    }
    out.gpus[gpu].socket =
        numbers.try_emplace(node, static_cast<int>(numbers.size())).first->second;
  }
}

}  // namespace

Result<NodeWiring> parse_rocm_topology(std::string_view text, std::string_view where) {
  const std::string all(text);
  const Table types = table_below(all, "Link Type between two GPUs");
  const Table weights = table_below(all, "Weight between two GPUs");
  const std::size_t gpus = types.size();
  const auto square = [gpus](const Table& table) {
    return table.size() == gpus &&
           std::ranges::all_of(table, [&](const auto& row) { return row.size() == gpus; });
  };
  if (gpus == 0 || !square(types) || !square(weights)) {
    return input_error(std::string(where),
                       fmt::format("link types of {} GPUs, weights of {}", gpus, weights.size()),
                       "the whole output of `rocm-smi --showtopo`");
  }
  if (gpus > kMaxWiredGpus) {
    return input_error(std::string(where), fmt::format("{} GPUs", gpus),
                       fmt::format("a node of at most {}", kMaxWiredGpus));
  }
  NodeWiring out;
  out.source = "rocm-smi --showtopo";
  out.gpus.resize(gpus);
  place_sockets(all, out);
  // Each xGMI hop adds 15 to the weight: 30 is a way through another GPU.
  // Source: ROCm/rocm-systems pull request 7372, amdsmi/docs/how-to/amdsmi-cli-tool.md.
  constexpr std::string_view kOneHop = "15";
  for (std::size_t a = 0; a < gpus; ++a) {
    for (std::size_t b = a + 1; b < gpus; ++b) {
      if (types[a][b] != "XGMI" && types[a][b] != "PCIE") {
        return input_error(std::string(where),
                           fmt::format("{} between GPU{} and GPU{}", in_quotes(types[a][b]), a, b),
                           "XGMI or PCIE");
      }
      if (types[a][b] == "XGMI" && weights[a][b] == kOneHop) {
        out.links.push_back({static_cast<int>(a), static_cast<int>(b), 1});
      }
    }
  }
  return out;
}

}  // namespace echelon
