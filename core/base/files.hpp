// Whole files in and out, with every failure reported.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/result.hpp"

namespace echelon {

/// Reads the whole file. Input error if it is longer than `limit` bytes (known from its size,
/// before reading); environment error if it cannot be read: missing, a directory, no permission.
[[nodiscard]] Result<std::string> read_file(const std::string& path, std::int64_t limit);

/// Writes a temporary file next to the target and renames it, so that a full disk or a crash leaves
/// the old content intact and no partial file. Symbolic links are followed; devices, pipes and
/// standard output are written directly. The environment error gives the reason (permission, no
/// space, no such directory).
[[nodiscard]] Status write_file(const std::string& path, std::string_view content);

/// Checks whether write_file could write there now; leaves nothing behind.
[[nodiscard]] Status check_writable(const std::string& path);
/// Checks the same for a folder that will be created together with its missing parents.
[[nodiscard]] Status check_folder_writable(const std::string& path);

/// The text of an errno value: "no space left on the device".
[[nodiscard]] std::string reason_of(int code);

}  // namespace echelon
