// Processes of one run that the test starts, as torchrun would.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/cli/runs.hpp"
#include "tests/places.hpp"

namespace echelon::test {

inline sockaddr_in loopback(int port) {
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  at.sin_port = htons(static_cast<std::uint16_t>(port));
  return at;
}

/// A port of the loopback interface that is free at the moment.
inline std::string free_port() {
  const int descriptor = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in at = loopback(0);
  socklen_t length = sizeof at;
  REQUIRE(bind(descriptor, reinterpret_cast<const sockaddr*>(&at), length) == 0);
  REQUIRE(getsockname(descriptor, reinterpret_cast<sockaddr*>(&at), &length) == 0);
  close(descriptor);
  return std::to_string(ntohs(at.sin_port));
}

inline std::string words_of(int rank, int size, const std::string& port) {
  return "RANK=" + std::to_string(rank) + " WORLD_SIZE=" + std::to_string(size) +
         " LOCAL_RANK=" + std::to_string(rank) + " LOCAL_WORLD_SIZE=" + std::to_string(size) +
         " MASTER_ADDR=127.0.0.1 MASTER_PORT=" + port;
}

/// Processes of one run; the output of rank 2 is in the files "out2" and "err2".
class Started {
 public:
  Started(const Runs& runs, int size, const std::string& arguments) : runs_(runs) {
    const std::string port = free_port();
    for (int rank = size - 1; rank >= 0; --rank) start(rank, words_of(rank, size, port), arguments);
  }
  Started(const Runs& runs, const std::vector<std::string>& words,
          const std::vector<std::string>& arguments)
      : runs_(runs) {
    for (std::size_t rank = 0; rank < words.size(); ++rank) {
      start(static_cast<int>(rank), words[rank], arguments[rank]);
    }
  }
  [[nodiscard]] Background& process(int rank) { return *processes_.at(rank); }
  [[nodiscard]] int exit_code(int rank, double seconds = 60) {
    return process(rank).exit_code_within(seconds);
  }
  [[nodiscard]] std::string out(int rank) const { return runs_.text("out" + std::to_string(rank)); }
  [[nodiscard]] std::string err(int rank) const { return runs_.text("err" + std::to_string(rank)); }

 private:
  void start(int rank, const std::string& words, const std::string& arguments) {
    const std::string number = std::to_string(rank);
    processes_[rank] = std::make_unique<Background>(
        "cd " + shell_word(runs_.sandbox.file("")) + " && exec " +
        runs_.sandbox.program("TMPDIR=" + shell_word(runs_.sandbox.file("")) + " " + words) +
        " run " + arguments + " --events 5 5>events" + number + " >out" + number + " 2>err" +
        number);
  }
  const Runs& runs_;
  std::map<int, std::unique_ptr<Background>> processes_;
};

inline bool has_stepped(const Runs& runs) {
  return lacks(runs.text("events0"), "\"event\":\"step\"").empty();
}

/// The plan-run process of that rank.
inline void kill_rank(const Runs& runs, int rank) {
  const std::string program =
      std::filesystem::path(ECHELON_PLAN).parent_path().string() + "/plan-run";
  pid_t killed = 0;
  for (const pid_t each : processes_with(runs.sandbox.file("plan-run-"))) {
    const std::string process = "/proc/" + std::to_string(each);
    std::error_code ignored;
    if (std::filesystem::read_symlink(process + "/exe", ignored) != program) continue;
    const std::string own = "LOCAL_RANK=" + std::to_string(rank);
    if (lacks(slurp(process + "/environ"), own).empty()) killed = each;
  }
  REQUIRE(killed > 0);
  kill(killed, SIGKILL);
}

/// plan run by two processes of the user's own mpirun, in the sandbox.
inline std::string under_user_mpirun(const Runs& runs, const std::string& arguments) {
  return "cd " + shell_word(runs.sandbox.file("")) +
         " && OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 HOME=. TMPDIR=" +
         shell_word(runs.sandbox.file("")) + " exec mpirun --oversubscribe --bind-to none -n 2 " +
         shell_word(ECHELON_PLAN) + " run plan.json " + arguments + " >out 2>err";
}

}  // namespace echelon::test
