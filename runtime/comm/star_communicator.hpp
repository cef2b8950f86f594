// A communicator whose messages all go to or from the first member: for small calls of all ranks.
#pragma once

#include <memory>

#include "runtime/comm/message_communicator.hpp"

namespace echelon {

/// The communicator of one member. The first member collects headers and data, adds the data in
/// member order, so the bits are those of every other communicator, and sends the result to all:
/// two messages per member and call, and one connection per member. A send or receive has the first
/// member on one side. `messages` need not gather.
[[nodiscard]] std::unique_ptr<Communicator> star_communicator(const Group& group, int member,
                                                              std::unique_ptr<Messages> messages);

}  // namespace echelon
