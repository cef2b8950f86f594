#include "cli/system/subprocess.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <system_error>

namespace echelon::cli {

namespace {

/// From mpirun's SIGTERM to its SIGKILL when one of its processes is gone: the others find which
/// and report it, on a loaded machine in more than the second that Open MPI gives them.
constexpr const char* kSecondsToReport = "3";

std::atomic<pid_t> running_child = 0;
std::atomic<int> first_signal = 0;  ///< Subprocess::gently
std::atomic<int> passed_on = 0;
std::atomic<std::int64_t> last_passed_on = 0;  ///< milliseconds of the steady clock

std::int64_t milliseconds_now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);  // which a signal handler may call
  return std::int64_t{1000} * now.tv_sec + now.tv_nsec / 1'000'000;
}

/// timeout(1) signals a program and its group: two signals within this time are one request.
void pass_on(int signal) {
  constexpr std::int64_t kOneRequest = 250;
  const pid_t child = running_child;
  const std::int64_t now = milliseconds_now();
  const bool again = passed_on > 0 && now - last_passed_on < kOneRequest;
  if (child <= 0 || again) return;
  last_passed_on = now;
  const bool first = passed_on++ == 0;
  first&& first_signal != 0 ? kill(child, first_signal) : kill(-child, signal);
}

/// Passes signals on to the child as long as it exists.
class PassingOn {
 public:
  PassingOn() {
    struct sigaction action {};
    action.sa_handler = pass_on;
    action.sa_flags = SA_RESTART;
    for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &action, &before_[i]);
  }
  ~PassingOn() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before_[i], nullptr);
  }
  PassingOn(const PassingOn&) = delete;
  PassingOn& operator=(const PassingOn&) = delete;

 private:
  static constexpr std::array<int, 3> kSignals = {SIGINT, SIGTERM, SIGHUP};
  std::array<struct sigaction, 3> before_{};
};

/// Runs between fork and exec, so only async-signal-safe calls. Reports a failing exec on `report`.
[[noreturn]] void become(char* const* words, int events, int agreed, int report, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(127);  // the parent has already exited
  dup2(events, agreed);                 // stays open across exec
  execv(words[0], words);
  const int why = errno;
  [[maybe_unused]] const ssize_t told = write(report, &why, sizeof why);
  _exit(127);
}

/// Reads until the other end is closed.
void hear(int from, const std::function<void(std::string_view)>& heard) {
  std::string rest;
  std::array<char, 4096> block{};
  for (;;) {
    const ssize_t got = read(from, block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    rest.append(block.data(), static_cast<std::size_t>(got));
    std::size_t begin = 0;
    for (std::size_t end = rest.find('\n'); end != std::string::npos;
         begin = end + 1, end = rest.find('\n', begin)) {
      heard(std::string_view(rest).substr(begin, end - begin));
    }
    rest.erase(0, begin);
  }
}

}  // namespace

std::string own_folder() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path().string();
}

std::string in_path(const char* program) {
  const char* path = std::getenv("PATH");
  std::string_view rest = path == nullptr ? "" : path;
  while (!rest.empty()) {
    const std::string_view folder = rest.substr(0, rest.find(':'));
    const std::string file = std::string(folder) + "/" + program;
    std::error_code ignored;
    if (!folder.empty() && ::access(file.c_str(), X_OK) == 0 &&
        std::filesystem::is_regular_file(file, ignored)) {
      return file;
    }
    rest.remove_prefix(std::min(folder.size() + 1, rest.size()));
  }
  return {};
}

Result<Subprocess> under_mpirun(const std::vector<std::string>& words, int processes) {
  const std::string mpirun = in_path("mpirun");
  if (mpirun.empty()) {
    return environment_error(
        "--launcher mpi", "mpirun is not in PATH",
        "apt-get install openmpi-bin, or drop the flag: threads compute the same numbers");
  }
  Subprocess child{.words = {"/usr/bin/env"}, .events = kEventsOfProcesses, .gently = SIGUSR1};
  if (geteuid() == 0) {  // else Open MPI refuses
    child.words.insert(child.words.end(),
                       {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"});
  }
  child.words.insert(child.words.end(),
                     {mpirun, "--quiet", "--mca", "odls_base_sigkill_timeout", kSecondsToReport,
                      "--oversubscribe", "--bind-to", "none", "-n", std::to_string(processes)});
  child.words.insert(child.words.end(), words.begin(), words.end());
  return child;
}

Result<ExitStatus> run_subprocess(const Subprocess& program,
                                  const std::function<void(std::string_view line)>& heard) {
  std::vector<std::string> copies = program.words;
  std::vector<char*> pointers;
  for (std::string& word : copies) pointers.push_back(word.data());
  pointers.push_back(nullptr);

  std::array<int, 2> events{};
  std::array<int, 2> report{};
  if (pipe2(events.data(), O_CLOEXEC) != 0 || pipe2(report.data(), O_CLOEXEC) != 0) {
    return environment_error("plan run", std::string("no pipe: ") + std::strerror(errno));
  }
  // The child may need descriptor kEvents for itself: move our ends out of its way.
  const int writes = fcntl(events[1], F_DUPFD_CLOEXEC, kEvents + 1);
  const int reports = fcntl(report[1], F_DUPFD_CLOEXEC, kEvents + 1);
  close(events[1]);
  close(report[1]);

  // OpenMP threads spin for some microseconds, then sleep: libgomp's default where threads
  // outnumber cores. Otherwise they spin for milliseconds and, when another program runs, occupy
  // the core of the thread that they wait for. The same for measurements and runs.
  if (std::getenv("OMP_WAIT_POLICY") == nullptr) setenv("GOMP_SPINCOUNT", "1000", 0);
  first_signal = program.gently;
  passed_on = 0;
  const PassingOn signals;
  const pid_t self = getpid();
  const pid_t child = fork();
  if (child < 0) {
    return environment_error("plan run", std::string("no new process: ") + std::strerror(errno));
  }
  if (child == 0) become(pointers.data(), writes, program.events, reports, self);
  setpgid(child, child);  // parent and child both set it: either may run first
  running_child = child;
  close(writes);
  close(reports);
  int why = 0;
  const bool failed = read(report[0], &why, sizeof why) == sizeof why;
  close(report[0]);
  hear(events[0], heard);
  close(events[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  running_child = 0;
  kill(-child, SIGKILL);  // processes of its group that still run
  if (failed) {
    return environment_error(program.words[0], std::strerror(why),
                             "it is built and installed next to plan; ./plan run builds both");
  }
  const bool signalled = WIFSIGNALED(status);
  return ExitStatus{.exit_code = signalled ? kSignals + WTERMSIG(status) : WEXITSTATUS(status),
                    .signal = signalled ? WTERMSIG(status) : 0,
                    .interrupted = passed_on > 0};
}

}  // namespace echelon::cli
