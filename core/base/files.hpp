// Whole files in and out, with every failure reported.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/result.hpp"

namespace echelon {

/// The whole file, at most `limit` bytes (an input error when longer, told from its size). An
/// environment error when it cannot be read: missing, a directory, no permission.
[[nodiscard]] Result<std::string> read_file(const std::string& path, std::int64_t limit);

/// Writes beside the target and renames, so that a full disk or a crash leaves no half file and the
/// old content intact. Symbolic links are followed; devices, pipes and standard output are written
/// to directly. Environment error says why (permission, no space, no such directory).
[[nodiscard]] Status write_file(const std::string& path, std::string_view content);

/// Whether write_file would be let write there now; nothing is left behind.
[[nodiscard]] Status check_writable(const std::string& path);
/// The same for a folder that is to be made, with all folders above it that are missing.
[[nodiscard]] Status check_folder_writable(const std::string& path);

/// An errno in words: "no space left on the device".
[[nodiscard]] std::string reason_of(int code);

}  // namespace echelon
