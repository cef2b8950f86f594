#include "cli/flags/script_note.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "interop/configs/export.hpp"

namespace echelon::cli {

namespace {

/// A run on one GPU that leaves nothing but the model to express.
RunConfig run_of(const Framework& framework, const ModelSpec& model) {
  RunConfig run;
  run.model = model;
  run.model_name = model.name;
  run.framework = framework.name;
  run.sequence = model.max_positions > 0 ? model.max_positions : 1;
  run.global_batch = run.gpus = run.gpus_per_node = 1;
  run.precision = framework.default_precision;
  run.plan.layers_per_stage = {model.layers};
  run.plan.recompute_layers = {0};
  return run;
}

}  // namespace

std::string script_note(const Framework& framework, const ModelSpec& model) {
  const ConfigFormat* format = format_of(framework.name);
  if (format == nullptr || !states_shapes(*format)) return {};
  std::vector<std::string> parts;
  for (const Inexpressible& lost : export_config(*format, run_of(framework, model)).lost) {
    if (!is_of_model(lost.field)) continue;
    const bool list = lost.field == ConfigField{&ModelConstants::other_arithmetic};
    const std::string part = list ? lost.wanted : std::string(label_of(lost.field));
    if (std::ranges::find(parts, part) == parts.end()) parts.push_back(part);
  }
  if (parts.empty()) return {};
  return fmt::format(
      "{}'s options cannot express all of this model ({}): {} trains it by other code",
      format->title, fmt::join(parts, "; "), framework.name);
}

}  // namespace echelon::cli
