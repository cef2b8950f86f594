// Runs a program like a user, and returns its output.
#pragma once

#include <sys/wait.h>

#include <cstdlib>
#include <string>

#include "tests/support/temp_dir.hpp"

namespace echelon {

struct ProcessResult {
  int exit_code = -1;  ///< 128 + the signal that ended it, as in a shell
  std::string out;
  std::string err;
};

/// `text` as one word of a shell command.
inline std::string shell_word(std::string_view text) {
  std::string word = "'";
  for (const char c : text) c == '\'' ? word += "'\\''" : word += c;
  return word + "'";
}

/// Runs a shell command with empty stdin, in `directory` if given.
inline ProcessResult run_shell(const std::string& command,
                               const std::filesystem::path& directory = {}) {
  const TempDir scratch;
  const std::string out = (scratch.path() / "out").string();
  const std::string err = (scratch.path() / "err").string();
  const std::string enter =
      directory.empty() ? "" : "cd " + shell_word(directory.string()) + " && ";
  const int status = std::system(
      ("{ " + enter + command + "\n} >" + shell_word(out) + " 2>" + shell_word(err) + " </dev/null")
          .c_str());
  ProcessResult result;
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  result.out = slurp(out);
  result.err = slurp(err);
  return result;
}

}  // namespace echelon
