// CheckpointWriter: one member's part of a checkpoint, phase by phase.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "runtime/io/weights/checkpoint.hpp"
#include "runtime/io/weights/checkpoint_layout.hpp"

namespace echelon {

/// Phases are separated by an agreement of all members that none failed; the caller makes it, so
/// phases can run in the background. References must outlive the writer.
class CheckpointWriter {
 public:
  CheckpointWriter(const std::string& directory, const CheckpointContents& contents,
                   std::span<const StateSpan> spans, const CheckpointGroup& group,
                   const KeepPolicy& keep, const Disk& disk);

  static constexpr int kPhases = 4;
  /// Whether only the leader has something to do.
  [[nodiscard]] static bool of_leader(int phase) { return phase == 0 || phase + 1 == kPhases; }
  /// This member's part of phase 0, 1 ...; does not communicate.
  [[nodiscard]] Status carry_out(int phase);
  /// After an error of any member: removes what was written. Else the next checkpoint does.
  void abandon() const;

 private:
  [[nodiscard]] std::string inside(std::string_view name) const;
  [[nodiscard]] std::string report_of(int member) const;
  Status sweep();
  Status lay_out();
  Status write_new(const std::string& path, std::string_view content, std::int64_t bytes);
  Status write_parts();
  Status write_file_parts(const StateFile& file, MemberReport::File& report);
  Status write_span(const StateSpan& span, const StateFile& file, const TensorEntry& tensor,
                    const Disk::File& out, std::int64_t& written);
  Status look_at_pieces();
  Result<MemberReport> gather();
  Status complete();
  Status retire();

  const std::string& directory_;
  const CheckpointContents& contents_;
  std::span<const StateSpan> spans_;
  const CheckpointGroup& group_;
  KeepPolicy keep_;
  const Disk& disk_;
  std::vector<StateFile> files_;
  std::string target_;
  std::string aside_;
  std::vector<std::byte> host_;  ///< a span, where the group reads
  MemberReport report_;
};

}  // namespace echelon
