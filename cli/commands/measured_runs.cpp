#include "cli/commands/measured_runs.hpp"

#include "cli/commands/command_table.hpp"
#include "cli/flags/request.hpp"

namespace echelon::cli {

Result<std::vector<MeasuredRun>> measured_runs_of(const CommandContext& context) {
  const std::string& path = context.arguments.words.front();
  if (path == "-") return read_runs("/dev/stdin");
  const std::string command(context.arguments.command->name);
  const Status there = check_exists(path, command, "a table of measured runs");
  if (!there) return there.error();
  return read_runs(path);
}

}  // namespace echelon::cli
