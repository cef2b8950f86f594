// plan gui: becomes plan-gui, the window, which is a program of its own.
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include "cli/commands/command.hpp"
#include "cli/system/subprocess.hpp"
#include "core/base/files.hpp"

namespace echelon::cli {

namespace {

/// The arguments after the command, as words again.
std::vector<std::string> words_of(const Arguments& arguments) {
  std::vector<std::string> words;
  for (const auto& [name, value] : arguments.flags) {
    const Flag* flag = find_flag(name);
    if (flag != nullptr && flag->value.empty()) {
      words.push_back((value == "true" ? "--" : "--no-") + name);
    } else {
      words.insert(words.end(), {"--" + name, value});
    }
  }
  words.insert(words.end(), arguments.words.begin(), arguments.words.end());
  return words;
}

}  // namespace

Result<CommandResult> gui_command(const CommandContext& context) {
  const std::string program = own_folder() + "/plan-gui";
  std::vector<std::string> words = words_of(context.arguments);
  words.insert(words.begin(), program);
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  execv(program.c_str(), pointers.data());
  if (errno != ENOENT) return environment_error(program, reason_of(errno));
  return environment_error(
      "plan gui", "this build has no window: " + program + " does not exist",
      "apt-get install qt6-base-dev qt6-charts-dev libqt6opengl6-dev qt6-svg-dev "
      "fonts-dejavu-core, then build again; ./plan gui does both");
}

}  // namespace echelon::cli
