// The watchdogs' messages between MPI processes.
#pragma once

#include <deque>
#include <map>

#include "runtime/comm/mpi/mpi_calls.hpp"
#include "runtime/threads/watchdog.hpp"

namespace echelon::mpi {

/// Used by one thread at a time. A message to a process that has not taken the one before last is
/// dropped.
class MpiStatusLink final : public StatusLink {
 public:
  /// A collective of all processes.
  explicit MpiStatusLink(RunThreads& run_threads);
  ~MpiStatusLink() override;
  MpiStatusLink(const MpiStatusLink&) = delete;
  MpiStatusLink& operator=(const MpiStatusLink&) = delete;

  void send(int to, const StatusMessage& message) override;
  std::optional<StatusMessage> receive(int& from) override;

 private:
  struct UnderWay {
    StatusMessage message;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  static constexpr std::size_t kMostUnderWay = 4;  ///< to one process

  RunThreads& run_threads_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  std::map<int, std::deque<UnderWay>> under_way_;  ///< by receiver
};

}  // namespace echelon::mpi
