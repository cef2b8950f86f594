// Graphs of operations of cuDNN's backend: their order, their workspace, a run.
#include <algorithm>
#include <set>

#include "tests/runtime/cuda/standins/cudnn_operations.hpp"

namespace echelon::standins {
namespace {

// cuDNN 9.19's workspace of attention on compute capability 9.0, as reported by its engine's
// configurations (CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE): always 256 bytes; scores that products need
// along both axes, as 16-bit numbers in tiles of 64; and sums over heads, in their own type.
constexpr std::int64_t kTile = 64;
constexpr std::size_t kAlways = 256;

bool is_product(const DnnOperation& operation) { return operation.what.rfind("a product", 0) == 0; }
bool takes(const DnnOperation& operation, std::int64_t uid) {
  return std::any_of(operation.inputs.begin(), operation.inputs.end(),
                     [&](const DnnTensor& input) { return input.uid == uid; });
}

/// A product is added up in memory of the caller, so that no other product needs its factors again.
/// Assumed: that form exists to keep no scores (cudnn-frontend 1.32, dQ_accum).
bool accumulates(const DnnGraph& graph) {
  return std::any_of(graph.operations.begin(), graph.operations.end(), [](const auto& operation) {
    const DnnTensor& out = operation.output;
    return is_product(operation) && !out.is_virtual && out.type == CUDNN_DATA_FLOAT;
  });
}

std::size_t workspace_of(const DnnGraph& graph) {
  std::size_t bytes = kAlways;
  const bool keeps_scores = !accumulates(graph);
  for (const DnnOperation& maker : graph.operations) {
    const DnnTensor& made = maker.output;
    if (!made.is_virtual) continue;
    int products = 0, turned = 0, sums = 0;
    for (const DnnOperation& user : graph.operations) {
      if (!takes(user, made.uid)) continue;
      products += is_product(user) ? 1 : 0;
      turned += user.what == "a reshape" ? 1 : 0;
      sums += user.what.rfind("reduction", 0) == 0 ? 1 : 0;
    }
    if (keeps_scores && products > 0 && turned > 0) {
      std::int64_t elements = 1;
      for (std::size_t d = 0; d < made.dims.size(); ++d) {
        const bool score = d + 2 >= made.dims.size();
        elements *= score ? (made.dims[d] + kTile - 1) / kTile * kTile : made.dims[d];
      }
      bytes += 2 * static_cast<std::size_t>(elements);
    }
    if (is_product(maker) && sums > 0 && made.type == CUDNN_DATA_BFLOAT16) bytes += made.bytes();
  }
  return bytes;
}

}  // namespace

DnnGraph dnn_graph(const std::vector<DnnOperation>& operations) {
  const auto refuse = [](const std::string& why) { dnn_refuse(CUDNN_STATUS_BAD_PARAM, why); };
  DnnGraph graph;
  std::set<std::int64_t> made, missing;
  const auto note = [&](const DnnTensor& tensor) {
    const auto [at, first] = graph.tensors.emplace(tensor.uid, tensor);
    if (!first && at->second != tensor) refuse(tensor.name() + " is described in two ways");
  };
  for (const DnnOperation& operation : operations) {
    for (const DnnTensor& input : operation.inputs) note(input);
    note(operation.output);
    if (operation.output.by_value) refuse(operation.output.name() + " is a value, and written");
    if (!made.insert(operation.output.uid).second)
      refuse(operation.output.name() + " is made twice");
    if (!operation.output.is_virtual) graph.outputs.push_back(operation.output.uid);
  }
  missing = made;
  std::vector<DnnOperation> left = operations;
  while (!left.empty()) {
    const auto ready = std::find_if(left.begin(), left.end(), [&](const DnnOperation& operation) {
      return std::none_of(operation.inputs.begin(), operation.inputs.end(),
                          [&](const DnnTensor& input) { return missing.count(input.uid) > 0; });
    });
    if (ready == left.end()) refuse("operations take what they make");
    missing.erase(ready->output.uid);
    graph.operations.push_back(*ready);
    left.erase(ready);
  }
  for (const auto& [uid, tensor] : graph.tensors) {
    if (tensor.is_virtual && made.count(uid) == 0)
      refuse(tensor.name() + " is virtual, and not made");
  }
  graph.workspace_bytes = workspace_of(graph);
  return graph;
}

void run_dnn_graph(const DnnGraph& graph, DnnMemory given) {
  constexpr char kPoison = -1;  // as numbers, NaN
  std::map<std::int64_t, std::vector<char>> own;
  for (const auto& [uid, tensor] : graph.tensors) {
    if (!tensor.is_virtual) continue;
    std::vector<char>& memory = own[uid];
    memory.assign(tensor.bytes(), kPoison);
    given[uid] = memory.data();
  }
  for (const DnnOperation& operation : graph.operations) operation.run(given);
}

}  // namespace echelon::standins
