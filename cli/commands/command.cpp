#include "cli/commands/command.hpp"

#include <filesystem>
#include <system_error>
#include <utility>

#include "core/base/files.hpp"

namespace echelon::cli {

namespace {

Status of_flag(std::string_view flag, const Status& status) {
  if (status) return status;
  Error error = status.error();
  error.where = "--" + std::string(flag) + ": " + error.where;
  return error;
}

/// The folder of `plan fit --catalog`, which is made within one that is there.
Status check_folder(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  fs::path folder = fs::absolute(path, ignored);
  if (!folder.has_filename()) folder = folder.parent_path();  // "calibrations/"
  if (fs::is_directory(folder.parent_path(), ignored)) return check_folder_writable(path);
  return environment_error(path, "no such directory", "create it, or name another one");
}

}  // namespace

Status check_outputs(const CommandContext& context) {
  for (const char* flag : {"output", "predictions", "plot", "page"}) {
    const auto path = context.arguments.value(flag);
    if (!path || path->empty() || *path == "-") continue;
    const bool folder = context.arguments.has("catalog") && std::string_view(flag) == "output";
    const Status ok = folder ? check_folder(*path) : check_writable(*path);
    if (!ok) return of_flag(flag, ok);
  }
  return Done{};
}

Error of_request(const CommandContext& context, Error error) {
  const bool of_file = !context.arguments.words.empty() || context.arguments.value("from");
  return of_file ? error : naming_origins(std::move(error), context.settings);
}

Status write_named(const CommandContext& context, std::string_view flag, std::string_view text) {
  const auto path = context.arguments.value(std::string(flag));
  if (!path) return Done{};
  if (path->empty()) {
    return input_error("--" + std::string(flag), "an empty name", "a file name");
  }
  return of_flag(flag, write_file(*path, text));
}

}  // namespace echelon::cli
