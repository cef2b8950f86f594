// manifest.json of a checkpoint, and the reports that its writers exchange.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/io/weights/checkpoint.hpp"

namespace echelon {

struct CheckpointFile {
  std::string name;
  std::int64_t bytes = 0;
  std::vector<std::string> pieces;  ///< fingerprint of every 16 MiB
};
inline constexpr std::int64_t kPieceBytes = std::int64_t{16} << 20;

struct CheckpointManifest {
  CheckpointContents contents;
  std::vector<CheckpointFile> files;
};

/// The element type of a file of this kind; none if the format has no such file.
[[nodiscard]] std::optional<Element> element_of(const StateFormat& format, StateKind kind);

/// The text ends with a fingerprint of itself, which detects any damage.
[[nodiscard]] std::string manifest_to_json(const CheckpointManifest& manifest);
/// An error if it is of a newer version than this program writes: such a checkpoint is neither
/// damaged nor read. Success for damaged text, too, which parse_manifest reports.
[[nodiscard]] Status check_manifest_version(std::string_view json, std::string_view where);
[[nodiscard]] Result<CheckpointManifest> parse_manifest(std::string_view json,
                                                        std::string_view where);

/// A member's work on one file.
struct MemberReport {
  struct File {
    std::vector<std::int64_t> written;  ///< elements, per tensor of the file
    std::vector<std::string> pieces;    ///< fingerprints; empty for pieces of other members
  };
  std::vector<File> files;
};
[[nodiscard]] std::string report_to_json(const MemberReport& report);
[[nodiscard]] Result<MemberReport> parse_report(std::string_view json, std::string_view where);

/// "", or the first difference that changes a run's results: "layers is 24, the plan's is 12".
[[nodiscard]] std::string first_difference(const ModelSpec& found, const ModelSpec& planned);

}  // namespace echelon
