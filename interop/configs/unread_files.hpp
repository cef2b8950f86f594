// Files that look like a configuration and are none of a training framework.
#pragma once

#include <optional>

#include "core/base/result.hpp"
#include "interop/configs/document.hpp"

namespace echelon {

/// Why the file is not read, with what takes its place; nothing of any other file.
[[nodiscard]] std::optional<Error> refuse_unread(const ConfigDocument& document);

}  // namespace echelon
