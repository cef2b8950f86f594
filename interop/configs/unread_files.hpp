// Files that look like a configuration and are none of a training framework, and settings of one
// with which the run is none that is priced.
#pragma once

#include <optional>

#include "core/base/result.hpp"
#include "interop/configs/format.hpp"

namespace echelon {

/// Why the file is not read, with what takes its place; nothing of any other file.
[[nodiscard]] std::optional<Error> refuse_unread(const ConfigDocument& document);

/// The first setting that the format refuses, with what it does.
[[nodiscard]] Status check_refused(const ConfigFormat& format, const ConfigDocument& document);

}  // namespace echelon
