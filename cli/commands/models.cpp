// plan models [NAME|FILE].
#include "cli/commands/command.hpp"
#include "cli/flags/request.hpp"
#include "cli/flags/training_flags.hpp"
#include "core/model/model_io.hpp"
#include "report/machines.hpp"

namespace echelon::cli {

namespace {

Result<CommandResult> show_model(const CommandContext& context) {
  const Result<ModelReading> reading =
      read_named_model(Setting{context.arguments.words.front(), "models"});
  if (!reading) return reading.error();
  const int sequence = default_sequence(reading->model);
  return CommandResult{context.json ? model_json(*reading, sequence)
                                    : model_text(*reading, sequence, context.style)};
}

}  // namespace

Result<CommandResult> models_command(const CommandContext& context) {
  if (!context.arguments.words.empty()) return show_model(context);
  std::vector<ListedModel> models;
  for (const CatalogModel& entry : model_catalog()) {
    const Result<ModelSpec> spec = load_model(entry.name);
    if (!spec) return spec.error();
    models.push_back({entry, *spec});
  }
  return CommandResult{context.json ? models_json(models) : models_text(models, context.style)};
}

}  // namespace echelon::cli
