// Files with text in formats that this program does not read; they must not be taken for plain
// text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/result.hpp"

namespace echelon {

/// Number of first bytes that `check_is_text` needs, as far as the file has them.
inline constexpr std::int64_t kBeginning = std::int64_t{64} << 10;

/// Input error: by its first bytes the file at `path` is JSON, JSON lines or one of the usual
/// binary formats of data sets. Everything else may be text.
[[nodiscard]] Status check_is_text(const std::string& path, std::string_view beginning);

}  // namespace echelon
