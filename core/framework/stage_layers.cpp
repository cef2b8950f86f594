#include "core/framework/stage_layers.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/base/expects.hpp"

namespace echelon {

namespace {

/// As equally as can be, a remainder on the first stages. Source: DeepSpeed edaa7221,
/// deepspeed/runtime/utils.py, partition_balanced over layers of equal weight.
std::vector<int> remainder_first(int items, int pp) {
  std::vector<int> stages(static_cast<std::size_t>(pp), items / pp);
  for (int stage = 0; stage < items % pp; ++stage) ++stages[static_cast<std::size_t>(stage)];
  return stages;
}

/// "t*4", "t", "".
std::string layers_text(int layers) {
  return layers > 1 ? fmt::format("t*{}", layers) : layers == 1 ? "t" : "";
}

}  // namespace

std::optional<std::vector<int>> dealt_layers(const Framework& framework, const ModelSpec& model,
                                             int pp) {
  EXPECTS(pp >= 1, "a pipeline has a stage");
  EXPECTS(framework.stage_layers != StageLayers::chosen, "a framework that deals the layers");
  if (framework.stage_layers == StageLayers::by_cost) return layers_by_cost(model, pp, true);
  const bool equal = framework.stage_layers == StageLayers::equal;
  if (equal && model.layers % pp != 0) return std::nullopt;
  return remainder_first(model.layers, pp);
}

std::vector<int> layers_by_cost(const ModelSpec& model, int pp, bool tie_stays) {
  const double hidden = model.hidden;
  const double layer = 4 * hidden * hidden + 3 * hidden * model.ffn_hidden;
  const double total = model.layers * layer + hidden * model.vocab;
  std::vector<int> stages(static_cast<std::size_t>(pp), 0);
  std::size_t stage = 0;
  for (int i = 1; i <= model.layers; ++i) {
    ++stages[stage];
    const double threshold = total * (static_cast<double>(stage + 1) / pp);
    const double placed = i * layer;
    const bool full = tie_stays ? placed > threshold : placed >= threshold;
    if (full && stage + 1 < stages.size()) ++stage;
  }
  return stages;
}

std::string megatron_layout(const ParallelPlan& plan) {
  std::vector<std::string> chunks;
  for (int chunk = 0; chunk < plan.vpp; ++chunk) {
    for (int rank = 0; rank < plan.pp; ++rank) {
      chunks.push_back(layers_text(layers_in_chunk(plan, rank, chunk)));
    }
  }
  chunks.front() = "E" + chunks.front();
  chunks.back() += "L";
  std::string out;
  for (std::size_t first = 0; first < chunks.size();) {
    std::size_t last = first;
    while (last + 1 < chunks.size() && chunks[last + 1] == chunks[first]) ++last;
    // The bar behind the last chunk would begin another one.
    const std::size_t folded = last - first + (last + 1 < chunks.size() ? 1 : 0);
    if (folded > 1) {
      out += fmt::format("({}|)*{}", chunks[first], folded);
      first += folded;
      continue;
    }
    out += chunks[first++];
    if (first < chunks.size()) out += "|";
  }
  return out;
}

}  // namespace echelon
