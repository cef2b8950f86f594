// FlightRecorder: keeps what the queues of a rank do in a mapped file, which the kernel writes even
// if the process is killed.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "core/run/flight_record.hpp"
#include "runtime/threads/failure.hpp"
#include "runtime/threads/run_threads.hpp"

namespace echelon {

class FlightRecorder {
 public:
  /// Replaces the file of an earlier run. Error: it cannot be created.
  static Result<FlightRecorder> open(const std::string& folder, int rank, int ranks);
  FlightRecorder(FlightRecorder&& other) noexcept;
  FlightRecorder& operator=(FlightRecorder&&) = delete;
  ~FlightRecorder();

  /// Called by all queues' threads.
  void record(const std::string& queue, std::uint64_t order, const std::string& what,
              const std::vector<int>& missing);
  /// The process knows how the run ended; `failure`: null if it did not fail.
  void end(const RunFailure* failure);

 private:
  FlightRecorder(FlightHeader* header, FlightEntry* ring, std::size_t bytes)
      : header_(header), ring_(ring), bytes_(bytes) {}

  FlightHeader* header_;
  FlightEntry* ring_;
  std::size_t bytes_;
  std::mutex mutex_;
  std::uint64_t count_ = 0;
  std::map<std::string, std::size_t> queues_;  ///< places in `latest`
};

/// Those of the ranks of this process.
class FlightRecorders {
 public:
  /// Records all activities of `run_threads`, in `folder`; without one, nothing. Before they run.
  Status open(RunThreads& run_threads, const std::string& folder,
              const std::vector<int>& local_ranks, int ranks);
  void end(const RunFailure* failure);

 private:
  std::map<int, FlightRecorder> of_rank_;
};

}  // namespace echelon
