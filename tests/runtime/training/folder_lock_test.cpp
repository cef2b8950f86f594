#include "runtime/training/folder_lock.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"
#include "tests/support/text.hpp"

using namespace echelon;

namespace {

constexpr Seconds kAtOnce{0};
constexpr Seconds kLong{30};
const auto kSilent = [](const std::string&) {};

}  // namespace

TEST_CASE("a folder of checkpoints belongs to one run, which the others name") {
  const TempDir base;
  const std::string folder = (base.path() / "not" / "there").string();
  std::optional<FolderLock> first = FolderLock::take(folder, kAtOnce, kSilent).value();
  CHECK(std::filesystem::exists(folder + "/" + FolderLock::kFile));
  std::vector<std::string> told;
  const auto second = FolderLock::take(folder, Seconds{0.2},
                                       [&](const std::string& text) { told.push_back(text); });
  REQUIRE_FALSE(second.ok());
  CHECK(second.error().kind == Error::Kind::environment);
  const std::string holder = "process " + std::to_string(getpid()) + " on ";
  CHECK(test::lacks(second.error().message(),
                    folder + ": another run writes its checkpoints there: " + holder) == "");
  REQUIRE(told.size() == 1);
  CHECK(test::lacks(told.front(), holder) == "");
  first.reset();
  CHECK(FolderLock::take(folder, kAtOnce, kSilent).ok());
}

TEST_CASE("a run waits for the one before it, which is about to end") {
  const TempDir folder;
  std::optional<FolderLock> before =
      FolderLock::take(folder.path().string(), kAtOnce, kSilent).value();
  std::promise<void> waiting;
  std::thread ends([&] {
    waiting.get_future().wait();
    before.reset();
  });
  CHECK(FolderLock::take(folder.path().string(), kLong, [&](const std::string&) {
          waiting.set_value();
        }).ok());
  ends.join();
}

TEST_CASE("a killed run leaves no lock") {
  const TempDir folder;
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto lock = FolderLock::take(folder.path().string(), kAtOnce, kSilent);
    const char mark = lock.ok() ? 'y' : 'n';
    [[maybe_unused]] const ssize_t told = write(ready[1], &mark, 1);
    for (;;) pause();
  }
  char mark = 0;
  REQUIRE(read(ready[0], &mark, 1) == 1);
  CHECK(mark == 'y');
  CHECK_FALSE(FolderLock::take(folder.path().string(), kAtOnce, kSilent).ok());
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  CHECK(FolderLock::take(folder.path().string(), kAtOnce, kSilent).ok());
  close(ready[0]);
  close(ready[1]);
}
