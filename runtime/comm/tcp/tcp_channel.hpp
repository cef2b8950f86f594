// TcpChannel: the messages in flight of one group role.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "runtime/comm/tcp/tcp_transport.hpp"

namespace echelon::tcp {

class TcpChannel final : public Messages {
 public:
  TcpChannel(TcpTransport& transport, std::uint32_t number, const Group& group, Lines lines);

  void send(const void* data, std::int64_t bytes, int to) override;
  void receive(void* data, std::int64_t bytes, int from) override;
  void gather(std::byte* blocks, std::int64_t bytes) override;
  void wait(const DescribeWait& waiting) override;
  [[nodiscard]] bool idle() const override;

  // For the transport.
  [[nodiscard]] std::optional<int> member_of(int rank) const;  ///< none: not in the group
  /// Announces the next message of this member, before its first byte. "" or the error.
  [[nodiscard]] std::string begin(int member, const MessageHeader& header);
  /// Reads available bytes of that message; returns what recv returned. Stops the run after the
  /// last byte if the checksum differs.
  [[nodiscard]] std::int64_t read(int member, std::uint64_t left, int descriptor);
  void under_way(int member);  ///< a parcel is queued
  void sent(int member);       ///< it is written
  void wake() {
    monitor_.change([] {});
  }
  [[nodiscard]] std::uint32_t number() const { return number_; }
  [[nodiscard]] const Group& group() const { return group_; }
  [[nodiscard]] bool is_star() const { return lines_ == Lines::star; }
  /// The ranks that this one waits for.
  [[nodiscard]] std::vector<std::int32_t> awaited() const;
  /// Of a star: whom the first member, for which this one waits, waits for itself.
  void first_awaits(std::vector<std::int32_t> ranks);

 private:
  /// A posted receive.
  struct Posted {
    std::byte* data = nullptr;
    std::uint64_t bytes = 0;
  };
  /// A message without a posted receive.
  struct Early {
    std::vector<std::byte> data;  ///< grows as it arrives: a length is believed when it is there
    std::uint64_t bytes = 0;
    bool whole = false;
  };
  struct PeerQueue {
    std::deque<Posted> posted;
    std::deque<Early> early;
    bool direct = false;         ///< incoming bytes go to posted.front()
    std::uint64_t checksum = 0;  ///< of the message that is being read
    int parcels = 0;
    std::uint32_t next_in = 0;
    std::uint32_t next_out = 0;  ///< of the queue's thread alone
  };
  [[nodiscard]] PeerQueue& peer_queue(int member) {
    return peer_queues_[static_cast<std::size_t>(member)];
  }
  [[nodiscard]] int under_way() const;
  [[nodiscard]] std::optional<int> lost_rank() const;
  [[nodiscard]] std::vector<std::int32_t> posted_ranks() const;
  /// False: the other side sent a message of another length than was announced in its call.
  [[nodiscard]] bool match(PeerQueue& peer_queue);
  void refuse_length(int member);
  [[nodiscard]] static bool matches_checksum(const PeerQueue& peer_queue);
  [[nodiscard]] WaitDescription exactly(WaitDescription wait) const;

  TcpTransport& transport_;
  const std::uint32_t number_;
  const Group group_;
  const Lines lines_;
  const int own_;
  mutable Monitor monitor_;
  std::vector<PeerQueue> peer_queues_;      ///< by member; guarded by monitor_
  bool abandoned_ = false;                  ///< guarded by monitor_
  std::vector<std::int32_t> first_awaits_;  ///< guarded by monitor_
};

}  // namespace echelon::tcp
