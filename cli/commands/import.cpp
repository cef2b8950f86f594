// plan import: files of other frameworks.
#include "cli/commands/command.hpp"
#include "cli/commands/import_logs.hpp"

namespace echelon::cli {

Result<CommandResult> import_command(const CommandContext& context) {
  return import_logs_command(context);
}

}  // namespace echelon::cli
