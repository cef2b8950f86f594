// Mesh: the connections of this process to all others of the run, shared by its queues.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/crew.hpp"
#include "runtime/message_communicator.hpp"
#include "runtime/tcp/socket.hpp"

namespace echelon::tcp {

class MeshLine;

/// In front of every message.
struct Head {
  std::uint32_t line = 0;
  std::uint32_t number = 0;  ///< of the messages of this line from this process, from 0
  std::uint64_t bytes = 0;
};
static_assert(sizeof(Head) == 16);

/// One thread reads whatever comes and writes what sockets did not take at once, so that the other
/// end never waits for this one to read. A process that leaves says so: that its run is over, or
/// what ended it; one whose connection ends without a word is lost. Both end the crew.
class Mesh {
 public:
  /// `peers`: by rank, one's own is none.
  Mesh(Crew& crew, int rank, std::vector<Socket> peers);
  ~Mesh();
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  /// The messages of one line; `number` is its name in all processes. Before start().
  [[nodiscard]] std::unique_ptr<Messages> line(int number, const Group& group);
  void start();
  /// Says how the run ended and waits until the others have said so as well, not longer than
  /// `limit`. Afterwards nothing is under way.
  void finish(Seconds limit);

 private:
  friend class MeshLine;
  /// A message that its socket did not take at once.
  struct Parcel {
    MeshLine* line = nullptr;  ///< null: a word of the mesh itself
    int member = 0;
    Head head;
    const std::byte* data = nullptr;
    std::size_t written = 0;     ///< of head and data
    std::vector<std::byte> own;  ///< the data, when their owner has given them up
  };
  struct Peer {
    Socket socket;
    int rank = 0;
    std::string address;
    std::atomic<bool> left = false;    ///< has said how its run ended
    std::atomic<bool> writes = false;  ///< `out` has something
    std::mutex mutex;                  ///< guards `out`; taken before the gate of a line
    std::deque<Parcel> out;
    bool deaf = false;  ///< guarded by mutex: takes nothing any more
    // Of the reading thread alone.
    bool open = true;
    Head head;
    std::size_t head_read = 0;
    std::uint64_t left_to_read = 0;
    MeshLine* line = nullptr;
    int member = 0;
    std::vector<std::byte> word;
  };

  [[nodiscard]] Peer& peer(int rank) { return *peers_[static_cast<std::size_t>(rank)]; }
  void send(Peer& to, Parcel parcel);
  void flush(Peer& to);
  static bool write_some(Peer& to, Parcel& parcel);
  /// Copies what the line has under way, whose owners go away.
  void abandon(const MeshLine& line);
  void live();
  void serve();
  void read_from(Peer& from);
  [[nodiscard]] bool begin_message(Peer& from);
  void hear_word(Peer& from);
  void closed(Peer& from);
  void wake();
  void wake_lines();

  Crew& crew_;
  const int rank_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<MeshLine*> lines_;  ///< by number
  int wake_ = -1;                 ///< eventfd
  std::atomic<bool> finishing_ = false;
  std::chrono::steady_clock::time_point finish_until_;
  std::mutex told_mutex_;
  std::string told_;  ///< what another process says ended the run
  std::jthread thread_;
};

}  // namespace echelon::tcp
