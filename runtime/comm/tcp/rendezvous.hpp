// Rendezvous of the processes of a run: all connect to rank 0, identify themselves and receive the
// addresses of the others; then those connect that exchange data. Whoever accepts a connection
// sends a random challenge, and requests and replies are signed with the run's token.
#pragma once

#include <atomic>
#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "core/base/result.hpp"
#include "core/base/units.hpp"
#include "runtime/comm/tcp/socket.hpp"

namespace echelon::tcp {

/// Identity of this process, and what all processes of a run have in common.
struct Rendezvous {
  int rank = 0;
  int size = 1;
  std::vector<int> data_peers;  ///< ranks to connect to besides rank 0, ascending; mutual
  std::string address;          ///< where rank 0 listens
  int port = 0;
  std::string run;       ///< as the launcher names it; may be empty
  std::string plan;      ///< text of the plan; processes with another one are refused
  std::string settings;  ///< text of the settings, likewise
  std::string token;     ///< processes without it are strangers; empty: nobody is
  Seconds limit{300};    ///< to wait for the others
  const volatile std::sig_atomic_t* interrupted = nullptr;
  std::shared_ptr<std::atomic<bool>> corrupt;  ///< TcpTransport::corrupt_when
};

struct Connected {
  std::vector<Socket> peers;  ///< by rank; empty for the own one and those not connected
  int on_this_machine = 1;    ///< processes, this one among them
};

/// Called by all processes; returns when each is connected to rank 0 and its data peers.
/// Environment errors: the port is taken, no process listens, not all processes joined in time
/// (with the missing ones and rejected ones); input errors: this process or another one of the run
/// has a different plan, different settings, a different number of processes or a rank already
/// taken.
[[nodiscard]] Result<Connected> join_run(const Rendezvous& rendezvous);

}  // namespace echelon::tcp
