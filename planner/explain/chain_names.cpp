// The names of explain.hpp, as JSON and texts show them.
#include "planner/explain/chain.hpp"

namespace echelon {

std::string_view name_of(Technique technique) {
  switch (technique) {
    case Technique::one_gpu: return "one-gpu";
    case Technique::data_parallel: return "data-parallel";
    case Technique::recompute: return "recompute";
    case Technique::zero: return "zero";
    case Technique::tensor: return "tensor-parallel";
    case Technique::pipeline: return "pipeline";
    case Technique::interleaving: return "interleaving";
    case Technique::context: return "context";
    case Technique::experts: return "experts";
    case Technique::offload: return "offload";
    case Technique::everything: return "everything";
  }
  return "?";
}

std::string_view name_of(Bottleneck bottleneck) {
  switch (bottleneck) {
    case Bottleneck::memory: return "memory";
    case Bottleneck::batch: return "batch";
    case Bottleneck::shapes: return "shapes";
    case Bottleneck::compute: return "compute";
    case Bottleneck::recompute: return "recompute";
    case Bottleneck::bandwidth: return "bandwidth";
    case Bottleneck::fill_drain: return "fill-drain";
    case Bottleneck::imbalance: return "imbalance";
    case Bottleneck::overhead: return "overhead";
  }
  return "?";
}

std::string_view name_of(MemoryCategory category) {
  switch (category) {
    case MemoryCategory::weights: return "weights";
    case MemoryCategory::gradients: return "gradients";
    case MemoryCategory::optimizer: return "optimizer";
    case MemoryCategory::activations: return "activations";
    case MemoryCategory::buffers: return "buffers";
  }
  return "?";
}

}  // namespace echelon
