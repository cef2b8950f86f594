// Files that hold text in a way this program does not read, and that must not be taken for text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/result.hpp"

namespace echelon {

/// Bytes of a file's beginning that `check_is_text` wants, as far as the file has them.
inline constexpr std::int64_t kBeginning = std::int64_t{64} << 10;

/// Input error: by its first bytes the file at `path` is JSON, JSON lines or one of the binary
/// formats that data sets come in. Everything else may be text.
[[nodiscard]] Status check_is_text(const std::string& path, std::string_view beginning);

}  // namespace echelon
