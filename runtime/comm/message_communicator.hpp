// A communicator built from messages: one implementation for MPI, sockets and any other byte
// transport between processes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/comm/call.hpp"
#include "runtime/comm/communicator.hpp"
#include "runtime/threads/run_threads.hpp"

namespace echelon {

/// Carries the messages of one queue between the members of one group. Between two members messages
/// arrive in the order in which they were started, and both sides start the same ones.
class Messages {
 public:
  virtual ~Messages() = default;
  /// Start a transfer; the memory must remain valid until wait() returns.
  virtual void send(const void* data, std::int64_t bytes, int to) = 0;
  virtual void receive(void* data, std::int64_t bytes, int from) = 0;
  /// Starts to gather a block of `bytes` from each member; this member's block is already in place.
  virtual void gather(std::byte* blocks, std::int64_t bytes) = 0;
  /// Waits until all started transfers are complete. Throws when the run stops or its deadline
  /// passes. `waiting` names the ranks that may be missing; an implementation that knows them more
  /// exactly says so.
  virtual void wait(const DescribeWait& waiting) = 0;
  /// No started transfer uses memory any more, also after wait() threw.
  [[nodiscard]] virtual bool idle() const = 0;
};

/// The communicator of one member.
[[nodiscard]] std::unique_ptr<Communicator> message_communicator(
    const Group& group, int member, std::unique_ptr<Messages> messages);

}  // namespace echelon
