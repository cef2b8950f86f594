// Worlds over TCP.
#include "runtime/comm/tcp/world.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <span>
#include <thread>

#include "runtime/comm/tcp/run_token.hpp"
#include "tests/runtime/comm/tcp/meetings.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

bool has_ipv6() {
  const auto listener = tcp::listen_for("::1", 0);
  return listener.ok();
}

TEST_CASE("TCP gives the bits of threads, on three queues at once") {
  const std::vector<GroupRole> roles{GroupRole::norm, GroupRole::dp_reduce, GroupRole::forward};
  std::vector<std::string> addresses{"127.0.0.1", "localhost"};
  if (has_ipv6()) addresses.push_back("::1");
  for (const int processes : {1, 2, 3, 4}) {
    const auto expected = by_threads_on(peers_plan(processes), roles);
    std::vector<std::vector<Raw>> got(roles.size(),
                                      std::vector<Raw>(static_cast<std::size_t>(processes)));
    const auto ends = by_processes(
        meetings_of(processes, addresses[static_cast<std::size_t>(processes) % addresses.size()]),
        Seconds{120}, [&](RunThreads& run_threads, World& world) {
          const int rank = world.local_ranks().front();
          if (world.ranks() != processes || world.ranks_on_this_machine() != processes) {
            throw RunFailure(RunFailure::Kind::defect, "ranks were miscounted");
          }
          for (std::size_t i = 0; i < roles.size(); ++i) {
            run_threads.add(std::string(name_of(roles[i])), [&, i, rank] {
              got[i][static_cast<std::size_t>(rank)] =
                  all_on(world.at(rank, roles[i]), roles[i], i);
            });
          }
        });
    for (const TcpEnd& end : ends) CHECK(end.reported.empty());
    const bool same = got == expected;
    CHECK(same);
  }
}

TEST_CASE("an all_to_all of more members than headers have room for counts is correct") {
  constexpr int kMembers = 29;
  const auto sent = [](int from, int to) { return std::int64_t{(from + 2 * to) % 3}; };
  const auto ends =
      by_processes(meetings_of(kMembers), Seconds{60}, [&](RunThreads& run_threads, World& world) {
        const int rank = world.local_ranks().front();
        run_threads.add("rank", [&, rank] {
          std::vector<std::int64_t> to;
          std::vector<std::int64_t> from;
          std::vector<std::int32_t> in;
          std::vector<std::int32_t> expected;
          for (int other = 0; other < kMembers; ++other) {
            to.push_back(sent(rank, other));
            from.push_back(sent(other, rank));
            in.insert(in.end(), static_cast<std::size_t>(to.back()), 100 * rank + other);
            expected.insert(expected.end(), static_cast<std::size_t>(from.back()),
                            100 * other + rank);
          }
          std::vector<std::int32_t> out(expected.size());
          world.at(rank, GroupRole::dp_reduce)
              .all_to_all(in.data(), to, out.data(), from, Element::i32);
          if (out != expected) throw RunFailure(RunFailure::Kind::defect, "wrong parts");
        });
      });
  for (const TcpEnd& end : ends) CHECK(end.reported.empty());
}

TEST_CASE("a port is free again when its run is over") {
  const int port = free_port();
  for (int run = 0; run < 3; ++run) {
    const auto ends = by_processes(
        {rendezvous_at(port, 0, 2), rendezvous_at(port, 1, 2)}, Seconds{20},
        [](RunThreads& run_threads, World& world) {
          const int rank = world.local_ranks().front();
          run_threads.add("rank", [&, rank] { world.at(rank, GroupRole::norm).barrier(); });
        });
    for (const TcpEnd& end : ends) CHECK(end.reported.empty());
  }
}

/// How each of four processes ends; the last one deviates.
std::vector<TcpEnd> ends_when(const std::string& what) {
  const Seconds deadline{what == "absent" ? 1.5 : 60.0};
  return by_processes(meetings_of(4), deadline, [&](RunThreads& run_threads, World& world) {
    const int rank = world.local_ranks().front();
    run_threads.add("rank " + std::to_string(rank), [&, rank] {
      Communicator& comm = world.at(rank, GroupRole::norm);
      comm.barrier();
      if (fail_as(what, comm, Seconds{4})) return;
      std::vector<float> data(1'000'000, 1.0F);
      const auto count = static_cast<std::int64_t>(data.size());
      const bool odd_one = rank == 3;
      if (what == "both send") {
        if (rank < 2) comm.send(data.data(), count, Element::f32, 1 - rank);
        comm.barrier();
      } else if (what == "mixed") {
        odd_one ? comm.send(data.data(), 3, Element::f32, 0) : comm.barrier();
      } else if (what == "leave") {
        if (!odd_one) comm.all_reduce(data.data(), count, Element::f32, Reduction::sum);
      }
    });
  });
}

TEST_CASE("the end of one process ends all that it is connected to, with its reason") {
  struct Case {
    std::string what;
    int exit_code;
    std::string reported;
  };
  const std::string all = "all (reduce) group of ranks {0,1,2,3}";
  for (const Case& each : {
           Case{"disagree", 70, " calls all_reduce of 64 f32, rank 3 all_gather of 32 f32"},
           Case{"parts", 70,
                all + ": in an all_to_all of f32 rank 3 sends 2 to rank 0, which expects 3"},
           Case{"message", 70,
                all + ": rank 0 calls send of 100 f32 to rank 1, rank 1 receive of 99 f32 from "
                      "rank 0"},
           Case{"both send", 70,
                all + ": rank 0 calls send of 1000000 f32 to rank 1, rank 1 send of 1000000 f32 to "
                      "rank 0"},
           Case{"mixed", 70, all + ": rank 0 calls barrier, rank 3 send of 3 f32 to rank 0"},
           Case{"absent", 4, "all_reduce of 1000000 f32 in the " + all + " waits for rank 3"},
           Case{"throw", 6, "loss is NaN"},
       }) {
    const auto start = std::chrono::steady_clock::now();
    const auto ends = ends_when(each.what);
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(30));
    for (std::size_t rank = 0; rank < ends.size(); ++rank) {
      INFO(each.what << ", rank " << rank << ": " << ends[rank].reported);
      CHECK(ends[rank].exit_code == each.exit_code);
      CHECK(ends[rank].reported.find(each.reported) != std::string::npos);
    }
  }
  CHECK(ends_when("throw")[0].reported == "rank 3: loss is NaN");
}

TEST_CASE("waiting for a process that has left ends with its rank") {
  const auto ends = ends_when("leave");
  CHECK(ends[3].exit_code == 0);
  for (std::size_t rank = 0; rank < 3; ++rank) {
    CHECK(ends[rank].exit_code == 7);
    CHECK(ends[rank].reported.find("rank 3 has left the run: all_reduce of 1000000 f32") !=
          std::string::npos);
  }
}

TEST_CASE("a connection that closes without a goodbye is a lost rank") {
  const int port = free_port();
  std::jthread dying([&] {
    const auto connected = tcp::join_run(rendezvous_at(port, 1, 2));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  });
  const auto ends = by_processes(
      {rendezvous_at(port, 0, 2)}, Seconds{60}, [](RunThreads& run_threads, World& world) {
        run_threads.add("rank 0", [&] { world.at(0, GroupRole::norm).barrier(); });
      });
  CHECK(ends[0].exit_code == 7);
  CHECK(ends[0].reported ==
        "rank 1 is gone: the connection to it (127.0.0.1) ended in the middle of the run\n"
        "  rank 0: -");
}

TEST_CASE("a process that does not belong to a run is refused, and both report the reason") {
  auto all = meetings_of(3);
  for (tcp::Rendezvous& rendezvous : all) rendezvous.limit = Seconds{5};  // without a peer
  const std::string where = "127.0.0.1:" + std::to_string(all[0].port) + ": ";
  const auto all_say = [&](const std::vector<tcp::Rendezvous>& each, const std::string& what) {
    const auto reported = met_by(each);
    INFO(reported[0] << "\n" << reported[1] << "\n" << reported[2]);
    CHECK(reported[0].starts_with(where + what));
    CHECK(reported[2].find("rank 0 refuses: " + what) != std::string::npos);
  };
  auto other = all;
  other[2].plan = "another";
  all_say(other, "rank 2 of 3 has another plan than rank 0 (from 127.0.0.1)");
  other = all;
  other[2].settings = "--steps 7";
  all_say(other, "rank 2 of 3 has other settings than rank 0");
  other = all;
  other[2].size = 5;
  all_say(other, "rank 2 of 5 tried to join a run of 3");
  other = all;
  other[2].rank = 1;
  const auto reported = met_by(other);
  CHECK(reported[0].find("rank 1 of 3 has already joined") != std::string::npos);
}

TEST_CASE("a run keeps waiting while unknown clients and processes of other runs connect") {
  const auto all = meetings_of(2);
  auto foreign = rendezvous_at(all[0].port, 1, 2);
  foreign.run = "77.0";
  std::vector<std::string> reported(3);
  std::jthread leader([&] {
    const auto connected = tcp::join_run(all[0]);
    if (!connected) reported[0] = connected.error().message();
  });
  std::string why;
  const tcp::WaitLimit soon{std::chrono::steady_clock::now() + std::chrono::seconds(10)};
  for (tcp::Socket stranger; !stranger;) {
    stranger = tcp::connect_to("127.0.0.1", all[0].port, soon, why);
    REQUIRE_FALSE(soon.over());
    if (stranger) CHECK(tcp::write_all(stranger, "GET / HTTP/1.0\r\n\r\n", 18, soon));
  }
  const auto refused = tcp::join_run(foreign);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().found ==
        "rank 0 refuses: rank 1 of 2 belongs to another run (from 127.0.0.1)");
  const auto connected = tcp::join_run(all[1]);
  leader.join();
  CHECK(connected.ok());
  CHECK(reported[0].empty());
}

TEST_CASE("a missing process is named to all that connected") {
  auto all = meetings_of(4);
  for (tcp::Rendezvous& rendezvous : all) rendezvous.limit = Seconds{0.5};
  const std::string where = "127.0.0.1:" + std::to_string(all[0].port) + ": ";
  CHECK(met_by({all[0]})[0] ==
        where + "not all processes joined within 0.5 s; missing: rank 1, 2, 3");
  const auto reported = met_by({all[0], all[2]});
  CHECK(reported[0] == where + "not all processes joined within 0.5 s; missing: rank 1, 3");
  CHECK(reported[1].find("missing: rank 1, 3") != std::string::npos);
  const std::string nobody = met_by({all[2]})[0];
  INFO(nobody);
  CHECK(nobody.find(where + "no rank 0 within 0.5 s: Connection refused; MASTER_ADDR") == 0);
}

TEST_CASE("a port in use, and an unknown service there, are reported") {
  const auto listener = tcp::listen_for("127.0.0.1", 0).value();
  const int port = tcp::port_of(listener);
  const std::string reported = met_by({rendezvous_at(port, 0, 2)})[0];
  CHECK(reported.starts_with("127.0.0.1:" + std::to_string(port) +
                             ": the port is in use on the host of rank 0"));
  std::jthread server([&] {
    for (;;) {
      const tcp::Socket guest = tcp::accept_from(listener);
      if (!guest) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        continue;
      }
      const tcp::WaitLimit soon{std::chrono::steady_clock::now() + std::chrono::seconds(10)};
      (void)tcp::write_all(guest, "SSH-2.0-OpenSSH_9.2p1 Debian\r\n", 30, soon);
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      return;
    }
  });
  const std::string stranger = met_by({rendezvous_at(port, 1, 2)})[0];
  CHECK(stranger.find("the service there is not an Echelon rank 0") != std::string::npos);
}

TEST_CASE("a process without the run's token is a stranger, and the run goes on without it") {
  auto all = meetings_of(3);
  for (tcp::Rendezvous& rendezvous : all) rendezvous.token = "a secret";
  auto stranger = all[2];
  stranger.token = "a guess";
  stranger.plan = "whatever";
  std::vector<std::string> of_leader;
  std::jthread leader([&] { of_leader = met_by({all[0]}); });
  const auto refused = tcp::join_run(stranger);  // rank 0 still waits for the others
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().found == "rank 0 refuses: a process with another ECHELON_RUN_TOKEN");
  for (const std::string& each : met_by({all[1], all[2]})) CHECK(each.empty());
  leader.join();
  for (const std::string& each : of_leader) CHECK(each.empty());
}

TEST_CASE("clients that only connect do not keep the processes of a run from joining") {
  const auto all = meetings_of(2);
  std::vector<std::string> reported;
  std::vector<tcp::Socket> silent;
  std::jthread leader([&] { reported = met_by({all[0]}); });
  std::string why;
  const tcp::WaitLimit soon{std::chrono::steady_clock::now() + std::chrono::seconds(20)};
  while (silent.size() < 300 && !soon.over()) {
    tcp::Socket socket = tcp::connect_to("127.0.0.1", all[0].port, soon, why);
    if (socket) silent.push_back(std::move(socket));
  }
  CHECK(tcp::join_run(all[1]).ok());
  leader.join();
  CHECK(reported[0].empty());
}

TEST_CASE("rank 0 listens on the interface of the master's address alone") {
  const auto address_of = [](const tcp::Socket& listener) {
    sockaddr_storage at{};
    socklen_t length = sizeof at;
    getsockname(listener.descriptor(), reinterpret_cast<sockaddr*>(&at), &length);
    char text[INET6_ADDRSTRLEN] = {};
    getnameinfo(reinterpret_cast<sockaddr*>(&at), length, text, sizeof text, nullptr, 0,
                NI_NUMERICHOST);
    return std::string(text);
  };
  CHECK(address_of(tcp::listen_for("localhost", 0).value()) == "127.0.0.1");
  CHECK(address_of(tcp::listen_for("a.name.that.nobody.has.invalid", 0).value()) != "127.0.0.1");
  const auto listener = tcp::listen_for("127.0.0.1", 0).value();
  std::string why;
  const tcp::WaitLimit soon{std::chrono::steady_clock::now() + std::chrono::seconds(10)};
  const tcp::Socket connection = tcp::connect_to("127.0.0.1", tcp::port_of(listener), soon, why);
  REQUIRE(connection);
  CHECK(address_of(tcp::listen_beside(connection, "127.0.0.1").value()) == "127.0.0.1");
}

TEST_CASE("signatures are HMAC with SHA-256") {
  // RFC 4231, test case 2.
  const std::string text = "what do ya want for nothing?";
  const auto bytes = std::as_bytes(std::span(text));
  tcp::Nonce nonce;
  std::copy_n(bytes.begin(), nonce.size(), nonce.begin());
  const tcp::Signature signature = tcp::sign("Jefe", nonce, bytes.subspan(nonce.size()));
  std::string digits;
  for (const std::byte each : signature) {
    constexpr const char* kDigits = "0123456789abcdef";
    digits += kDigits[static_cast<int>(each) / 16];
    digits += kDigits[static_cast<int>(each) % 16];
  }
  CHECK(digits == "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  tcp::Signature other = signature;
  CHECK(tcp::same(signature, other));
  other.back() ^= std::byte{1};
  CHECK_FALSE(tcp::same(signature, other));
}

}  // namespace
}  // namespace echelon
