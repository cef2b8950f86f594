// Watchdog: knows at any time which rank of the run, in whichever process, holds up the others.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "core/run/rank_status.hpp"
#include "runtime/threads/run_threads.hpp"

namespace echelon {

/// A sign of life: the state of a rank, or the suspect of rank 0.
struct StatusMessage {
  enum class Kind : std::int32_t { progress, suspect, nobody };
  Kind kind = Kind::nobody;
  std::int32_t rank = 0;
  std::int32_t state = 0;  ///< RankProgress::State, or Suspect::Why
  std::int32_t missing_count = 0;
  std::uint64_t order = 0;
  double seconds = 0;
  std::array<std::int32_t, 8> missing{};  ///< the first of them
  std::array<char, 320> text{};           ///< ends in 0
};
static_assert(std::is_trivially_copyable_v<StatusMessage> && sizeof(StatusMessage) == 384);

/// Carries these messages between rank 0 and each other process: a star.
class StatusLink {
 public:
  virtual ~StatusLink() = default;
  /// Never waits.
  virtual void send(int to, const StatusMessage& message) = 0;
  /// The next one that has arrived, if any; `from`: whose process sent it.
  virtual std::optional<StatusMessage> receive(int& from) = 0;
};

/// A thread that sends and collects signs of life while the run's threads work, independent of
/// their communicators. It names the suspect in the message of a hang (RunThreads::set_accuser) and
/// ends the run itself when an instruction of this process takes twice the timeout: nobody may be
/// waiting for a rank that is alone.
class Watchdog {
 public:
  /// `link`: null if all ranks are local. `own`: the first local rank. The timeout is that of the
  /// run's waits, and is raised with theirs. Destroyed before the link, when no member runs.
  Watchdog(RunThreads& run_threads, int own, int ranks, StatusLink* link, Seconds timeout);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// "" if nobody has shown to be guilty.
  [[nodiscard]] std::string verdict();

 private:
  struct Heard {
    RankProgress progress;
    Seconds at;
  };
  void watch();
  void round();
  void receive();
  [[nodiscard]] std::optional<Suspect> suspect(Seconds patience);
  [[nodiscard]] Seconds timeout() const;
  void end_long_work(const std::vector<RankProgress>& local);

  RunThreads& run_threads_;
  const int own_;
  const int ranks_;
  StatusLink* link_;
  const Seconds timeout_;
  const Seconds interval_;
  std::mutex mutex_;  ///< guards what follows
  std::map<int, Heard> heard_;
  std::optional<Suspect> reported_;  ///< by rank 0
  bool over_ = false;
  std::condition_variable end_;
  std::jthread thread_;
};

}  // namespace echelon
