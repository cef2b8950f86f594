// RunHistory: the starts of a training, in a file next to its checkpoints.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/run/run_goodput.hpp"
#include "core/run/run_report.hpp"

namespace echelon {

/// Of rank 0's process. What cannot be written is left out: a run does not end for its statistics.
class RunHistory {
 public:
  static constexpr const char* kFile = "starts.json";
  /// Starts that are remembered.
  static constexpr std::size_t kMost = 1000;

  /// An empty folder: nothing is kept. The process begins now.
  explicit RunHistory(std::string folder);

  /// The first step begins. The starts before this one are read; a file that is none is replaced,
  /// and the note names it.
  [[nodiscard]] std::string begin();
  /// A sign of life, after a step: in the file's time, at most once a second.
  void alive();
  /// A checkpoint of `bytes` became complete after `write`.
  void wrote(Bytes bytes, Seconds write);
  /// No rank computed for so long, because of a checkpoint.
  void stalled(Seconds time) { stall_ += time; }
  /// The end, `how` as in RunStart. What was measured.
  [[nodiscard]] MeasuredGoodput end(const std::string& how);

 private:
  void keep() const;
  [[nodiscard]] std::string path() const { return folder_ + "/" + kFile; }

  std::string folder_;
  std::vector<RunStart> starts_;  ///< this one last
  bool begun_ = false;
  std::int64_t checkpoints_ = 0;
  Bytes checkpoint_;
  Seconds write_;
  Seconds stall_;
};

}  // namespace echelon
