// Checkpoints: the state of a run in coordinates of the whole model, from which a run with another
// split can resume; on the disk either complete or absent.
//
//   DIRECTORY/step_1200/weights.safetensors     whole tensors by the names of model/parameters.hpp
//                       master.safetensors      if masters are kept in addition to weights
//                       exp_avg.safetensors     Adam's first moment
//                       exp_avg_sq.safetensors  and second
//                       manifest.json           written last
//
// All members of a run write their parts into the same files in step_1200.tmp. The folder is
// renamed to step_1200 only when it is complete and on the disk.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/result.hpp"
#include "core/model/model.hpp"
#include "runtime/io/weights/checkpoint_group.hpp"
#include "runtime/io/weights/disk.hpp"
#include "runtime/io/weights/retention.hpp"
#include "runtime/io/weights/safetensors.hpp"
#include "runtime/io/weights/tensors.hpp"

namespace echelon {

/// Element type of each file; without `master` there is no such file.
struct StateFormat {
  Element weight = Element::f32;
  std::optional<Element> master;
  Element moment = Element::f32;
  bool operator==(const StateFormat&) const = default;
};

/// Identity of the run of a checkpoint.
struct RunIdentity {
  ModelSpec model;        ///< with its constants: the state means nothing without them
  std::string plan;       ///< in words, for messages: "tp 2, pp 2, dp 4, ZeRO 1"
  std::string plan_hash;  ///< of the plan file
  std::string data;       ///< what is read: path or "synthetic"
  std::optional<Adapters> adapters = {};  ///< which alone have optimizer states; none: all have
  double lora_alpha = 0;                  ///< α of adapters, of which they mean nothing without it
};

/// Learning-rate schedule of the run, with lengths in samples, so that a run with another global
/// batch can go on in it.
struct RateSchedule {
  double peak = 0;
  double min = 0;
  std::int64_t warmup_samples = 0;
  std::int64_t decay_samples = 0;   ///< where the rate reaches `min`
  std::int64_t warmup_steps = 0;    ///< as the user asked for
  std::int64_t lr_decay_steps = 0;  ///< as the user asked for; 0: the last step
  bool operator==(const RateSchedule&) const = default;
};

/// Progress of the run. A run that resumes from these values and the state computes the same bits.
struct Progress {
  std::int64_t step = 0;     ///< steps done
  std::int64_t samples = 0;  ///< read so far: the number of the next one (data/samples.hpp)
  std::int64_t tokens = 0;
  std::int64_t skipped = 0;          ///< steps whose gradients were not finite
  std::uint64_t seed = 0;            ///< key of all random numbers and of the data's order
  std::vector<double> losses;        ///< of the last steps, to detect a spike
  std::int64_t global_batch = 0;     ///< samples of a step; 0: unknown, before version 3
  std::optional<RateSchedule> rate;  ///< absent before version 3
  bool operator==(const Progress&) const = default;
};

struct CheckpointContents {
  RunIdentity run;
  StateFormat format;
  Progress progress;
};

/// Every member calls it with the same contents and its own spans. Each element of each tensor is
/// in exactly one span of all members together, except those of parameters that are not `counted`,
/// which are skipped. Then removes those that `keep` does not name. Errors, the same for all
/// members: a full disk (with the needed and the free bytes), disk errors, elements written by no
/// member or by two. After an error the earlier checkpoints are unchanged.
[[nodiscard]] Status write_checkpoint(const std::string& directory,
                                      const CheckpointContents& contents,
                                      std::span<const StateSpan> spans,
                                      const CheckpointGroup& group, const KeepPolicy& keep,
                                      const Disk& disk = Disk());
/// Bytes of the files of one checkpoint.
[[nodiscard]] std::int64_t checkpoint_bytes(const ModelSpec& model, const StateFormat& format,
                                            const std::optional<Adapters>& adapters = {});

struct FoundCheckpoint {
  std::string path;
  CheckpointContents contents;
  /// For the user: newer checkpoints that are damaged, with reasons; another plan, other data.
  std::vector<std::string> notes;
  std::int64_t bytes_hashed = 0;  ///< by this member, in all checkpoints that it has checked
};
/// The newest complete checkpoint; nothing if there is none at all. Every member calls it and gets
/// the same: the leader names a checkpoint by its step and the hash of its manifest, every member
/// checks that it sees the same one, and each hashes its share of the files. Errors: all are
/// damaged; the newest complete one is of another model (the first difference is reported), of
/// another number format, or of a newer version; a member sees another checkpoint than the leader.
[[nodiscard]] Result<std::optional<FoundCheckpoint>> find_checkpoint(
    const std::string& directory, const RunIdentity& run, const StateFormat& format,
    const CheckpointGroup& group = {});
/// The manifest of a checkpoint that find_checkpoint has found.
[[nodiscard]] Result<CheckpointContents> read_contents(const std::string& path);

/// The open files of a checkpoint.
class CheckpointReader {
 public:
  [[nodiscard]] static Result<CheckpointReader> open(const std::string& path,
                                                     const StateFormat& format);
  /// Fills the spans, whatever the split of the run that wrote; padding of the vocabulary becomes
  /// 0. Errors: a tensor that is missing, has another shape or another type than the format's.
  [[nodiscard]] Status read(std::span<const StateSpan> spans) const;
  [[nodiscard]] std::int64_t bytes_read() const;

 private:
  explicit CheckpointReader(const StateFormat& format) : format_(format) {}
  StateFormat format_;
  std::map<StateKind, SafetensorsFile> files_;
};

}  // namespace echelon
