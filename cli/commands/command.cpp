#include "cli/commands/command.hpp"

#include "core/base/files.hpp"

namespace echelon::cli {

Status write_named(const CommandContext& context, std::string_view flag, std::string_view text) {
  const auto path = context.arguments.value(std::string(flag));
  if (!path) return Done{};
  const std::string where = "--" + std::string(flag);
  if (path->empty()) return input_error(where, "an empty name", "a file name");
  if (const Status written = write_file(*path, text); !written) {
    Error error = written.error();
    error.where = where + ": " + error.where;
    return error;
  }
  return Done{};
}

}  // namespace echelon::cli
