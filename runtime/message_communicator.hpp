// A communicator made of messages: one implementation for MPI, sockets and whatever else carries
// bytes between processes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "runtime/call.hpp"
#include "runtime/communicator.hpp"

namespace echelon {

/// Carries the messages of one queue between the members of one group. Between two members they
/// arrive in the order in which they were begun, and both sides begin the same ones.
class Messages {
 public:
  virtual ~Messages() = default;
  /// Begin; what they point at stays where it is until wait() is over.
  virtual void send(const void* data, std::int64_t bytes, int to) = 0;
  virtual void receive(void* data, std::int64_t bytes, int from) = 0;
  /// Begins to gather a block of `bytes` from each member; one's own is there, at its place.
  virtual void gather(std::byte* blocks, std::int64_t bytes) = 0;
  /// Until all that was begun is over. Throws when the crew ends or its deadline passes.
  virtual void wait(const std::function<std::string()>& waiting) = 0;
  /// Nothing that was begun uses memory any more, also after wait() threw.
  [[nodiscard]] virtual bool idle() const = 0;
};

/// The end of a member.
[[nodiscard]] std::unique_ptr<Communicator> message_communicator(
    const Group& group, int member, std::unique_ptr<Messages> messages);

}  // namespace echelon
