// The tensors of a whole model, and parts of a rank's flat memory as parts of them.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/backend/optimizer.hpp"
#include "runtime/comm/element.hpp"
#include "runtime/model/parameters.hpp"

namespace echelon {

/// Every parameter of the model once, as blocks of the whole tensor.
[[nodiscard]] std::vector<Parameter> whole_parameters(const ModelSpec& model);
/// The same of a run: those with optimizer states, and those that are frozen.
struct RunParameters {
  std::vector<Parameter> trained, frozen;
};
[[nodiscard]] RunParameters run_parameters(const ModelSpec& model,
                                           const std::optional<Adapters>& adapters);
/// As in files: [rows, columns], and [rows] for a vector.
[[nodiscard]] std::vector<std::int64_t> shape_of(const Parameter& parameter);

/// Elements [begin, end) of a parameter's local block; `data` points to element `begin`.
struct StateSpan {
  const Parameter* parameter = nullptr;
  StateKind kind = StateKind::weight;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  void* data = nullptr;
};
/// Spans of elements [begin, end) of flat parameters, of which `data` points to element
/// `begin`; padding is left out. The flat parameters must outlive them.
void append_spans(const FlatParameters& flat, StateKind kind, std::int64_t begin, std::int64_t end,
                  void* data, Element element, std::vector<StateSpan>& spans);

}  // namespace echelon
