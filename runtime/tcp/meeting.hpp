// How the processes of a run find each other: all come to rank 0, say who they are, and are told
// where the others are; then each pair is connected.
#pragma once

#include <csignal>
#include <string>
#include <vector>

#include "core/base/result.hpp"
#include "core/base/units.hpp"
#include "runtime/tcp/socket.hpp"

namespace echelon::tcp {

/// Who somebody is, and what all processes of a run have in common.
struct Meeting {
  int rank = 0;
  int size = 1;
  std::string address;  ///< where rank 0 listens
  int port = 0;
  std::string run;       ///< as the launcher names it; may be empty
  std::string plan;      ///< text of what is executed; processes with another are refused
  std::string settings;  ///< text of how, the same
  Seconds limit{300};    ///< to wait for the others
  const volatile std::sig_atomic_t* interrupted = nullptr;
};

struct Connected {
  std::vector<Socket> peers;  ///< by rank; one's own is none
  int on_this_machine = 1;    ///< processes, this one among them
};

/// Called by all processes; returns when everybody is connected to everybody. Environment errors:
/// the port is taken, nobody listens, not all came in time (which are missing, and who else came);
/// input errors: this process or another one of the run has another plan, other settings, another
/// number of processes, or somebody's rank.
[[nodiscard]] Result<Connected> meet(const Meeting& meeting);

}  // namespace echelon::tcp
