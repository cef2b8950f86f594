// What a peer cannot do to a process over TCP: take its memory, its descriptors or its time.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <utility>

#include "core/base/content_hash.hpp"
#include "runtime/comm/tcp/join_messages.hpp"
#include "runtime/comm/tcp/tcp_transport.hpp"
#include "tests/runtime/comm/tcp/meetings.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

/// What rank 0 reports of a rank 1 that joins properly and then sends this message of the forward
/// group, while rank 0 waits for 8 numbers from it.
std::string report_of_false_message(tcp::MessageHeader header, std::size_t sent) {
  const int port = free_port();
  std::jthread liar([&] {
    const auto connected = tcp::join_run(rendezvous_at(port, 1, 2));
    if (!connected) return;
    const tcp::WaitLimit soon{std::chrono::steady_clock::now() + std::chrono::seconds(10)};
    const tcp::Socket& socket = connected->peers[0];
    const std::vector<std::byte> data(sent);
    (void)tcp::write_all(socket, &header, sizeof header, soon);
    (void)tcp::write_all(socket, data.data(), data.size(), soon);
    std::byte end{};  // until rank 0 closes the connection
    (void)tcp::read_all(socket, &end, sizeof end, soon);
  });
  const auto ends = by_processes(
      {rendezvous_at(port, 0, 2)}, Seconds{60}, [](RunThreads& run_threads, World& world) {
        run_threads.add("rank 0", [&] { world.at(0, GroupRole::norm).barrier(); });
      });
  CHECK(ends[0].exit_code == 70);
  return ends[0].reported;
}

TEST_CASE("false lengths and channels of messages end the run, before memory is taken for them") {
  constexpr std::uint64_t kHuge = std::uint64_t{1} << 62;
  constexpr std::uint32_t kGoodbyes = 0xffff'ffff;
  constexpr std::uint32_t kStatuses = 0xffff'fffe;
  const auto norm = static_cast<std::uint32_t>(GroupRole::norm);
  struct Case {
    tcp::MessageHeader header;
    std::string says;
  };
  for (const Case& each : {Case{{norm, 0, kHuge, 0}, "a message of invalid length"},
                           Case{{norm, 0, 0, 0}, "a message of invalid length"},
                           Case{{norm, 7, 8, 0}, "a message is missing"},
                           Case{{4711, 0, 8, 0}, "a message for an unknown channel"},
                           Case{{kGoodbyes, 0, kHuge, 0}, "a goodbye message of invalid length"},
                           Case{{kGoodbyes, 0, 0, 0}, "a goodbye message of invalid length"},
                           Case{{kStatuses, 0, kHuge, 0}, "a status message of invalid length"}}) {
    const std::string said = report_of_false_message(each.header, 0);
    INFO(said);
    CHECK(said.find("rank 1: " + each.says) != std::string::npos);
  }
}

TEST_CASE("a message of another length than its call announces ends the run") {
  const std::vector<std::byte> zeros(7);
  const tcp::MessageHeader header{static_cast<std::uint32_t>(GroupRole::norm), 0, zeros.size(),
                                  checksum(zeros)};
  const std::string said = report_of_false_message(header, zeros.size());
  INFO(said);
  CHECK(said.find("rank 1: a message of unexpected length") != std::string::npos);
}

/// A rank 0 that sends these bytes after its challenge; what rank 1 reports.
std::string report_of_reply(const tcp::JoinReply& reply) {
  const auto listener = tcp::listen_for("127.0.0.1", 0).value();
  const tcp::WaitLimit soon{std::chrono::steady_clock::now() + std::chrono::seconds(10)};
  std::jthread leader([&] {
    tcp::Socket guest;
    while (!guest && !soon.over()) {
      guest = tcp::accept_from(listener);
      if (!guest) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    const tcp::Challenge challenge;
    tcp::JoinRequest request;
    (void)tcp::write_all(guest, &challenge, sizeof challenge, soon);
    (void)tcp::read_all(guest, &request, sizeof request, soon);
    (void)tcp::write_all(guest, &reply, sizeof reply, soon);
    std::byte end{};
    (void)tcp::read_all(guest, &end, sizeof end, soon);
  });
  return met_by({rendezvous_at(tcp::port_of(listener), 1, 2)})[0];
}

TEST_CASE("false lengths of a reply are refused before memory is taken for them") {
  tcp::JoinReply reply;
  reply.bytes = 0xffff'ffff;
  for (const std::uint32_t accepted : {0U, 1U}) {
    reply.accepted = accepted;
    const std::string said = report_of_reply(reply);
    INFO(said);
    CHECK(said.find("the service there is not an Echelon rank 0") != std::string::npos);
  }
}

/// Rank 0 in a process of its own with so many more descriptors; its exit code and processor time.
std::pair<int, double> leader_with_few_files(const tcp::Rendezvous& rendezvous, rlim_t files) {
  const pid_t process = fork();
  if (process == 0) {
    const int next = dup(0);
    const rlimit limit{static_cast<rlim_t>(next) + files, static_cast<rlim_t>(next) + files};
    close(next);
    const bool set = setrlimit(RLIMIT_NOFILE, &limit) == 0;
    _exit(set && tcp::join_run(rendezvous).ok() ? 0 : 1);
  }
  int status = 0;
  rusage usage{};
  REQUIRE(wait4(process, &status, 0, &usage) == process);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1,
          seconds(usage.ru_utime) + seconds(usage.ru_stime)};
}

TEST_CASE("without descriptors rank 0 neither spins nor ends, and lets its own processes in") {
  const auto all = meetings_of(2);
  std::vector<tcp::Socket> silent;
  std::string reported = "?";
  std::jthread others([&] {
    std::string why;
    const tcp::WaitLimit soon{std::chrono::steady_clock::now() + std::chrono::seconds(20)};
    while (silent.size() < 20 && !soon.over()) {
      tcp::Socket socket = tcp::connect_to("127.0.0.1", all[0].port, soon, why);
      if (socket) silent.push_back(std::move(socket));
    }
    std::this_thread::sleep_for(std::chrono::seconds(2));  // nothing to accept them with
    const auto joined = tcp::join_run(all[1]);
    reported = joined ? "" : joined.error().message();
  });
  const auto [exit_code, seconds] = leader_with_few_files(all[0], 3);
  others.join();
  INFO(reported);
  CHECK(exit_code == 0);
  CHECK(reported.empty());
  CHECK(seconds < 0.5);
}

}  // namespace
}  // namespace echelon
