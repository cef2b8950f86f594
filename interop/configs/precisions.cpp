#include "interop/configs/precisions.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <limits>
#include <tuple>

#include "core/base/expects.hpp"

namespace echelon {

namespace {

/// Bytes per parameter of one kind of state.
struct State {
  std::string_view what;
  double (*bytes)(const PrecisionRecipe& recipe);
};

constexpr State kStates[] = {
    {"gathered weights", [](const PrecisionRecipe& r) { return r.gathered_weight; }},
    {"gradients", [](const PrecisionRecipe& r) { return r.gradient + r.main_gradient; }},
    {"master weights", [](const PrecisionRecipe& r) { return r.master; }},
    {"moments", [](const PrecisionRecipe& r) { return r.moments; }},
    {"weights", [](const PrecisionRecipe& r) { return r.weight + r.layer_weight; }},
};

auto distance(const PrecisionRecipe& a, const PrecisionRecipe& b) {
  double bytes = 0;
  for (const State& state : kStates) bytes += std::abs(state.bytes(a) - state.bytes(b));
  return std::tuple(std::abs(width_of(a.compute) - width_of(b.compute)),
                    (a.compute == Dtype::fp16) != (b.compute == Dtype::fp16),
                    a.scaling != b.scaling, a.muon != b.muon,
                    a.primary_weights != b.primary_weights, bytes);
}

}  // namespace

const ConfigCase& nearest_precision(const std::vector<ConfigCase>& cases,
                                    const PrecisionRecipe& wanted) {
  EXPECTS(!cases.empty(), "a row of precisions has cases");
  const ConfigCase* best = nullptr;
  auto least = std::tuple(std::numeric_limits<double>::infinity(), true, true, true, true, 0.0);
  for (const ConfigCase& each : cases) {
    if (each.value == wanted.name) return each;
    const Result<PrecisionRecipe> recipe = find_precision(each.value);
    if (!recipe) continue;
    const auto far = distance(*recipe, wanted);
    if (best != nullptr && least <= far) continue;
    best = &each;
    least = far;
  }
  return best == nullptr ? cases.front() : *best;
}

std::string precision_difference(const PrecisionRecipe& run, const PrecisionRecipe& wanted) {
  std::vector<std::string> parts;
  if (run.compute != wanted.compute) {
    parts.push_back(
        fmt::format("products in {} instead of {}", name_of(run.compute), name_of(wanted.compute)));
  } else if (run.scaling != wanted.scaling) {
    parts.push_back(
        fmt::format("{} scaling instead of {}", name_of(run.scaling), name_of(wanted.scaling)));
  }
  if (run.muon != wanted.muon) {
    parts.emplace_back(run.muon ? "Muon instead of Adam" : "Adam instead of Muon");
  }
  if (run.primary_weights != wanted.primary_weights && run.compute == wanted.compute) {
    parts.emplace_back(run.primary_weights
                           ? "weights of layers in fp8 alone instead of 16 bits beside fp8 copies"
                           : "weights of layers in 16 bits beside fp8 copies instead of fp8 alone");
  }
  std::vector<std::string> bytes;
  for (const State& state : kStates) {
    const double has = state.bytes(run);
    const double asked = state.bytes(wanted);
    if (std::abs(has - asked) < 0.01) continue;
    bytes.push_back(fmt::format("{} of {:.3g} instead of {:.3g}", state.what, has, asked));
  }
  if (!bytes.empty()) {
    parts.push_back(fmt::format("{} bytes per parameter", fmt::join(bytes, ", ")));
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace echelon
