// AsyncCheckpoint: a checkpoint that is written from a copy while the run goes on.
#pragma once

#include <cstddef>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/units.hpp"
#include "runtime/io/weights/checkpoint_writer.hpp"

namespace echelon {

/// One member's end. At most one checkpoint is in flight, and there is one copy of the spans, which
/// is allocated once. A phase runs in the background; members meet between phases, after steps of
/// the run, so that nothing communicates in the background.
/// Source of the scheme: Mohan et al., "CheckFreq", FAST 2021, section 4.1 (snapshot and persist).
class AsyncCheckpoint {
 public:
  /// `disk` must outlive it. Allocates the copy of `spans`; they have the same sizes every time.
  AsyncCheckpoint(std::string directory, KeepPolicy keep, const Disk& disk, int member, int members,
                  std::span<const StateSpan> spans, const StateFormat& format);
  /// Waits for the phase that is running.
  ~AsyncCheckpoint() = default;
  AsyncCheckpoint(const AsyncCheckpoint&) = delete;
  AsyncCheckpoint& operator=(const AsyncCheckpoint&) = delete;

  [[nodiscard]] Bytes copy() const { return Bytes{static_cast<double>(copy_.size())}; }
  [[nodiscard]] bool in_flight() const { return writer_ != nullptr; }
  /// Of the checkpoint in flight.
  [[nodiscard]] std::int64_t step() const { return contents_.progress.step; }
  /// Copies the spans and starts to write; nothing is in flight. `read` as in CheckpointGroup.
  void start(const CheckpointContents& contents, std::span<const StateSpan> spans,
             const decltype(CheckpointGroup::read)& read);
  /// Every member calls it at the same time, with something in flight. Starts the next phase if
  /// all members are done with this one; `wait`: until all phases are over. An error ends it.
  [[nodiscard]] Status advance(const decltype(CheckpointGroup::exchange)& exchange, bool wait);

 private:
  void launch();

  std::string directory_;
  KeepPolicy keep_;
  const Disk& disk_;
  CheckpointGroup group_;
  CheckpointContents contents_;
  std::vector<std::byte> copy_;
  std::vector<StateSpan> copied_;
  std::unique_ptr<CheckpointWriter> writer_;
  int phase_ = 0;
  std::optional<Status> done_;   ///< result of the phase, when it is over
  std::future<Status> running_;  ///< destroyed first, which waits
};

}  // namespace echelon
