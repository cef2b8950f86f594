// On each connection the one that connects sends a Hello, and gets an Answer: that it is let in
// (from rank 0: with a Table), or why not.
#include "runtime/tcp/meeting.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <list>
#include <thread>

#include "core/base/content_hash.hpp"

namespace echelon::tcp {
namespace {

using Clock = std::chrono::steady_clock;
using Mark = std::array<char, 32>;  // a fingerprint

/// Differs on a machine with another order of bytes, and with each change of what is sent.
constexpr std::uint64_t kMagic = 0x4543'4845'4C4F'4E01;

struct Hello {
  std::uint64_t magic = kMagic;
  std::int32_t rank = 0;
  std::int32_t size = 0;
  std::int32_t port = 0;  ///< where this process listens
  std::int32_t unused = 0;
  Mark run{};
  Mark plan{};
  Mark settings{};
  Mark machine{};
};
struct Answer {
  std::uint64_t magic = kMagic;
  std::uint32_t welcome = 0;
  std::uint32_t bytes = 0;  ///< of what follows: a table, or a reason
};
struct Place {
  std::array<char, 64> address{};  ///< empty: that of rank 0
  std::int64_t port = 0;
  Mark machine{};
};
static_assert(sizeof(Hello) == 152 && sizeof(Answer) == 16 && sizeof(Place) == 104);

Mark mark_of(const std::string& text) {
  Mark mark{};
  const std::string hash = content_hash(text);
  std::memcpy(mark.data(), hash.data(), std::min(mark.size(), hash.size()));
  return mark;
}

/// Cores are shared by who has both in common; containers of one machine have names of their own.
std::string this_machine() {
  std::ifstream in("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(in, boot);
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return boot + " " + name.data();
}

/// A connection per process needs as many descriptors; systems often begin with 1024.
void raise_limit_of_files() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

/// Somebody who has connected and said who it is, perhaps not to its end.
struct Guest {
  Socket socket;
  Hello hello;
  std::size_t heard = 0;
  [[nodiscard]] bool is_ours() const { return heard == sizeof hello && hello.magic == kMagic; }
};

class Host {
 public:
  explicit Host(const Meeting& meeting)
      : meeting_(meeting),
        patience_{Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                     std::chrono::duration<double>(meeting.limit.in(kSecond))),
                  meeting.interrupted} {
    own_.rank = meeting.rank;
    own_.size = meeting.size;
    own_.run = mark_of(meeting.run);
    own_.plan = mark_of(meeting.plan);
    own_.settings = mark_of(meeting.settings);
    own_.machine = mark_of(this_machine());
    connected_.peers.resize(static_cast<std::size_t>(meeting.size));
  }

  Result<Connected> meet() {
    if (meeting_.size == 1) return std::move(connected_);
    raise_limit_of_files();
    const bool leads = meeting_.rank == 0;
    Result<Socket> listener = listen_for(meeting_.address, leads ? meeting_.port : 0);
    if (!listener) return listener.error();
    listener_ = *std::move(listener);
    own_.port = port_of(listener_);
    if (const Status done = leads ? lead() : follow(); !done) return done.error();
    for (const Socket& socket : connected_.peers) {
      if (socket) prepare(socket);
    }
    return std::move(connected_);
  }

 private:
  Status lead();
  Status follow();
  Status welcome(int first);
  Status hear(Guest& guest, int first);
  [[nodiscard]] std::string fault_of(const Hello& hello, int first) const;
  void refuse(const Socket& socket, const std::string& reason) const;
  Result<Socket> reach(const std::string& address, int port, int rank) const;
  Result<std::string> answer_of(const Socket& socket, int rank, const Patience& patience) const;
  [[nodiscard]] Error not_all(int first) const;
  [[nodiscard]] Socket& peer(int rank) { return connected_.peers[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] std::string where() const {
    return fmt::format("{}:{}", meeting_.address, meeting_.port);
  }
  void count_machines(const std::vector<Place>& table) {
    connected_.on_this_machine =
        static_cast<int>(std::count_if(table.begin(), table.end(), [&](const Place& place) {
          return place.machine == own_.machine;
        }));
  }

  const Meeting& meeting_;
  Patience patience_;
  Hello own_;
  Socket listener_;
  Connected connected_;
  std::vector<Hello> hellos_;         ///< of rank 0: by rank
  std::vector<std::string> strange_;  ///< who was refused, and why
};

void Host::refuse(const Socket& socket, const std::string& reason) const {
  Answer answer;
  answer.bytes = static_cast<std::uint32_t>(reason.size());
  const Patience short_one{Clock::now() + std::chrono::seconds(1)};
  if (write_all(socket, &answer, sizeof answer, short_one)) {
    (void)write_all(socket, reason.data(), reason.size(), short_one);
  }
}

/// Why it is not let in, or "".
std::string Host::fault_of(const Hello& hello, int first) const {
  const std::string who = fmt::format("rank {} of {}", hello.rank, hello.size);
  if (hello.run != own_.run) return who + " belongs to another run";
  if (hello.size != own_.size) return fmt::format("{} came to a run of {}", who, own_.size);
  if (hello.rank < first || hello.rank >= own_.size) return who + " has no place here";
  if (connected_.peers[static_cast<std::size_t>(hello.rank)]) return who + " is there already";
  if (hello.plan != own_.plan) return who + " has another plan than rank 0";
  if (hello.settings != own_.settings) return who + " has other settings than rank 0";
  return "";
}

/// Reads on; a whole Hello is judged. Error: one of our run that cannot take part.
Status Host::hear(Guest& guest, int first) {
  auto* const to = reinterpret_cast<std::byte*>(&guest.hello) + guest.heard;
  const std::int64_t got = receive_some(guest.socket.descriptor(), to, sizeof(Hello) - guest.heard);
  if (got == -EAGAIN) return Done{};
  if (got > 0) guest.heard += static_cast<std::size_t>(got);
  const bool strange = got <= 0 || (guest.heard >= 8 && guest.hello.magic != kMagic);
  if (!strange && guest.heard < sizeof(Hello)) return Done{};
  const std::string from = address_of_peer(guest.socket);
  if (strange) {
    if (got > 0) strange_.push_back("a stranger from " + from);
    guest.socket.close();
    return Done{};
  }
  const std::string fault = fault_of(guest.hello, first);
  if (fault.empty()) {
    const auto rank = static_cast<std::size_t>(guest.hello.rank);
    hellos_[rank] = guest.hello;
    peer(guest.hello.rank) = std::move(guest.socket);
    return Done{};
  }
  const std::string reason = fault + " (it came from " + from + ")";
  refuse(guest.socket, reason);
  guest.socket.close();
  strange_.push_back(reason);
  if (guest.hello.run != own_.run || meeting_.rank != 0) return Done{};
  return input_error(where(), reason, "the same command for every process of the run");
}

/// Lets in all ranks from `first` on that are not here.
Status Host::welcome(int first) {
  hellos_.resize(connected_.peers.size());
  std::list<Guest> guests;
  const auto missing = [&] {
    return std::any_of(connected_.peers.begin() + first, connected_.peers.end(),
                       [](const Socket& socket) { return !socket; });
  };
  while (missing()) {
    if (patience_.over()) return not_all(first);
    std::vector<pollfd> files{{listener_.descriptor(), POLLIN, 0}};
    for (const Guest& guest : guests) files.push_back({guest.socket.descriptor(), POLLIN, 0});
    if (::poll(files.data(), files.size(), patience_.round()) <= 0) continue;
    std::size_t at = 1;
    for (Guest& guest : guests) {
      if (files[at++].revents == 0) continue;
      if (const Status fine = hear(guest, first); !fine) return fine;
    }
    guests.remove_if([](const Guest& guest) { return !guest.socket; });
    if (files[0].revents != 0) {
      if (Socket socket = accept_from(listener_)) guests.push_back({std::move(socket), {}, 0});
    }
  }
  return Done{};
}

Error Host::not_all(int first) const {
  std::vector<int> missing;
  for (int rank = first; rank < meeting_.size; ++rank) {
    if (!connected_.peers[static_cast<std::size_t>(rank)]) missing.push_back(rank);
  }
  constexpr std::size_t kMostTold = 8;
  const std::size_t count = missing.size();
  missing.resize(std::min(count, kMostTold));
  std::string text =
      meeting_.interrupted != nullptr && *meeting_.interrupted != 0
          ? "interrupted while waiting"
          : fmt::format("not all processes came within {:g} s", meeting_.limit.in(kSecond));
  text += fmt::format("; missing: rank {}{}", fmt::join(missing, ", "),
                      count > kMostTold ? fmt::format(" and {} more", count - kMostTold) : "");
  if (!strange_.empty()) {
    const std::size_t told = std::min(strange_.size(), kMostTold);
    text += fmt::format(
        "; refused: {}",
        fmt::join(strange_.begin(), strange_.begin() + static_cast<std::ptrdiff_t>(told), "; "));
  }
  return environment_error(where(), text);
}

Status Host::lead() {
  constexpr int kFirst = 1;
  peer(0) = Socket();
  const Status all = welcome(kFirst);
  if (!all) {
    for (int rank = kFirst; rank < meeting_.size; ++rank) {
      if (peer(rank)) refuse(peer(rank), all.error().found);
    }
    return all;
  }
  std::vector<Place> table(static_cast<std::size_t>(meeting_.size));
  table[0].machine = own_.machine;
  for (int rank = kFirst; rank < meeting_.size; ++rank) {
    Place& place = table[static_cast<std::size_t>(rank)];
    const Hello& hello = hellos_[static_cast<std::size_t>(rank)];
    const std::string address = address_of_peer(peer(rank));
    if (!is_loopback(address)) address.copy(place.address.data(), place.address.size() - 1);
    place.port = hello.port;
    place.machine = hello.machine;
  }
  Answer answer;
  answer.welcome = 1;
  answer.bytes = static_cast<std::uint32_t>(table.size() * sizeof(Place));
  for (int rank = kFirst; rank < meeting_.size; ++rank) {
    if (write_all(peer(rank), &answer, sizeof answer, patience_) &&
        write_all(peer(rank), table.data(), answer.bytes, patience_)) {
      continue;
    }
    return environment_error(where(), fmt::format("rank {} left before the run began", rank));
  }
  count_machines(table);
  return Done{};
}

/// Tries until somebody listens, and says hello.
Result<Socket> Host::reach(const std::string& address, int port, int rank) const {
  const std::string target = fmt::format("{}:{}", address, port);
  std::string why = "nobody answers";
  while (!patience_.over()) {
    Socket socket = connect_to(address, port, patience_, why);
    if (socket && write_all(socket, &own_, sizeof own_, patience_)) return socket;
    std::this_thread::sleep_for(std::chrono::milliseconds(std::min(50, patience_.round())));
  }
  const bool told = meeting_.interrupted != nullptr && *meeting_.interrupted != 0;
  return environment_error(
      target,
      told ? fmt::format("interrupted while waiting for rank {}", rank)
           : fmt::format("no rank {} within {:g} s: {}", rank, meeting_.limit.in(kSecond), why),
      rank == 0 ? "MASTER_ADDR and MASTER_PORT are those of rank 0, which all processes reach"
                : "");
}

/// What follows a welcome.
Result<std::string> Host::answer_of(const Socket& socket, int rank,
                                    const Patience& patience) const {
  Answer answer;
  const std::string target = rank == 0 ? where() : fmt::format("rank {}", rank);
  if (!read_all(socket, &answer, sizeof answer, patience)) {
    return environment_error(
        target, patience.over()
                    ? fmt::format("rank {} answers, but not all processes came within {:g} s", rank,
                                  meeting_.limit.in(kSecond))
                    : fmt::format("rank {} left before the run began", rank));
  }
  constexpr std::uint32_t kMost = 1 << 30;
  if (answer.magic != kMagic || answer.bytes > kMost) {
    return environment_error(target, "what listens there is no rank 0 of a run",
                             "choose another MASTER_PORT for all processes");
  }
  std::string text(answer.bytes, '\0');
  if (!read_all(socket, text.data(), text.size(), patience)) {
    return environment_error(target, fmt::format("rank {} left before the run began", rank));
  }
  if (answer.welcome != 0) return text;
  return input_error(target, fmt::format("rank {} refuses: {}", rank, text),
                     "the same command for every process of the run");
}

Status Host::follow() {
  Result<Socket> first = reach(meeting_.address, meeting_.port, 0);
  if (!first) return first.error();
  peer(0) = *std::move(first);
  // Rank 0 may have begun later: it says when its time is over, and who is missing.
  Patience longer = patience_;
  longer.until += std::chrono::seconds(2) + (patience_.until - Clock::now());
  const Result<std::string> text = answer_of(peer(0), 0, longer);
  if (!text) return text.error();
  std::vector<Place> table(static_cast<std::size_t>(meeting_.size));
  if (text->size() != table.size() * sizeof(Place)) {
    return environment_error(where(), "rank 0 tells of another number of processes");
  }
  std::memcpy(table.data(), text->data(), text->size());
  patience_.until = std::max(patience_.until, Clock::now() + std::chrono::seconds(10));
  for (int rank = 1; rank < meeting_.rank; ++rank) {
    const Place& place = table[static_cast<std::size_t>(rank)];
    const std::string address(place.address.data());
    Result<Socket> socket =
        reach(address.empty() ? meeting_.address : address, static_cast<int>(place.port), rank);
    if (!socket) return socket.error();
    peer(rank) = *std::move(socket);
  }
  if (const Status all = welcome(meeting_.rank + 1); !all) return all;
  Answer answer;
  answer.welcome = 1;
  for (int rank = meeting_.rank + 1; rank < meeting_.size; ++rank) {
    if (write_all(peer(rank), &answer, sizeof answer, patience_)) continue;
    return environment_error(where(), fmt::format("rank {} left before the run began", rank));
  }
  for (int rank = 1; rank < meeting_.rank; ++rank) {
    if (const auto let_in = answer_of(peer(rank), rank, patience_); !let_in) return let_in.error();
  }
  count_machines(table);
  return Done{};
}

}  // namespace

Result<Connected> meet(const Meeting& meeting) { return Host(meeting).meet(); }

}  // namespace echelon::tcp
