// Programs in the background of a test, and the processes they leave behind.
#pragma once

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <thread>

#include "tests/support/catch.hpp"

namespace echelon::test {

/// Polls until the condition holds; false if it does not hold within `seconds`.
inline bool within(double seconds, const std::function<bool()>& condition) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

/// A shell command with `exec` in front of its program, so that signals reach the program itself.
class Background {
 public:
  explicit Background(const std::string& command) {
    pid_ = fork();
    REQUIRE(pid_ >= 0);
    if (pid_ > 0) return;
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that aborts destroys nothing
    execl("/bin/sh", "sh", "-c", command.c_str(), static_cast<char*>(nullptr));
    _exit(127);
  }
  ~Background() {
    if (pid_ > 0) (void)end_at_once();
  }
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  void signal(int which) const { kill(pid_, which); }
  /// Exit code, 128 + signal number if a signal ended the program, or -1 on timeout.
  [[nodiscard]] int exit_code_within(double seconds) {
    int status = 0;
    if (!within(seconds, [&] { return waitpid(pid_, &status, WNOHANG) == pid_; })) return -1;
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  int end_at_once() {
    kill(-pid_, SIGKILL);
    return waitpid(pid_, nullptr, 0);
  }
  pid_t pid_ = -1;
};

/// A file of /proc; "" where the process has ended, or is another user's.
inline std::string text_of_process(pid_t process, const std::string& name) {
  std::ifstream in("/proc/" + std::to_string(process) + "/" + name);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

/// Running processes with `token` among their arguments.
inline std::vector<pid_t> processes_with(const std::string& token) {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const pid_t process = std::stoi(name);
    if (text_of_process(process, "cmdline").find(token) != std::string::npos) {
      found.push_back(process);
    }
  }
  return found;
}

}  // namespace echelon::test
