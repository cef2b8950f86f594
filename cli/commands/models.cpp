// plan models.
#include "cli/commands/command.hpp"
#include "core/model/model_io.hpp"
#include "report/machines.hpp"

namespace echelon::cli {

Result<CommandResult> models_command(const CommandContext& context) {
  std::vector<ListedModel> models;
  for (const CatalogModel& entry : model_catalog()) {
    const Result<ModelSpec> spec = load_model(entry.name);
    if (!spec) return spec.error();
    models.push_back({entry, *spec});
  }
  return CommandResult{context.json ? models_json(models) : models_text(models, context.style)};
}

}  // namespace echelon::cli
