#include "runtime/io/weights/tensors.hpp"

#include <algorithm>

namespace echelon {

std::vector<Parameter> whole_parameters(const ModelSpec& model) {
  return run_parameters(model, {}).trained;
}

RunParameters run_parameters(const ModelSpec& model, const std::optional<Adapters>& adapters) {
  ChunkSpec spec;
  spec.model = model;
  spec.adapters = adapters;
  spec.layers = model.layers;
  spec.embedding = spec.loss = true;
  spec.padded_vocab = model.vocab;
  RunParameters all;
  for (FlatParameters& flat : parameters_of(spec).flat_params) {
    std::vector<Parameter>& to = flat.frozen ? all.frozen : all.trained;
    for (Parameter& parameter : flat.parameters) to.push_back(std::move(parameter));
  }
  return all;
}

std::vector<std::int64_t> shape_of(const Parameter& parameter) {
  if (parameter.columns == 1) return {parameter.rows};
  return {parameter.rows, parameter.columns};
}

void append_spans(const FlatParameters& flat, StateKind kind, std::int64_t begin, std::int64_t end,
                  void* data, Element element, std::vector<StateSpan>& spans) {
  for (const Parameter& parameter : flat.parameters) {
    const std::int64_t first = std::max(begin, parameter.offset);
    const std::int64_t last = std::min(end, parameter.offset + parameter.count());
    if (first >= last) continue;
    spans.push_back({&parameter, kind, first - parameter.offset, last - parameter.offset,
                     static_cast<char*>(data) + (first - begin) * bytes_of(element)});
  }
}

}  // namespace echelon
