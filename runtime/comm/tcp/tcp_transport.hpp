// TcpTransport: the TCP connections of this process to rank 0 and to those with which it exchanges
// data, shared by its queues.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/comm/message_communicator.hpp"
#include "runtime/comm/tcp/socket.hpp"
#include "runtime/threads/run_threads.hpp"
#include "runtime/threads/watchdog.hpp"

namespace echelon::tcp {

class TcpChannel;

/// Between which members of a group messages travel.
enum class Lines : std::uint8_t {
  mesh,  ///< all
  star   ///< the first and each other: needs no connection but that to rank 0
};

/// Precedes every message.
struct MessageHeader {
  std::uint32_t channel = 0;
  std::uint32_t number = 0;  ///< of the messages of this line from this process, from 0; of a
                             ///< goodbye message: the rank that ends
  std::uint64_t bytes = 0;
  std::uint64_t checksum = 0;  ///< XXH3 of the bytes, of a channel's messages
};
static_assert(sizeof(MessageHeader) == 24);

/// One thread reads all incoming data and writes what sockets did not accept at once, so the other
/// end never waits for this one to read. A process that leaves sends a goodbye message: that its
/// run is complete, or the failure that ended it; one whose connection closes without a goodbye is
/// lost. Both stop the run. Rank 0 passes on to all others how a process has failed, and to members
/// of a star that wait for it whom it waits for itself.
class TcpTransport final : public StatusLink {
 public:
  /// `peers`: by rank; empty for this one and those without a connection to it.
  TcpTransport(RunThreads& run_threads, int rank, std::vector<Socket> peers);
  ~TcpTransport() override;
  TcpTransport(const TcpTransport&) = delete;
  TcpTransport& operator=(const TcpTransport&) = delete;

  /// The messages of one group role; `number` identifies it in all processes. Before start().
  [[nodiscard]] std::unique_ptr<Messages> channel(int number, const Group& group, Lines lines);
  /// When it becomes true, a byte of the next message of a channel changes on its way.
  void corrupt_when(std::shared_ptr<std::atomic<bool>> now) { corrupt_ = std::move(now); }
  void start();
  /// Sends the goodbye message and waits for those of the others, at most `limit`. Afterwards
  /// nothing is in flight.
  void finish(Seconds limit);

  void send(int to, const StatusMessage& message) override;
  std::optional<StatusMessage> receive(int& from) override;

 private:
  friend class TcpChannel;
  /// A message that its socket did not accept at once.
  struct Parcel {
    TcpChannel* channel = nullptr;  ///< null: a goodbye or status message
    int member = 0;
    MessageHeader header;
    const std::byte* data = nullptr;
    std::size_t written = 0;     ///< of head and data
    std::vector<std::byte> own;  ///< the data, if their owner no longer keeps them
  };
  struct Peer {
    Socket socket;
    int rank = 0;
    std::string address;
    std::atomic<bool> left = false;    ///< has said how its run ended
    std::atomic<bool> writes = false;  ///< `out` has something
    std::mutex mutex;                  ///< guards `out`; locked before the monitor of a channel
    std::deque<Parcel> out;
    bool write_failed = false;  ///< guarded by mutex: accepts no more data
    // Of the reading thread alone.
    bool open = true;
    MessageHeader header;
    std::size_t header_read = 0;
    std::uint64_t left_to_read = 0;
    TcpChannel* channel = nullptr;
    int member = 0;
    std::vector<std::byte> note;  ///< not of a channel
  };
  /// Of rank 0, of a star: whom it waited for a moment ago, and what it has told the others.
  struct Awaited {
    TcpChannel* channel = nullptr;
    std::vector<std::int32_t> before;
    std::vector<std::int32_t> told;
  };

  [[nodiscard]] Peer& peer(int rank) { return *peers_[static_cast<std::size_t>(rank)]; }
  void send(Peer& to, Parcel parcel);
  void flush(Peer& to);
  static bool write_some(Peer& to, Parcel& parcel);
  /// Copies the channel's messages in flight, whose owners are about to be destroyed.
  void abandon(const TcpChannel& channel);
  void run();
  void serve();
  void read_from(Peer& from);
  [[nodiscard]] bool begin_message(Peer& from);
  void read_note(Peer& from);
  void read_status(const Peer& from);
  void read_awaited(const Peer& from);
  void read_goodbye(Peer& from);
  void pass_on(int ended, const std::vector<std::byte>& goodbye);
  void tell_awaited();
  void changed(const Peer& from);
  void closed(Peer& from);
  void wake();
  void wake_channels();

  RunThreads& run_threads_;
  const int rank_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<TcpChannel*> channels_;  ///< by number
  int wake_ = -1;                      ///< eventfd
  std::shared_ptr<std::atomic<bool>> corrupt_;
  std::atomic<bool> finishing_ = false;
  std::chrono::steady_clock::time_point finish_until_;
  std::mutex reported_mutex_;
  std::string reported_;  ///< the failure that another process reported
  std::mutex statuses_mutex_;
  std::deque<std::pair<int, StatusMessage>> statuses_;  ///< by sender; not yet received
  std::vector<Awaited> awaited_;                        ///< of the thread alone
  std::jthread thread_;
};

}  // namespace echelon::tcp
