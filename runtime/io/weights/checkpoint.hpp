// Checkpoints: the state of a run in coordinates of the whole model, so that a run of another split
// can go on with it; on the disk complete or not at all.
//
//   DIRECTORY/step_1200/weights.safetensors     whole tensors by the names of model/parameters.hpp
//                       master.safetensors      where masters are kept beside the weights
//                       exp_avg.safetensors     Adam's first moment
//                       exp_avg_sq.safetensors  and second
//                       manifest.json           written last
//
// All members of a run write their parts into the same files in step_1200.tmp. What carries the
// name step_1200 was complete and on the disk before it got it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/result.hpp"
#include "core/model/model.hpp"
#include "runtime/io/weights/disk.hpp"
#include "runtime/io/weights/tensors.hpp"

namespace echelon {

/// Element of each file; without `master` there is none.
struct StateFormat {
  Element weight = Element::f32;
  std::optional<Element> master;
  Element moment = Element::f32;
  bool operator==(const StateFormat&) const = default;
};

/// Whose checkpoint it is.
struct RunIdentity {
  ModelSpec model;        ///< with its constants: the state means nothing without them
  std::string plan;       ///< in words, for messages: "tp 2, pp 2, dp 4, ZeRO 1"
  std::string plan_hash;  ///< of the plan file
  std::string data;       ///< what is read: path or "synthetic"
};

/// How far it came. A run that goes on from these and the state computes the same bits.
struct Progress {
  std::int64_t step = 0;     ///< steps done
  std::int64_t samples = 0;  ///< read so far: the number of the next one (data/samples.hpp)
  std::int64_t tokens = 0;
  std::int64_t skipped = 0;    ///< steps whose gradients were not finite
  std::uint64_t seed = 0;      ///< key of all random numbers and of the data's order
  std::vector<double> losses;  ///< of the last steps, for telling a spike
  bool operator==(const Progress&) const = default;
};

struct CheckpointContents {
  RunIdentity run;
  StateFormat format;
  Progress progress;
};

/// Those who write together: threads, processes, or one alone.
struct CheckpointGroup {
  int member = 0;
  int members = 1;
  /// Returns when every member has called it: whether all said true. It orders what they did before
  /// and after it.
  std::function<bool(bool)> agree = [](bool fine) { return fine; };
  /// Copies from where the spans' data is, where that is no host memory.
  std::function<void(const void* from, void* host, std::int64_t bytes)> read = {};
};

/// Every member calls it with the same contents and its own spans. Each element of each tensor is
/// in exactly one span of all members together, but those of parameters that are not `counted`,
/// which are passed over. Keeps the `keep` (≥ 1) newest checkpoints and removes older ones.
/// Errors: a full disk (with the needed and the free bytes), the disk's, elements nobody or two
/// wrote. After an error the earlier checkpoints are what they were; members that did not fail
/// themselves say that another did.
[[nodiscard]] Status write_checkpoint(const std::string& directory,
                                      const CheckpointContents& contents,
                                      std::span<const StateSpan> spans,
                                      const CheckpointGroup& group, int keep,
                                      const Disk& disk = Disk());

struct FoundCheckpoint {
  std::string path;
  CheckpointContents contents;
  /// For the user: newer ones that are damaged, and why; another plan, other data.
  std::vector<std::string> notes;
};
/// The newest whole checkpoint; nothing when there is none at all. Reads and hashes all its files:
/// one member calls it and tells the others. Errors: all are damaged; the newest whole one is of
/// another model (the first difference is told).
[[nodiscard]] Result<std::optional<FoundCheckpoint>> find_checkpoint(const std::string& directory,
                                                                     const RunIdentity& run);
/// The manifest of a checkpoint that find_checkpoint has found.
[[nodiscard]] Result<CheckpointContents> read_contents(const std::string& path);
/// Fills the spans, whatever the split of the run that wrote; padding of the vocabulary becomes 0.
/// Errors: a tensor that is missing, has another shape or, with `format`, another type.
[[nodiscard]] Status read_checkpoint(const std::string& path, const StateFormat& format,
                                     std::span<const StateSpan> spans);

}  // namespace echelon
