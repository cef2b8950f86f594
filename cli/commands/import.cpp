// plan import: files of other frameworks, configurations or training logs.
#include <algorithm>

#include "cli/commands/command.hpp"
#include "cli/commands/import_configs.hpp"
#include "cli/commands/import_logs.hpp"
#include "cli/commands/log_facts.hpp"
#include "cli/flags/values.hpp"
#include "report/format.hpp"

namespace echelon::cli {

Result<CommandResult> import_command(const CommandContext& context) {
  const std::vector<std::string>& words = context.arguments.words;
  for (const std::string& word : words) {
    const Status there = check_exists(word, "import", "a configuration or a training log");
    if (!there) return there.error();
  }
  const auto logs = std::ranges::count_if(words, [](const std::string& word) {
    return word.ends_with(".log") || is_training_log(word);
  });
  if (logs == 0) return import_configs_command(context);
  if (logs < std::ssize(words)) {
    return input_error("import", "configurations and training logs together",
                       "files of one kind: a configuration becomes a plan, logs a table of runs");
  }
  return import_logs_command(context);
}

}  // namespace echelon::cli
