// Runs the built `plan` away from the user's own settings, and compares with goldens.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tests/places.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/process.hpp"
#include "tests/support/text.hpp"

namespace echelon::test {

/// A separate directory with an empty home, which hides the user's configuration from the program.
class Sandbox {
 public:
  /// `plan ARGUMENTS` as a shell would run it; `environment` is "PLAN_GPUS=8 NO_COLOR=1".
  [[nodiscard]] ProcessResult plan(const std::string& arguments,
                                   const std::string& environment = "") const {
    return shell(program(environment) + " " + arguments);
  }
  /// The program with its environment, for redirections and pipes.
  [[nodiscard]] std::string program(const std::string& environment = "") const {
    return "env -i PATH=\"$PATH\" HOME=" + shell_word(file("")) + " LC_ALL=C.UTF-8 " + environment +
           " " + shell_word(ECHELON_PLAN);
  }
  [[nodiscard]] ProcessResult shell(const std::string& command) const {
    return run_shell(command, directory_.path());
  }
  [[nodiscard]] std::string file(const std::string& name) const {
    return (directory_.path() / name).string();
  }
  void write(const std::string& name, const std::string& content) const {
    std::filesystem::create_directories(std::filesystem::path(file(name)).parent_path());
    std::ofstream(file(name), std::ios::binary) << content;
  }

 private:
  TempDir directory_;
};

/// Wrong input or a broken environment: this exit code, one line on stderr, nothing on stdout.
inline std::string complaint(const ProcessResult& result, int exit_code) {
  INFO(result.out << result.err);
  CHECK(result.exit_code == exit_code);
  CHECK(result.out.empty());
  CHECK(std::count(result.err.begin(), result.err.end(), '\n') == 1);
  CHECK(result.err.starts_with("plan: "));
  return result.err;
}

inline nlohmann::ordered_json document(const ProcessResult& result) {
  INFO(result.out << result.err);
  CHECK(result.err.empty());
  return nlohmann::ordered_json::parse(result.out);
}

/// "" when `text` is the content of tests/cli/goldens/NAME. With ECHELON_UPDATE_GOLDENS=1 the file
/// is rewritten instead.
inline std::string differs_from_golden(const std::string& name, const std::string& text) {
  const std::string path = std::string(ECHELON_SOURCE_DIR) + "/tests/cli/goldens/" + name;
  if (const char* update = std::getenv("ECHELON_UPDATE_GOLDENS"); update != nullptr && *update) {
    std::ofstream(path, std::ios::binary) << text;
    return {};
  }
  const std::string golden = slurp(path);
  if (golden == text) return {};
  const auto [at, expected] = std::mismatch(text.begin(), text.end(), golden.begin(), golden.end());
  const auto offset = static_cast<std::size_t>(at - text.begin());
  const std::size_t line = text.rfind('\n', offset) + 1;
  return path + " (ECHELON_UPDATE_GOLDENS=1 rewrites it) differs at:\n" +
         text.substr(line, text.find('\n', offset) - line) + "\nwhich was:\n" +
         golden.substr(line, golden.find('\n', offset) - line);
}

/// Checks that a JSON object has each of these keys; it may have others.
inline void check_keys(const nlohmann::ordered_json& object,
                       const std::vector<std::string>& expected) {
  for (const std::string& key : expected) {
    CAPTURE(key);
    CHECK(object.contains(key));
  }
}

}  // namespace echelon::test
