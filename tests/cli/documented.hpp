// The command lines of docs/run.md, executed as written but for sizes, paths, hosts and ports.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tests/cli/runs.hpp"
#include "tests/places.hpp"

namespace echelon::test {

/// docs/run.md from one mark up to the next, marks excluded.
inline std::string between_marks(const std::string& begin, const std::string& end) {
  const std::string page = slurp(std::filesystem::path(ECHELON_SOURCE_DIR) / "docs/run.md");
  const std::size_t from = page.find(begin);
  INFO(begin);
  REQUIRE(from != std::string::npos);
  const std::size_t to = page.find(end, from + begin.size());
  REQUIRE(to != std::string::npos);
  return page.substr(from + begin.size(), to - from - begin.size());
}

/// Every part has to be there: a page that changes changes its test.
inline std::string with_replaced(std::string text,
                                 const std::vector<std::pair<std::string, std::string>>& parts) {
  for (const auto& [before, after] : parts) {
    INFO(text << "\n" << before);
    REQUIRE(text.find(before) != std::string::npos);
    for (std::size_t at = 0; (at = text.find(before, at)) != std::string::npos; at += after.size())
      text.replace(at, before.size(), after);
  }
  return text;
}

/// The training of the page: 24 steps in a folder of the sandbox.
inline const std::vector<std::pair<std::string, std::string>>& smaller_training() {
  static const std::vector<std::pair<std::string, std::string>> parts = {
      {"--steps 100000", "--quiet --steps 24 --report report.json"},
      {"/shared/run1", "kept"},
      {"--checkpoint-every 500", "--checkpoint-every 4"}};
  return parts;
}
inline std::string documented_training() {
  return with_replaced(between_marks("TRAIN=\"", "\"\n"), smaller_training());
}

/// What the commands need: plan in the PATH, a plan for two ranks, llm.c's tokens; nobody sleeps.
class DocumentedSite {
 public:
  explicit DocumentedSite(const Runs& runs) : runs_(runs) {
    runs.plan("plan.json", 2, "--dp 2 --tp 1");
    std::string tokens;
    const auto put = [&](auto number) {
      tokens.append(reinterpret_cast<const char*>(&number), sizeof number);
    };
    constexpr std::int32_t kCount = 4000;
    for (const std::int32_t number : {std::int32_t{20240520}, std::int32_t{1}, kCount}) put(number);
    tokens.resize(1024);
    for (std::int32_t i = 0; i < kCount; ++i) put(static_cast<std::uint16_t>(i * i % 200));
    runs.sandbox.write("tokens.bin", tokens);
    script("sleep", "exit 0");
  }
  void script(const std::string& name, const std::string& text) const {
    runs_.sandbox.write("bin/" + name, "#!/bin/bash\n" + text + "\n");
    std::filesystem::permissions(runs_.sandbox.file("bin/" + name),
                                 std::filesystem::perms::owner_all);
  }
  /// `program` with these variables, in the sandbox.
  [[nodiscard]] std::string command(const std::string& program,
                                    const std::string& variables = "") const {
    const std::string folder = std::filesystem::path(ECHELON_PLAN).parent_path().string();
    return "cd " + shell_word(runs_.sandbox.file("")) +
           " && exec env -i PATH=" + shell_word(runs_.sandbox.file("bin") + ":" + folder) +
           ":\"$PATH\" HOME=" + shell_word(runs_.sandbox.file("")) +
           " TMPDIR=" + shell_word(runs_.sandbox.file("")) +
           " LC_ALL=C.UTF-8 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
           "OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none " +
           variables + " " + program;
  }
  [[nodiscard]] bool has(const std::string& name) const {
    return std::filesystem::exists(runs_.sandbox.file(name));
  }
  /// The losses of an undisturbed run.
  [[nodiscard]] std::vector<double> whole() const {
    const std::string training =
        with_replaced(documented_training(), {{"kept", "undisturbed"}, {"report.json", "u.json"}});
    REQUIRE(run_shell(command("bash -c " + shell_word(training))).exit_code == 0);
    return losses_of(read_run_report(runs_.sandbox.file("u.json")).value());
  }
  /// The report's steps are the last of the undisturbed run, and not all.
  void check_resumed(const std::vector<double>& whole) const {
    const std::vector<double> rest =
        losses_of(read_run_report(runs_.sandbox.file("report.json")).value());
    REQUIRE(!rest.empty());
    REQUIRE(rest.size() < whole.size());
    CHECK(rest == std::vector<double>(whole.end() - std::ssize(rest), whole.end()));
  }

 private:
  const Runs& runs_;
};

}  // namespace echelon::test
