// A tree installed by `cmake --install` works wherever it is moved.
#include <string>

#include "tests/places.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/process.hpp"
#include "tests/support/temp_dir.hpp"

#ifdef ECHELON_HAS_PLAN
namespace echelon {
namespace {

TEST_CASE("an installed tree can be moved and still runs") {
  const TempDir dir;
  const std::string first = (dir.path() / "first").string();
  const ProcessResult install =
      run_shell(shell_word(ECHELON_CMAKE) + " --install " + shell_word(ECHELON_BINARY_DIR) +
                " --prefix " + shell_word(first));
  INFO(install.out << install.err);
  REQUIRE(install.exit_code == 0);
  const std::filesystem::path moved = dir.path() / "moved here";
  std::filesystem::rename(first, moved);

  const ProcessResult version =
      run_shell(shell_word((moved / "bin/plan").string()) + " --version", "/");
  CHECK(version.exit_code == 0);
  CHECK(version.out.find("0.") != std::string::npos);
  const ProcessResult links = run_shell("ldd " + shell_word((moved / "bin/plan").string()));
  for (const char* unwanted : {"libcuda", "libcudart", "libnccl", "libQt", "libmpi", "not found"}) {
    INFO(links.out);
    CHECK(links.out.find(unwanted) == std::string::npos);
  }

  CHECK(slurp(moved / "share/man/man1/plan.1").find(".TH") != std::string::npos);
  CHECK(slurp(moved / "share/bash-completion/completions/plan").find("plan") != std::string::npos);
  CHECK(slurp(moved / "share/zsh/site-functions/_plan").starts_with("#compdef plan"));
  CHECK(slurp(moved / "share/fish/vendor_completions.d/plan.fish").find("complete -c plan") !=
        std::string::npos);
  CHECK(slurp(moved / "share/doc/echelon/LICENSE").find("Apache License") != std::string::npos);
}

}  // namespace
}  // namespace echelon
#endif
